"""Tables of dataset versions."""

import sqlalchemy as sa
from alembic import op

from agentworld.pool.schema import Text, Whole

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the tables, which there is nothing to fill with."""
    op.create_table(
        "datasets",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("name", Text, nullable=False),
        sa.Column("digest", Text, nullable=True),
        sa.Column("manifest", Text, nullable=True),
        sa.Column("frozen", Whole, nullable=True),
        sa.Column("began_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("name", "digest"),
    )
    _index_where_there("datasets_by_freezing", "datasets", "frozen")
    op.create_index("datasets_by_name", "datasets", ["name", "frozen"])
    op.create_table(
        "dataset_rows",
        sa.Column("dataset", Whole, nullable=False),
        sa.Column("position", Whole, nullable=False),
        sa.Column("trajectory_id", Text, nullable=False),
        sa.Column("split", Text, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.Column("put_at", sa.Float(), nullable=False),
        sa.Column("compared", Whole, nullable=True),
        sa.ForeignKeyConstraint(["dataset"], ["datasets.pk"]),
        sa.PrimaryKeyConstraint("dataset", "position"),
    )
    op.create_index("dataset_rows_by_trajectory", "dataset_rows", ["trajectory_id", "dataset"])
    op.create_index("dataset_rows_by_split", "dataset_rows", ["dataset", "split", "position"])
    _index_where_there("dataset_rows_compared", "dataset_rows", "compared")


def _index_where_there(name: str, table: str, column: str) -> None:
    there = sa.text(f"{column} IS NOT NULL")
    op.create_index(name, table, [column], sqlite_where=there, postgresql_where=there)
