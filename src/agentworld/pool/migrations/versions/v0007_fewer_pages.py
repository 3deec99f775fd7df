"""A step changes fewer pages: indexes of columns that most rows lack hold only the rows that have them.

On SQLite new tables are without AUTOINCREMENT by now, for which every insertion looked through one more table and
changed it: their numbers come from counters. Tables that are there keep it, which is no harm.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_INDEXES = (
    ("trajectories", "group", ("group_id", "rollout_index")),
    ("trajectories", "reward", ("reward",)),
    ("trajectories", "policy", ("policy_model", "policy_run", "policy_version", "pk")),
    ("trajectories", "user", ("user_id", "pk")),
    ("trajectories", "ready_seq", ("ready_seq",)),
    ("groups", "ready_seq", ("ready_seq",)),
)


def upgrade() -> None:
    """Make the indexes anew."""
    for table, name, columns in _INDEXES:
        there = sa.text(f"{columns[0]} IS NOT NULL")
        op.drop_index(f"{table}_by_{name}", table)
        op.create_index(f"{table}_by_{name}", table, list(columns), sqlite_where=there, postgresql_where=there)
