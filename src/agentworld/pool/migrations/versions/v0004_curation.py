"""Tables of curation, evaluators and followers; events by trajectory and by channel; what feedback was given on."""

import json

import sqlalchemy as sa
from alembic import op

from agentworld.pool.schema import Text, Whole

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the tables, which there is nothing to fill with, and tell of each event whose it is."""
    op.create_table(
        "curation_policies",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("channel", Text, nullable=False),
        sa.Column("version", Text, nullable=False),
        sa.Column("policy", Text, nullable=False),
        sa.Column("source", Text, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("swept", Whole, nullable=True),
        sa.PrimaryKeyConstraint("pk"),
    )
    _index_where_there("curation_policies_sweeping", "curation_policies", "swept")
    op.create_index("curation_policies_by_channel", "curation_policies", ["channel", "pk"])
    op.create_table(
        "decisions",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("subject", Text, nullable=False),
        sa.Column("row_pk", Whole, nullable=False),
        sa.Column("by", Text, nullable=False),
        sa.Column("trajectory", Whole, nullable=False),
        sa.Column("verdict", Text, nullable=True),
        sa.Column("reason", Text, nullable=True),
        sa.Column("rule", Whole, nullable=True),
        sa.Column("policy", Text, nullable=True),
        sa.Column("labels", Text, nullable=True),
        sa.Column("said", Text, nullable=True),
        sa.Column("source", Text, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("subject", "row_pk", "by"),
    )
    op.create_index("decisions_by_trajectory", "decisions", ["trajectory"])
    op.create_table(
        "reviews",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("target", Text, nullable=False),
        sa.Column("target_id", Text, nullable=False),
        sa.Column("channel", Text, nullable=False),
        sa.Column("origin", Text, nullable=False),
        sa.Column("reason", Text, nullable=False),
        sa.Column("worth", sa.Float(), nullable=False),
        sa.Column("state", Text, nullable=False),
        sa.Column("claimed_by", Text, nullable=True),
        sa.Column("claimed_until", sa.Float(), nullable=True),
        sa.Column("skipped_by", Text, nullable=True),
        sa.Column("verdict", Text, nullable=True),
        sa.Column("resolved_by", Text, nullable=True),
        sa.Column("comment", Text, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("resolved_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("target", "target_id"),
    )
    op.create_index("reviews_by_worth", "reviews", ["state", "worth", "pk"])
    op.create_index("reviews_by_channel", "reviews", ["channel", "state", "worth", "pk"])
    op.create_table(
        "evaluations",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("evaluator", Text, nullable=False),
        sa.Column("target", Text, nullable=False),
        sa.Column("target_id", Text, nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("state", Text, nullable=False),
        sa.Column("scores", Text, nullable=True),
        sa.Column("details", Text, nullable=True),
        sa.Column("error", Text, nullable=True),
        sa.Column("attempts", Whole, nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("evaluator", "target", "target_id"),
    )
    op.create_index("evaluations_by_content", "evaluations", ["content", "fingerprint"])
    op.create_index("evaluations_by_target", "evaluations", ["target", "target_id"])
    op.create_index("evaluations_by_state", "evaluations", ["evaluator", "state", "pk"])
    op.create_table(
        "followers",
        sa.Column("name", Text, nullable=False),
        sa.Column("position", Whole, nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=True),
        sa.Column("revision", Whole, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.add_column("feedback", sa.Column("content", Text, nullable=True))
    op.add_column("events", sa.Column("channel", Text, nullable=True))
    _tell_channels()
    # SQLite's entries end with the primary key by themselves.
    order = [] if op.get_bind().dialect.name == "sqlite" else [sa.text("pk")]
    for name, column, by in (
        ("events_by_trajectory", "trajectory_id", "substr(trajectory_id, length(trajectory_id) - 3)"),
        ("events_by_channel", "channel", "channel"),
    ):
        there = sa.text(f"{column} IS NOT NULL")
        op.create_index(name, "events", [sa.text(by), *order], sqlite_where=there, postgresql_where=there)


def _tell_channels() -> None:
    op.execute(
        "UPDATE events SET channel = "
        # As pool.events.stored_channel: a channel may be called as what everybody is told is marked.
        "(SELECT CASE WHEN t.channel LIKE '*%' THEN '*' || t.channel ELSE t.channel END "
        "FROM trajectories t WHERE t.trajectory_id = events.trajectory_id) "
        "WHERE trajectory_id IS NOT NULL"
    )
    op.execute("UPDATE events SET channel = '*' WHERE kind IN ('policy.set', 'gateway.paused', 'gateway.resumed')")
    connection = op.get_bind()
    channels = {row[0]: row[1] for row in connection.execute(sa.text("SELECT group_id, channel FROM groups"))}
    channels = {name: f"*{channel}" if channel.startswith("*") else channel for name, channel in channels.items()}
    closed = connection.execute(sa.text("SELECT pk, data FROM events WHERE kind = 'group.closed' AND data IS NOT NULL"))
    rows = [{"row": row[0], "channel": channels.get(json.loads(row[1]).get("group_id"))} for row in closed]
    if rows:
        connection.execute(sa.text("UPDATE events SET channel = :channel WHERE pk = :row"), rows)


def _index_where_there(name: str, table: str, column: str, *more: str) -> None:
    there = sa.text(f"{column} IS NOT NULL")
    op.create_index(name, table, [column, *more], sqlite_where=there, postgresql_where=there)
