BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0006');
CREATE TABLE annotations (
	pk INTEGER NOT NULL, 
	target TEXT NOT NULL, 
	target_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	source TEXT NOT NULL, 
	dtype TEXT NOT NULL, 
	shape TEXT NOT NULL, 
	data BLOB NOT NULL, 
	per_token INTEGER NOT NULL, 
	of_trajectory TEXT, 
	created_at FLOAT NOT NULL, 
	PRIMARY KEY (pk), 
	UNIQUE (target, target_id, name)
);
CREATE TABLE awaited (
	target TEXT NOT NULL, 
	target_id TEXT NOT NULL, 
	since FLOAT NOT NULL, 
	PRIMARY KEY (target, target_id)
);
CREATE TABLE backlog (
	consumer TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	channel TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	row_pk INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	rank FLOAT NOT NULL, 
	shuffle INTEGER NOT NULL, 
	mark INTEGER NOT NULL, 
	PRIMARY KEY (consumer, unit, channel, "key")
);
INSERT INTO "backlog" VALUES('trainer','trajectory','train','rollout-2',3,6,0.0,1255933731,1);
INSERT INTO "backlog" VALUES('others','trajectory','train','rollout-1',2,4,0.0,315104455,2);
INSERT INTO "backlog" VALUES('others','trajectory','train','rollout-2',3,6,0.0,1255933731,2);
INSERT INTO "backlog" VALUES('others','trajectory','train','rollout-0',1,2,0.0,234058108,3);
CREATE TABLE batch_units (
	batch INTEGER NOT NULL, 
	"key" TEXT NOT NULL, row_pk INTEGER, place INTEGER, rank FLOAT, rewards TEXT, 
	PRIMARY KEY (batch, "key"), 
	FOREIGN KEY(batch) REFERENCES batches (pk)
);
INSERT INTO "batch_units" VALUES(1,'rollout-0',1,2,0.0,'{"rollout-0":{"reward":1.0}}');
INSERT INTO "batch_units" VALUES(2,'rollout-1',2,4,0.0,'{"rollout-1":{"reward":0.0}}');
INSERT INTO "batch_units" VALUES(3,'rollout-0',1,2,0.0,'{"rollout-0":{"reward":1.0}}');
CREATE TABLE batches (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	batch_id TEXT NOT NULL, 
	consumer TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	method TEXT NOT NULL, 
	epoch INTEGER NOT NULL, 
	deadline FLOAT NOT NULL, 
	state TEXT NOT NULL, channel TEXT, spec TEXT, created_at FLOAT, ended_at FLOAT, 
	FOREIGN KEY(consumer) REFERENCES consumers (name), 
	UNIQUE (batch_id)
);
INSERT INTO "batches" VALUES(1,'bat_01m8ma83hpa9yccy5429xpp69x','trainer','trajectory','reinforce',1,1700604805.5,'acked','train','{"method":"reinforce","unit":"trajectory","size":1,"min_size":1,"lease_seconds":604800.0}',1700000005.5,1700000005.75);
INSERT INTO "batches" VALUES(2,'bat_01m8ma83jdfwfdvkq6dwgme8rg','trainer','trajectory','reinforce',2,1700604806.0,'leased','train','{"method":"reinforce","unit":"trajectory","size":1,"min_size":1,"lease_seconds":604800.0}',1700000006.0,NULL);
INSERT INTO "batches" VALUES(3,'bat_01m8ma83jg0e60bdtfjcw90a55','others','trajectory','reinforce',1,1700000606.25,'released','train','{"method":"reinforce","unit":"trajectory","size":1,"min_size":1}',1700000006.25,1700000006.5);
CREATE TABLE call_marks (
	mark BLOB NOT NULL, 
	trajectory_id TEXT NOT NULL, 
	said TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	PRIMARY KEY (mark, trajectory_id)
);
CREATE TABLE consumers (
	name TEXT NOT NULL, 
	epoch INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "consumers" VALUES('trainer',2);
INSERT INTO "consumers" VALUES('others',1);
CREATE TABLE counters (
	name TEXT NOT NULL, 
	value INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "counters" VALUES('pk.annotations',0);
INSERT INTO "counters" VALUES('pk.batches',3);
INSERT INTO "counters" VALUES('pk.dead_letters',1);
INSERT INTO "counters" VALUES('pk.events',38);
INSERT INTO "counters" VALUES('pk.exchanges',0);
INSERT INTO "counters" VALUES('pk.feedback',1);
INSERT INTO "counters" VALUES('pk.groups',1);
INSERT INTO "counters" VALUES('pk.media',0);
INSERT INTO "counters" VALUES('pk.message_nodes',12);
INSERT INTO "counters" VALUES('pk.rewards',5);
INSERT INTO "counters" VALUES('pk.steps',10);
INSERT INTO "counters" VALUES('pk.token_blocks',1);
INSERT INTO "counters" VALUES('pk.tombstones',0);
INSERT INTO "counters" VALUES('pk.tool_sets',1);
INSERT INTO "counters" VALUES('pk.trajectories',7);
INSERT INTO "counters" VALUES('pk.ready_seq',7);
INSERT INTO "counters" VALUES('tool_sets',1);
INSERT INTO "counters" VALUES('tokens_sampled',18);
INSERT INTO "counters" VALUES('pk.transactions',45);
INSERT INTO "counters" VALUES('groups.open',1);
INSERT INTO "counters" VALUES('trajectories.open',3);
INSERT INTO "counters" VALUES('readiness.open',3);
INSERT INTO "counters" VALUES('channels.trajectories.train',6);
INSERT INTO "counters" VALUES('blocks',1);
INSERT INTO "counters" VALUES('message_nodes',12);
INSERT INTO "counters" VALUES('steps',10);
INSERT INTO "counters" VALUES('tokens_flat',948);
INSERT INTO "counters" VALUES('tokens_in_tails',180);
INSERT INTO "counters" VALUES('channels.steps.train',9);
INSERT INTO "counters" VALUES('trajectories.finished',4);
INSERT INTO "counters" VALUES('readiness.complete',0);
INSERT INTO "counters" VALUES('rewards',5);
INSERT INTO "counters" VALUES('readiness.ready',4);
INSERT INTO "counters" VALUES('channels.trajectories.val',1);
INSERT INTO "counters" VALUES('channels.steps.val',1);
INSERT INTO "counters" VALUES('dead_letters',1);
INSERT INTO "counters" VALUES('pk.backlog',3);
INSERT INTO "counters" VALUES('backlog.trainer',1);
INSERT INTO "counters" VALUES('batches.leased',1);
INSERT INTO "counters" VALUES('deliveries.leased.trainer',1);
INSERT INTO "counters" VALUES('deliveries.acknowledged.trainer',1);
INSERT INTO "counters" VALUES('batches.acked',1);
INSERT INTO "counters" VALUES('backlog.others',3);
INSERT INTO "counters" VALUES('deliveries.leased.others',0);
INSERT INTO "counters" VALUES('batches.released',1);
INSERT INTO "counters" VALUES('pk.keys',1);
INSERT INTO "counters" VALUES('gateway.paused',0);
INSERT INTO "counters" VALUES('gateway.pauses',1);
INSERT INTO "counters" VALUES('pk.curation_policies',1);
INSERT INTO "counters" VALUES('curation.active',1);
INSERT INTO "counters" VALUES('pk.decisions',1);
INSERT INTO "counters" VALUES('feedback.comment',1);
INSERT INTO "counters" VALUES('pk.evaluations',1);
INSERT INTO "counters" VALUES('pk.reviews',1);
INSERT INTO "counters" VALUES('pk.datasets',1);
CREATE TABLE curation_policies (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	channel TEXT NOT NULL, 
	version TEXT NOT NULL, 
	policy TEXT NOT NULL, 
	source TEXT NOT NULL, 
	created_at FLOAT NOT NULL, 
	ended_at FLOAT, 
	swept INTEGER
);
INSERT INTO "curation_policies" VALUES(1,'other','8c8c99bcf3dc5f01','{"rules":["when reward < 0 then exclude \"bad\""],"name":"policy","channel":"other","default":"ready"}','api',1700000500.0,NULL,NULL);
CREATE TABLE dataset_rows (
	dataset INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	trajectory_id TEXT NOT NULL, 
	split TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	record BLOB NOT NULL, 
	put_at FLOAT NOT NULL, 
	compared INTEGER, 
	PRIMARY KEY (dataset, position), 
	FOREIGN KEY(dataset) REFERENCES datasets (pk)
);
INSERT INTO "dataset_rows" VALUES(1,0,'frozen','train',X'00000000000000000000000000000064',X'28B52FFD60B7019D0800320F2D2060679C03D053D05FAC35C9A887805E7697CECB25C9C276666DB584294190C203F1884991B5AD0BDB3DD6E8F3ABA0F398119447584CF9E9342D58461D5C44BFA3D61C77E5ED96619E7A7E39B62C4A93B5AB1C051429DF8803DBC4518C774E13B7CB058022C16D769A3A7ADE60176461EDA3C330508CC75352CB19B821DFDA26DA8E622A8CFC93E70535B130257E0C796EB6F9E80581F47CF31ED83ABADB830795E717430CE06BB5040AFB28E5DD63CDF8357F0224204042A598D50DCA05E350B028C64B23F507874D02A09093D06080E6753052840905B41D0E02B7164A67DD2B685AE9E01C0426B8C7B863ECE67C02B0C488A7FD4362D81400B88574166980F38A737C5D6F0410194E505D4AEE0B05',1700000500.0,NULL);
CREATE TABLE datasets (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name TEXT NOT NULL, 
	digest TEXT, 
	manifest TEXT, 
	frozen INTEGER, 
	began_at FLOAT NOT NULL, 
	UNIQUE (name, digest)
);
INSERT INTO "datasets" VALUES(1,'math','00000000000000000000000000000001','{"version":"math@00000000000000000000000000000001","name":"math","digest":"00000000000000000000000000000001","selection":{"where":"reward > 0","channel":"train","unit":"trajectory","unrewarded":false,"splits":{"fractions":{"train":1.0},"by":"task","near_duplicates":0.8,"seed":0}},"format":1,"state":"frozen","rows":1,"steps":1,"splits":{"train":{"rows":1,"steps":1,"response_tokens":0}},"policies":[],"parents":[],"code_version":"","created_at":5.0,"created_by":null,"note":"􀐀 of people","manifest_digest":"00000000000000000000000000000007"}',36,1700000500.0);
CREATE TABLE dead_letters (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	step_id TEXT NOT NULL, 
	trajectory_id TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	record TEXT NOT NULL, 
	at FLOAT NOT NULL
, kind TEXT DEFAULT 'step' NOT NULL);
INSERT INTO "dead_letters" VALUES(1,'bad','alone','token ids must be integers from 0 to 4294967295 (at response_ids)','{"step_id":"bad","trajectory_id":"alone","exchange_id":null,"choice_index":0,"group_id":null,"channel":"train","step_index":null,"parent_step_id":null,"supersedes":null,"fork_reason":null,"agent":null,"model":null,"requested_model":null,"policy":null,"version_spans":[],"dialect":null,"token_source":"none","vocabulary":null,"prompt_ids":null,"response_ids":[-1],"response_mask":null,"response_logprobs":null,"logprob_space":null,"prompt_messages":null,"tools":null,"response_message":null,"prompt_length":null,"response_length":null,"sampling":null,"finish_reason":null,"usage":null,"rewards":{},"reward":null,"labels":{},"annotations":[],"readiness":"open","excluded_reason":null,"late":false,"is_last":false,"created_at":0.0,"latency_ms":null,"metadata":{}}',1700000005.0,'step');
CREATE TABLE decisions (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	subject TEXT NOT NULL, 
	row_pk INTEGER NOT NULL, 
	"by" TEXT NOT NULL, 
	trajectory INTEGER NOT NULL, 
	verdict TEXT, 
	reason TEXT, 
	rule INTEGER, 
	policy TEXT, 
	labels TEXT, 
	said TEXT, 
	source TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	UNIQUE (subject, row_pk, "by")
);
INSERT INTO "decisions" VALUES(1,'trajectory',1,'manual',1,'ready','seen',NULL,NULL,NULL,NULL,'people',1700000500.0);
CREATE TABLE "deliveries" (
	consumer TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	channel TEXT NOT NULL, 
	state TEXT NOT NULL, 
	batch INTEGER, 
	count INTEGER NOT NULL, 
	reason TEXT, 
	PRIMARY KEY (consumer, unit, "key", channel), 
	FOREIGN KEY(consumer) REFERENCES consumers (name), 
	FOREIGN KEY(batch) REFERENCES batches (pk)
);
INSERT INTO "deliveries" VALUES('trainer','trajectory','rollout-0','train','acknowledged',1,1,NULL);
INSERT INTO "deliveries" VALUES('trainer','trajectory','rollout-1','train','leased',2,1,NULL);
INSERT INTO "deliveries" VALUES('others','trajectory','rollout-0','train','available',3,1,NULL);
CREATE TABLE evaluations (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	evaluator TEXT NOT NULL, 
	target TEXT NOT NULL, 
	target_id TEXT NOT NULL, 
	fingerprint BLOB NOT NULL, 
	content BLOB NOT NULL, 
	state TEXT NOT NULL, 
	scores TEXT, 
	details TEXT, 
	error TEXT, 
	attempts INTEGER NOT NULL, 
	seconds FLOAT, 
	at FLOAT NOT NULL, 
	UNIQUE (evaluator, target, target_id)
);
INSERT INTO "evaluations" VALUES(1,'e','step','rollout-0:0',X'66666666666666666666666666666666',X'63636363636363636363636363636363','ok','{"s":1.0}',NULL,NULL,1,NULL,1700000500.0);
CREATE TABLE events (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	kind TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	trajectory_id TEXT, 
	step_id TEXT, 
	data TEXT
, channel TEXT);
INSERT INTO "events" VALUES(1,'policy.set',1700000000.25,NULL,NULL,'{"model":"m","run":"run-1","version":3}','*');
INSERT INTO "events" VALUES(2,'trajectory.created',1700000000.5,'rollout-0',NULL,NULL,'train');
INSERT INTO "events" VALUES(3,'step.appended',1700000000.75,'rollout-0','rollout-0:0',NULL,'train');
INSERT INTO "events" VALUES(4,'step.appended',1700000001.0,'rollout-0','rollout-0:1',NULL,'train');
INSERT INTO "events" VALUES(5,'trajectory.completed',1700000001.25,'rollout-0',NULL,'{"status":"finished"}','train');
INSERT INTO "events" VALUES(6,'reward.set',1700000001.5,'rollout-0',NULL,'{"name":"reward","value":1.0,"source":"api"}','train');
INSERT INTO "events" VALUES(7,'trajectory.created',1700000001.75,'rollout-1',NULL,NULL,'train');
INSERT INTO "events" VALUES(8,'step.appended',1700000002.0,'rollout-1','rollout-1:0',NULL,'train');
INSERT INTO "events" VALUES(9,'step.appended',1700000002.25,'rollout-1','rollout-1:1',NULL,'train');
INSERT INTO "events" VALUES(10,'trajectory.completed',1700000002.5,'rollout-1',NULL,'{"status":"finished"}','train');
INSERT INTO "events" VALUES(11,'reward.set',1700000002.75,'rollout-1',NULL,'{"name":"reward","value":0.0,"source":"api"}','train');
INSERT INTO "events" VALUES(12,'trajectory.created',1700000003.0,'rollout-2',NULL,NULL,'train');
INSERT INTO "events" VALUES(13,'step.appended',1700000003.25,'rollout-2','rollout-2:0',NULL,'train');
INSERT INTO "events" VALUES(14,'step.appended',1700000003.5,'rollout-2','rollout-2:1',NULL,'train');
INSERT INTO "events" VALUES(15,'trajectory.completed',1700000003.75,'rollout-2',NULL,'{"status":"finished"}','train');
INSERT INTO "events" VALUES(16,'reward.set',1700000004.0,'rollout-2',NULL,'{"name":"reward","value":0.0,"source":"api"}','train');
INSERT INTO "events" VALUES(17,'trajectory.created',1700000004.25,'rollout-3',NULL,NULL,'train');
INSERT INTO "events" VALUES(18,'trajectory.created',1700000004.5,'alone',NULL,NULL,'val');
INSERT INTO "events" VALUES(19,'step.appended',1700000004.75,'alone','alone:0',NULL,'val');
INSERT INTO "events" VALUES(20,'reward.set',1700000005.25,'alone',NULL,'{"name":"style","value":0.5,"source":"api"}','val');
INSERT INTO "events" VALUES(21,'batch.leased',1700000005.5,NULL,NULL,'{"batch_id":"bat_01m8ma83hpa9yccy5429xpp69x","consumer":"trainer","units":1}',NULL);
INSERT INTO "events" VALUES(22,'batch.acked',1700000005.75,NULL,NULL,'{"batch_id":"bat_01m8ma83hpa9yccy5429xpp69x","consumer":"trainer"}',NULL);
INSERT INTO "events" VALUES(23,'batch.leased',1700000006.0,NULL,NULL,'{"batch_id":"bat_01m8ma83jdfwfdvkq6dwgme8rg","consumer":"trainer","units":1}',NULL);
INSERT INTO "events" VALUES(24,'batch.leased',1700000006.25,NULL,NULL,'{"batch_id":"bat_01m8ma83jg0e60bdtfjcw90a55","consumer":"others","units":1}',NULL);
INSERT INTO "events" VALUES(25,'batch.released',1700000006.5,NULL,NULL,'{"batch_id":"bat_01m8ma83jg0e60bdtfjcw90a55","consumer":"others"}',NULL);
INSERT INTO "events" VALUES(26,'gateway.paused',1700000500.0,NULL,NULL,NULL,'*');
INSERT INTO "events" VALUES(27,'gateway.resumed',1700000500.0,NULL,NULL,NULL,'*');
INSERT INTO "events" VALUES(28,'curation.set',1700000500.0,NULL,NULL,'{"channel":"other","version":"8c8c99bcf3dc5f01","name":"policy"}','other');
INSERT INTO "events" VALUES(29,'decision.set',1700000500.0,'rollout-0',NULL,'{"verdict":"ready","reason":"seen","by":"manual"}','train');
INSERT INTO "events" VALUES(30,'feedback.added',1700000500.0,'rollout-0','rollout-0:0','{"feedback_id":"fbk-4","kind":"comment"}','train');
INSERT INTO "events" VALUES(31,'trajectory.created',1700000500.0,'frozen',NULL,NULL,'train');
INSERT INTO "events" VALUES(32,'step.appended',1700000500.0,'frozen','s0',NULL,'train');
INSERT INTO "events" VALUES(33,'step.appended',1700000500.0,'frozen','s1',NULL,'train');
INSERT INTO "events" VALUES(34,'trajectory.completed',1700000500.0,'frozen',NULL,'{"status":"finished"}','train');
INSERT INTO "events" VALUES(35,'reward.set',1700000500.0,'frozen',NULL,'{"name":"reward","value":1.0,"source":"complete"}','train');
INSERT INTO "events" VALUES(36,'dataset.frozen',1700000500.0,NULL,NULL,'{"version":"math@00000000000000000000000000000001","rows":1,"steps":1}','train');
INSERT INTO "events" VALUES(37,'trajectory.created',1700001000.0,'of-somebody',NULL,NULL,'train');
INSERT INTO "events" VALUES(38,'step.appended',1700001000.0,'of-somebody','somebody-1',NULL,'train');
CREATE TABLE exchanges (
	pk INTEGER NOT NULL, 
	exchange_id TEXT NOT NULL, 
	content BLOB NOT NULL, 
	trajectory INTEGER NOT NULL, 
	status TEXT NOT NULL, 
	record TEXT NOT NULL, 
	PRIMARY KEY (pk), 
	FOREIGN KEY(trajectory) REFERENCES trajectories (pk), 
	UNIQUE (exchange_id)
);
CREATE TABLE feedback (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	feedback_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	target TEXT NOT NULL, 
	target_id TEXT NOT NULL, 
	other_id TEXT, 
	name TEXT, 
	value TEXT, 
	comment TEXT, 
	source TEXT NOT NULL, 
	of_trajectory TEXT, 
	created_at FLOAT NOT NULL, content TEXT, 
	UNIQUE (feedback_id)
);
INSERT INTO "feedback" VALUES(1,'fbk-4','comment','step','rollout-0:0',NULL,NULL,NULL,'"fine"','api',NULL,1700000500.0,'0000000000000000000000000000000000000000000000000000000000000000');
CREATE TABLE followers (
	name TEXT NOT NULL, 
	position INTEGER NOT NULL, 
	state BLOB, 
	revision INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "followers" VALUES('follower',3,X'7374617465',1,1700000500.0);
CREATE TABLE gateway_workers (
	worker TEXT NOT NULL, 
	in_flight INTEGER NOT NULL, 
	pauses INTEGER NOT NULL, 
	seen_at FLOAT NOT NULL, 
	PRIMARY KEY (worker)
);
INSERT INTO "gateway_workers" VALUES('w1',0,0,1700000500.0);
CREATE TABLE groups (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	group_id TEXT NOT NULL, 
	channel TEXT NOT NULL, 
	size INTEGER, 
	timeout_at FLOAT, 
	failures TEXT, 
	state TEXT NOT NULL, 
	closed_by TEXT, 
	created_at FLOAT NOT NULL, 
	closed_at FLOAT, 
	members INTEGER NOT NULL, 
	ended INTEGER NOT NULL, 
	served INTEGER NOT NULL, 
	ready_seq INTEGER, 
	UNIQUE (group_id)
);
INSERT INTO "groups" VALUES(1,'group-1','train',4,NULL,NULL,'open',NULL,1700000000.5,NULL,4,3,3,NULL);
CREATE TABLE keys (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	key_id TEXT NOT NULL, 
	digest BLOB NOT NULL, 
	name TEXT NOT NULL, 
	scopes TEXT NOT NULL, 
	channel TEXT, 
	trajectory_id TEXT, 
	created_at FLOAT NOT NULL, 
	expires_at FLOAT, 
	revoked_at FLOAT, 
	UNIQUE (key_id), 
	UNIQUE (digest)
);
INSERT INTO "keys" VALUES(1,'key_01m8mmj2kpr2364qev780a0125',X'140441BC1A336682967696CF2633233BC79BC2872C5A21AAF50649D8181F28EB','team','["write","read"]',NULL,NULL,1700000500.0,NULL,NULL);
CREATE TABLE media (
	pk INTEGER NOT NULL, 
	digest BLOB NOT NULL, 
	media_type TEXT, 
	size INTEGER NOT NULL, 
	data BLOB, 
	created_at FLOAT NOT NULL, 
	PRIMARY KEY (pk), 
	UNIQUE (digest)
);
CREATE TABLE media_uses (
	node INTEGER NOT NULL, 
	digest BLOB NOT NULL, 
	PRIMARY KEY (node, digest), 
	FOREIGN KEY(node) REFERENCES message_nodes (pk)
);
CREATE TABLE "message_nodes" (
	pk INTEGER NOT NULL, 
	digest BLOB NOT NULL, 
	parent INTEGER, 
	depth INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	coding INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (pk), 
	FOREIGN KEY(parent) REFERENCES message_nodes (pk)
);
INSERT INTO "message_nodes" VALUES(1,X'C084AB8A012CCC28772CCA2297AB745D',NULL,0,X'7B22726F6C65223A2273797374656D222C22636F6E74656E74223A226265206272696566227D',0);
INSERT INTO "message_nodes" VALUES(2,X'9C4CED8B172DF023A68C3BD4F185AB45',1,1,X'7B22726F6C65223A2275736572222C22636F6E74656E74223A227768617420697320322B323F20F480A08020C3A9227D',0);
INSERT INTO "message_nodes" VALUES(3,X'837A26B25F120A630467CCBE9E96C7F8',2,2,X'7B22726F6C65223A22617373697374616E74222C22636F6E74656E74223A223030227D',0);
INSERT INTO "message_nodes" VALUES(4,X'B8EB614471E04F532610A8C00B9267B4',2,2,X'7B22726F6C65223A22617373697374616E74222C22636F6E74656E74223A223031227D',0);
INSERT INTO "message_nodes" VALUES(5,X'A856A716BC4E1400FA516BE2DE7F771D',2,2,X'7B22726F6C65223A22617373697374616E74222C22636F6E74656E74223A223130227D',0);
INSERT INTO "message_nodes" VALUES(6,X'BBF93FF456DF440601B60A768B245867',2,2,X'7B22726F6C65223A22617373697374616E74222C22636F6E74656E74223A223131227D',0);
INSERT INTO "message_nodes" VALUES(7,X'7F10C7D533851455B36E13DE3FABAB7F',2,2,X'7B22726F6C65223A22617373697374616E74222C22636F6E74656E74223A223230227D',0);
INSERT INTO "message_nodes" VALUES(8,X'28888A754383520D57E42BAF3C2AD573',2,2,X'7B22726F6C65223A22617373697374616E74222C22636F6E74656E74223A223231227D',0);
INSERT INTO "message_nodes" VALUES(9,X'33CD1151BA7F1B6BC1FEA41C5EE4CCC8',NULL,0,X'7B22726F6C65223A22617373697374616E74222C22636F6E74656E74223A2274657874206F6E6C79227D',0);
INSERT INTO "message_nodes" VALUES(10,X'A43EB2C128EA535C2D2D0FC86BACBA20',NULL,0,X'7B22726F6C65223A2275736572222C22636F6E74656E74223A227175657374696F6E227D',0);
INSERT INTO "message_nodes" VALUES(11,X'13D57967ADDB411382DA29FD8D067240',10,1,X'7B22726F6C65223A22617373697374616E74222C22636F6E74656E74223A22616E737765722030227D',0);
INSERT INTO "message_nodes" VALUES(12,X'A8A1651FD3EC99E3F91436F247C64F98',10,1,X'7B22726F6C65223A22617373697374616E74222C22636F6E74656E74223A22616E737765722031227D',0);
CREATE TABLE pins (
	owner_kind TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	target TEXT NOT NULL, 
	target_id TEXT NOT NULL, 
	created_at FLOAT NOT NULL, 
	PRIMARY KEY (owner_kind, owner, target, target_id)
);
CREATE TABLE policies (
	model TEXT NOT NULL, 
	run TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	current INTEGER NOT NULL, 
	PRIMARY KEY (model, run)
);
INSERT INTO "policies" VALUES('m','run-1',3,1);
CREATE TABLE positions (
	consumer TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	channel TEXT NOT NULL, 
	ready_seq INTEGER NOT NULL, 
	seed INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (consumer, unit, channel), 
	FOREIGN KEY(consumer) REFERENCES consumers (name)
);
INSERT INTO "positions" VALUES('trainer','trajectory','train',6,0);
INSERT INTO "positions" VALUES('others','trajectory','train',6,0);
CREATE TABLE reviews (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	target TEXT NOT NULL, 
	target_id TEXT NOT NULL, 
	channel TEXT NOT NULL, 
	origin TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	worth FLOAT NOT NULL, 
	state TEXT NOT NULL, 
	claimed_by TEXT, 
	claimed_until FLOAT, 
	skipped_by TEXT, 
	verdict TEXT, 
	resolved_by TEXT, 
	comment TEXT, 
	created_at FLOAT NOT NULL, 
	resolved_at FLOAT, 
	UNIQUE (target, target_id)
);
INSERT INTO "reviews" VALUES(1,'step','rollout-0:0','train','manual','look',1.0,'open',NULL,NULL,NULL,NULL,NULL,NULL,1700000500.0,NULL);
CREATE TABLE "rewards" (
	pk INTEGER NOT NULL, 
	target TEXT NOT NULL, 
	target_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	source TEXT NOT NULL, 
	value FLOAT NOT NULL, 
	details TEXT, 
	of_trajectory TEXT, 
	created_at FLOAT NOT NULL, 
	PRIMARY KEY (pk), 
	UNIQUE (target, target_id, name, source)
);
INSERT INTO "rewards" VALUES(1,'trajectory','rollout-0','reward','api',1.0,NULL,NULL,1700000001.5);
INSERT INTO "rewards" VALUES(2,'trajectory','rollout-1','reward','api',0.0,NULL,NULL,1700000002.75);
INSERT INTO "rewards" VALUES(3,'trajectory','rollout-2','reward','api',0.0,NULL,NULL,1700000004.0);
INSERT INTO "rewards" VALUES(4,'trajectory','alone','style','api',0.5,NULL,NULL,1700000005.25);
INSERT INTO "rewards" VALUES(5,'trajectory','frozen','reward','complete',1.0,NULL,NULL,1700000500.0);
CREATE TABLE steps (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	step_id TEXT NOT NULL, 
	content BLOB NOT NULL, 
	trajectory INTEGER NOT NULL, 
	exchange_id TEXT, 
	choice_index INTEGER NOT NULL, 
	channel TEXT NOT NULL, 
	step_index INTEGER NOT NULL, 
	parent_step_id TEXT, 
	supersedes TEXT, 
	fork_reason TEXT, 
	agent TEXT, 
	model TEXT, 
	requested_model TEXT, 
	policy_model TEXT, 
	policy_run TEXT, 
	policy_version INTEGER, 
	dialect TEXT, 
	token_source TEXT NOT NULL, 
	vocabulary TEXT, 
	finish_reason TEXT, 
	prompt_length INTEGER, 
	response_length INTEGER, 
	present INTEGER NOT NULL, 
	block INTEGER, 
	tail BLOB, 
	id_count INTEGER NOT NULL, 
	mask BLOB, 
	logprobs BLOB, 
	logprob_space TEXT, 
	tools INTEGER, 
	prompt_node INTEGER, 
	reply_node INTEGER, 
	reward FLOAT, 
	rewards TEXT, 
	labels TEXT, 
	metadata TEXT, 
	call TEXT, 
	excluded_reason TEXT, 
	late INTEGER NOT NULL, 
	created_at FLOAT NOT NULL, 
	latency_ms FLOAT, sampled INTEGER DEFAULT '0' NOT NULL, annotations TEXT, 
	FOREIGN KEY(block) REFERENCES token_blocks (pk), 
	FOREIGN KEY(prompt_node) REFERENCES message_nodes (pk), 
	FOREIGN KEY(reply_node) REFERENCES message_nodes (pk), 
	FOREIGN KEY(tools) REFERENCES tool_sets (pk), 
	FOREIGN KEY(trajectory) REFERENCES trajectories (pk), 
	UNIQUE (step_id)
);
INSERT INTO "steps" VALUES(1,'rollout-0:0',X'ABC396D70EACBCB68BF0682488D8AF7F2679F892D9843368',1,NULL,0,'train',0,NULL,NULL,NULL,NULL,NULL,NULL,'m','run-1',3,NULL,'submitted',NULL,NULL,150,2,7,1,X'8000008100008200008300008400008500008600008700008800008900008A00008B00008C00008D00008E00008F0000900000910000920000930000940000950000E80300701101',152,NULL,X'000000BF0000C0BF',NULL,1,2,3,NULL,NULL,NULL,'{"n":1.5}',NULL,NULL,0,1700000000.75,NULL,2,NULL);
INSERT INTO "steps" VALUES(2,'rollout-0:1',X'FFD5CC8D23D32ABD34ED2E7B9BC6FD17DCEEACF30CDBD876',1,NULL,0,'train',1,NULL,NULL,NULL,NULL,NULL,NULL,'m','run-1',3,NULL,'submitted',NULL,NULL,157,2,7,1,X'8000008100008200008300008400008500008600008700008800008900008A00008B00008C00008D00008E00008F0000900000910000920000930000940000950000000000010000020000030000040000050000060000E80300711101',159,NULL,X'000080BE0000C07F',NULL,1,2,4,NULL,NULL,NULL,'{"n":1.5}',NULL,NULL,0,1700000001.0,NULL,2,NULL);
INSERT INTO "steps" VALUES(3,'rollout-1:0',X'0DEE6C5BE82104E8997647F5B9E34DE637D2CA9558CF84EB',2,NULL,0,'train',0,NULL,NULL,NULL,NULL,NULL,NULL,'m','run-1',3,NULL,'submitted',NULL,NULL,150,2,7,1,X'8000008100008200008300008400008500008600008700008800008900008A00008B00008C00008D00008E00008F0000900000910000920000930000940000950000E90300701101',152,NULL,X'000000BF0000C0BF',NULL,1,2,5,NULL,NULL,NULL,'{"n":1.5}',NULL,NULL,0,1700000001.75,NULL,2,NULL);
INSERT INTO "steps" VALUES(4,'rollout-1:1',X'7FB5D0C2BBAEA7022F73A2E46ED4D033A8C786BF1D9F5FEC',2,NULL,0,'train',1,NULL,NULL,NULL,NULL,NULL,NULL,'m','run-1',3,NULL,'submitted',NULL,NULL,157,2,7,1,X'8000008100008200008300008400008500008600008700008800008900008A00008B00008C00008D00008E00008F0000900000910000920000930000940000950000000000010000020000030000040000050000060000E90300711101',159,NULL,X'000080BE0000C07F',NULL,1,2,6,NULL,NULL,NULL,'{"n":1.5}',NULL,NULL,0,1700000002.0,NULL,2,NULL);
INSERT INTO "steps" VALUES(5,'rollout-2:0',X'FA1B121AA0D5D2E7D9A176F54956089921594B9C726ADB47',3,NULL,0,'train',0,NULL,NULL,NULL,NULL,NULL,NULL,'m','run-1',3,NULL,'submitted',NULL,NULL,150,2,7,1,X'8000008100008200008300008400008500008600008700008800008900008A00008B00008C00008D00008E00008F0000900000910000920000930000940000950000EA0300701101',152,NULL,X'000000BF0000C0BF',NULL,1,2,7,NULL,NULL,NULL,'{"n":1.5}',NULL,NULL,0,1700000002.75,NULL,2,NULL);
INSERT INTO "steps" VALUES(6,'rollout-2:1',X'26FAEDAB87D7C8292807223FBE44206FD4D437AFE3BD36F3',3,NULL,0,'train',1,NULL,NULL,NULL,NULL,NULL,NULL,'m','run-1',3,NULL,'submitted',NULL,NULL,157,2,7,1,X'8000008100008200008300008400008500008600008700008800008900008A00008B00008C00008D00008E00008F0000900000910000920000930000940000950000000000010000020000030000040000050000060000EA0300711101',159,NULL,X'000080BE0000C07F',NULL,1,2,8,NULL,NULL,NULL,'{"n":1.5}',NULL,NULL,0,1700000003.0,NULL,2,NULL);
INSERT INTO "steps" VALUES(7,'alone:0',X'A4EABB90E28FC7E9812B87FE3745A2DD6A1A6119B6A65303',5,NULL,0,'val',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'none',NULL,NULL,NULL,NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,9,NULL,NULL,NULL,NULL,NULL,NULL,0,1700000004.0,NULL,0,NULL);
INSERT INTO "steps" VALUES(8,'s0',X'8D50712256BA46344B884475EFC18CF58396B4BE97FC5783',6,NULL,0,'train',0,NULL,NULL,NULL,NULL,NULL,NULL,'m','r',0,NULL,'submitted',NULL,NULL,3,2,7,NULL,X'01000200030004000000',5,NULL,X'000000BF0000C0BF',NULL,NULL,10,11,NULL,NULL,NULL,NULL,NULL,NULL,0,1700000500.0,NULL,2,NULL);
INSERT INTO "steps" VALUES(9,'s1',X'114EA79BEA1D84B4A505E680779208CF96A0AB0F79CA0ED0',6,NULL,0,'train',1,NULL,NULL,NULL,NULL,NULL,NULL,'m','r',0,NULL,'submitted',NULL,NULL,3,2,7,NULL,X'01000200030004000100',5,NULL,X'000000BF0000C0BF',NULL,NULL,10,12,NULL,NULL,NULL,NULL,NULL,NULL,0,1700000500.0,NULL,2,NULL);
INSERT INTO "steps" VALUES(10,'somebody-1',X'78CA8B5765EBA3F511C33C30F3C029C58396B4BE97FC5783',7,NULL,0,'train',0,NULL,NULL,NULL,NULL,NULL,NULL,'m','r',0,NULL,'submitted',NULL,NULL,3,2,7,NULL,X'01000200030004000000',5,NULL,X'000000BF0000C0BF',NULL,NULL,10,11,NULL,NULL,NULL,NULL,NULL,NULL,0,1700001000.0,NULL,2,NULL);
CREATE TABLE "token_blocks" (
	pk INTEGER NOT NULL, 
	digest BLOB NOT NULL, 
	parent INTEGER, 
	ids BLOB NOT NULL, 
	PRIMARY KEY (pk), 
	FOREIGN KEY(parent) REFERENCES token_blocks (pk)
);
INSERT INTO "token_blocks" VALUES(1,X'8F43EA9F2FB40DA6B299228B7ADE9026',NULL,X'00000100020003000400050006000700080009000A000B000C000D000E000F0010001100120013001400150016001700180019001A001B001C001D001E001F0020002100220023002400250026002700280029002A002B002C002D002E002F0030003100320033003400350036003700380039003A003B003C003D003E003F0040004100420043004400450046004700480049004A004B004C004D004E004F0050005100520053005400550056005700580059005A005B005C005D005E005F0060006100620063006400650066006700680069006A006B006C006D006E006F0070007100720073007400750076007700780079007A007B007C007D007E007F00');
CREATE TABLE tombstones (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	kind TEXT NOT NULL, 
	target_id TEXT NOT NULL, 
	reason TEXT, 
	at FLOAT NOT NULL, 
	UNIQUE (kind, target_id)
);
CREATE TABLE tool_sets (
	pk INTEGER NOT NULL, 
	digest BLOB NOT NULL, 
	body BLOB NOT NULL, coding INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (pk), 
	UNIQUE (digest)
);
INSERT INTO "tool_sets" VALUES(1,X'A32FC08D5B54257C824EBD1E78B66672',X'5B7B2274797065223A2266756E6374696F6E222C2266756E6374696F6E223A7B226E616D65223A22616464222C22706172616D6574657273223A7B2262223A312C2261223A327D7D7D5D',0);
CREATE TABLE trajectories (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	trajectory_id TEXT NOT NULL, 
	declared INTEGER NOT NULL, 
	group_id TEXT, 
	group_size INTEGER, 
	rollout_index INTEGER, 
	attempt INTEGER NOT NULL, 
	task TEXT, 
	agent TEXT, 
	channel TEXT NOT NULL, 
	metadata TEXT, 
	status TEXT NOT NULL, 
	rewards TEXT, 
	reward FLOAT, 
	readiness TEXT NOT NULL, 
	excluded_reason TEXT, 
	step_count INTEGER NOT NULL, 
	prompt_tokens INTEGER NOT NULL, 
	response_tokens INTEGER NOT NULL, 
	last_step INTEGER, 
	policy_model TEXT, 
	policy_run TEXT, 
	policy_version INTEGER, 
	created_at FLOAT NOT NULL, 
	completed_at FLOAT, sampling TEXT, user_id TEXT, priority FLOAT DEFAULT '0' NOT NULL, labels TEXT, annotations TEXT, usable_steps INTEGER DEFAULT '0' NOT NULL, lacks INTEGER DEFAULT '0' NOT NULL, sampled_tokens INTEGER DEFAULT '0' NOT NULL, masked INTEGER DEFAULT '0' NOT NULL, ready_seq INTEGER, 
	UNIQUE (trajectory_id)
);
INSERT INTO "trajectories" VALUES(1,'rollout-0',1,'group-1',4,0,0,'{"task_id":"task-1","prompt":"add"}','loop','train','{"seed":0}','finished','{"reward":1.0}',1.0,'ready',NULL,2,307,4,2,'m','run-1',3,1700000000.5,1700000001.25,NULL,NULL,0.0,NULL,NULL,2,0,4,0,2);
INSERT INTO "trajectories" VALUES(2,'rollout-1',1,'group-1',4,1,0,'{"task_id":"task-1","prompt":"add"}','loop','train','{"seed":1}','finished','{"reward":0.0}',0.0,'ready',NULL,2,307,4,4,'m','run-1',3,1700000001.75,1700000002.5,NULL,NULL,0.0,NULL,NULL,2,0,4,0,4);
INSERT INTO "trajectories" VALUES(3,'rollout-2',1,'group-1',4,2,0,'{"task_id":"task-1","prompt":"add"}','loop','train','{"seed":2}','finished','{"reward":0.0}',0.0,'ready',NULL,2,307,4,6,'m','run-1',3,1700000003.0,1700000003.75,NULL,NULL,0.0,NULL,NULL,2,0,4,0,6);
INSERT INTO "trajectories" VALUES(4,'rollout-3',1,'group-1',4,NULL,0,NULL,NULL,'train',NULL,'open',NULL,NULL,'open',NULL,0,0,0,NULL,NULL,NULL,NULL,1700000004.25,NULL,NULL,NULL,0.0,NULL,NULL,0,0,0,0,NULL);
INSERT INTO "trajectories" VALUES(5,'alone',1,NULL,NULL,NULL,0,NULL,NULL,'val',NULL,'open','{"style":0.5}',NULL,'open',NULL,1,0,0,7,NULL,NULL,NULL,1700000004.5,NULL,NULL,NULL,0.0,NULL,NULL,1,7,0,0,NULL);
INSERT INTO "trajectories" VALUES(6,'frozen',1,NULL,NULL,NULL,0,NULL,NULL,'train',NULL,'finished','{"reward":1.0}',1.0,'ready',NULL,2,6,4,9,'m','r',0,1700000500.0,1700000500.0,NULL,NULL,0.0,NULL,NULL,2,0,4,0,7);
INSERT INTO "trajectories" VALUES(7,'of-somebody',1,NULL,NULL,NULL,0,NULL,NULL,'train',NULL,'open',NULL,NULL,'open',NULL,1,3,2,10,'m','r',0,1700001000.0,NULL,NULL,'ada',2.0,NULL,NULL,1,0,2,0,NULL);
CREATE INDEX batches_by_state ON batches (state, deadline);
CREATE INDEX exchanges_by_trajectory ON exchanges (trajectory);
CREATE INDEX media_uses_by_digest ON media_uses (digest);
CREATE INDEX feedback_by_target ON feedback (target, target_id);
CREATE INDEX groups_by_timeout ON groups (state, timeout_at);
CREATE INDEX groups_by_ready_seq ON groups (ready_seq);
CREATE INDEX pins_by_target ON pins (target, target_id);
CREATE INDEX trajectories_by_readiness ON trajectories (readiness, pk);
CREATE INDEX trajectories_by_group ON trajectories (group_id, rollout_index);
CREATE INDEX trajectories_by_channel ON trajectories (channel, pk);
CREATE INDEX trajectories_by_status ON trajectories (status, pk);
CREATE INDEX trajectories_by_reward ON trajectories (reward);
CREATE INDEX trajectories_by_priority ON trajectories (priority);
CREATE INDEX trajectories_by_ready_seq ON trajectories (ready_seq);
CREATE INDEX steps_by_block ON steps (block);
CREATE INDEX steps_by_channel ON steps (channel, pk);
CREATE INDEX batches_by_consumer ON batches (consumer, state);
CREATE INDEX batch_units_by_key ON batch_units ("key");
CREATE INDEX steps_by_prompt_node ON steps (prompt_node) WHERE prompt_node IS NOT NULL;
CREATE INDEX steps_by_reply_node ON steps (reply_node) WHERE reply_node IS NOT NULL;
CREATE INDEX steps_by_tools ON steps (tools) WHERE tools IS NOT NULL;
CREATE INDEX steps_by_reward ON steps (reward) WHERE reward IS NOT NULL;
CREATE UNIQUE INDEX token_blocks_by_parent ON token_blocks (parent, digest);
CREATE UNIQUE INDEX message_nodes_by_parent ON message_nodes (parent, digest);
CREATE INDEX deliveries_poisoned ON deliveries (consumer) WHERE state = 'poisoned';
CREATE INDEX call_marks_by_trajectory ON call_marks (trajectory_id);
CREATE INDEX call_marks_asked ON call_marks (at) WHERE said = 'asked';
CREATE INDEX trajectories_by_creation ON trajectories ((pk >> 11), created_at);
CREATE INDEX trajectories_by_policy ON trajectories (policy_model, policy_run, policy_version, pk);
CREATE INDEX trajectories_by_user ON trajectories (user_id, pk);
CREATE INDEX steps_by_creation ON steps ((pk >> 11), created_at);
CREATE INDEX steps_by_trajectory ON steps (trajectory, pk);
CREATE INDEX backlog_by_place ON backlog (consumer, unit, channel, place) WHERE row_pk >= 0;
CREATE INDEX backlog_by_rank ON backlog (consumer, unit, channel, rank, place) WHERE row_pk >= 0;
CREATE INDEX backlog_by_shuffle ON backlog (consumer, unit, channel, shuffle, place) WHERE row_pk >= 0;
CREATE INDEX backlog_by_mark ON backlog (consumer, unit, channel, mark) WHERE row_pk >= 0;
CREATE INDEX curation_policies_sweeping ON curation_policies (swept) WHERE swept IS NOT NULL;
CREATE INDEX curation_policies_by_channel ON curation_policies (channel, pk);
CREATE INDEX decisions_by_trajectory ON decisions (trajectory);
CREATE INDEX reviews_by_worth ON reviews (state, worth, pk);
CREATE INDEX reviews_by_channel ON reviews (channel, state, worth, pk);
CREATE INDEX evaluations_by_content ON evaluations (content, fingerprint);
CREATE INDEX evaluations_by_target ON evaluations (target, target_id);
CREATE INDEX evaluations_by_state ON evaluations (evaluator, state, pk);
CREATE INDEX events_by_trajectory ON events (substr(trajectory_id, length(trajectory_id) - 3)) WHERE trajectory_id IS NOT NULL;
CREATE INDEX events_by_channel ON events (channel) WHERE channel IS NOT NULL;
CREATE INDEX datasets_by_freezing ON datasets (frozen) WHERE frozen IS NOT NULL;
CREATE INDEX datasets_by_name ON datasets (name, frozen);
CREATE INDEX dataset_rows_by_trajectory ON dataset_rows (trajectory_id, dataset);
CREATE INDEX dataset_rows_by_split ON dataset_rows (dataset, split, position);
CREATE INDEX dataset_rows_compared ON dataset_rows (compared) WHERE compared IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('groups',1);
INSERT INTO "sqlite_sequence" VALUES('events',38);
INSERT INTO "sqlite_sequence" VALUES('trajectories',7);
INSERT INTO "sqlite_sequence" VALUES('steps',10);
INSERT INTO "sqlite_sequence" VALUES('dead_letters',1);
INSERT INTO "sqlite_sequence" VALUES('batches',3);
INSERT INTO "sqlite_sequence" VALUES('keys',1);
INSERT INTO "sqlite_sequence" VALUES('curation_policies',1);
INSERT INTO "sqlite_sequence" VALUES('decisions',1);
INSERT INTO "sqlite_sequence" VALUES('feedback',1);
INSERT INTO "sqlite_sequence" VALUES('evaluations',1);
INSERT INTO "sqlite_sequence" VALUES('reviews',1);
INSERT INTO "sqlite_sequence" VALUES('datasets',1);
COMMIT;
