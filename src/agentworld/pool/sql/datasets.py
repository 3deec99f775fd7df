"""Dataset versions as rows: building, freezing, reading, and what becomes of rows whose trajectory goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Select, delete, insert, null, select, update

from agentworld.errors import ConflictError, NotFoundError
from agentworld.pool import schema
from agentworld.pool.dataset_rules import (
    KEPT_BUILDING,
    Wanted,
    check_count,
    check_manifest,
    no_building,
    no_version,
    scrubbed_row,
    several_versions,
    without_compared,
)
from agentworld.pool.exact_text import read_json, stored_json
from agentworld.pool.rules import DELETING, IMPORTING
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.dataset_records import Packed, record_columns, row_from
from agentworld.pool.sql.events import add_event
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import DatasetRow, DatasetVersion

DROPPED = 0.0  # `began_at` of what is on its way out
DROPPED_AT_ONCE = 2_000  # rows
LOOKED_AT_ONCE = 500  # rows with comparisons

_d, _r = schema.datasets, schema.dataset_rows
_t, _s, _tomb = schema.trajectories, schema.steps, schema.tombstones
_BEGIN = sql(insert(_d).values({name: parameter(name) for name in ("pk", "name", "began_at")}))
_BUILDING = sql(select(_d).where(_d.c.pk == parameter("building")))
_LAST = sql(
    select(_r.c.position, _r.c.trajectory_id)
    .where(_r.c.dataset == parameter("building"))
    .order_by(_r.c.position.desc())
    .limit(1)
)
_PUT = sql(insert(_r).values({column.name: parameter(column.name) for column in _r.c}))
_THERE = sql(
    select(_t.c.trajectory_id).where(
        among_texts(_t.c.trajectory_id, "ids"),
        _t.c.excluded_reason.is_distinct_from(DELETING),
        _t.c.excluded_reason.is_distinct_from(IMPORTING),
    )
)
_STEPS = sql(
    select(_s.c.step_id, _t.c.trajectory_id)
    .join_from(_s, _t, _t.c.pk == _s.c.trajectory)
    .where(among_texts(_s.c.step_id, "ids"))
)
_FREEZE = sql(
    update(_d)
    .where(_d.c.pk == parameter("row"))
    .values({name: parameter(name) for name in ("digest", "manifest", "frozen")})
)
_DROP = sql(
    update(_d)
    .where(_d.c.pk == parameter("row"))
    .values(digest=null(), manifest=null(), frozen=null(), began_at=parameter("at"))
)
_DROP_ROWS = sql(
    delete(_r).where(_r.c.dataset == parameter("building"), _r.c.position > parameter("above")).returning(_r.c.position)
)
_GONE = sql(delete(_d).where(_d.c.pk == parameter("building"), _d.c.manifest.is_(None)))
_BROKEN_OFF = sql(
    select(_d.c.pk, _d.c.began_at).where(_d.c.frozen.is_(None), _d.c.began_at <= parameter("before")).order_by(_d.c.pk)
)
_of_name: Select[Any] = select(_d).where(_d.c.name == parameter("of_name"), _d.c.frozen.is_not(None))
_LATEST = sql(_of_name.order_by(_d.c.frozen.desc()).limit(1))
_BEGINNING = sql(
    _of_name.where(_d.c.digest >= parameter("lowest"), _d.c.digest <= parameter("highest"))
    .order_by(_d.c.digest)
    .limit(6)
)
_listed = select(_d.c.pk, _d.c.frozen, _d.c.manifest).where(_d.c.frozen < parameter("before"))
_in_order = _d.c.frozen.desc()
_LIST = sql(_listed.order_by(_in_order).limit(parameter("limit")))
_LIST_OF_NAME = sql(_listed.where(_d.c.name == parameter("of_name")).order_by(_in_order).limit(parameter("limit")))
_rows = (
    select(_r.c.record)
    .where(_r.c.dataset == parameter("building"), _r.c.position > parameter("after"))
    .order_by(_r.c.position)
    .limit(parameter("limit"))
)
_ROWS = {False: sql(_rows), True: sql(_rows.where(_r.c.split == parameter("of_split")))}
_OF_TRAJECTORY = sql(
    select(_d.c.name, _d.c.digest)
    .join_from(_r, _d, _d.c.pk == _r.c.dataset)
    .where(_r.c.trajectory_id == parameter("id"), _d.c.frozen.is_not(None))
    .order_by(_d.c.name, _d.c.digest)
)
_HOLDING = sql(
    select(_r.c.dataset, _r.c.position, _r.c.record, _d.c.frozen)
    .join_from(_r, _d, _d.c.pk == _r.c.dataset)
    .where(among_texts(_r.c.trajectory_id, "ids"))
)
_REWRITE = sql(
    update(_r)
    .where(_r.c.dataset == parameter("of_dataset"), _r.c.position == parameter("of_position"))
    .values(record=parameter("record"), compared=parameter("compared"))
)
_COMPARED = sql(
    select(_r.c.dataset, _r.c.position, _r.c.record)
    .where(
        _r.c.compared == 1,
        (_r.c.dataset > parameter("above"))
        | ((_r.c.dataset == parameter("above")) & (_r.c.position > parameter("above_position"))),
    )
    .order_by(_r.c.dataset, _r.c.position)
    .limit(parameter("limit"))
)
_BURIED = sql(
    select(_tomb.c.target_id).where(_tomb.c.kind.in_(["trajectory", "step"]), among_texts(_tomb.c.target_id, "ids"))
)
_BURIED_TRAJECTORIES = sql(
    select(_tomb.c.target_id, _tomb.c.reason, _tomb.c.at).where(
        _tomb.c.kind == "trajectory", among_texts(_tomb.c.target_id, "ids")
    )
)


# --- building -----------------------------------------------------------------------------------------------------
def begin(txn: Transaction, name: str) -> int:
    """Begin a version; returns its number."""
    pk = txn.next_pk("datasets")
    txn.execute(_BEGIN, {"pk": pk, "name": name, "began_at": txn.now})
    return pk


def building(reader: Reader | Transaction, number: int) -> Row:
    """What is built under the number; NotFoundError where that is nothing, ConflictError where it is frozen."""
    found = reader.execute(_BUILDING, {"building": number})
    if not found or (found[0]["frozen"] is None and found[0]["began_at"] == DROPPED):
        raise no_building(number)
    if found[0]["frozen"] is not None:
        version = f"{found[0]['name']}@{found[0]['digest']}"
        raise ConflictError(f"{version} is frozen", path="building", hint="Begin another version")
    return found[0]


def last_row(reader: Reader | Transaction, number: int) -> tuple[int, str]:
    """How many rows are there, and the trajectory of the last one."""
    found = reader.execute(_LAST, {"building": number})
    return (found[0]["position"] + 1, found[0]["trajectory_id"]) if found else (0, "")


def check_steps(reader: Reader | Transaction, rows: Sequence[DatasetRow]) -> None:
    """NotFoundError where a step is not there, or of another trajectory. Steps go with their trajectories only."""
    for begin_at in range(0, len(rows), 100):
        part = rows[begin_at : begin_at + 100]
        named = [step.step_id for row in part for step in row.steps]
        owner = {row[0]: row[1] for row in reader.execute(_STEPS, {"ids": json_list(named)})} if named else {}
        for number, row in enumerate(part, begin_at):
            for place, step in enumerate(row.steps):
                if owner.get(step.step_id) != row.trajectory_id:
                    raise NotFoundError(
                        f"trajectory {row.trajectory_id!r} has no step {step.step_id!r}",
                        path=f"rows[{number}].steps[{place}].step_id",
                    )


def there_of(reader: Reader | Transaction, ids: Sequence[str]) -> set[str]:
    """Those of the trajectories that are there."""
    return {row[0] for row in reader.execute(_THERE, {"ids": json_list(ids)})} if ids else set()


class Buried(NamedTuple):
    """Why and when something was deleted on request."""

    reason: str | None
    at: float


def buried_of(reader: Reader | Transaction, ids: Sequence[str]) -> dict[str, Buried]:
    """Those of the trajectories that were deleted on request."""
    return {row[0]: Buried(row[1], row[2]) for row in reader.execute(_BURIED_TRAJECTORIES, {"ids": json_list(ids)})}


def check_trajectories(reader: Reader | Transaction, ids: Sequence[str]) -> None:
    """NotFoundError where one of the trajectories is not there."""
    there = there_of(reader, ids)
    for number, trajectory_id in enumerate(ids):
        if trajectory_id not in there:
            raise NotFoundError(f"no trajectory {trajectory_id!r}", path=f"rows[{number}].trajectory_id")


def put(txn: Transaction, number: int, rows: Sequence[Packed]) -> None:
    """Put rows that were checked, while their trajectories are there."""
    building(txn, number)
    if not rows:
        return
    if last_row(txn, number)[0] != rows[0].position:
        raise ConflictError("rows were put from elsewhere meanwhile", path="rows", hint="Build a version in one place")
    check_trajectories(txn, [row.trajectory_id for row in rows])
    insert_rows(txn, number, rows)


def insert_rows(txn: Transaction, number: int, rows: Sequence[Packed]) -> None:
    """Insert rows of a version."""
    txn.many(_PUT, [{**row.values, "dataset": number, "put_at": txn.now} for row in rows])


def freeze(txn: Transaction, number: int, version: DatasetVersion) -> DatasetVersion:
    """End it; the version that was there already, where there is one."""
    row = building(txn, number)
    version = check_manifest(version, row["name"])
    check_count(version, last_row(txn, number)[0])
    there = _found(txn, Wanted(version.name, version.digest))
    if there is not None:
        txn.execute(_DROP, {"row": number, "at": DROPPED})
        return manifest_of(there)
    data = {"version": version.version, "rows": version.rows, "steps": version.steps}
    sequence = txn.next_pk("events", 0)
    add_event(txn, "dataset.frozen", data=data, channel=version.selection.channel)
    values = {"digest": version.digest, "manifest": stored_json(version).decode(), "frozen": sequence}
    txn.execute(_FREEZE, {"row": number, **values})
    return version


def drop(txn: Transaction, number: int) -> bool:
    """Begin to take away what was not frozen, so that nobody can put rows any more; False where nothing is there."""
    try:
        building(txn, number)
    except NotFoundError:
        return False
    txn.execute(_DROP, {"row": number, "at": DROPPED})
    return True


def drop_part(txn: Transaction, number: int) -> bool:
    """Take the next rows of what is on its way out away, then itself; whether that is done."""
    found = txn.one(_BUILDING, {"building": number})
    if found is None or found["frozen"] is not None:
        return True
    last = last_row(txn, number)[0]
    if last:
        txn.execute(_DROP_ROWS, {"building": number, "above": last - 1 - DROPPED_AT_ONCE})
    if last > DROPPED_AT_ONCE:
        return False
    txn.execute(_GONE, {"building": number})
    return True


def remove(txn: Transaction, wanted: Wanted) -> tuple[int, DatasetVersion]:
    """Delete a version, whose rows are dropped next; returns its number."""
    there = _found(txn, wanted)
    if there is None:
        raise no_version(wanted)
    gone = manifest_of(there)
    txn.execute(_DROP, {"row": there["pk"], "at": DROPPED})
    add_event(txn, "dataset.deleted", data={"version": gone.version}, channel=gone.selection.channel)
    return there["pk"], gone


def on_the_way_out(reader: Reader) -> list[int]:
    """The numbers of what was dropped, and has rows still."""
    return [row["pk"] for row in reader.execute(_BROKEN_OFF, {"before": DROPPED})]


def broken_off(reader: Reader, now: float) -> list[Row]:
    """What is on its way out, or began a day ago and was not frozen."""
    return reader.execute(_BROKEN_OFF, {"before": now - KEPT_BUILDING})


# --- reading ------------------------------------------------------------------------------------------------------
def find(reader: Reader, wanted: Wanted) -> Row:
    """The row of a version; NotFoundError where there is none, ConflictError where several may be meant."""
    found = _found(reader, wanted)
    if found is None:
        raise no_version(wanted)
    return found


def is_there(reader: Reader, wanted: Wanted) -> bool:
    """Whether there is such a version."""
    return _found(reader, wanted) is not None


def manifest_of(row: Row) -> DatasetVersion:
    """The manifest of a frozen version."""
    return read_json(row["manifest"], DatasetVersion)


def list_versions(reader: Reader, name: str | None, before: int, limit: int) -> list[Row]:
    """Frozen versions that were frozen before the event of that number, the latest first."""
    bound: dict[str, Any] = {"before": before, "limit": limit}
    if name is None:
        return reader.execute(_LIST, bound)
    return reader.execute(_LIST_OF_NAME, {**bound, "of_name": name})


def read_rows(reader: Reader, number: int, after: int, limit: int, split: str | None) -> list[DatasetRow]:
    """Rows with a position over `after`, in order."""
    bound: dict[str, Any] = {"building": number, "after": after, "limit": limit}
    if split is not None:
        bound["of_split"] = split
    return [row_from(row["record"]) for row in reader.execute(_ROWS[split is not None], bound)]


def versions_of(reader: Reader, trajectory_id: str) -> list[str]:
    """The frozen versions that have the trajectory."""
    return [f"{row[0]}@{row[1]}" for row in reader.execute(_OF_TRAJECTORY, {"id": trajectory_id})]


def _found(reader: Reader | Transaction, wanted: Wanted) -> Row | None:
    if wanted.digits is None:
        found = reader.execute(_LATEST, {"of_name": wanted.name})
        return found[0] if found else None
    bound = {"of_name": wanted.name, "lowest": wanted.digits, "highest": wanted.digits + "g"}
    found = reader.execute(_BEGINNING, bound)
    if len(found) > 1:
        raise several_versions(wanted, [f"{row['name']}@{row['digest']}" for row in found])
    return found[0] if found else None


# --- deletion on request --------------------------------------------------------------------------------------------
def scrub(txn: Transaction, trajectory_ids: Sequence[str]) -> None:
    """Leave of the rows of deleted trajectories what says nothing of what they held; what is not frozen is dropped."""
    found = txn.execute(_HOLDING, {"ids": json_list(trajectory_ids)})
    for number in dict.fromkeys(row["dataset"] for row in found if row["frozen"] is None):
        txn.execute(_DROP, {"row": number, "at": DROPPED})
    rewrite(txn, [(row, scrubbed_row(row_from(row["record"]))) for row in found if row["frozen"] is not None])


def rewrite(txn: Transaction, rows: Sequence[tuple[Row, DatasetRow]]) -> None:
    """Put other records in the place of these rows'."""
    txn.many(
        _REWRITE,
        [
            {"of_dataset": row["dataset"], "of_position": row["position"], **record_columns(record)}
            for row, record in rows
        ],
    )


def rewrite_compared(txn: Transaction, after: tuple[int, int]) -> None:
    """Take out of the next rows with comparisons what was deleted on request. They are read within the transaction:
    another one may just have taken away what a row held.
    """
    rewrite(txn, without_deleted(txn, compared_rows(txn, after)))


def compared_rows(reader: Reader | Transaction, after: tuple[int, int]) -> list[Row]:
    """The next rows with comparisons, after the one of this version and position."""
    return reader.execute(_COMPARED, {"above": after[0], "above_position": after[1], "limit": LOOKED_AT_ONCE})


def without_deleted(reader: Reader | Transaction, rows: Sequence[Row]) -> list[tuple[Row, DatasetRow]]:
    """Those of the rows that compare with what was deleted on request, and what may stay of them."""
    records = [row_from(row["record"]) for row in rows]
    named = {said.other_id for record in records for said in record.feedback if said.other_id is not None}
    gone = {row[0] for row in reader.execute(_BURIED, {"ids": json_list(sorted(named))})}
    return [
        (row, changed)
        for row, record in zip(rows, records, strict=True)
        if gone and (changed := without_compared(record, gone)) != record
    ]
