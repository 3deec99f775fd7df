"""What a power loss must not take."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: str | Path) -> None:
    """Wait until the disk has a file's content, or the names in a folder; OSError where it fails."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
