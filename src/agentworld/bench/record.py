"""What a section of measurements gets and gives."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agentworld.bench.flat import FlatTable, PostgresFlat, SqliteFlat
from agentworld.pool import open_store
from agentworld.pool.protocol import Pool


@dataclass
class Bench:
    """Where and how much to measure.

    `steps`: about how many steps the measurements of rates write; `large`: how many a large pool has; `url`: a
    PostgreSQL database to make schemas in, None for SQLite; `folder`: for files.
    """

    steps: int
    url: str | None
    folder: Path
    seed: int = 7
    large: int = 1_000_000
    _made: int = 0

    @property
    def engine(self) -> str:
        """sqlite or postgres."""
        return "sqlite" if self.url is None else "postgres"

    @contextlib.contextmanager
    def place(self) -> Iterator[str]:
        """The URL of a new, empty pool, and afterwards nothing of it."""
        self._made += 1
        name = f"agentworld_bench_{os.getpid()}_{self._made}"
        if self.url is None:
            try:
                yield f"sqlite:///{self.folder / name}.db"
            finally:
                for file in self.folder.glob(f"{name}.db*"):
                    file.unlink()
            return
        from agentworld.bench.schemas import temporary_schema

        with temporary_schema(self.url, name) as url:
            yield url

    @contextlib.contextmanager
    def pool(self) -> Iterator[Pool]:
        """A new, empty pool, and afterwards nothing of it."""
        with self.place() as url:
            store = open_store(url)
            try:
                yield store
            finally:
                store.close()

    @contextlib.contextmanager
    def flat(self) -> Iterator[FlatTable]:
        """A new, empty flat table on the same engine."""
        self._made += 1
        name = f"agentworld_bench_{os.getpid()}_{self._made}"
        if self.url is None:
            path = self.folder / f"{name}.db"
            table: FlatTable = SqliteFlat(path)
            try:
                yield table
            finally:
                table.close()
                for file in self.folder.glob(f"{name}.db*"):
                    file.unlink()
            return
        from agentworld.bench.schemas import temporary_schema

        with temporary_schema(self.url, name) as url:
            table = PostgresFlat(url)
            try:
                yield table
            finally:
                table.close()


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes; what is there before it is no concern of the garbage collector meanwhile."""
    gc.collect()
    gc.freeze()
    try:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Threads of this process that begin inside, and this one, run on one core, where the system can say so."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
