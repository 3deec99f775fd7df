"""Who may use the servers of a pool."""

from __future__ import annotations

from sqlalchemy import Column, Float, LargeBinary, UniqueConstraint

from agentworld.pool.schema.base import Text, growing

keys = growing(
    "keys",
    Column("key_id", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),  # of the secret, which nobody keeps
    Column("name", Text, nullable=False),
    Column("scopes", Text, nullable=False),  # JSON
    Column("channel", Text),
    Column("trajectory_id", Text),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("revoked_at", Float),
    UniqueConstraint("key_id"),
    UniqueConstraint("digest"),
)
