"""One trainer a folder: two would take batches from each other, and a checkpoint of one would undo the other's."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from agentworld.errors import ConfigError, ConflictError

_LOCK = ".lock"


@contextlib.contextmanager
def sole_trainer(folder: Path) -> Iterator[None]:
    """Hold the folder of checkpoints for as long as this lasts, and make it where it is not there. ConfigError where it
    cannot be made, ConflictError where another process holds it, if its file system has locks. The lock goes with the
    process, however that ends.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = (folder / _LOCK).open("wb")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made, or nothing written there: {error.strerror}", path="out") from None
    with held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(
                f"another process trains into {folder}", path="out", hint="Wait for it to end, or give another `out`"
            ) from None
        except OSError:
            pass  # There are no locks on this file system.
        yield
