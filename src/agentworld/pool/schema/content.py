"""Trajectories, steps, the forests, and media."""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Index, LargeBinary, Table

from agentworld.pool.schema.base import Text, Whole, by_block, growing, metadata, where_there
from agentworld.pool.schema.references import by_statement

trajectories = growing(
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
    where_there("trajectories_by_group", "group_id", "rollout_index"),
    Index("trajectories_by_readiness", "readiness", "pk"),
    Index("trajectories_by_channel", "channel", "pk"),
    Index("trajectories_by_status", "status", "pk"),
    by_block("trajectories_by_creation", "created_at"),
    where_there("trajectories_by_reward", "reward"),
    where_there("trajectories_by_policy", "policy_model", "policy_run", "policy_version", "pk"),
    where_there("trajectories_by_user", "user_id", "pk"),
    Index("trajectories_by_priority", "priority"),
    where_there("trajectories_by_ready_seq", "ready_seq"),
    # Every step changes its trajectory's row. Where the page has room, PostgreSQL leaves the entries of the ten indexes
    # as they are.
    full=50,
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

steps = growing(
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
    Index("steps_by_trajectory", "trajectory", "pk"),
    Index("steps_by_block", "block"),
    where_there("steps_by_prompt_node", "prompt_node"),
    where_there("steps_by_reply_node", "reply_node"),
    where_there("steps_by_tools", "tools"),
    by_block("steps_by_creation", "created_at"),
    Index("steps_by_channel", "channel", "pk"),
    where_there("steps_by_reward", "reward"),
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

by_statement(metadata, (token_blocks, message_nodes, steps))
