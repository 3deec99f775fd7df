"""The tables, in SQLAlchemy Core. Storage rows map explicitly from records: an API rename is no migration.

Times are seconds since the epoch, JSON is text, digests are 16 bytes. `pk` numbers grow in commit order.
"""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

SCHEMA_VERSION = "0001"

metadata = MetaData()


def _growing(name: str, *columns: Column[object] | UniqueConstraint | Index) -> Table:
    """A table whose numbers are never used twice, so that cursors and sequences stay valid after deletions."""
    return Table(name, metadata, Column("pk", Integer, primary_key=True), *columns, sqlite_autoincrement=True)


trajectories = _growing(
    "trajectories",
    Column("trajectory_id", Text, nullable=False, unique=True),
    Column("declared", Integer, nullable=False),  # 0 where only a step implied it so far
    Column("group_id", Text),
    Column("group_size", Integer),
    Column("rollout_index", Integer),
    Column("attempt", Integer, nullable=False),
    Column("task", Text),
    Column("agent", Text),
    Column("channel", Text, nullable=False),
    Column("metadata", Text),
    Column("status", Text, nullable=False),
    Column("rewards", Text),
    Column("reward", Float),
    Column("readiness", Text, nullable=False),
    Column("excluded_reason", Text),
    Column("step_count", Integer, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("response_tokens", Integer, nullable=False),
    Column("last_step", Integer),  # pk of the last step that is not excluded; no foreign key, which would be a circle
    Column("policy_model", Text),
    Column("policy_run", Text),
    Column("policy_version", Integer),
    Column("created_at", Float, nullable=False),
    Column("completed_at", Float),
    Index("trajectories_by_group", "group_id"),
    Index("trajectories_by_readiness", "readiness", "group_id"),
)

token_blocks = Table(
    "token_blocks",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("parent", Integer, ForeignKey("token_blocks.pk")),
    Column("ids", LargeBinary, nullable=False),  # 128 ids of 2, 3 or 4 little-endian bytes each
)

message_nodes = Table(
    "message_nodes",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("parent", Integer, ForeignKey("message_nodes.pk")),
    Column("depth", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

tool_sets = Table(
    "tool_sets",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("body", LargeBinary, nullable=False),
)

steps = _growing(
    "steps",
    Column("step_id", Text, nullable=False, unique=True),
    Column("content", LargeBinary, nullable=False),  # digest of what the caller said
    Column("trajectory", Integer, ForeignKey("trajectories.pk"), nullable=False),
    Column("exchange_id", Text),
    Column("choice_index", Integer, nullable=False),
    Column("channel", Text, nullable=False),
    Column("step_index", Integer, nullable=False),
    Column("parent_step_id", Text),
    Column("supersedes", Text),
    Column("fork_reason", Text),
    Column("agent", Text),
    Column("model", Text),
    Column("requested_model", Text),
    Column("policy_model", Text),
    Column("policy_run", Text),
    Column("policy_version", Integer),
    Column("dialect", Text),
    Column("token_source", Text, nullable=False),
    Column("vocabulary", Text),
    Column("finish_reason", Text),
    Column("prompt_length", Integer),
    Column("response_length", Integer),
    Column("present", Integer, nullable=False),  # bits: 1 prompt_ids, 2 response_ids, 4 prompt_messages
    Column("block", Integer, ForeignKey("token_blocks.pk")),  # last full block of prompt then reply
    Column("tail", LargeBinary),  # the ids after it, packed as those of a block
    Column("id_count", Integer, nullable=False),
    Column("mask", LargeBinary),  # count, then bits; absent where all ones
    Column("logprobs", LargeBinary),  # little-endian float32, NaN for null
    Column("logprob_space", Text),
    Column("tools", Integer, ForeignKey("tool_sets.pk")),
    Column("prompt_node", Integer, ForeignKey("message_nodes.pk")),
    Column("reply_node", Integer, ForeignKey("message_nodes.pk")),
    Column("reward", Float),
    Column("rewards", Text),
    Column("labels", Text),
    Column("metadata", Text),
    Column("call", Text),  # sampling, usage and version_spans
    Column("excluded_reason", Text),
    Column("late", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("latency_ms", Float),
    Index("steps_by_trajectory", "trajectory"),
)

exchanges = Table(
    "exchanges",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("exchange_id", Text, nullable=False, unique=True),
    Column("content", LargeBinary, nullable=False),
    Column("trajectory", Integer, ForeignKey("trajectories.pk"), nullable=False),
    Column("status", Text, nullable=False),  # ok, aborted or error
    Column("record", Text, nullable=False),  # the exchange without messages, tools, sampling and choices
    Index("exchanges_by_trajectory", "trajectory"),
)

rewards = Table(
    "rewards",
    metadata,
    Column("pk", Integer, primary_key=True),
    Column("target", Text, nullable=False),  # step or trajectory
    Column("target_pk", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("value", Float, nullable=False),
    Column("details", Text),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("target", "target_pk", "name", "source"),
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
)

policies = Table(
    "policies",
    metadata,
    Column("model", Text, primary_key=True),
    Column("run", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("current", Integer, nullable=False),  # 1 for the run of the model that speaks now
)

counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Integer, nullable=False),
)

consumers = Table(
    "consumers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("epoch", Integer, nullable=False),
)

batches = _growing(
    "batches",
    Column("batch_id", Text, nullable=False, unique=True),
    Column("consumer", Text, ForeignKey("consumers.name"), nullable=False),
    Column("unit", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("deadline", Float, nullable=False),
    Column("state", Text, nullable=False),
    Index("batches_by_state", "state", "deadline"),
)

batch_units = Table(
    "batch_units",
    metadata,
    Column("batch", Integer, ForeignKey("batches.pk"), primary_key=True),
    Column("key", Text, primary_key=True),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("consumer", Text, ForeignKey("consumers.name"), primary_key=True),
    Column("unit", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("state", Text, nullable=False),  # available, leased or acknowledged
    Column("batch", Integer, ForeignKey("batches.pk"), nullable=False),
    Column("count", Integer, nullable=False),
)
