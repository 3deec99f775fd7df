"""What PostgreSQL's planner must not sample: its statistics would hold content after it was deleted.

The server copies frequent and evenly spaced values of each column into a catalogue of its own, which outlives the rows
and the rewriting of the tables. None of these columns is one by whose values the planner must choose: look-ups by them
have an index that they begin with, or no index.
"""

from __future__ import annotations

from alembic import op

_COLUMNS = {
    "trajectories": "group_id task agent metadata rewards labels annotations sampling user_id policy_model policy_run",
    "token_blocks": "digest ids",
    "message_nodes": "digest body",
    "tool_sets": "digest body",
    "media": "digest media_type data",
    "media_uses": "digest",
    "steps": "content exchange_id fork_reason agent model requested_model policy_model policy_run vocabulary "
    "finish_reason tail mask logprobs rewards labels metadata call annotations",
    "exchanges": "exchange_id content record",
    "rewards": "name source details",
    "feedback": "feedback_id name value comment source",
    "annotations": "name source shape data",
    "events": "data",
    "dead_letters": "step_id trajectory_id reason record",
    "batch_units": "rewards",
}


def sample_no_content() -> None:
    """On PostgreSQL; SQLite keeps statistics only where it is asked to, and those count rows."""
    if op.get_bind().dialect.name != "postgresql":
        return
    for table, columns in _COLUMNS.items():
        changes = ", ".join(f"ALTER COLUMN {column} SET STATISTICS 0" for column in columns.split())
        op.execute(f"ALTER TABLE {table} {changes}")
