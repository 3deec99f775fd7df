"""The PostgreSQL store."""

from agentworld.pool.postgres.pool import PostgresPool

__all__ = ["PostgresPool"]
