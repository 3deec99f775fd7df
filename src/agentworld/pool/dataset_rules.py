"""What names, rows and manifests of dataset versions must be, before a store keeps them; the same in every store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from agentworld.errors import ConflictError, InvalidRequestError, NotFoundError
from agentworld.pool.arguments import listed
from agentworld.pool.base import check_limit
from agentworld.pool.bounds import check_integer, storable
from agentworld.records import DatasetRow, DatasetVersion, FrozenStep, check_id, exact_json
from agentworld.records.ids import digest

OWNER_KIND = "dataset"
"""Whose pins those are that the rows of versions are."""
MAX_ROWS = 1000  # in one call, which is one transaction that others wait for
KEPT_BUILDING = 86_400.0  # seconds that a version which was not frozen stays
MIN_DIGITS = 6
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DIGEST = re.compile(r"[0-9a-f]{32}")
_DIGESTED = re.compile(r"digest:[0-9a-f]{32}")
_DIGITS = re.compile(rf"[0-9a-f]{{{MIN_DIGITS},32}}")


class Wanted(NamedTuple):
    """A version as it is asked for: by name alone, or with the first digits of its digest."""

    name: str
    digits: str | None

    @property
    def is_whole(self) -> bool:
        """Whether one version alone can be meant."""
        return self.digits is not None and len(self.digits) == 32


def check_dataset_name(name: object, path: str = "name") -> str:
    """The name of a dataset: 1 to 100 letters, digits and . _ -"""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        shown = repr(name[:40]) if isinstance(name, str) else f"a value of type {type(name).__name__}"
        raise InvalidRequestError(
            f"{shown} cannot name a dataset",
            path=path,
            hint="Use 1 to 100 letters, digits and . _ - and begin with a letter or digit",
        )
    return name


def wanted_version(version: object, *, whole: bool = False) -> Wanted:
    """What `version` asks for; InvalidRequestError where it is malformed, or must name one version and does not."""
    name, at, digits = version.partition("@") if isinstance(version, str) else ("", "", "")
    if not at and not whole:
        return Wanted(check_dataset_name(name, "version"), None)
    if not _NAME.fullmatch(name) or not (_DIGEST if whole else _DIGITS).fullmatch(digits):
        shown = repr(version[:140]) if isinstance(version, str) else f"a value of type {type(version).__name__}"
        form = "NAME@DIGEST" if whole else f"NAME, or NAME@ and at least {MIN_DIGITS} hex digits"
        raise InvalidRequestError(f"{shown} names no version", path="version", hint=f"Write it as {form}")
    return Wanted(name, digits)


def no_version(wanted: Wanted) -> NotFoundError:
    """The error for a version that is not there."""
    named = wanted.name if wanted.digits is None else f"{wanted.name}@{wanted.digits}"
    return NotFoundError(
        f"no version {named!r}", path="version", hint="`agentworld dataset list` shows those that there are"
    )


def several_versions(wanted: Wanted, found: Sequence[str]) -> ConflictError:
    """The error for digits with which several versions begin."""
    return ConflictError(
        f"{len(found)} versions begin with {wanted.name}@{wanted.digits}: {', '.join(sorted(found)[:5])}",
        path="version",
        hint="Write more digits",
    )


def no_building(building: object) -> NotFoundError:
    """The error for a number under which nothing is being built."""
    return NotFoundError(
        f"no version is being built under {building!r}",
        path="building",
        hint="It was dropped, or collected a day after it began: begin anew",
    )


def check_rows(rows: Sequence[DatasetRow], position: int, last: str) -> list[DatasetRow]:
    """Rows that may be added after `position` rows, of which the last is of the trajectory `last` ("" for none).

    InvalidRequestError names the row and what is wrong with it.
    """
    sent = listed(rows, "DatasetRow", "rows")
    if len(sent) > MAX_ROWS:
        raise InvalidRequestError(f"{len(sent)} rows in one call", path="rows", hint=f"Send at most {MAX_ROWS} at once")
    checked = []
    for number, row in enumerate(sent):
        path = f"rows[{number}]"
        if not isinstance(row, DatasetRow):
            raise InvalidRequestError(f"this must be a DatasetRow, not {type(row).__name__}", path=path)
        with storable(f"{path}."):
            row = exact_json.decode(exact_json.encode(row), DatasetRow)
        check_id(row.trajectory_id, f"{path}.trajectory_id")
        if row.position != position + number:
            raise InvalidRequestError(
                f"the position is {row.position}, {position + number} rows are there before it", path=f"{path}.position"
            )
        if row.trajectory_id <= last:
            raise InvalidRequestError(
                f"{row.trajectory_id!r} does not come after {last!r}",
                path=f"{path}.trajectory_id",
                hint="Rows are in the order of their trajectory ids, one of each",
            )
        _check_steps(row, path)
        last = row.trajectory_id
        checked.append(row)
    return checked


def _check_steps(row: DatasetRow, path: str) -> None:
    check_dataset_name(row.split, f"{path}.split")
    for where, given in ((path, row.digest), *((f"{path}.steps", step.digest) for step in row.steps)):
        if not _DIGEST.fullmatch(given):
            raise InvalidRequestError("a digest is 32 hex digits", path=f"{where}.digest")
    named: set[str] = set()
    for number, step in enumerate(row.steps):
        check_id(step.step_id, f"{path}.steps[{number}].step_id")
        if step.step_id in named:
            raise InvalidRequestError(f"step {step.step_id!r} is there twice", path=f"{path}.steps[{number}].step_id")
        named.add(step.step_id)


def check_building(building: object) -> int:
    """The number that `begin_dataset` gave."""
    if not isinstance(building, int) or isinstance(building, bool):
        raise InvalidRequestError("building is the number that begin_dataset returned", path="building")
    check_integer(building, "building", highest=2**63 - 1)
    return building


def check_manifest(version: DatasetVersion, name: str) -> DatasetVersion:
    """The manifest of what was built under `name`, of the caller's no more; InvalidRequestError otherwise."""
    if not isinstance(version, DatasetVersion):
        raise InvalidRequestError(f"this must be a DatasetVersion, not {type(version).__name__}", path="version")
    with storable("version."):
        version = exact_json.decode(exact_json.encode(version), DatasetVersion)
    if not _DIGEST.fullmatch(version.digest):
        raise InvalidRequestError("a digest is 32 hex digits", path="version.digest")
    if version.name != name or version.version != f"{name}@{version.digest}":
        raise InvalidRequestError(
            f"what is built as {name!r} cannot be frozen as {version.version[:140]!r}",
            path="version.version",
            hint="A version is called NAME@DIGEST",
        )
    version.state = "frozen"
    return version


def check_count(version: DatasetVersion, rows: int) -> None:
    """ConflictError where other rows are there than the manifest counts."""
    if version.rows != rows:
        raise ConflictError(
            f"{rows} rows are there, the manifest counts {version.rows}",
            path="version.rows",
            hint="What was deleted on request meanwhile left the version: begin it anew",
        )


def check_reading(after: object, limit: int, split: object) -> None:
    """InvalidRequestError where a page of rows cannot be asked for so."""
    if not isinstance(after, int) or isinstance(after, bool) or not -1 <= after < 2**63:
        raise InvalidRequestError("after is the position of a row, or -1", path="after")
    check_limit(limit)
    if split is not None:
        check_dataset_name(split, "split")


def scrubbed_row(row: DatasetRow) -> DatasetRow:
    """What stays of a row whose trajectory was deleted on request: ids, digests, also of the key of its task, and the
    split, so that the next version goes on from it.
    """
    return DatasetRow(
        position=row.position,
        trajectory_id=row.trajectory_id,
        digest=row.digest,
        split=row.split,
        task_key=None if row.task_key is None else digested_task(row.task_key),
        cluster=row.cluster,
        group_key=row.group_key,
        steps=[FrozenStep(step.step_id, step.digest) for step in row.steps],
    )


def digested_task(key: str) -> str:
    """What stays of the key of a task: the same for what is that already."""
    if _DIGESTED.fullmatch(key):
        return key
    return f"digest:{digest(b'task', key.encode('utf-8', 'surrogatepass')).hex()}"


def group_digest(group_id: str) -> str:
    """What a row keeps of the group that its trajectory is in."""
    return digest(b"group", group_id.encode("utf-8", "surrogatepass")).hex()


def without_compared(row: DatasetRow, gone: set[str]) -> DatasetRow:
    """The row, with nothing left of what its comparisons said of trajectories or steps that were deleted."""
    kept = [
        msgspec.structs.replace(one, value=None, comment=None, content=None) if one.other_id in gone else one
        for one in row.feedback
    ]
    return msgspec.structs.replace(row, feedback=kept)


def building_owner(name: str, building: int) -> str:
    """Whose the pins of a version are that is not frozen yet."""
    return f"{name}@building.{building}"
