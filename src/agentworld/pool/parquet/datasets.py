"""Dataset versions in an export: a version travels whole, with all of its trajectories, or not at all."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from agentworld.errors import AgentWorldError, ConfigError, NotFoundError
from agentworld.pool.bounds import MAX_INTEGER
from agentworld.pool.dataset_rules import check_rows, scrubbed_row, wanted_version
from agentworld.pool.keeping.records import Progress
from agentworld.pool.parquet.manifest import Imported
from agentworld.pool.sql import datasets
from agentworld.pool.sql.connections import Database, Reader
from agentworld.pool.sql.dataset_records import pack
from agentworld.pool.sql.deletion import bury
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.writer import Writer
from agentworld.records import DatasetRow, DatasetVersion, exact_json

T = TypeVar("T")
ROWS_AT_ONCE = 200
_VERSIONS_AT_ONCE = 100


class _Written(Protocol):
    """A file that rows are added to."""

    def add(self, row: dict[str, Any]) -> None:
        """Add one."""


class _Read(Protocol):
    """A file that rows are read from, in order."""

    def all(self) -> Iterator[dict[str, Any]]:
        """All rows that are left."""

    def of(self, owner: str) -> Iterator[dict[str, Any]]:
        """The rows of this version, where they are next."""


class Exported:
    """The trajectories that an export has, by id: in a file beside it, as there may be many."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "exported.tmp"
        self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -8000"):
            self._connection.execute(f"PRAGMA {setting}")
        self._connection.execute("CREATE TABLE ids (id TEXT PRIMARY KEY) WITHOUT ROWID")

    def add(self, trajectory_id: str) -> None:
        """Note one."""
        self._connection.execute("INSERT OR IGNORE INTO ids VALUES (?)", (trajectory_id,))

    def __contains__(self, trajectory_id: object) -> bool:
        found = self._connection.execute("SELECT 1 FROM ids WHERE id = ?", (trajectory_id,)).fetchone()
        return found is not None

    def close(self) -> None:
        """Let go of it; nothing of it stays."""
        self._connection.close()
        self._path.unlink(missing_ok=True)


def any_versions(database: Database) -> bool:
    """Whether the pool has versions at all."""
    with database.reading() as reader:
        return bool(datasets.list_versions(reader, None, MAX_INTEGER, 1))


def trajectories_of(database: Database, version: str) -> Iterator[str]:
    """The trajectories of a version that are there, in its order; NotFoundError where there is no such version."""
    for rows in _pages(database, _number(database, version)):
        with database.reading() as reader:
            there = datasets.there_of(reader, [row.trajectory_id for row in rows])
        yield from (row.trajectory_id for row in rows if row.trajectory_id in there)


def write_versions(
    database: Database, versions: _Written, rows: _Written, exported: Exported, progress: Progress
) -> None:
    """Write the versions all of whose trajectories were exported, or have been deleted, the earliest first."""
    for done, (number, manifest) in enumerate(_versions(database)):
        progress("datasets", done, None)
        if not _is_whole(database, number, exported):
            continue
        versions.add({"version": manifest.version, "manifest": exact_json.encode(manifest).decode()})
        for page in _pages(database, number):
            with database.reading() as reader:
                buried = datasets.buried_of(reader, [row.trajectory_id for row in page])
            for row in page:
                gone = buried.get(row.trajectory_id)
                rows.add(
                    {
                        "version": manifest.version,
                        "record": exact_json.encode(row).decode(),
                        "deleted": gone is not None,
                        "reason": None if gone is None else gone.reason,
                        "deleted_at": None if gone is None else gone.at,
                    }
                )


def read_versions(writer: Writer, database: Database, versions: _Read, rows: _Read, done: Imported) -> None:
    """Restore the versions that are not there; ConfigError where the export lacks one of their trajectories."""

    def run(operation: Callable[[Transaction], T]) -> T:
        return writer.submit(operation).result()

    for found in versions.all():
        version = _decoded(found["manifest"], DatasetVersion)
        wanted = wanted_version(version.version, whole=True)
        with database.reading() as reader:
            known = datasets.is_there(reader, wanted)
        if known:
            done.datasets_known += 1
            for _ in rows.of(version.version):
                pass
            continue
        number = run(partial(datasets.begin, name=version.name))
        try:
            for records, gone in _records(rows.of(version.version)):
                run(partial(_put, number=number, rows=records, gone=gone))
            run(partial(datasets.freeze, number=number, version=version))
        except BaseException:
            # Otherwise its rows would stay, and hold what they are of, until a collection finds them a day later.
            with suppress(AgentWorldError):
                if run(partial(datasets.drop, number=number)):
                    while not run(partial(datasets.drop_part, number=number)):
                        pass
            raise
        done.datasets += 1


def _records(rows: Iterator[dict[str, Any]]) -> Iterator[tuple[list[DatasetRow], dict[str, datasets.Buried]]]:
    """The rows of one version in portions, each with what was deleted of it where they come from."""
    position, last = 0, ""
    for part in _parts(rows):
        records = check_rows([_decoded(row["record"], DatasetRow) for row in part], position, last)
        position, last = position + len(records), records[-1].trajectory_id
        yield (
            records,
            {one.trajectory_id: _buried(row) for one, row in zip(records, part, strict=True) if row["deleted"]},
        )


def _buried(row: dict[str, Any]) -> datasets.Buried:
    """What the row says of the deletion of its trajectory."""
    at = row["deleted_at"]
    if not isinstance(at, float) or not math.isfinite(at):
        raise ConfigError("a row of dataset_rows.parquet does not say when it was deleted", path="path")
    return datasets.Buried(row["reason"], at)


def _put(txn: Transaction, number: int, rows: list[DatasetRow], gone: dict[str, datasets.Buried]) -> None:
    """Put rows. What was deleted where they come from, or here, is not there, and nothing of it comes back."""
    there = datasets.there_of(txn, [row.trajectory_id for row in rows])
    here = datasets.buried_of(txn, [row.trajectory_id for row in rows])
    for row in rows:
        if row.trajectory_id not in there and row.trajectory_id not in gone and row.trajectory_id not in here:
            raise ConfigError(
                f"{row.trajectory_id} of a dataset is not in the export", path="path", hint="Export the pool again"
            )
    try:
        datasets.check_steps(txn, [row for row in rows if row.trajectory_id in there])
    except NotFoundError as error:
        raise ConfigError(
            f"a step of a dataset is not in the export, or could not be read: {error.message}",
            path="path",
            hint="Export the pool again",
        ) from None
    told = [each for each in gone if each not in there and each not in here]
    bury(txn, "trajectory", told, [gone[each].reason for each in told], at=[gone[each].at for each in told])
    kept = [row if row.trajectory_id in there else scrubbed_row(row) for row in rows]
    datasets.insert_rows(txn, number, [pack(row) for row in kept])


def _versions(database: Database) -> list[tuple[int, DatasetVersion]]:
    """All that are frozen, the earliest first."""
    found: list[tuple[int, DatasetVersion]] = []
    before = MAX_INTEGER
    while True:
        with database.reading() as reader:
            rows = datasets.list_versions(reader, None, before, _VERSIONS_AT_ONCE)
        found += [(row["pk"], datasets.manifest_of(row)) for row in rows]
        if len(rows) < _VERSIONS_AT_ONCE:
            return found[::-1]
        before = rows[-1]["frozen"]


def _number(database: Database, version: str) -> int:
    with database.reading() as reader:
        number: int = datasets.find(reader, wanted_version(version))["pk"]
    return number


def _is_whole(database: Database, number: int, exported: Exported) -> bool:
    for rows in _pages(database, number):
        missing = [row.trajectory_id for row in rows if row.trajectory_id not in exported]
        with database.reading() as reader:
            if datasets.there_of(reader, missing):
                return False
    return True


def _pages(database: Database, number: int) -> Iterator[list[DatasetRow]]:
    after = -1
    while True:
        with database.reading() as reader:
            rows = _page(reader, number, after)
        if rows:
            yield rows
            after = rows[-1].position
        if len(rows) < ROWS_AT_ONCE:
            return


def _page(reader: Reader, number: int, after: int) -> list[DatasetRow]:
    return datasets.read_rows(reader, number, after, ROWS_AT_ONCE, None)


def _parts(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    part: list[dict[str, Any]] = []
    for row in rows:
        part.append(row)
        if len(part) == ROWS_AT_ONCE:
            yield part
            part = []
    if part:
        yield part


def _decoded(text: str | None, kind: type[T]) -> T:
    try:
        return exact_json.decode((text or "").encode(), kind)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ConfigError(f"a dataset of the export cannot be read: {error}", path="path") from None
