"""Frozen trajectories of a server, for reading them and for exports that are written on this side."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Protocol, TypeVar
from urllib.parse import quote

from agentworld.client import calls as step_calls
from agentworld.client import dataset_calls as calls
from agentworld.client.calls import Call
from agentworld.client.wire import API
from agentworld.curation.datasets.frozen import FrozenTrajectory, Skipped, SkippedRow
from agentworld.curation.datasets.reading import ARRAYS, EVERYTHING
from agentworld.curation.datasets.travelling import PackedPage, unpack, with_ids
from agentworld.errors import NotFoundError
from agentworld.records import DatasetRow, DatasetVersion

T = TypeVar("T")
_ROWS = 100


class Send(Protocol):
    """Sends a call and reads its reply."""

    def __call__(self, call: Call[T], /) -> T:
        """The record."""


class Fetch(Protocol):
    """Gets the bytes at a path behind the server's address."""

    def __call__(self, path: str, /) -> bytes:
        """The body."""


def read_frozen(
    send: Send,
    version: str,
    *,
    split: str | None = None,
    skipped: Skipped | None = None,
    include: Sequence[str] = EVERYTHING,
) -> Iterator[FrozenTrajectory]:
    """See agentworld.read_dataset. Page by page, so that nothing is held open between two rows, and a page that fails
    is asked for again alone.
    """
    whole = with_split(send(calls.get_dataset(version)), split)
    return _pages(send, whole.version, split, skipped or (lambda row: None), include)


async def read_frozen_aside(
    send: Callable[[Call[PackedPage]], Awaitable[PackedPage]], version: str, split: str | None, skipped: Skipped
) -> AsyncIterator[FrozenTrajectory]:
    """As `read_frozen`, for event loops; of a version that is known to be there."""
    after: int | None = -1
    while after is not None:
        page = await send(calls.frozen(version, after, _ROWS, split, _asked(EVERYTHING)))
        for found in _unpacked(page, skipped, EVERYTHING):
            yield found
        after = page.next_after


def with_split(version: DatasetVersion, split: str | None) -> DatasetVersion:
    """The version; NotFoundError where it has no such split."""
    if split is not None and split not in version.splits:
        raise NotFoundError(
            f"{version.version} has no split {split!r}", path="split", hint=f"It has: {', '.join(version.splits)}"
        )
    return version


class ServerRecords:
    """Those of a server; see Records."""

    def __init__(self, send: Send, fetch: Fetch) -> None:
        self._send, self._fetch = send, fetch

    def get_dataset(self, version: str) -> DatasetVersion:
        """See Records."""
        return self._send(calls.get_dataset(version))

    def dataset_rows(self, version: str, *, after: int = -1, limit: int = 100) -> list[DatasetRow]:
        """See Records."""
        return self._send(calls.dataset_rows(version, after, limit, None)).items

    def read_frozen(
        self, version: str, *, split: str | None, skipped: Skipped, include: Sequence[str]
    ) -> Iterator[FrozenTrajectory]:
        """See Records."""
        return read_frozen(self._send, version, split=split, skipped=skipped, include=include)

    def read_frozen_row(self, version: str, row: DatasetRow, include: Sequence[str]) -> FrozenTrajectory | None:
        """See Records."""
        return next(_pages(self._send, version, None, lambda row: None, include, row.position), None)

    def trajectory_of(self, step_id: str) -> str | None:
        """See Records."""
        try:
            return self._send(step_calls.get_step(step_id, ())).trajectory_id
        except NotFoundError:
            return None

    def media_of(self, digest: str) -> bytes:
        """See Records."""
        return self._fetch(f"{API}/media/{quote(digest, safe='')}")


def _pages(
    send: Send,
    version: str,
    split: str | None,
    skipped: Skipped,
    include: Sequence[str],
    only: int | None = None,
) -> Iterator[FrozenTrajectory]:
    """`only`: the one at this position."""
    after: int | None = -1 if only is None else only - 1
    while after is not None:
        page = send(calls.frozen(version, after, _ROWS if only is None else 1, split, _asked(include)))
        yield from _unpacked(page, skipped, include)
        after = page.next_after if only is None else None


def _asked(include: Sequence[str]) -> list[str]:
    """What is asked of the server for it."""
    asked = ["messages"] if "messages" in include else []
    return asked + ([ARRAYS] if {ARRAYS, "tokens", "logprobs"} & set(include) else [])


def _unpacked(page: PackedPage, skipped: Skipped, include: Sequence[str]) -> Iterator[FrozenTrajectory]:
    for packed in page.items:
        found = unpack(packed)
        if isinstance(found, SkippedRow):
            skipped(found)
        else:
            yield found if ARRAYS in include else with_ids(found, include)
