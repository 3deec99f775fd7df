"""The first schema."""

import sqlalchemy as sa
from alembic import op

from agentworld.pool.schema import Text, Whole

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "consumers",
        sa.Column("name", Text, nullable=False),
        sa.Column("epoch", Whole, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "counters",
        sa.Column("name", Text, nullable=False),
        sa.Column("value", Whole, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "dead_letters",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("step_id", Text, nullable=False),
        sa.Column("trajectory_id", Text, nullable=False),
        sa.Column("reason", Text, nullable=False),
        sa.Column("record", Text, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
    )
    op.create_table(
        "events",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("kind", Text, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("trajectory_id", Text, nullable=True),
        sa.Column("step_id", Text, nullable=True),
        sa.Column("data", Text, nullable=True),
        sa.PrimaryKeyConstraint("pk"),
    )
    op.create_table(
        "message_nodes",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("parent", Whole, nullable=True),
        sa.Column("depth", Whole, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["parent"],
            ["message_nodes.pk"],
        ),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("digest"),
    )
    op.create_table(
        "policies",
        sa.Column("model", Text, nullable=False),
        sa.Column("run", Text, nullable=False),
        sa.Column("version", Whole, nullable=False),
        sa.Column("current", Whole, nullable=False),
        sa.PrimaryKeyConstraint("model", "run"),
    )
    op.create_table(
        "rewards",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("target", Text, nullable=False),
        sa.Column("target_pk", Whole, nullable=False),
        sa.Column("name", Text, nullable=False),
        sa.Column("source", Text, nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("details", Text, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("target", "target_pk", "name", "source"),
    )
    op.create_table(
        "token_blocks",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("parent", Whole, nullable=True),
        sa.Column("ids", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["parent"],
            ["token_blocks.pk"],
        ),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("digest"),
    )
    op.create_table(
        "tool_sets",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("digest"),
    )
    op.create_table(
        "trajectories",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("trajectory_id", Text, nullable=False),
        sa.Column("declared", Whole, nullable=False),
        sa.Column("group_id", Text, nullable=True),
        sa.Column("group_size", Whole, nullable=True),
        sa.Column("rollout_index", Whole, nullable=True),
        sa.Column("attempt", Whole, nullable=False),
        sa.Column("task", Text, nullable=True),
        sa.Column("agent", Text, nullable=True),
        sa.Column("channel", Text, nullable=False),
        sa.Column("metadata", Text, nullable=True),
        sa.Column("status", Text, nullable=False),
        sa.Column("rewards", Text, nullable=True),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("readiness", Text, nullable=False),
        sa.Column("excluded_reason", Text, nullable=True),
        sa.Column("step_count", Whole, nullable=False),
        sa.Column("prompt_tokens", Whole, nullable=False),
        sa.Column("response_tokens", Whole, nullable=False),
        sa.Column("last_step", Whole, nullable=True),
        sa.Column("policy_model", Text, nullable=True),
        sa.Column("policy_run", Text, nullable=True),
        sa.Column("policy_version", Whole, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("completed_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("trajectory_id"),
    )
    op.create_index("trajectories_by_group", "trajectories", ["group_id"], unique=False)
    op.create_index("trajectories_by_readiness", "trajectories", ["readiness", "group_id"], unique=False)
    op.create_table(
        "batches",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("batch_id", Text, nullable=False),
        sa.Column("consumer", Text, nullable=False),
        sa.Column("unit", Text, nullable=False),
        sa.Column("method", Text, nullable=False),
        sa.Column("epoch", Whole, nullable=False),
        sa.Column("deadline", sa.Float(), nullable=False),
        sa.Column("state", Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["consumer"],
            ["consumers.name"],
        ),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("batch_id"),
    )
    op.create_index("batches_by_state", "batches", ["state", "deadline"], unique=False)
    op.create_table(
        "exchanges",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("exchange_id", Text, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("trajectory", Whole, nullable=False),
        sa.Column("status", Text, nullable=False),
        sa.Column("record", Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["trajectory"],
            ["trajectories.pk"],
        ),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("exchange_id"),
    )
    op.create_index("exchanges_by_trajectory", "exchanges", ["trajectory"], unique=False)
    op.create_table(
        "steps",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("step_id", Text, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("trajectory", Whole, nullable=False),
        sa.Column("exchange_id", Text, nullable=True),
        sa.Column("choice_index", Whole, nullable=False),
        sa.Column("channel", Text, nullable=False),
        sa.Column("step_index", Whole, nullable=False),
        sa.Column("parent_step_id", Text, nullable=True),
        sa.Column("supersedes", Text, nullable=True),
        sa.Column("fork_reason", Text, nullable=True),
        sa.Column("agent", Text, nullable=True),
        sa.Column("model", Text, nullable=True),
        sa.Column("requested_model", Text, nullable=True),
        sa.Column("policy_model", Text, nullable=True),
        sa.Column("policy_run", Text, nullable=True),
        sa.Column("policy_version", Whole, nullable=True),
        sa.Column("dialect", Text, nullable=True),
        sa.Column("token_source", Text, nullable=False),
        sa.Column("vocabulary", Text, nullable=True),
        sa.Column("finish_reason", Text, nullable=True),
        sa.Column("prompt_length", Whole, nullable=True),
        sa.Column("response_length", Whole, nullable=True),
        sa.Column("present", Whole, nullable=False),
        sa.Column("block", Whole, nullable=True),
        sa.Column("tail", sa.LargeBinary(), nullable=True),
        sa.Column("id_count", Whole, nullable=False),
        sa.Column("mask", sa.LargeBinary(), nullable=True),
        sa.Column("logprobs", sa.LargeBinary(), nullable=True),
        sa.Column("logprob_space", Text, nullable=True),
        sa.Column("tools", Whole, nullable=True),
        sa.Column("prompt_node", Whole, nullable=True),
        sa.Column("reply_node", Whole, nullable=True),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("rewards", Text, nullable=True),
        sa.Column("labels", Text, nullable=True),
        sa.Column("metadata", Text, nullable=True),
        sa.Column("call", Text, nullable=True),
        sa.Column("excluded_reason", Text, nullable=True),
        sa.Column("late", Whole, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("latency_ms", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["block"],
            ["token_blocks.pk"],
        ),
        sa.ForeignKeyConstraint(
            ["prompt_node"],
            ["message_nodes.pk"],
        ),
        sa.ForeignKeyConstraint(
            ["reply_node"],
            ["message_nodes.pk"],
        ),
        sa.ForeignKeyConstraint(
            ["tools"],
            ["tool_sets.pk"],
        ),
        sa.ForeignKeyConstraint(
            ["trajectory"],
            ["trajectories.pk"],
        ),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("step_id"),
    )
    op.create_index("steps_by_trajectory", "steps", ["trajectory"], unique=False)
    op.create_table(
        "batch_units",
        sa.Column("batch", Whole, nullable=False),
        sa.Column("key", Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["batch"],
            ["batches.pk"],
        ),
        sa.PrimaryKeyConstraint("batch", "key"),
    )
    op.create_table(
        "deliveries",
        sa.Column("consumer", Text, nullable=False),
        sa.Column("unit", Text, nullable=False),
        sa.Column("key", Text, nullable=False),
        sa.Column("state", Text, nullable=False),
        sa.Column("batch", Whole, nullable=False),
        sa.Column("count", Whole, nullable=False),
        sa.ForeignKeyConstraint(
            ["batch"],
            ["batches.pk"],
        ),
        sa.ForeignKeyConstraint(
            ["consumer"],
            ["consumers.name"],
        ),
        sa.PrimaryKeyConstraint("consumer", "unit", "key"),
    )
