"""Reading what leased batches hold, outside of the pool's lock: by one thread of the process after the other.

Nearly all of it holds the interpreter's lock, which threads that read side by side would hand to one another at every
row. On an engine that works in this process the first of those that leased in one transaction reads for all of them,
one batch after the other, while they sleep; then all acknowledge together, and lease together again. It lets other
processes have its processor after each statement: one of them may have the pool's lock, for which many wait.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from agentworld.pool import rules
from agentworld.pool.sql.connections import Asked, Database, Reader, Row
from agentworld.pool.sql.gathered import Company
from agentworld.pool.sql.items import ask_items, read_items
from agentworld.pool.sql.policies import ask_policies, current_policies
from agentworld.pool.sql.statements import Statement
from agentworld.pool.sql.taking import Taken
from agentworld.pool.sql.units import Plan

_NOTHING: Mapping[str, Any] = {}
TOGETHER_SECONDS = 0.05  # after which the others read their batches themselves

_log = logging.getLogger("agentworld.pool")
_give_way = getattr(os, "sched_yield", lambda: None)


class _WithoutCollector:
    """The garbage collector rests inside: each of its looks goes over all ids that were read, a third of what reading
    takes, and what a batch is made of holds no cycles. It is as before once the last thread has left.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._inside = 0
        self._was_enabled = False

    def __enter__(self) -> None:
        with self._guard:
            if not self._inside:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._guard:
            self._inside -= 1
            if not self._inside and self._was_enabled:
                gc.enable()


_without_collector = _WithoutCollector()


class _GivingWay:
    """A Reader that lets others have the processor after each statement."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.engine = reader.engine
        self.era = reader.era

    def execute(self, statement: Statement, parameters: Mapping[str, Any] = _NOTHING) -> list[Row]:
        """See Reader."""
        rows = self._reader.execute(statement, parameters)
        _give_way()
        return rows

    def foresee(self, asked: Sequence[Asked]) -> None:
        """See Reader."""
        self._reader.foresee(asked)

    def limited(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        """See Reader."""
        return self._reader.limited(seconds)


class BatchReading:
    """Puts into batches what they hold."""

    def __init__(self, database: Database, company: Company) -> None:
        self._database = database
        self._company = company

    def read(self, wanted: Plan, taken: Taken) -> None:
        """Read the batch, unless another thread has done so by now."""
        with self._company.reading:
            if taken.is_read:
                return
            with _without_collector:
                until = time.perf_counter() + TOGETHER_SECONDS
                self._read(wanted, taken)
                if self._company.waits:
                    self._read_others(wanted, taken, until)
                taken.together.clear()  # They would hold one another in memory.

    def _read(self, wanted: Plan, taken: Taken) -> None:
        batch = taken.batch
        with self._database.reading() as connection:
            reader: Reader = connection if self._database.works_elsewhere else _GivingWay(connection)
            reader.foresee([*ask_items(wanted, taken.units), ask_policies()])
            batch.items = read_items(reader, wanted, taken.units)
            batch.policy = rules.batch_policy(batch.items, current_policies(reader))
        taken.is_read = True

    def _read_others(self, wanted: Plan, taken: Taken, until: float) -> None:
        """Those that were taken with this one, each as if alone."""
        for other in taken.together:
            if other.is_read:
                continue
            if time.perf_counter() > until:
                return
            try:
                self._read(wanted, other)
            except Exception:
                # Its own thread reads it again, and is told what is wrong with it.
                _log.debug("a batch of another thread could not be read", exc_info=True)
                return
