"""What keeps a pool in order: retention, pins, deletion on request, garbage, checks; the rules and records of it."""

from agentworld.pool.keeping.records import (
    Collection,
    Deletion,
    Pin,
    Problem,
    Progress,
    Retention,
    Tombstone,
)

__all__ = ["Collection", "Deletion", "Pin", "Problem", "Progress", "Retention", "Tombstone"]
