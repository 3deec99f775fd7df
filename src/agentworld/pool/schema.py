"""The tables, in SQLAlchemy Core. Storage rows map explicitly from records: an API rename is no migration.

Times are seconds since the epoch, JSON is text, digests are 16 bytes. `pk` numbers grow in commit order, are allotted
by the one writer of the moment from the counters `pk.TABLE`, and are never used twice. `target` is `step` or
`trajectory`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    UniqueConstraint,
    text,
)
from sqlalchemy import Text as AnyText

SCHEMA_VERSION = "0002"

# 64 bits on every engine.
Whole = BigInteger().with_variant(Integer(), "sqlite")
# Ordered by code points, whatever the language of the server; its rules change with updates and would spoil indexes.
Text = AnyText().with_variant(AnyText(collation="C"), "postgresql")

metadata = MetaData()


def _growing(name: str, *columns: Column[object] | UniqueConstraint | Index) -> Table:
    """A table whose numbers are never used twice, so that cursors and sequences stay valid after deletions."""
    return Table(
        name, metadata, Column("pk", Whole, primary_key=True, autoincrement=False), *columns, sqlite_autoincrement=True
    )


def _where_there(name: str, column: str) -> Index:
    """An index of the rows that have the column, for one that most rows may lack."""
    there = text(f"{column} IS NOT NULL")
    return Index(name, column, sqlite_where=there, postgresql_where=there)


trajectories = _growing(
    "trajectories",
    Column("trajectory_id", Text, nullable=False, unique=True),
    Column("declared", Whole, nullable=False),  # 0 where only a step implied it so far
    Column("group_id", Text),
    Column("group_size", Whole),
    Column("rollout_index", Whole),
    Column("attempt", Whole, nullable=False),
    Column("task", Text),
    Column("agent", Text),
    Column("channel", Text, nullable=False),
    Column("metadata", Text),
    Column("status", Text, nullable=False),
    Column("rewards", Text),
    Column("reward", Float),
    Column("readiness", Text, nullable=False),
    Column("excluded_reason", Text),
    Column("step_count", Whole, nullable=False),
    Column("prompt_tokens", Whole, nullable=False),
    Column("response_tokens", Whole, nullable=False),
    Column("last_step", Whole),  # pk of the last step that is not excluded; no foreign key, which would be a circle
    Column("policy_model", Text),
    Column("policy_run", Text),
    Column("policy_version", Whole),
    Column("created_at", Float, nullable=False),
    Column("completed_at", Float),
    Column("sampling", Text),  # of its first step that had any, as JSON; steps with the same do not repeat it
    Column("user_id", Text),
    Column("priority", Float, nullable=False, server_default="0"),
    Column("labels", Text),
    Column("annotations", Text),  # names, as a JSON list
    # Of the steps that are not excluded and in the trajectory's channel: how many there are, the LACKS_* bits of what
    # any of them lacks, and how many of their reply tokens the policy sampled.
    Column("usable_steps", Whole, nullable=False, server_default="0"),
    Column("lacks", Whole, nullable=False, server_default="0"),
    Column("sampled_tokens", Whole, nullable=False, server_default="0"),
    Column(
        "masked", Whole, nullable=False, server_default="0"
    ),  # 1: served for its group's statistics, not for training
    Column("ready_seq", Whole),  # grows each time it becomes fit to be served; what a consumer goes on from
    Index("trajectories_by_group", "group_id", "rollout_index"),
    Index("trajectories_by_readiness", "readiness", "pk"),
    Index("trajectories_by_channel", "channel", "pk"),
    Index("trajectories_by_status", "status", "pk"),
    Index("trajectories_by_creation", "created_at"),
    Index("trajectories_by_reward", "reward"),
    Index("trajectories_by_policy", "policy_model", "policy_run", "policy_version"),
    Index("trajectories_by_user", "user_id"),
    Index("trajectories_by_priority", "priority"),
    Index("trajectories_by_ready_seq", "ready_seq"),
)

# Nodes of the forests are found by their parent, then their digest: what is new has a parent that is nearly new, so the
# index grows at its end, and writing touches as many pages in a large pool as in a small one.
token_blocks = Table(
    "token_blocks",
    metadata,
    Column("pk", Whole, primary_key=True, autoincrement=False),
    Column("digest", LargeBinary, nullable=False),
    Column("parent", Whole, ForeignKey("token_blocks.pk")),
    Column("ids", LargeBinary, nullable=False),  # 128 ids of 2, 3 or 4 little-endian bytes each
    Index("token_blocks_by_parent", "parent", "digest", unique=True),
)

message_nodes = Table(
    "message_nodes",
    metadata,
    Column("pk", Whole, primary_key=True, autoincrement=False),
    Column("digest", LargeBinary, nullable=False),
    Column("parent", Whole, ForeignKey("message_nodes.pk")),
    Column("depth", Whole, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("coding", Whole, nullable=False, server_default="0"),  # of the body, see pool.sql.bodies
    Index("message_nodes_by_parent", "parent", "digest", unique=True),
)

tool_sets = Table(
    "tool_sets",
    metadata,
    Column("pk", Whole, primary_key=True, autoincrement=False),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("body", LargeBinary, nullable=False),
    Column("coding", Whole, nullable=False, server_default="0"),
)

media = Table(
    "media",
    metadata,
    Column("pk", Whole, primary_key=True, autoincrement=False),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("media_type", Text),
    Column("size", Whole, nullable=False),  # bytes
    Column("data", LargeBinary),  # null where the blob lies in the pool's media folder
    Column("created_at", Float, nullable=False),
)

media_uses = Table(
    "media_uses",
    metadata,
    Column("node", Whole, ForeignKey("message_nodes.pk"), primary_key=True),
    Column("digest", LargeBinary, primary_key=True),  # of a blob that may come later
    Index("media_uses_by_digest", "digest"),
)

steps = _growing(
    "steps",
    Column("step_id", Text, nullable=False, unique=True),
    Column("content", LargeBinary, nullable=False),  # digest of what the caller said
    Column("trajectory", Whole, ForeignKey("trajectories.pk"), nullable=False),
    Column("exchange_id", Text),
    Column("choice_index", Whole, nullable=False),
    Column("channel", Text, nullable=False),
    Column("step_index", Whole, nullable=False),
    Column("parent_step_id", Text),
    Column("supersedes", Text),
    Column("fork_reason", Text),
    Column("agent", Text),
    Column("model", Text),
    Column("requested_model", Text),
    Column("policy_model", Text),
    Column("policy_run", Text),
    Column("policy_version", Whole),
    Column("dialect", Text),
    Column("token_source", Text, nullable=False),
    Column("vocabulary", Text),
    Column("finish_reason", Text),
    Column("prompt_length", Whole),
    Column("response_length", Whole),
    Column("present", Whole, nullable=False),  # bits of pool.sql.rows: what the step has
    Column("block", Whole, ForeignKey("token_blocks.pk")),  # last full block of prompt then reply
    Column("tail", LargeBinary),  # the ids after it, packed as those of a block
    Column("id_count", Whole, nullable=False),
    Column("mask", LargeBinary),  # count, then bits; absent where all ones
    Column("logprobs", LargeBinary),  # little-endian float32, NaN for null
    Column("logprob_space", Text),
    Column("tools", Whole, ForeignKey("tool_sets.pk")),
    Column("prompt_node", Whole, ForeignKey("message_nodes.pk")),
    Column("reply_node", Whole, ForeignKey("message_nodes.pk")),
    Column("reward", Float),
    Column("rewards", Text),
    Column("labels", Text),
    Column("metadata", Text),
    Column("call", Text),  # what `present` does not tell of sampling and usage, and version_spans
    Column("excluded_reason", Text),
    Column("late", Whole, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("latency_ms", Float),
    Column("sampled", Whole, nullable=False, server_default="0"),  # reply tokens that the policy sampled
    Column("annotations", Text),  # names, as a JSON list
    Index("steps_by_trajectory", "trajectory"),
    Index("steps_by_block", "block"),
    _where_there("steps_by_prompt_node", "prompt_node"),
    _where_there("steps_by_reply_node", "reply_node"),
    _where_there("steps_by_tools", "tools"),
    Index("steps_by_creation", "created_at"),
    Index("steps_by_channel", "channel", "pk"),
    _where_there("steps_by_reward", "reward"),
)

exchanges = Table(
    "exchanges",
    metadata,
    Column("pk", Whole, primary_key=True, autoincrement=False),
    Column("exchange_id", Text, nullable=False, unique=True),
    Column("content", LargeBinary, nullable=False),
    Column("trajectory", Whole, ForeignKey("trajectories.pk"), nullable=False),
    Column("status", Text, nullable=False),  # ok, aborted or error
    Column("record", Text, nullable=False),  # the exchange without messages, tools, sampling and choices
    Index("exchanges_by_trajectory", "trajectory"),
)

# Signals name their target by its id, since they may come before it, and stay where it never comes.
rewards = Table(
    "rewards",
    metadata,
    Column("pk", Whole, primary_key=True, autoincrement=False),
    Column("target", Text, nullable=False),
    Column("target_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("value", Float, nullable=False),
    Column("details", Text),
    Column("of_trajectory", Text),  # the trajectory that the caller said the step is of
    Column("created_at", Float, nullable=False),
    UniqueConstraint("target", "target_id", "name", "source"),
)

feedback = _growing(
    "feedback",
    Column("feedback_id", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),  # rating, label, correction, comparison or comment
    Column("target", Text, nullable=False),
    Column("target_id", Text, nullable=False),
    Column("other_id", Text),  # what the target is preferred to, of a comparison
    Column("name", Text),
    Column("value", Text),  # JSON
    Column("comment", Text),  # JSON
    Column("source", Text, nullable=False),
    Column("of_trajectory", Text),
    Column("created_at", Float, nullable=False),
    Index("feedback_by_target", "target", "target_id"),
)

annotation_arrays = Table(
    "annotations",
    metadata,
    Column("pk", Whole, primary_key=True, autoincrement=False),
    Column("target", Text, nullable=False),
    Column("target_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("dtype", Text, nullable=False),
    Column("shape", Text, nullable=False),  # JSON list
    Column("data", LargeBinary, nullable=False),  # little-endian, row by row
    Column("per_token", Whole, nullable=False),  # 1: its first dimension is the reply's length
    Column("of_trajectory", Text),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("target", "target_id", "name"),
)

# Targets that signals have named and that are not there yet; nearly always few.
awaited = Table(
    "awaited",
    metadata,
    Column("target", Text, primary_key=True),
    Column("target_id", Text, primary_key=True),
    Column("since", Float, nullable=False),
)

groups = _growing(
    "groups",
    Column("group_id", Text, nullable=False, unique=True),
    Column("channel", Text, nullable=False),
    Column("size", Whole),  # closes once this many rollouts have ended
    Column("timeout_at", Float),  # closes then with what is there
    Column("failures", Text),  # zero, mask or drop; null where nobody has said, which is as drop
    Column("state", Text, nullable=False),  # open or closed
    Column("closed_by", Text),  # size or timeout
    Column("created_at", Float, nullable=False),
    Column("closed_at", Float),
    Column("members", Whole, nullable=False),
    Column("ended", Whole, nullable=False),
    Column("served", Whole, nullable=False),  # members that are fit to be served
    Column("ready_seq", Whole),
    Index("groups_by_timeout", "state", "timeout_at"),
    Index("groups_by_ready_seq", "ready_seq"),
)

events = _growing(
    "events",
    Column("kind", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("trajectory_id", Text),
    Column("step_id", Text),
    Column("data", Text),
)

dead_letters = _growing(
    "dead_letters",
    Column("step_id", Text, nullable=False),
    Column("trajectory_id", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("record", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("kind", Text, nullable=False, server_default="step"),  # or reward, feedback, annotation
)

policies = Table(
    "policies",
    metadata,
    Column("model", Text, primary_key=True),
    Column("run", Text, primary_key=True),
    Column("version", Whole, nullable=False),
    Column("current", Whole, nullable=False),  # 1 for the run of the model that speaks now
)

counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Whole, nullable=False),
)

consumers = Table(
    "consumers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("epoch", Whole, nullable=False),
)

# How far a consumer has taken what became fit to be served into its backlog.
positions = Table(
    "positions",
    metadata,
    Column("consumer", Text, ForeignKey("consumers.name"), primary_key=True),
    Column("unit", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("ready_seq", Whole, nullable=False),
    Column("seed", Whole, nullable=False, server_default="0"),  # that the backlog is shuffled with
)

# What a consumer may still lease; a lease takes its units out, a release puts them back.
backlog = Table(
    "backlog",
    metadata,
    Column("consumer", Text, primary_key=True),
    Column("unit", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("row_pk", Whole, nullable=False),  # pk of the step, trajectory, group or feedback
    Column("place", Whole, nullable=False),  # the order in which units became fit to be served
    Column("rank", Float, nullable=False),  # the priority, negated: with the place it ascends
    Column("shuffle", Whole, nullable=False),  # order by chance
    Index("backlog_by_place", "consumer", "unit", "channel", "place"),
    Index("backlog_by_rank", "consumer", "unit", "channel", "rank", "place"),
    Index("backlog_by_shuffle", "consumer", "unit", "channel", "shuffle", "place"),
)

batches = _growing(
    "batches",
    Column("batch_id", Text, nullable=False, unique=True),
    Column("consumer", Text, ForeignKey("consumers.name"), nullable=False),
    Column("unit", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("epoch", Whole, nullable=False),
    Column("deadline", Float, nullable=False),
    Column("state", Text, nullable=False),
    Column("channel", Text),
    Column("spec", Text),  # JSON
    Column("created_at", Float),
    Column("ended_at", Float),
    Index("batches_by_state", "state", "deadline"),
    Index("batches_by_consumer", "consumer", "state"),
)

batch_units = Table(
    "batch_units",
    metadata,
    Column("batch", Whole, ForeignKey("batches.pk"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("row_pk", Whole),  # this and the next two as in the backlog, for when the unit comes back
    Column("place", Whole),
    Column("rank", Float),
    Column("rewards", Text),  # as they were at the lease, JSON
    Index("batch_units_by_key", "key"),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("consumer", Text, ForeignKey("consumers.name"), primary_key=True),
    Column("unit", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("state", Text, nullable=False),  # available, leased, acknowledged, dropped or poisoned
    Column("batch", Whole, ForeignKey("batches.pk")),
    Column("count", Whole, nullable=False),
    Column("reason", Text),  # why it was dropped or poisoned
    Index(
        "deliveries_poisoned",
        "consumer",
        sqlite_where=text("state = 'poisoned'"),
        postgresql_where=text("state = 'poisoned'"),
    ),
)

pins = Table(
    "pins",
    metadata,
    Column("owner_kind", Text, primary_key=True),  # such as dataset
    Column("owner", Text, primary_key=True),
    Column("target", Text, primary_key=True),
    Column("target_id", Text, primary_key=True),
    Column("created_at", Float, nullable=False),
    Index("pins_by_target", "target", "target_id"),
)

# What was deleted on request stays named, so that it does not come back and its absence is explained.
tombstones = _growing(
    "tombstones",
    Column("kind", Text, nullable=False),  # trajectory, step or user
    Column("target_id", Text, nullable=False),
    Column("reason", Text),
    Column("at", Float, nullable=False),
    UniqueConstraint("kind", "target_id"),
)
