"""What a job says of each batch and evaluation: a line of JSON in its folder, an event of the pool, TensorBoard.

A checkpoint carries the numbers of its last batch, and the file says what was told already, so that who goes on after
a kill tells each of them.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from agentworld.errors import ConfigError
from agentworld.records import Metrics

if TYPE_CHECKING:
    from agentworld.trainers.reference import BatchMetrics

Kind = Literal["train", "evaluation"]
FILE, BOARD = "metrics.jsonl", "tensorboard"
_SAID_OTHERWISE = ("batch_id", "figures")


class MetricsBoard(Protocol):
    """The part of a pool that metrics need."""

    def add_metrics(self, metrics: Sequence[Metrics]) -> int:
        """See Pool.add_metrics."""


class Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of the file. `step`: the version of the policy. `at`: seconds since the epoch."""

    kind: Kind
    step: int
    values: dict[str, float | None]
    at: float = 0.0


class MetricsLog:
    """The numbers of one job in `folder`. `told`: which of them were told, as (kind, step)."""

    def __init__(self, folder: Path, run: str, board: MetricsBoard | None, *, tensorboard: bool = False) -> None:
        self._path = folder / FILE
        self._run = run
        self._board = board
        self.told = {(line.kind, line.step) for line in read_lines(self._path)}
        self._writer = open_tensorboard(folder / BOARD) if tensorboard else None

    def tell(self, kind: Kind, step: int, values: Mapping[str, float | None]) -> bool:
        """Tell everybody, once; False where that was done before. The file last: what it says, the others know. What is
        no number is told as null.
        """
        if (kind, step) in self.told:
            return False
        values = {name: each if each is not None and math.isfinite(each) else None for name, each in values.items()}
        if self._board is not None:
            self._board.add_metrics([Metrics(run=self._run, step=step, values=values, kind=kind)])
        if self._writer is not None:
            for name, value in values.items():
                if value is not None:
                    self._writer.add_scalar(f"{kind}/{name}", value, step)
            self._writer.flush()
        line = Line(kind=kind, step=step, values=values, at=time.time())
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.told.add((kind, step))
        return True

    def close(self) -> None:
        """Let go of files."""
        if self._writer is not None:
            self._writer.close()


def read_lines(path: Path) -> list[Line]:
    """The lines of a job's file. One that a kill cut short, at the end, is taken off it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    try:
        return [msgspec.json.decode(line, type=Line) for line in whole.splitlines()]
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} holds a line that is none of the trainer's: {error}", path=str(path)) from None


def batch_values(metrics: BatchMetrics) -> dict[str, float | None]:
    """The numbers of a batch by name; the method's own are among them."""
    said: dict[str, Any] = msgspec.to_builtins(metrics)
    return {name: value for name, value in said.items() if name not in _SAID_OTHERWISE} | metrics.figures


def open_tensorboard(folder: Path) -> Any:
    """A writer of event files; ConfigError where tensorboard is not there."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError(
            "tensorboard is not installed", path="tensorboard", hint="pip install 'agentworld[tensorboard]'"
        ) from None
    return SummaryWriter(str(folder))
