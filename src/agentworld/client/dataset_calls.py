"""Dataset versions over HTTP as data: bodies, and each call with its path, body and reply type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from agentworld.client.calls import Call
from agentworld.client.wire import API
from agentworld.curation.datasets.results import PROBLEMS, DatasetDiff, RowOrigin, Verification
from agentworld.curation.datasets.travelling import PackedPage
from agentworld.pool.bounds import wrong_type
from agentworld.pool.dataset_rules import wanted_version
from agentworld.pool.results import Page
from agentworld.records import DatasetRow, DatasetVersion, Selection, Splits, exact_json

T = TypeVar("T")
ROW_SECONDS = 600.0
"""And so long for the longest trajectory of a version."""
WORK_SECONDS = 4 * 3600.0
"""A client waits so long for what a server has to read a whole version, or all of a channel, for."""


class SplitsRequest(Splits, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How rows are divided, and what stays together."""


class SelectionRequest(Selection, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What is selected: trajectories, or steps where `unit` is step, for which `where` holds. Where no channel is said,
    it is train, or that of the key.
    """

    channel: str | msgspec.UnsetType | None = msgspec.UNSET  # type: ignore[assignment]
    splits: SplitsRequest = msgspec.field(default_factory=SplitsRequest)


class DatasetRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A selection to freeze. `parents`: versions that it goes on from."""

    name: str
    selection: SelectionRequest = msgspec.field(default_factory=SelectionRequest)
    parents: list[str] = []
    note: str | None = None
    created_by: str | None = None


class VerifyRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`problems`: how many rows that are not ok are named."""

    problems: Annotated[int, msgspec.Meta(ge=0, le=1000)] = PROBLEMS


def create_dataset(
    name: str, selection: Selection, parents: Sequence[str], note: str | None, created_by: str | None
) -> Call[DatasetVersion]:
    """Freeze a selection; the same again is the same version."""
    if not isinstance(selection, Selection):
        raise wrong_type(selection, "a Selection", "selection")
    said = {field: getattr(selection, field) for field in selection.__struct_fields__}
    if selection.channel == Selection().channel:
        del said["channel"]  # Then it is that of a key that is bound to one.
    sent = {"name": name, "selection": said, "parents": list(parents), "note": note, "created_by": created_by}
    return _long("POST", "", DatasetVersion, sent)


def list_datasets(name: str | None, cursor: str | None, limit: int) -> Call[Page[DatasetVersion]]:
    """One page of versions."""
    return _get("", Page[DatasetVersion], name=name, cursor=cursor, limit=limit)


def get_dataset(version: str) -> Call[DatasetVersion]:
    """One manifest."""
    return _get(_of(version), DatasetVersion)


def dataset_rows(version: str, after: int, limit: int, split: str | None) -> Call[Page[DatasetRow]]:
    """One page of rows."""
    return _get(f"{_of(version)}/rows", Page[DatasetRow], after=after, limit=limit, split=split)


def frozen(version: str, after: int, limit: int, split: str | None, include: Sequence[str]) -> Call[PackedPage]:
    """One page of frozen trajectories; a server reads each as a whole."""
    asked = ",".join(include)
    call = _get(f"{_of(version)}/frozen", PackedPage, after=after, limit=limit, split=split, include=asked)
    return msgspec.structs.replace(call, timeout=ROW_SECONDS)


def diff_datasets(version: str, other: str, samples: int) -> Call[DatasetDiff]:
    """How two versions differ."""
    call = _get(f"{_of(version)}/diff", DatasetDiff, other=other, samples=samples)
    return msgspec.structs.replace(call, timeout=WORK_SECONDS)


def verify_dataset(version: str, problems: int) -> Call[Verification]:
    """Whether a version is what it was."""
    return _long("POST", f"{_of(version)}/verify", Verification, VerifyRequest(problems=problems))


def trace_row(version: str, trajectory_id: str | None, step_id: str | None) -> Call[RowOrigin]:
    """Where a row comes from."""
    return _get(f"{_of(version)}/trace", RowOrigin, trajectory_id=trajectory_id, step_id=step_id)


def delete_dataset(version: str) -> Call[DatasetVersion]:
    """Delete a version. Not retried: a second answer would say that there is none."""
    return Call("DELETE", f"{API}/datasets{_of(version)}", DatasetVersion, idempotent=False)


def _of(version: str) -> str:
    wanted_version(version)
    return f"/{quote(version, safe='@')}"


def _get(path: str, reply: type[T], **parameters: Any) -> Call[T]:
    given = {name: value for name, value in parameters.items() if value is not None}
    where = f"{API}/datasets{path}"
    return Call("GET", f"{where}?{urlencode(given)}" if given else where, reply)


def _long(method: str, path: str, reply: type[T], body: Any) -> Call[T]:
    return Call(method, f"{API}/datasets{path}", reply, exact_json.encode(body), timeout=WORK_SECONDS)
