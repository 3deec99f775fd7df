"""PostgreSQL does less for each step; on SQLite nothing changes.

It leaves room on the pages of trajectories, which every step changes, and looks after references once a statement.
"""

from alembic import op

from agentworld.pool.schema.references import trigger_statements

revision = "0006"
down_revision = "0005"

_REFERENCES = (
    ("message_nodes", "parent", "message_nodes"),
    ("steps", "block", "token_blocks"),
    ("steps", "prompt_node", "message_nodes"),
    ("steps", "reply_node", "message_nodes"),
    ("steps", "tools", "tool_sets"),
    ("steps", "trajectory", "trajectories"),
    ("token_blocks", "parent", "token_blocks"),
)


def upgrade() -> None:
    """Pages that are full by now get room as their rows are changed."""
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute("ALTER TABLE trajectories SET (fillfactor = 50)")
    for table, column, _ in _REFERENCES:
        op.drop_constraint(f"{table}_{column}_fkey", table, type_="foreignkey")
    for statement in trigger_statements(_REFERENCES):
        op.get_bind().exec_driver_sql(statement)
