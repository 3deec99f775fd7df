"""A pool, or a part of it, as a folder of Parquet files, and back."""

from agentworld.pool.parquet.manifest import Imported, Manifest

__all__ = ["Imported", "Manifest"]
