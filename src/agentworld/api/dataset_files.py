"""A split of a version as one file of lines of JSON, streamed as it is made."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import msgspec
from litestar import Request, get
from litestar.concurrency import sync_to_thread
from litestar.datastructures import State
from litestar.params import FromPath, QueryParameter
from litestar.response import Stream

from agentworld.api.access import reach
from agentworld.api.at_end import at_end
from agentworld.client.wire import API
from agentworld.curation.exports.lines import export_lines
from agentworld.curation.exports.options import Truncated
from agentworld.curation.exports.registry import known_layouts
from agentworld.curation.exports.report import reasons
from agentworld.errors import BusyError, InvalidRequestError

MOST_AT_ONCE = 2
"""Files that one process makes at once."""
PIECE = 256 * 1024
"""About so many bytes go out at a time."""
_room = threading.BoundedSemaphore(MOST_AT_ONCE)


class _Place:
    """One of `MOST_AT_ONCE`, until it is left; BusyError where all are taken."""

    def __init__(self) -> None:
        self._taken = _room.acquire(blocking=False)
        if not self._taken:
            raise BusyError(
                f"{MOST_AT_ONCE} exports are being made here already", hint="Send it again once one is done"
            )

    def leave(self) -> None:
        if self._taken:
            self._taken = False
            _room.release()


class _Transfer:
    """Pieces of lines, of which a thread makes the next; its place is left with `end`."""

    def __init__(self, first: bytes, lines: Iterator[bytes], place: _Place) -> None:
        self._first = first
        self._lines = lines
        self._place = place
        self._work: asyncio.Future[bytes] | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        """To be sent one after the other."""
        piece = self._first
        while piece:
            yield piece
            self._work = asyncio.ensure_future(sync_to_thread(_piece, self._lines))
            piece = await asyncio.shield(self._work)

    async def end(self) -> None:
        """Who leaves ends no thread: while that still reads the pool, its place is taken."""
        if self._work is None or self._work.done():
            self._place.leave()
        else:
            self._work.add_done_callback(lambda _: self._place.leave())


InLayout = Annotated[str, QueryParameter(description="The layout, of those at /api/v1/dataset-layouts")]
Split = Annotated[str, QueryParameter(description="The split")]
Style = Annotated[str | None, QueryParameter(description="A variant of the layout")]
CutOff = Annotated[
    Truncated,
    QueryParameter(description="Rows with replies that the limit of tokens cut off, of layouts that leave these out"),
]


class DatasetLayout(msgspec.Struct, frozen=True):
    """A layout that can be had as lines of JSON. `drops_truncated`: it leaves out replies that the limit of tokens cut
    off, unless `truncated=keep` is asked for.
    """

    name: str
    says: str
    styles: list[str]
    drops_truncated: bool


class DatasetLayouts(msgspec.Struct, frozen=True):
    """Those that there are."""

    items: list[DatasetLayout]


@get(f"{API}/dataset-layouts", sync_to_thread=True)
def dataset_layouts() -> DatasetLayouts:
    """The layouts that a version can be had in, as lines of JSON."""
    return DatasetLayouts(
        [
            DatasetLayout(each.name, each.says, list(each.styles), "truncated" in each.takes)
            for each in known_layouts().values()
            if "jsonl" in each.files
        ]
    )


@get(f"{API}/datasets/{{version:str}}/export")
async def export(
    request: Request[Any, Any, Any],
    state: State,
    version: FromPath[str],
    layout: InLayout,
    split: Split = "train",
    style: Style = None,
    truncated: CutOff = "drop",
) -> Stream:
    """One split as lines of JSON, to be saved as a file. What cannot be a row is left out. A transfer that does not end
    properly is not whole.
    """
    whole = await sync_to_thread(reach(state).get_dataset, version)
    left_out: Counter[str] = Counter()
    place = _Place()
    try:
        options: dict[str, Any] = {"truncated": truncated} | ({} if style is None else {"style": style})
        lines = await sync_to_thread(export_lines, state.pool, whole.version, layout, split, left_out, **options)
        first = await sync_to_thread(_piece, lines)
        if not first:
            why = "; ".join(f"{count} {reason} ({means})" for reason, count, means in reasons(left_out))
            raise InvalidRequestError(
                f"{whole.version} gives no row of {split!r} in the layout {layout}",
                hint=f"Left out: {why}" if why else "Nothing in it is of that kind",
            )
    except BaseException:
        place.leave()
        raise
    name = "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", part) for part in (whole.version, layout, split))
    headers = {
        "Content-Disposition": f'attachment; filename="{name}.jsonl"',
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    transfer = _Transfer(first, lines, place)
    at_end(request, transfer.end)
    return Stream(transfer.pieces(), media_type="application/x-ndjson", headers=headers)


def _piece(lines: Iterator[bytes]) -> bytes:
    """The next lines, together at least `PIECE` long; empty at the end."""
    found: list[bytes] = []
    size = 0
    for line in lines:
        found.append(line)
        size += len(line)
        if size >= PIECE:
            break
    return b"".join(found)


ROUTES: list[Any] = [dataset_layouts, export]
