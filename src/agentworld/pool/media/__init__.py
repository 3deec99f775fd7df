"""Media: blobs that messages name by digest, each stored once."""

from agentworld.pool.media.blob import MAX_BYTES, Medium, check_medium, media_digest, read_digest
from agentworld.pool.media.uses import media_uses_of

__all__ = ["MAX_BYTES", "Medium", "check_medium", "media_digest", "media_uses_of", "read_digest"]
