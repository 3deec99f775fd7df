"""Groups for rollouts of one task, named by what the file says of them, so that they are the same wherever it lies."""

from __future__ import annotations

import hashlib
from typing import Any

from agentworld.records import exact_json


def group_of(format: str, *said: Any) -> str:
    """The id of a group of rollouts: a digest of what they have in common."""
    digest = hashlib.blake2b(exact_json.encode([format, *said]), digest_size=10).hexdigest()
    return f"{format}-{digest}"
