"""Worker processes of gateways, so that a pause can tell when all have drained; keys; indexes that pages walk by."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from agentworld.pool.schema import Text, Whole

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the tables, which there is nothing to fill with, and make some indexes anew."""
    op.create_table(
        "gateway_workers",
        sa.Column("worker", Text, nullable=False),
        sa.Column("in_flight", Whole, nullable=False),
        sa.Column("pauses", Whole, nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("worker"),
    )
    op.create_table(
        "keys",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("key_id", Text, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("name", Text, nullable=False),
        sa.Column("scopes", Text, nullable=False),
        sa.Column("channel", Text, nullable=True),
        sa.Column("trajectory_id", Text, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("key_id"),
        sa.UniqueConstraint("digest"),
    )
    op.create_table(
        "call_marks",
        sa.Column("mark", sa.LargeBinary(), nullable=False),
        sa.Column("trajectory_id", Text, nullable=False),
        sa.Column("said", Text, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("mark", "trajectory_id"),
    )
    op.create_index("call_marks_by_trajectory", "call_marks", ["trajectory_id"])
    asked = sa.text("said = 'asked'")
    op.create_index("call_marks_asked", "call_marks", ["at"], sqlite_where=asked, postgresql_where=asked)
    by_block = sa.text("(pk >> 11)")
    indexes: dict[str, dict[str, list[Any]]] = {
        "trajectories": {
            "creation": [by_block, "created_at"],
            "policy": ["policy_model", "policy_run", "policy_version", "pk"],
            "user": ["user_id", "pk"],
        },
        "steps": {"creation": [by_block, "created_at"], "trajectory": ["trajectory", "pk"]},
    }
    for table, named in indexes.items():
        for name, columns in named.items():
            include = ["pk"] if name == "creation" else None
            op.drop_index(f"{table}_by_{name}", table)
            op.create_index(f"{table}_by_{name}", table, columns, postgresql_include=include)
    whole = sa.text("row_pk >= 0")
    for name, columns in {"place": [], "rank": ["place"], "shuffle": ["place"], "mark": []}.items():
        op.drop_index(f"backlog_by_{name}", "backlog")
        op.create_index(
            f"backlog_by_{name}",
            "backlog",
            ["consumer", "unit", "channel", name, *columns],
            sqlite_where=whole,
            postgresql_where=whole,
        )
