"""The in-memory store."""

from agentworld.pool.memory.pool import MemoryPool

__all__ = ["MemoryPool"]
