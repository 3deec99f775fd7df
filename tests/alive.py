"""Whether a process lives, for the tests that end some."""

import time
from pathlib import Path


def alive(pid: int) -> bool:
    """False once it is gone, or waits for its parent to hear of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_gone(pid: int, seconds: float = 150.0) -> None:
    """Wait for the end of a process that was killed; the kernel takes a moment."""
    deadline = time.monotonic() + seconds
    while alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still lives"
        time.sleep(0.01)
