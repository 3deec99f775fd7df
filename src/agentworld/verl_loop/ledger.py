"""Which leased batches are in which checkpoint, so that the pool has as consumed what the weights have learnt from.

    a step takes rows   -> `use` puts them and the step's number on the disk
    its checkpoint      -> `settle` acknowledges all up to that step
    restart             -> `resume` from the checkpoint's step: up to it acknowledged, all else given back

The number of the checkpoint alone decides, so it does not matter where between two lines a process dies.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import structlog

from agentworld.errors import ConfigError, ConflictError, NotFoundError
from agentworld.pool.consumer import BatchSource
from agentworld.records import BatchSpec

FILE = "agentworld.jsonl"
log = structlog.get_logger("agentworld.verl_loop")


class Used(msgspec.Struct, frozen=True):
    """One trajectory that step `step` trained on, with the lease under which it was handed out."""

    step: int
    batch_id: str
    epoch: int
    trajectory_id: str


class Ledger:
    """What was used and is not acknowledged, in a file of `folder`, where the checkpoints are."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder, FILE)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._used = self._read()

    def __len__(self) -> int:
        return len(self._used)

    def use(self, step: int, origins: Iterable[Mapping[str, Any]]) -> None:
        """Note rows that a step is about to train on, by their `origin` (agentworld.verl_loop.rows); those without a
        lease are held out, and passed over. On the disk when it returns.
        """
        new = {
            str(origin["trajectory_id"]): Used(
                step, str(origin["batch_id"]), int(origin["epoch"]), str(origin["trajectory_id"])
            )
            for origin in origins
            if origin.get("batch_id")
        }
        with self.path.open("ab") as file:
            file.write(b"".join(msgspec.json.encode(used) + b"\n" for used in new.values()))
            file.flush()
            os.fsync(file.fileno())
        self._used += new.values()

    def settle(self, step: int, source: BatchSource, consumer: str) -> int:
        """Acknowledge what steps up to `step` used, and forget it; returns how many were.

        A lease that has ended meanwhile is taken anew; what is no longer to be had (excluded or deleted since) is
        logged.
        """
        settled = 0
        for used in (each for each in self._used if each.step <= step):
            try:
                source.ack(used.batch_id, used.epoch)
            except (ConflictError, NotFoundError) as error:
                if not _anew(source, consumer, used):
                    log.warning("not_acknowledged", trajectory=used.trajectory_id, error=error.one_line())
                    continue
            settled += 1
        self._keep([each for each in self._used if each.step > step])
        return settled

    def resume(self, step: int, source: BatchSource, consumer: str) -> dict[str, list[str]]:
        """After a restart from the checkpoint of `step` (0: from nothing): acknowledge what it contains, release what
        else the consumer had leased. See Pool.resume.
        """
        applied = [each.batch_id for each in self._used if each.step <= step]
        found = source.resume(consumer, applied)
        self._keep([])
        return found

    def _read(self) -> list[Used]:
        data = self.path.read_bytes() if self.path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):  # The process died while it wrote: its step had not begun.
            os.truncate(self.path, len(whole))
        lines = whole.splitlines()
        try:
            return [msgspec.json.decode(line, type=Used) for line in lines]
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ConfigError(
                f"{self.path} is damaged: {error}",
                path=str(self.path),
                hint="Move it away: what it names is given back, and handed out again",
            ) from None

    def _keep(self, used: list[Used]) -> None:
        """Have these alone in the file, all of them or those before."""
        partial = self.path.with_suffix(".part")
        with partial.open("wb") as file:
            file.write(b"".join(msgspec.json.encode(each) + b"\n" for each in used))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)
        self._used = used


def _anew(source: BatchSource, consumer: str, used: Used) -> bool:
    spec = BatchSpec(method="sft", size=1, where=f"trajectory_id == '{used.trajectory_id}'", require=("tokens",))
    batch = source.lease(spec, consumer)
    if batch is None:
        return False
    source.ack(batch.batch_id, batch.epoch)
    return True
