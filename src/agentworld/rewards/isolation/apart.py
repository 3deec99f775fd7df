"""Whether the kernel gives a namespace of processes, whose end is the end of everything in it."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ENTER = Path(__file__).parent / "enter.py"
_SECONDS = 60.0


@contextmanager
def written(plan: dict[str, Any]) -> Iterator[str]:
    """The path of a file that holds the plan for as long as the block runs."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(plan, file)
        file.flush()
        yield file.name


@functools.cache
def processes_apart() -> bool:
    """Whether the kernel gives a namespace of processes, which ends even what has left its process group."""
    if sys.platform != "linux":
        return False
    plan = {"mechanism": "processes", "command": ["true"], "environment": {}, "limits": [], "tied": True}
    reading, status = os.pipe()
    with written(plan) as path, os.fdopen(reading, "rb") as said:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(ENTER), path, str(status)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=[status],
            timeout=_SECONDS,
            check=False,
        )
        os.close(status)
        return done.returncode == 0 and b'"code": 0' in said.read()
