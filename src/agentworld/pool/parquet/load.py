"""Reading an export into a pool: a trajectory at a time, in bounded transactions.

A trajectory that is there already stays as it is. One whose import was broken off carries the mark IMPORTING, is served
to nobody, and is gone on with by the next import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from agentworld.errors import AgentWorldError, ConfigError
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.parquet.datasets import read_versions
from agentworld.pool.parquet.layout import (
    ARRAYS,
    DATASETS,
    LATER_COLUMNS,
    OWNER,
    ROWS,
    arrays_of,
    arrow,
    arrow_schema,
    as_written,
    record_values,
    table_row,
)
from agentworld.pool.parquet.manifest import Imported, Manifest, read_manifest
from agentworld.pool.parquet.media import NAME as MEDIA
from agentworld.pool.parquet.media import read_media
from agentworld.pool.rejections import rejection
from agentworld.pool.sql import importing
from agentworld.pool.sql.append import Appender
from agentworld.pool.sql.append_intake import Intake, prepare_all
from agentworld.pool.sql.connections import Database
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.sql.writer import Writer
from agentworld.records import Step, Trajectory

T = TypeVar("T")
STEPS_AT_ONCE = 50
_NAMES = ("trajectories", "steps", *ROWS, *DATASETS)
LATER = ("decisions", *DATASETS)  # files that exports of earlier formats have not


def read_export(
    database: Database,
    writer: Writer,
    appender: Appender,
    folder: Path,
    *,
    media: Callable[[bytes, str], str],
    progress: Progress = no_progress,
) -> Imported:
    """See Pool.import_parquet; `media`: put_media of the pool."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    unknown = sorted(manifest.rows.keys() - {*_NAMES, MEDIA})
    if unknown:
        raise ConfigError(
            f"the manifest names {unknown[0][:60]!r}, which is no file of an export", path="path", hint="Export again"
        )
    files = {name: _Stream(folder, name) for name in _NAMES if name in manifest.rows or name not in LATER}
    groups = {row[OWNER]: _table_row("groups", row) for row in files["groups"].all()}
    done = Imported()
    if MEDIA in manifest.rows:  # exports of earlier formats have none
        done.media = read_media(folder, media)
    for number, row in enumerate(files["trajectories"].all()):
        progress("trajectories", number, manifest.rows.get("trajectories"))
        _import_one(writer, appender, row, files, groups, done)
    if "datasets" in files:
        read_versions(writer, database, files["datasets"], files["dataset_rows"], done)
    for name, file in files.items():
        if (left := file.peek()) is not None:
            raise ConfigError(
                f"{name}.parquet names {left!r}, which is not next in trajectories.parquet",
                path="path",
                hint="Keep the rows of all files in the order of trajectories.parquet",
            )
    _check(manifest, folder)
    return done


class _Stream:
    """The rows of one file in order, a row group in memory at a time."""

    def __init__(self, folder: Path, name: str) -> None:
        self._name = name
        self._owner = "version" if name in DATASETS else "trajectory_id" if name in ("trajectories", "steps") else OWNER
        path = folder / f"{name}.parquet"
        if not path.is_file():
            raise ConfigError(f"{path} is missing", path="path", hint="Export again")
        try:
            self._file = arrow().parquet.ParquetFile(path)
        except arrow().ArrowException as error:
            raise ConfigError(f"{path} cannot be read: {error}", path="path") from None
        missing = set(arrow_schema(name).names) - set(self._file.schema_arrow.names) - set(LATER_COLUMNS.get(name, ()))
        if missing:
            raise ConfigError(f"{path} lacks the columns {', '.join(sorted(missing))}", path="path")
        self._rows = self._read()
        self._next: dict[str, Any] | None = next(self._rows, None)

    def all(self) -> Iterator[dict[str, Any]]:
        """All rows that are left."""
        while (row := self._next) is not None:
            self._next = next(self._rows, None)
            yield row

    def peek(self) -> str | None:
        """The trajectory that the next row goes with."""
        return None if self._next is None else self._next[self._owner]

    def of(self, trajectory_id: str) -> Iterator[dict[str, Any]]:
        """The rows that go with the trajectory, where they are next."""
        while self._next is not None and self._next[self._owner] == trajectory_id:
            row, self._next = self._next, next(self._rows, None)
            yield row

    def _read(self) -> Iterator[dict[str, Any]]:
        try:
            yield from self._batches()
        except (arrow().ArrowException, OSError) as error:
            raise ConfigError(
                f"{self._name}.parquet cannot be read: {str(error)[:200]}", path="path", hint="Export again"
            ) from None

    def _batches(self) -> Iterator[dict[str, Any]]:
        for read in self._file.iter_batches(batch_size=STEPS_AT_ONCE):
            batch = as_written(read, self._name)
            names = batch.schema.names
            lists = [name for name in ARRAYS if name in names]
            columns = [arrays_of(batch.column(name)) for name in lists]
            plain = batch.select([name for name in names if name not in lists]).to_pylist()
            for number, row in enumerate(plain):
                row.update({name: column[number] for name, column in zip(lists, columns, strict=True)})
                yield row


def _import_one(
    writer: Writer,
    appender: Appender,
    row: dict[str, Any],
    files: dict[str, _Stream],
    groups: dict[str, dict[str, Any]],
    done: Imported,
) -> None:
    record = _converted(row, "trajectories", Trajectory)
    trajectory_id = record.trajectory_id

    def run(operation: Callable[[Transaction], T]) -> T:
        return writer.submit(operation).result()

    state = run(lambda txn: importing.begin(txn, trajectory_id, record.channel))
    if state != "new":
        setattr(done, state, getattr(done, state) + 1)
        for name in files:
            if name not in ("trajectories", "groups", *DATASETS):
                for _ in files[name].of(trajectory_id):
                    pass
        return
    held: list[dict[str, Any]] = []

    def flush() -> None:
        if held:
            part = list(held)
            stored, rejected = run(lambda txn: _append(txn, appender, part))
            done.steps += stored
            done.rejected += rejected
            held.clear()

    for step in files["steps"].of(trajectory_id):
        held.append(step)
        if len(held) >= STEPS_AT_ONCE:
            flush()
    flush()
    for name in ("exchanges", "rewards", "feedback", "annotations"):
        rows = [_table_row(name, each) for each in files[name].of(trajectory_id)]
        added = run(lambda txn, name=name, rows=rows: importing.add_rows(txn, name, trajectory_id, rows))  # type: ignore[misc]
        setattr(done, name, getattr(done, name) + added)
    decided = (
        [_table_row("decisions", each) for each in files["decisions"].of(trajectory_id)] if "decisions" in files else []
    )

    def finish(txn: Transaction) -> None:
        importing.finish(txn, record, groups.get(record.group_id or ""))
        importing.decide(txn, trajectory_id, decided)

    run(finish)
    done.trajectories += 1


def _append(txn: Transaction, appender: Appender, rows: list[dict[str, Any]]) -> tuple[int, int]:
    """Append steps and set them to what they were; returns how many were stored and rejected.

    What is there under the id of a step stays as it is: where it is this step, stored by an import that was broken off,
    it counts as stored, and anything else makes the row a dead letter.
    """
    taken: list[Intake] = []
    sent: list[tuple[Step, bytes | None]] = []
    there = importing.known_steps(txn, [str(row["step_id"]) for row in rows])
    before = 0
    for row in rows:
        step_id, trajectory_id = str(row["step_id"]), str(row["trajectory_id"])
        if (known := there.get(step_id)) is not None:
            if importing.is_same(known, trajectory_id, row["content"]):
                before += 1
                continue
            reason = f"another step is there under this id, in trajectory {known.trajectory_id!r}"
            taken.append(rejection(Step(step_id=step_id, trajectory_id=trajectory_id), reason))
            continue
        try:
            step = msgspec.convert(record_values(row, "steps"), Step)
            for name in ARRAYS:
                setattr(step, name, row[name])
        except (msgspec.MsgspecError, AgentWorldError, ValueError, RecursionError) as error:
            unread = Step(step_id=step_id, trajectory_id=trajectory_id)
            taken.append(rejection(unread, f"the row cannot be read: {error}"))
            continue
        there[step_id] = importing.Known(b"", trajectory_id)  # A second row of this id is another step.
        # What signals made of it comes with them; the rest is set when it is there.
        plain = msgspec.structs.replace(step, rewards={}, reward=None, annotations=[], group_id=None)
        taken += prepare_all([plain])
        sent.append((step, row["content"]))
    (results,) = appender.append_all(txn, [taken])
    if isinstance(results, AgentWorldError):
        raise results
    new = {result.step_id for result in results if result.outcome in ("stored", "late")}
    stored = [one for one in sent if one[0].step_id in new]
    importing.restate_steps(txn, stored)
    return before + len(stored), sum(result.outcome == "rejected" for result in results)


def _table_row(name: str, row: dict[str, Any]) -> dict[str, Any]:
    try:
        return table_row(name, row)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"a row of {name}.parquet cannot be read: {str(error)[:200]}", path="path", hint="Export again"
        ) from None


def _converted(row: dict[str, Any], kind: Literal["trajectories", "steps"], record: type[T]) -> T:
    try:
        return msgspec.convert(record_values(row, kind), record)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ConfigError(f"a row of {kind}.parquet cannot be read: {error}", path="path") from None


def _check(manifest: Manifest, folder: Path) -> None:
    for name, rows in manifest.rows.items():
        there = arrow().parquet.ParquetFile(folder / f"{name}.parquet").metadata.num_rows
        if there != rows:
            raise ConfigError(
                f"{name}.parquet has {there} rows, the manifest says {rows}; what is there was imported",
                path="path",
                hint="Export again and import again: what is there already stays",
            )
