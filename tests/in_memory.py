"""Where tests put their files: in memory where `make test` asks for it, as it cuts no power.

Each commit of a pool waits for its disk, which is most of what many tests take. What they promise of that is tested by
a file system that forgets what was not synced, and by `make test-faults`, which stays on the disk.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ROOM = 4 << 30  # A whole run has held under one GiB at a time.


def folder_in_memory() -> str | None:
    """A folder in memory, where TEST_FILES=memory asks for it and there is room; None where files go to the disk."""
    if os.environ.get("TEST_FILES") != "memory" or not os.access(_MEMORY, os.W_OK):
        return None
    return str(_MEMORY) if shutil.disk_usage(_MEMORY).free >= _ROOM else None
