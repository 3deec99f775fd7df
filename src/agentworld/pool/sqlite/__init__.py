"""The SQLite store."""

from agentworld.pool.sqlite.pool import SqlitePool

__all__ = ["SqlitePool"]
