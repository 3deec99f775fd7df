"""Worker processes of gateways, so that a pause can tell when all have drained."""

import sqlalchemy as sa
from alembic import op

from agentworld.pool.schema import Text, Whole

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the tables; there is nothing to fill them with."""
    op.create_table(
        "gateway_workers",
        sa.Column("worker", Text, nullable=False),
        sa.Column("in_flight", Whole, nullable=False),
        sa.Column("pauses", Whole, nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("worker"),
    )
