BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE batch_units (
	batch INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	PRIMARY KEY (batch, "key"), 
	FOREIGN KEY(batch) REFERENCES batches (pk)
);
INSERT INTO "batch_units" VALUES(1,'rollout-0');
INSERT INTO "batch_units" VALUES(2,'rollout-1');
INSERT INTO "batch_units" VALUES(3,'group-1');
CREATE TABLE batches (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	batch_id TEXT NOT NULL, 
	consumer TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	method TEXT NOT NULL, 
	epoch INTEGER NOT NULL, 
	deadline FLOAT NOT NULL, 
	state TEXT NOT NULL, 
	FOREIGN KEY(consumer) REFERENCES consumers (name), 
	UNIQUE (batch_id)
);
INSERT INTO "batches" VALUES(1,'bat_01m8kyfm6hry0h7wss1pw52c2m','trainer','trajectory','reinforce',1,1700604804.75,'acked');
INSERT INTO "batches" VALUES(2,'bat_01m8kyfm6vq8h8tzcyaqrx135f','trainer','trajectory','reinforce',2,1700604805.5,'leased');
INSERT INTO "batches" VALUES(3,'bat_01m8kyfm7bdmhe34a0vw55cqmb','groups','group','grpo',1,1700604806.0,'released');
CREATE TABLE consumers (
	name TEXT NOT NULL, 
	epoch INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "consumers" VALUES('trainer',2);
INSERT INTO "consumers" VALUES('groups',1);
CREATE TABLE counters (
	name TEXT NOT NULL, 
	value INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "counters" VALUES('trajectories.open',2);
INSERT INTO "counters" VALUES('blocks',1);
INSERT INTO "counters" VALUES('tokens_flat',933);
INSERT INTO "counters" VALUES('tokens_in_tails',165);
INSERT INTO "counters" VALUES('message_nodes',9);
INSERT INTO "counters" VALUES('steps',7);
INSERT INTO "counters" VALUES('trajectories.finished',3);
INSERT INTO "counters" VALUES('rewards',4);
INSERT INTO "counters" VALUES('dead_letters',1);
INSERT INTO "counters" VALUES('batches.leased',1);
INSERT INTO "counters" VALUES('batches.acked',1);
INSERT INTO "counters" VALUES('batches.released',1);
CREATE TABLE dead_letters (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	step_id TEXT NOT NULL, 
	trajectory_id TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	record TEXT NOT NULL, 
	at FLOAT NOT NULL
);
INSERT INTO "dead_letters" VALUES(1,'bad','alone','token ids must be integers from 0 to 4294967295 (at response_ids)','{"step_id":"bad","trajectory_id":"alone","exchange_id":null,"choice_index":0,"group_id":null,"channel":"train","step_index":null,"parent_step_id":null,"supersedes":null,"fork_reason":null,"agent":null,"model":null,"requested_model":null,"policy":null,"version_spans":[],"dialect":null,"token_source":"none","vocabulary":null,"prompt_ids":null,"response_ids":[-1],"response_mask":null,"response_logprobs":null,"logprob_space":null,"prompt_messages":null,"tools":null,"response_message":null,"prompt_length":null,"response_length":null,"sampling":null,"finish_reason":null,"usage":null,"rewards":{},"reward":null,"labels":{},"readiness":"open","excluded_reason":null,"late":false,"is_last":false,"created_at":0.0,"latency_ms":null,"metadata":{}}',1700000004.0);
CREATE TABLE deliveries (
	consumer TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	state TEXT NOT NULL, 
	batch INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	PRIMARY KEY (consumer, unit, "key"), 
	FOREIGN KEY(batch) REFERENCES batches (pk), 
	FOREIGN KEY(consumer) REFERENCES consumers (name)
);
INSERT INTO "deliveries" VALUES('trainer','trajectory','rollout-0','acknowledged',1,1);
INSERT INTO "deliveries" VALUES('trainer','trajectory','rollout-1','leased',2,1);
INSERT INTO "deliveries" VALUES('groups','group','group-1','available',3,1);
CREATE TABLE events (
	pk INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	kind TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	trajectory_id TEXT, 
	step_id TEXT, 
	data TEXT
);
INSERT INTO "events" VALUES(1,'policy.set',1700000000.25,NULL,NULL,'{"model":"m","run":"run-1","version":3}');
INSERT INTO "events" VALUES(2,'trajectory.created',1700000000.5,'rollout-0',NULL,NULL);
INSERT INTO "events" VALUES(3,'step.appended',1700000000.75,'rollout-0','rollout-0:0','{"outcome":"stored"}');
INSERT INTO "events" VALUES(4,'step.appended',1700000001.0,'rollout-0','rollout-0:1','{"outcome":"stored"}');
INSERT INTO "events" VALUES(5,'trajectory.completed',1700000001.25,'rollout-0',NULL,'{"status":"finished"}');
INSERT INTO "events" VALUES(6,'reward.set',1700000001.25,'rollout-0',NULL,'{"name":"reward","value":1.0,"source":"complete"}');
INSERT INTO "events" VALUES(7,'trajectory.created',1700000001.5,'rollout-1',NULL,NULL);
INSERT INTO "events" VALUES(8,'step.appended',1700000001.75,'rollout-1','rollout-1:0','{"outcome":"stored"}');
INSERT INTO "events" VALUES(9,'step.appended',1700000002.0,'rollout-1','rollout-1:1','{"outcome":"stored"}');
INSERT INTO "events" VALUES(10,'trajectory.completed',1700000002.25,'rollout-1',NULL,'{"status":"finished"}');
INSERT INTO "events" VALUES(11,'reward.set',1700000002.25,'rollout-1',NULL,'{"name":"reward","value":0.0,"source":"complete"}');
INSERT INTO "events" VALUES(12,'trajectory.created',1700000002.5,'rollout-2',NULL,NULL);
INSERT INTO "events" VALUES(13,'step.appended',1700000002.75,'rollout-2','rollout-2:0','{"outcome":"stored"}');
INSERT INTO "events" VALUES(14,'step.appended',1700000003.0,'rollout-2','rollout-2:1','{"outcome":"stored"}');
INSERT INTO "events" VALUES(15,'trajectory.completed',1700000003.25,'rollout-2',NULL,'{"status":"finished"}');
INSERT INTO "events" VALUES(16,'reward.set',1700000003.25,'rollout-2',NULL,'{"name":"reward","value":0.0,"source":"complete"}');
INSERT INTO "events" VALUES(17,'trajectory.created',1700000003.5,'rollout-3',NULL,NULL);
INSERT INTO "events" VALUES(18,'trajectory.created',1700000003.75,'alone',NULL,NULL);
INSERT INTO "events" VALUES(19,'step.appended',1700000004.0,'alone','alone:0','{"outcome":"stored"}');
INSERT INTO "events" VALUES(20,'reward.set',1700000004.25,'alone',NULL,'{"name":"style","value":0.5,"source":"judge"}');
INSERT INTO "events" VALUES(21,'batch.leased',1700000004.75,NULL,NULL,'{"batch_id":"bat_01m8kyfm6hry0h7wss1pw52c2m","consumer":"trainer","units":1}');
INSERT INTO "events" VALUES(22,'batch.acked',1700000005.0,NULL,NULL,'{"batch_id":"bat_01m8kyfm6hry0h7wss1pw52c2m","consumer":"trainer"}');
INSERT INTO "events" VALUES(23,'batch.leased',1700000005.5,NULL,NULL,'{"batch_id":"bat_01m8kyfm6vq8h8tzcyaqrx135f","consumer":"trainer","units":1}');
INSERT INTO "events" VALUES(24,'batch.leased',1700000006.0,NULL,NULL,'{"batch_id":"bat_01m8kyfm7bdmhe34a0vw55cqmb","consumer":"groups","units":1}');
INSERT INTO "events" VALUES(25,'batch.released',1700000006.25,NULL,NULL,'{"batch_id":"bat_01m8kyfm7bdmhe34a0vw55cqmb","consumer":"groups"}');
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
CREATE TABLE message_nodes (
	pk INTEGER NOT NULL, 
	digest BLOB NOT NULL, 
	parent INTEGER, 
	depth INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (pk), 
	FOREIGN KEY(parent) REFERENCES message_nodes (pk), 
	UNIQUE (digest)
);
INSERT INTO "message_nodes" VALUES(1,X'C084AB8A012CCC28772CCA2297AB745D',NULL,0,X'7B22726F6C65223A2273797374656D222C22636F6E74656E74223A226265206272696566227D');
INSERT INTO "message_nodes" VALUES(2,X'9C4CED8B172DF023A68C3BD4F185AB45',1,1,X'7B22726F6C65223A2275736572222C22636F6E74656E74223A227768617420697320322B323F205C753030303020C3A9227D');
INSERT INTO "message_nodes" VALUES(3,X'837A26B25F120A630467CCBE9E96C7F8',2,2,X'7B22726F6C65223A22617373697374616E74222C22636F6E74656E74223A223030227D');
INSERT INTO "message_nodes" VALUES(4,X'B8EB614471E04F532610A8C00B9267B4',2,2,X'7B22726F6C65223A22617373697374616E74222C22636F6E74656E74223A223031227D');
INSERT INTO "message_nodes" VALUES(5,X'A856A716BC4E1400FA516BE2DE7F771D',2,2,X'7B22726F6C65223A22617373697374616E74222C22636F6E74656E74223A223130227D');
INSERT INTO "message_nodes" VALUES(6,X'BBF93FF456DF440601B60A768B245867',2,2,X'7B22726F6C65223A22617373697374616E74222C22636F6E74656E74223A223131227D');
INSERT INTO "message_nodes" VALUES(7,X'7F10C7D533851455B36E13DE3FABAB7F',2,2,X'7B22726F6C65223A22617373697374616E74222C22636F6E74656E74223A223230227D');
INSERT INTO "message_nodes" VALUES(8,X'28888A754383520D57E42BAF3C2AD573',2,2,X'7B22726F6C65223A22617373697374616E74222C22636F6E74656E74223A223231227D');
INSERT INTO "message_nodes" VALUES(9,X'33CD1151BA7F1B6BC1FEA41C5EE4CCC8',NULL,0,X'7B22726F6C65223A22617373697374616E74222C22636F6E74656E74223A2274657874206F6E6C79227D');
CREATE TABLE policies (
	model TEXT NOT NULL, 
	run TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	current INTEGER NOT NULL, 
	PRIMARY KEY (model, run)
);
INSERT INTO "policies" VALUES('m','run-1',3,1);
CREATE TABLE rewards (
	pk INTEGER NOT NULL, 
	target TEXT NOT NULL, 
	target_pk INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	source TEXT NOT NULL, 
	value FLOAT NOT NULL, 
	details TEXT, 
	created_at FLOAT NOT NULL, 
	PRIMARY KEY (pk), 
	UNIQUE (target, target_pk, name, source)
);
INSERT INTO "rewards" VALUES(1,'trajectory',1,'reward','complete',1.0,NULL,1700000001.25);
INSERT INTO "rewards" VALUES(2,'trajectory',2,'reward','complete',0.0,NULL,1700000002.25);
INSERT INTO "rewards" VALUES(3,'trajectory',3,'reward','complete',0.0,NULL,1700000003.25);
INSERT INTO "rewards" VALUES(4,'trajectory',5,'style','judge',0.5,NULL,1700000004.25);
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
	latency_ms FLOAT, 
	FOREIGN KEY(block) REFERENCES token_blocks (pk), 
	FOREIGN KEY(prompt_node) REFERENCES message_nodes (pk), 
	FOREIGN KEY(reply_node) REFERENCES message_nodes (pk), 
	FOREIGN KEY(tools) REFERENCES tool_sets (pk), 
	FOREIGN KEY(trajectory) REFERENCES trajectories (pk), 
	UNIQUE (step_id)
);
INSERT INTO "steps" VALUES(1,'rollout-0:0',X'103EBDD7E9E7E614D2EC7B71E91C1323',1,NULL,0,'train',0,NULL,NULL,NULL,NULL,NULL,NULL,'m','run-1',3,NULL,'submitted',NULL,NULL,150,2,7,1,X'8000008100008200008300008400008500008600008700008800008900008A00008B00008C00008D00008E00008F0000900000910000920000930000940000950000E80300701101',152,NULL,X'000000BF0000C0BF',NULL,1,2,3,NULL,NULL,NULL,'{"n":1.5}',NULL,NULL,0,1700000000.75,NULL);
INSERT INTO "steps" VALUES(2,'rollout-0:1',X'5037C2FD8B557157F7BC3A23E6E28BE7',1,NULL,0,'train',1,NULL,NULL,NULL,NULL,NULL,NULL,'m','run-1',3,NULL,'submitted',NULL,NULL,157,2,7,1,X'8000008100008200008300008400008500008600008700008800008900008A00008B00008C00008D00008E00008F0000900000910000920000930000940000950000000000010000020000030000040000050000060000E80300711101',159,NULL,X'000080BE0000C07F',NULL,1,2,4,NULL,NULL,NULL,'{"n":1.5}',NULL,NULL,0,1700000001.0,NULL);
INSERT INTO "steps" VALUES(3,'rollout-1:0',X'469DB761F751393C218DB42C8AD6B90F',2,NULL,0,'train',0,NULL,NULL,NULL,NULL,NULL,NULL,'m','run-1',3,NULL,'submitted',NULL,NULL,150,2,7,1,X'8000008100008200008300008400008500008600008700008800008900008A00008B00008C00008D00008E00008F0000900000910000920000930000940000950000E90300701101',152,NULL,X'000000BF0000C0BF',NULL,1,2,5,NULL,NULL,NULL,'{"n":1.5}',NULL,NULL,0,1700000001.75,NULL);
INSERT INTO "steps" VALUES(4,'rollout-1:1',X'CD6BAACFE7E6AFCA1C02E07A63E04F5A',2,NULL,0,'train',1,NULL,NULL,NULL,NULL,NULL,NULL,'m','run-1',3,NULL,'submitted',NULL,NULL,157,2,7,1,X'8000008100008200008300008400008500008600008700008800008900008A00008B00008C00008D00008E00008F0000900000910000920000930000940000950000000000010000020000030000040000050000060000E90300711101',159,NULL,X'000080BE0000C07F',NULL,1,2,6,NULL,NULL,NULL,'{"n":1.5}',NULL,NULL,0,1700000002.0,NULL);
INSERT INTO "steps" VALUES(5,'rollout-2:0',X'A74BED5A71A0CB7391A9C4067A6B3B15',3,NULL,0,'train',0,NULL,NULL,NULL,NULL,NULL,NULL,'m','run-1',3,NULL,'submitted',NULL,NULL,150,2,7,1,X'8000008100008200008300008400008500008600008700008800008900008A00008B00008C00008D00008E00008F0000900000910000920000930000940000950000EA0300701101',152,NULL,X'000000BF0000C0BF',NULL,1,2,7,NULL,NULL,NULL,'{"n":1.5}',NULL,NULL,0,1700000002.75,NULL);
INSERT INTO "steps" VALUES(6,'rollout-2:1',X'76E6AEB1ACF9EA15B43629D32D923297',3,NULL,0,'train',1,NULL,NULL,NULL,NULL,NULL,NULL,'m','run-1',3,NULL,'submitted',NULL,NULL,157,2,7,1,X'8000008100008200008300008400008500008600008700008800008900008A00008B00008C00008D00008E00008F0000900000910000920000930000940000950000000000010000020000030000040000050000060000EA0300711101',159,NULL,X'000080BE0000C07F',NULL,1,2,8,NULL,NULL,NULL,'{"n":1.5}',NULL,NULL,0,1700000003.0,NULL);
INSERT INTO "steps" VALUES(7,'alone:0',X'113718231C7C226329F8E43B75ABA5E1',5,NULL,0,'val',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'none',NULL,NULL,NULL,NULL,0,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,9,NULL,NULL,NULL,NULL,NULL,NULL,0,1700000004.0,NULL);
CREATE TABLE token_blocks (
	pk INTEGER NOT NULL, 
	digest BLOB NOT NULL, 
	parent INTEGER, 
	ids BLOB NOT NULL, 
	PRIMARY KEY (pk), 
	FOREIGN KEY(parent) REFERENCES token_blocks (pk), 
	UNIQUE (digest)
);
INSERT INTO "token_blocks" VALUES(1,X'8F43EA9F2FB40DA6B299228B7ADE9026',NULL,X'00000100020003000400050006000700080009000A000B000C000D000E000F0010001100120013001400150016001700180019001A001B001C001D001E001F0020002100220023002400250026002700280029002A002B002C002D002E002F0030003100320033003400350036003700380039003A003B003C003D003E003F0040004100420043004400450046004700480049004A004B004C004D004E004F0050005100520053005400550056005700580059005A005B005C005D005E005F0060006100620063006400650066006700680069006A006B006C006D006E006F0070007100720073007400750076007700780079007A007B007C007D007E007F00');
CREATE TABLE tool_sets (
	pk INTEGER NOT NULL, 
	digest BLOB NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (pk), 
	UNIQUE (digest)
);
INSERT INTO "tool_sets" VALUES(1,X'A32FC08D5B54257C824EBD1E78B66672',X'5B7B2274797065223A2266756E6374696F6E222C2266756E6374696F6E223A7B226E616D65223A22616464222C22706172616D6574657273223A7B2262223A312C2261223A327D7D7D5D');
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
	completed_at FLOAT, 
	UNIQUE (trajectory_id)
);
INSERT INTO "trajectories" VALUES(1,'rollout-0',1,'group-1',4,0,0,'{"task_id":"task-1","prompt":"add"}','loop','train','{"seed":0}','finished','{"reward":1.0}',1.0,'ready',NULL,2,307,4,2,'m','run-1',3,1700000000.5,1700000001.25);
INSERT INTO "trajectories" VALUES(2,'rollout-1',1,'group-1',4,1,0,'{"task_id":"task-1","prompt":"add"}','loop','train','{"seed":1}','finished','{"reward":0.0}',0.0,'ready',NULL,2,307,4,4,'m','run-1',3,1700000001.5,1700000002.25);
INSERT INTO "trajectories" VALUES(3,'rollout-2',1,'group-1',4,2,0,'{"task_id":"task-1","prompt":"add"}','loop','train','{"seed":2}','finished','{"reward":0.0}',0.0,'ready',NULL,2,307,4,6,'m','run-1',3,1700000002.5,1700000003.25);
INSERT INTO "trajectories" VALUES(4,'rollout-3',1,'group-1',4,NULL,0,NULL,NULL,'train',NULL,'open',NULL,NULL,'open',NULL,0,0,0,NULL,NULL,NULL,NULL,1700000003.5,NULL);
INSERT INTO "trajectories" VALUES(5,'alone',1,NULL,NULL,NULL,0,NULL,NULL,'val',NULL,'open','{"style":0.5}',NULL,'open',NULL,1,0,0,7,NULL,NULL,NULL,1700000003.75,NULL);
CREATE INDEX trajectories_by_group ON trajectories (group_id);
CREATE INDEX trajectories_by_readiness ON trajectories (readiness, group_id);
CREATE INDEX batches_by_state ON batches (state, deadline);
CREATE INDEX exchanges_by_trajectory ON exchanges (trajectory);
CREATE INDEX steps_by_trajectory ON steps (trajectory);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',25);
INSERT INTO "sqlite_sequence" VALUES('trajectories',5);
INSERT INTO "sqlite_sequence" VALUES('steps',7);
INSERT INTO "sqlite_sequence" VALUES('dead_letters',1);
INSERT INTO "sqlite_sequence" VALUES('batches',3);
COMMIT;
