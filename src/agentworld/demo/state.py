"""What a demo has done so far, on disk, so that running it again goes on where it stopped."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec

from agentworld.errors import ConfigError, ConflictError

# Everything that a demo writes into its folder; starting afresh removes these and nothing else.
WRITTEN = ("pool.db", "pool.db-wal", "pool.db-shm", "pool.db.lock", "weights", "logs", "metrics.json", "curve.png")
STAGES = ("collect", "fine-tune", "evaluate fine-tuned", "improve", "evaluate improved")


class DemoPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How much of each: sizes for one seed.

    `teacher_tasks`: expert trajectories per task set. `epochs`: passes of fine-tuning over them. `evaluation_tasks`:
    held-out tasks per task set. `iterations`: updates by GRPO, each on `groups` tasks per task set x `rollouts` by the
    agent in process, and `black_box_groups` tasks per task set x `rollouts` by the agent in a process of its own.
    """

    seed: int = 0
    teacher_tasks: int
    epochs: int
    evaluation_tasks: int
    iterations: int
    groups: int
    black_box_groups: int
    rollouts: int


class DemoState(msgspec.Struct, kw_only=True):
    """The stages that are complete with their wall seconds and figures, and the curve so far."""

    plan: DemoPlan
    seconds: dict[str, float] = {}
    figures: dict[str, Any] = {}
    curve: list[dict[str, Any]] = []

    @property
    def complete(self) -> bool:
        """Whether every stage is done."""
        return all(stage in self.seconds for stage in STAGES)


class DemoFolder:
    """The demo's folder, locked so that one demo works in it at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"
        self.weights = path / "weights"
        self.pool_url = f"sqlite:///{(path / 'pool.db').resolve()}"
        self._state_path = path / "state.json"
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / "demo.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be used: {error.strerror}", hint="Give another folder with --out"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ConflictError(f"another demo is at work in {path}", hint="Wait for it, or use --out") from None

    def close(self) -> None:
        """Let the next demo in."""
        os.close(self._lock)

    def open_state(self, plan: DemoPlan, *, fresh: bool) -> DemoState:
        """The state to go on from; a new one where there is none or `fresh` is asked for."""
        if fresh and self._state_path.exists():
            self._clear()
        try:
            state = msgspec.json.decode(self._state_path.read_bytes(), type=DemoState)
        except FileNotFoundError:
            there = [name for name in WRITTEN if (self.path / name).exists()]
            if there:
                raise ConflictError(
                    f"{self.path} holds {there[0]}, which no demo made", hint="Give another folder with --out"
                ) from None
            state = DemoState(plan=plan)
            self.save(state)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{self._state_path} cannot be read: {error}", hint="Start afresh with --fresh") from None
        if state.plan != plan:
            raise ConflictError(
                f"{self.path} holds a demo with other settings",
                hint="Start afresh with --fresh (make demo ARGS=--fresh), or use --out for another folder",
            )
        return state

    def save(self, state: DemoState) -> None:
        """Write the state so that a crash leaves either the old or the new one."""
        write_atomically(self._state_path, msgspec.json.format(msgspec.json.encode(state), indent=2))

    def _clear(self) -> None:
        for name in WRITTEN:
            entry = self.path / name
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)
        # Last, so that a demo whose clearing was cut short is still known as one.
        self._state_path.unlink()


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, durably."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
