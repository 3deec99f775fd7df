"""Signals by their target's id, groups, annotations, media, the backlog of each consumer, pins and tombstones.

What the new columns count is computed from what is there, and primary keys go on from the highest that was ever used.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from agentworld.pool.migrations.filling_0002 import fill
from agentworld.pool.migrations.statistics_0002 import sample_no_content
from agentworld.pool.schema import Text, Whole

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create, extend and fill."""
    _create_tables()
    _extend_tables()
    _find_nodes_by_parent()
    _rekey_rewards()
    fill()
    _rekey_deliveries()
    sample_no_content()


def _create_tables() -> None:
    op.create_table(
        "media",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("media_type", Text, nullable=True),
        sa.Column("size", Whole, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("digest"),
    )
    op.create_table(
        "media_uses",
        sa.Column("node", Whole, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["message_nodes.pk"]),
        sa.PrimaryKeyConstraint("node", "digest"),
    )
    op.create_index("media_uses_by_digest", "media_uses", ["digest"])
    op.create_table(
        "feedback",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("feedback_id", Text, nullable=False),
        sa.Column("kind", Text, nullable=False),
        sa.Column("target", Text, nullable=False),
        sa.Column("target_id", Text, nullable=False),
        sa.Column("other_id", Text, nullable=True),
        sa.Column("name", Text, nullable=True),
        sa.Column("value", Text, nullable=True),
        sa.Column("comment", Text, nullable=True),
        sa.Column("source", Text, nullable=False),
        sa.Column("of_trajectory", Text, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("feedback_id"),
    )
    op.create_index("feedback_by_target", "feedback", ["target", "target_id"])
    op.create_table(
        "annotations",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("target", Text, nullable=False),
        sa.Column("target_id", Text, nullable=False),
        sa.Column("name", Text, nullable=False),
        sa.Column("source", Text, nullable=False),
        sa.Column("dtype", Text, nullable=False),
        sa.Column("shape", Text, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("per_token", Whole, nullable=False),
        sa.Column("of_trajectory", Text, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("target", "target_id", "name"),
    )
    op.create_table(
        "awaited",
        sa.Column("target", Text, nullable=False),
        sa.Column("target_id", Text, nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("target", "target_id"),
    )
    op.create_table(
        "groups",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("group_id", Text, nullable=False),
        sa.Column("channel", Text, nullable=False),
        sa.Column("size", Whole, nullable=True),
        sa.Column("timeout_at", sa.Float(), nullable=True),
        sa.Column("failures", Text, nullable=True),
        sa.Column("state", Text, nullable=False),
        sa.Column("closed_by", Text, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("closed_at", sa.Float(), nullable=True),
        sa.Column("members", Whole, nullable=False),
        sa.Column("ended", Whole, nullable=False),
        sa.Column("served", Whole, nullable=False),
        sa.Column("ready_seq", Whole, nullable=True),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("group_id"),
    )
    op.create_index("groups_by_timeout", "groups", ["state", "timeout_at"])
    op.create_index("groups_by_ready_seq", "groups", ["ready_seq"])
    op.create_table(
        "positions",
        sa.Column("consumer", Text, nullable=False),
        sa.Column("unit", Text, nullable=False),
        sa.Column("channel", Text, nullable=False),
        sa.Column("ready_seq", Whole, nullable=False),
        sa.Column("seed", Whole, nullable=False, server_default="0"),
        sa.ForeignKeyConstraint(["consumer"], ["consumers.name"]),
        sa.PrimaryKeyConstraint("consumer", "unit", "channel"),
    )
    op.create_table(
        "backlog",
        sa.Column("consumer", Text, nullable=False),
        sa.Column("unit", Text, nullable=False),
        sa.Column("channel", Text, nullable=False),
        sa.Column("key", Text, nullable=False),
        sa.Column("row_pk", Whole, nullable=False),
        sa.Column("place", Whole, nullable=False),
        sa.Column("rank", sa.Float(), nullable=False),
        sa.Column("shuffle", Whole, nullable=False),
        sa.Column("mark", Whole, nullable=False),
        sa.PrimaryKeyConstraint("consumer", "unit", "channel", "key"),
    )
    op.create_index("backlog_by_place", "backlog", ["consumer", "unit", "channel", "place"])
    op.create_index("backlog_by_rank", "backlog", ["consumer", "unit", "channel", "rank", "place"])
    op.create_index("backlog_by_shuffle", "backlog", ["consumer", "unit", "channel", "shuffle", "place"])
    op.create_index("backlog_by_mark", "backlog", ["consumer", "unit", "channel", "mark"])
    op.create_table(
        "pins",
        sa.Column("owner_kind", Text, nullable=False),
        sa.Column("owner", Text, nullable=False),
        sa.Column("target", Text, nullable=False),
        sa.Column("target_id", Text, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("owner_kind", "owner", "target", "target_id"),
    )
    op.create_index("pins_by_target", "pins", ["target", "target_id"])
    op.create_table(
        "tombstones",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("kind", Text, nullable=False),
        sa.Column("target_id", Text, nullable=False),
        sa.Column("reason", Text, nullable=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("kind", "target_id"),
    )


def _extend_tables() -> None:
    def counted(name: str) -> sa.Column[int]:
        return sa.Column(name, Whole, nullable=False, server_default="0")

    new: dict[str, list[sa.Column[Any]]] = {
        "trajectories": [
            sa.Column("sampling", Text),
            sa.Column("user_id", Text),
            sa.Column("priority", sa.Float(), nullable=False, server_default="0"),
            sa.Column("labels", Text),
            sa.Column("annotations", Text),
            counted("usable_steps"),
            counted("lacks"),
            counted("sampled_tokens"),
            counted("masked"),
            sa.Column("ready_seq", Whole),
        ],
        "steps": [counted("sampled"), sa.Column("annotations", Text)],
        "message_nodes": [counted("coding")],
        "tool_sets": [counted("coding")],
        "batches": [
            sa.Column("channel", Text),
            sa.Column("spec", Text),
            sa.Column("created_at", sa.Float()),
            sa.Column("ended_at", sa.Float()),
        ],
        "dead_letters": [sa.Column("kind", Text, nullable=False, server_default="step")],
        "batch_units": [
            sa.Column("row_pk", Whole),
            sa.Column("place", Whole),
            sa.Column("rank", sa.Float()),
            sa.Column("rewards", Text),
        ],
    }
    for table, added in new.items():
        for column in added:
            op.add_column(table, column)
    op.drop_index("trajectories_by_readiness", "trajectories")
    op.drop_index("trajectories_by_group", "trajectories")
    indexes: dict[str, dict[str, list[str]]] = {
        "trajectories": {
            "readiness": ["readiness", "pk"],
            "group": ["group_id", "rollout_index"],
            "channel": ["channel", "pk"],
            "status": ["status", "pk"],
            "creation": ["created_at"],
            "reward": ["reward"],
            "policy": ["policy_model", "policy_run", "policy_version"],
            "user": ["user_id"],
            "priority": ["priority"],
            "ready_seq": ["ready_seq"],
        },
        "steps": {
            "block": ["block"],
            "creation": ["created_at"],
            "channel": ["channel", "pk"],
        },
        "batches": {"consumer": ["consumer", "state"]},
        "batch_units": {"key": ["key"]},
    }
    for table, named in indexes.items():
        for name, columns in named.items():
            op.create_index(f"{table}_by_{name}", table, columns)
    for name in ("prompt_node", "reply_node", "tools", "reward"):
        there = sa.text(f"{name} IS NOT NULL")
        op.create_index(f"steps_by_{name}", "steps", [name], sqlite_where=there, postgresql_where=there)


def _find_nodes_by_parent() -> None:
    for table in ("token_blocks", "message_nodes"):
        if op.get_bind().dialect.name == "sqlite":
            # The constraint has no name there; giving it one takes a copy of the table, which drops it.
            named = {"uq": "uq_%(table_name)s_%(column_0_name)s"}
            with op.batch_alter_table(table, naming_convention=named) as copied:
                copied.drop_constraint(f"uq_{table}_digest", type_="unique")
        else:
            op.drop_constraint(f"{table}_digest_key", table, type_="unique")
        op.create_index(f"{table}_by_parent", table, ["parent", "digest"], unique=True)


def _rekey_rewards() -> None:
    op.create_table(
        "rewards_by_id",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("target", Text, nullable=False),
        sa.Column("target_id", Text, nullable=False),
        sa.Column("name", Text, nullable=False),
        sa.Column("source", Text, nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("details", Text, nullable=True),
        sa.Column("of_trajectory", Text, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("target", "target_id", "name", "source"),
    )
    for target in ("step", "trajectory"):
        table = "steps" if target == "step" else "trajectories"
        op.execute(
            f"INSERT INTO rewards_by_id (pk, target, target_id, name, source, value, details, created_at) "
            f"SELECT r.pk, r.target, t.{target}_id, r.name, r.source, r.value, r.details, r.created_at "
            f"FROM rewards r JOIN {table} t ON t.pk = r.target_pk WHERE r.target = '{target}'"
        )
    op.drop_table("rewards")
    op.rename_table("rewards_by_id", "rewards")
    if op.get_bind().dialect.name == "postgresql":
        # SQLite has no names for these.
        for end in ("pkey", "target_target_id_name_source_key"):
            op.execute(f"ALTER TABLE rewards RENAME CONSTRAINT rewards_by_id_{end} TO rewards_{end}")


def _rekey_deliveries() -> None:
    """By channel too, that of the batch, and free of batches."""
    op.create_table(
        "deliveries_by_channel",
        sa.Column("consumer", Text, nullable=False),
        sa.Column("unit", Text, nullable=False),
        sa.Column("key", Text, nullable=False),
        sa.Column("channel", Text, nullable=False),
        sa.Column("state", Text, nullable=False),
        sa.Column("batch", Whole, nullable=True),
        sa.Column("count", Whole, nullable=False),
        sa.Column("reason", Text, nullable=True),
        sa.ForeignKeyConstraint(["consumer"], ["consumers.name"]),
        sa.ForeignKeyConstraint(["batch"], ["batches.pk"]),
        sa.PrimaryKeyConstraint("consumer", "unit", "key", "channel"),
    )
    op.execute(
        "INSERT INTO deliveries_by_channel (consumer, unit, key, channel, state, batch, count) "
        "SELECT d.consumer, d.unit, d.key, b.channel, d.state, d.batch, d.count "
        "FROM deliveries d JOIN batches b ON b.pk = d.batch"
    )
    op.drop_table("deliveries")
    op.rename_table("deliveries_by_channel", "deliveries")
    if op.get_bind().dialect.name == "postgresql":
        for end in ("pkey", "consumer_fkey", "batch_fkey"):
            op.execute(f"ALTER TABLE deliveries RENAME CONSTRAINT deliveries_by_channel_{end} TO deliveries_{end}")
    poisoned = sa.text("state = 'poisoned'")
    op.create_index("deliveries_poisoned", "deliveries", ["consumer"], sqlite_where=poisoned, postgresql_where=poisoned)
