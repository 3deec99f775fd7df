"""Writing an export: a page of trajectories at a time, in row groups of bounded size."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sqlalchemy import and_, or_, select, tuple_

from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.pool import schema
from agentworld.pool.arrays import StepArrays
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.media.blob import Medium
from agentworld.pool.parquet.datasets import Exported, any_versions, trajectories_of, write_versions
from agentworld.pool.parquet.layout import (
    ARRAYS,
    DATASETS,
    ROWS,
    arrow,
    arrow_schema,
    list_column,
    plain_record,
    plain_row,
)
from agentworld.pool.parquet.manifest import Manifest, write_manifest
from agentworld.pool.parquet.media import NAME as MEDIA
from agentworld.pool.parquet.media import MediaFile
from agentworld.pool.partial import partial_folder, writing
from agentworld.pool.results import Page
from agentworld.pool.schema import SCHEMA_VERSION
from agentworld.pool.sql.arrays import read_arrays
from agentworld.pool.sql.connections import Database, Reader, Row
from agentworld.pool.sql.reads import read_steps
from agentworld.pool.sql.rows import PROMPT_IDS, RESPONSE_IDS, select_steps, trajectory_from
from agentworld.pool.sql.statements import json_list, parameter, sql, texts
from agentworld.pool.sql.trajectories import FIND
from agentworld.records import Trajectory

STEPS_AT_ONCE = 50
TRAJECTORIES_AT_ONCE = 100
_ROWS_OF_A_GROUP = 2_000
_BYTES_OF_A_GROUP = 32 * 1024 * 1024

_s, _t, _d = schema.steps, schema.trajectories, schema.decisions
_STEPS = sql(
    select_steps()
    .where(_t.c.trajectory_id == parameter("id"), _s.c.pk > parameter("above"))
    .order_by(_s.c.pk)
    .limit(parameter("limit"))
)


def _signals_sql(table: Any) -> Any:
    of_steps = select(_s.c.step_id).join(_t, _t.c.pk == _s.c.trajectory).where(_t.c.trajectory_id == parameter("id"))
    on_it = tuple_(table.c.target, table.c.target_id) == tuple_(parameter("kind"), parameter("id"))
    return sql(
        select(table)
        .where(or_(on_it, (table.c.target == "step") & table.c.target_id.in_(of_steps)))
        .order_by(table.c.pk)
    )


_OF_TRAJECTORY = {
    "exchanges": sql(
        select(schema.exchanges)
        .join(_t, _t.c.pk == schema.exchanges.c.trajectory)
        .where(_t.c.trajectory_id == parameter("id"))
        .order_by(schema.exchanges.c.pk)
    ),
    **{name: _signals_sql(ROWS[name][0]) for name in ("rewards", "feedback", "annotations")},
    "decisions": sql(
        select(_d, _s.c.step_id.label("step_id"))
        .join_from(_d, _t, _t.c.pk == _d.c.trajectory)
        .outerjoin(_s, and_(_d.c.subject == "step", _s.c.pk == _d.c.row_pk))
        .where(_t.c.trajectory_id == parameter("id"))
        .order_by(_d.c.pk)
    ),
}
_awaited = schema.awaited
_ANY_AWAITED = sql(select(_awaited.c.target_id).where(_awaited.c.target == "step").limit(parameter("limit")))
# Signals that came before their step, and said whose it is.
_WAITING = {
    name: sql(
        select(table)
        .where(
            table.c.target == "step",
            table.c.target_id.in_(select(_awaited.c.target_id).where(_awaited.c.target == "step")),
            table.c.of_trajectory == parameter("id"),
        )
        .order_by(table.c.pk)
    )
    for name, table in ((name, ROWS[name][0]) for name in ("rewards", "feedback", "annotations"))
}
_GROUPS = sql(select(schema.groups).where(schema.groups.c.group_id.in_(texts("ids"))))


Pages = Callable[..., Page[Trajectory]]


def write_export(
    database: Database,
    pages: Pages,
    folder: Path,
    *,
    where: str | None = None,
    channel: str | None = None,
    dataset: str | None = None,
    media: Callable[[str], Medium],
    progress: Progress = no_progress,
) -> Manifest:
    """See Pool.export_parquet; `pages`: list_trajectories of the pool, `media`: its get_media."""
    arrow()
    if dataset is not None and (where is not None or channel is not None):
        raise InvalidRequestError("a dataset version is exported as it is", path="dataset", hint="Leave where out")
    folder = Path(folder)
    with writing(folder):
        _check_free(folder)
        if not os.path.isdir(folder.absolute().parent):
            raise ConfigError(f"the folder {folder.absolute().parent} does not exist", path="path", hint="Create it")
    with partial_folder(folder) as partial:
        wanted = _listed(pages, where, channel) if dataset is None else trajectories_of(database, dataset)
        rows, missing = _write(database, wanted, partial, media, progress)
        manifest = Manifest(
            schema_version=SCHEMA_VERSION,
            created_at=time.time(),
            where=where,
            channel=channel,
            dataset=dataset,
            rows=rows,
            media_missing=missing,
        )
        write_manifest(partial, manifest)
        _check_free(folder)
        partial.rename(folder)
    return manifest


def _check_free(folder: Path) -> None:
    if os.path.lexists(folder):
        raise ConfigError(f"{folder} is there already", path="path", hint="Name a folder that is not there")


class _File:
    """One Parquet file; rows are held until they make a row group."""

    def __init__(self, folder: Path, name: str) -> None:
        self._pa = arrow()
        self._schema = arrow_schema(name)
        self._writer = self._pa.parquet.ParquetWriter(folder / f"{name}.parquet", self._schema, compression="zstd")
        self._held: list[dict[str, Any]] = []
        self._bytes = 0
        self.rows = 0

    def add(self, row: dict[str, Any], ids: int = 0) -> None:
        self._held.append(row)
        self._bytes += 4 * ids + sum(len(value) for value in row.values() if isinstance(value, (str, bytes)))
        self.rows += 1
        if len(self._held) >= _ROWS_OF_A_GROUP or self._bytes >= _BYTES_OF_A_GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._held:
            columns = [self._column(field) for field in self._schema]
            self._writer.write_table(self._pa.Table.from_arrays(columns, schema=self._schema))
        self._held, self._bytes = [], 0

    def _column(self, field: Any) -> Any:
        values = [row[field.name] for row in self._held]
        return list_column(values, field.type) if field.name in ARRAYS else self._pa.array(values, type=field.type)


def _listed(pages: Pages, where: str | None, channel: str | None) -> Iterator[str]:
    cursor: str | None = None
    while True:
        page = pages(where=where, channel=channel, cursor=cursor, limit=TRAJECTORIES_AT_ONCE)
        yield from (found.trajectory_id for found in page.items)
        cursor = page.next_cursor
        if cursor is None:
            return


def _write(
    database: Database, wanted: Iterator[str], folder: Path, read: Callable[[str], Medium], progress: Progress
) -> tuple[dict[str, int], int]:
    """Write the files; returns how many rows each has, and how many media are not there."""
    groups: set[str] = set()
    with ExitStack() as stack:
        media = MediaFile(folder, read)
        stack.callback(media.close)
        files = {name: _File(folder, name) for name in ("trajectories", "steps", *ROWS, *DATASETS)}
        for file in files.values():
            stack.callback(file.close)
        exported = Exported(folder) if any_versions(database) else None
        if exported is not None:
            stack.callback(exported.close)
        for trajectory_id in wanted:
            _write_trajectory(database, files, media, trajectory_id, groups)
            if exported is not None:
                exported.add(trajectory_id)
            progress("trajectories", files["trajectories"].rows, None)
        if exported is not None:
            write_versions(database, files["datasets"], files["dataset_rows"], exported, progress)
    return {**{name: file.rows for name, file in files.items()}, MEDIA: media.rows}, media.missing


def _write_trajectory(
    database: Database, files: dict[str, _File], media: MediaFile, trajectory_id: str, groups: set[str]
) -> None:
    above = 0
    with database.reading() as reader:
        found = reader.execute(FIND, {"id": trajectory_id})
        if not found:
            return  # Deleted since it was listed.
        record = trajectory_from(found[0])
        files["trajectories"].add(plain_record(record))
        while True:
            bound = {"id": trajectory_id, "above": above, "limit": STEPS_AT_ONCE}
            rows = reader.execute(_STEPS, bound)
            arrays = {each.step_id: each for each in read_arrays(reader, [row["pk"] for row in rows])}
            for row, step in zip(rows, read_steps(reader, rows, ("messages",)), strict=True):
                above = row["pk"]
                own = {**plain_record(step), **_arrays(row, arrays[step.step_id]), "content": bytes(row["content"])}
                files["steps"].add(own, row["id_count"])
                media.add(step.prompt_messages or ())
                media.add(() if step.response_message is None else (step.response_message,))
            if len(rows) < STEPS_AT_ONCE:
                break
        for name, statement in _OF_TRAJECTORY.items():
            rows = reader.execute(statement, {"id": trajectory_id, "kind": "trajectory"})
            if name in _WAITING and reader.execute(_ANY_AWAITED, {"limit": 1}):
                rows = [*rows, *reader.execute(_WAITING[name], {"id": trajectory_id})]
            for row in rows:
                files[name].add(plain_row(name, trajectory_id, row))
        if record.group_id is not None and record.group_id not in groups:
            groups.add(record.group_id)
            _write_group(reader, files["groups"], record.group_id)


def _arrays(row: Row, found: StepArrays) -> dict[str, Any]:
    present = row["present"]
    return {
        "prompt_ids": found.ids[: found.prompt_length] if present & PROMPT_IDS else None,
        "response_ids": found.ids[found.prompt_length :] if present & RESPONSE_IDS else None,
        "response_mask": found.mask,
        "response_logprobs": found.logprobs,
    }


def _write_group(reader: Reader, file: _File, group_id: str) -> None:
    for row in reader.execute(_GROUPS, {"ids": json_list([group_id])}):
        file.add(plain_row("groups", group_id, row))
