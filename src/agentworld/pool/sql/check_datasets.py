"""Checking dataset versions: manifests and rows agree, and what rows name is there or was deleted on request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import func, select

from agentworld.errors import PoolError
from agentworld.pool import schema
from agentworld.pool.keeping.records import Problem, Progress
from agentworld.pool.sql.connections import Database, Reader, Row
from agentworld.pool.sql.dataset_records import row_from
from agentworld.pool.sql.datasets import buried_of, manifest_of
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.records import DatasetRow

_AT_ONCE = 500  # rows of one look

_d, _r, _t, _s = schema.datasets, schema.dataset_rows, schema.trajectories, schema.steps
_VERSIONS = sql(select(_d).order_by(_d.c.pk))
_COUNTS = sql(
    select(_r.c.split, func.count().label("number"), func.max(_r.c.position).label("last"))
    .where(_r.c.dataset == parameter("version"))
    .group_by(_r.c.split)
)
_PAGE = sql(
    select(_r)
    .where(_r.c.dataset == parameter("version"), _r.c.position > parameter("above"))
    .order_by(_r.c.position)
    .limit(parameter("limit"))
)
_TRAJECTORIES = sql(select(_t.c.trajectory_id).where(among_texts(_t.c.trajectory_id, "ids")))
_STEPS = sql(
    select(_s.c.step_id, _t.c.trajectory_id)
    .join_from(_s, _t, _t.c.pk == _s.c.trajectory)
    .where(among_texts(_s.c.step_id, "ids"))
)
_RESTORE = "Restore the pool from a backup, or delete the version and create it again"


def dataset_problems(database: Database, progress: Progress, deep: bool) -> Iterator[Problem]:
    """What is wrong with versions; `deep`: with each of their rows too."""
    with database.reading() as reader:
        versions = reader.execute(_VERSIONS)
    for number, version in enumerate(versions):
        progress("datasets", number, len(versions))
        with database.reading() as reader:
            yield from _counts(reader, version)
        if deep:
            yield from _rows(database, version)
    if versions:
        progress("datasets", len(versions), len(versions))


def _problem(kind: str, version: Row, message: str, row: object = None) -> Problem:
    key = f"{version['name']}@{version['digest']}" if version["digest"] else f"{version['name']} ({version['pk']})"
    if row is None:
        return Problem(kind, "datasets", key, message, _RESTORE)
    return Problem(kind, "dataset_rows", f"{key} row {row}", message, _RESTORE)


def _counts(reader: Reader, version: Row) -> Iterator[Problem]:
    rows = reader.execute(_COUNTS, {"version": version["pk"]})
    counted = {row["split"]: row["number"] for row in rows}
    lasts = [row["last"] for row in rows]
    total = sum(counted.values())
    if lasts and max(lasts) != total - 1:
        yield _problem("sequence", version, f"the last of {total} rows has the position {max(lasts)}")
    if version["frozen"] is None:
        return
    try:
        manifest = manifest_of(version)
    except msgspec.MsgspecError as error:
        yield _problem("hash", version, f"the manifest cannot be read: {error}")
        return
    if (manifest.name, manifest.digest) != (version["name"], version["digest"]):
        yield _problem("hash", version, f"the manifest is of {manifest.version}")
    if manifest.rows != total:
        yield _problem("count", version, f"the manifest counts {manifest.rows} rows, {total} are there")
    for split in sorted(counted.keys() | manifest.splits.keys()):
        said = manifest.splits[split].rows if split in manifest.splits else 0
        if said != counted.get(split, 0):
            message = f"the manifest counts {said} rows of {split}, {counted.get(split, 0)} are there"
            yield _problem("count", version, message)


def _rows(database: Database, version: Row) -> Iterator[Problem]:
    above = -1
    while True:
        with database.reading() as reader:
            page = reader.execute(_PAGE, {"version": version["pk"], "above": above, "limit": _AT_ONCE})
            found: list[DatasetRow] = []
            for row in page:
                try:
                    record = row_from(row["record"])
                except PoolError as error:
                    yield _problem("hash", version, error.message, row["position"])
                    continue
                if _columns(row) != _said(record):
                    yield _problem("hash", version, "its columns and its record differ", row["position"])
                found.append(record)
            yield from _references(reader, version, found)
        if len(page) < _AT_ONCE:
            return
        above = page[-1]["position"]


def _columns(row: Row) -> tuple[Any, ...]:
    compared = row["compared"] is not None
    return row["position"], row["trajectory_id"], row["split"], bytes(row["digest"]).hex(), compared


def _said(record: DatasetRow) -> tuple[Any, ...]:
    compared = any(said.other_id is not None for said in record.feedback)
    return record.position, record.trajectory_id, record.split, record.digest, compared


def _references(reader: Reader, version: Row, records: list[DatasetRow]) -> Iterator[Problem]:
    named = [record.trajectory_id for record in records]
    there = {row[0] for row in reader.execute(_TRAJECTORIES, {"ids": json_list(named)})}
    buried = buried_of(reader, named)
    steps = [step.step_id for record in records for step in record.steps if record.trajectory_id in there]
    owners: dict[str, str] = {}
    for begin in range(0, len(steps), _AT_ONCE):
        part = reader.execute(_STEPS, {"ids": json_list(steps[begin : begin + _AT_ONCE])})
        owners |= {row["step_id"]: row["trajectory_id"] for row in part}
    for record in records:
        if record.trajectory_id not in there:
            if record.trajectory_id not in buried:
                message = f"trajectory {record.trajectory_id} is neither there nor deleted on request"
                yield _problem("reference", version, message, record.position)
            continue
        missing = [step.step_id for step in record.steps if owners.get(step.step_id) != record.trajectory_id]
        if missing:
            message = f"trajectory {record.trajectory_id} has no step {missing[0]}"
            yield _problem("reference", version, message, record.position)
