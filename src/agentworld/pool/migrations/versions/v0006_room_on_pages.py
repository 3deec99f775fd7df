"""PostgreSQL leaves room on the pages of trajectories, which every step changes; on SQLite nothing changes."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Pages that are full by now get room as their rows are changed."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE trajectories SET (fillfactor = 50)")
