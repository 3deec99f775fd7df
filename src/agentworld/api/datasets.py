"""Dataset versions: made, listed, read, compared, verified, traced back and deleted."""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
from litestar import Response, delete, get, post
from litestar.concurrency import sync_to_thread
from litestar.datastructures import State
from litestar.params import FromPath, FromQuery, QueryParameter, RawBody

from agentworld.api.access import reach
from agentworld.api.bodies import decode
from agentworld.api.bound_datasets import BoundDatasets
from agentworld.api.trajectories import Cursor, Limit
from agentworld.client.dataset_calls import DatasetRequest, VerifyRequest
from agentworld.client.wire import API
from agentworld.curation.datasets.comparing import diff_datasets
from agentworld.curation.datasets.frozen import SkippedRow
from agentworld.curation.datasets.reading import ARRAYS, Deleted, read_or_say
from agentworld.curation.datasets.results import DatasetDiff, RowOrigin, Verification
from agentworld.curation.datasets.selecting import create_dataset
from agentworld.curation.datasets.tracing import trace_row
from agentworld.curation.datasets.travelling import PackedPage, PackedTrajectory, pack
from agentworld.curation.datasets.verifying import verify_dataset
from agentworld.errors import InvalidRequestError
from agentworld.pool.keeping.records import Progress
from agentworld.pool.protocol import Page, Pool
from agentworld.records import DatasetRow, DatasetVersion, Selection, exact_json

Version = FromPath[str]
After = Annotated[int, QueryParameter(ge=-1, description="Rows with a position over this")]
OfSplit = Annotated[str | None, QueryParameter(description="Of this split alone")]
Other = Annotated[str, QueryParameter(description="The second version; the first is in the path")]
Parts = Annotated[str, QueryParameter(description="With commas: messages, and arrays of ids")]
Samples = Annotated[int, QueryParameter(ge=0, le=1000, description="Rows of each change that are named, at most")]

_PAGE_BYTES = 1 << 20


@post(f"{API}/datasets", status_code=201, opt={"body": DatasetRequest})
async def make_dataset(state: State, body: RawBody) -> DatasetVersion:
    """Freeze a selection as a version of a dataset. It is named by what is in it: the same again is the same version.
    The answer comes once every step that is selected was read.
    """
    sent, pool = decode(body, DatasetRequest), reach(state)
    asked_for = msgspec.to_builtins(sent.selection)
    selection = msgspec.convert(asked_for, Selection)
    if isinstance(pool, BoundDatasets):
        selection = pool.own_selection(selection, named="channel" in asked_for)
    parents = [await sync_to_thread(_seen, state, parent) for parent in sent.parents]
    asked = msgspec.structs.replace(sent, parents=parents)

    def work(progress: Progress) -> DatasetVersion:
        return create_dataset(
            state.pool,
            sent.name,
            selection,
            parents=parents,
            note=sent.note,
            created_by=sent.created_by,
            progress=progress,
        )

    try:
        done: DatasetVersion = await state.long_work.run(("create", selection.channel, exact_json.encode(asked)), work)
    except InvalidRequestError as error:
        if isinstance(pool, BoundDatasets) and error.path == "channel":  # Its hint names other channels.
            raise InvalidRequestError(error.message, path=error.path) from None
        raise
    if isinstance(pool, BoundDatasets):
        pool.check_own(done)
    return done


@get(f"{API}/datasets", sync_to_thread=True)
def list_datasets(
    state: State, name: FromQuery[str | None] = None, cursor: Cursor = None, limit: Limit = 100
) -> Page[DatasetVersion]:
    """One page of versions, the latest first."""
    page: Page[DatasetVersion] = reach(state).list_datasets(name=name, cursor=cursor, limit=limit)
    return page


@get(f"{API}/datasets/{{version:str}}", sync_to_thread=True)
def get_dataset(state: State, version: Version) -> DatasetVersion:
    """One manifest, by `NAME@DIGEST`, by `NAME@` and at least 6 digits, or by NAME for the one that was frozen last."""
    found: DatasetVersion = reach(state).get_dataset(version)
    return found


@get(f"{API}/datasets/{{version:str}}/rows", sync_to_thread=True)
def dataset_rows(
    state: State, version: Version, after: After = -1, limit: Limit = 100, split: OfSplit = None
) -> Page[DatasetRow]:
    """Rows in order, also those whose trajectory was deleted. `next_cursor` is the `after` of the next page."""
    rows = reach(state).dataset_rows(version, after=after, limit=limit, split=split)
    return Page(rows, str(rows[-1].position) if len(rows) == limit else None)


@get(f"{API}/datasets/{{version:str}}/frozen", sync_to_thread=True)
def frozen(
    state: State,
    version: Version,
    after: After = -1,
    limit: Limit = 100,
    split: OfSplit = None,
    include: Parts = "",
) -> Response[PackedPage]:
    """Rows with their trajectories and steps as they were frozen, each step with what the ones before it have not: up
    to `limit` of them, and no further one once there is 1 MiB.
    """
    pool: Pool = state.pool
    whole, parts = _seen(state, version), _parts(include)
    deleted = Deleted(pool)
    items: list[bytes] = []
    size = 0
    rows = pool.dataset_rows(whole, after=after, limit=limit, split=split)
    for row in rows:
        found = read_or_say(pool, row, deleted, parts)
        if isinstance(found, SkippedRow):
            items.append(exact_json.encode(PackedTrajectory(row=row, skipped=found)))
        else:
            items.append(exact_json.encode(pack(found)))
        size += len(items[-1])
        after = row.position
        if size >= _PAGE_BYTES:
            break
    ended = len(items) == len(rows) < limit
    body = b'{"items":[%s],"next_after":%s}' % (b",".join(items), b"null" if ended else b"%d" % after)
    return cast(Response[PackedPage], Response(body, media_type="application/json"))


@get(f"{API}/datasets/{{version:str}}/diff")
async def diff(state: State, version: Version, other: Other, samples: Samples = 20) -> DatasetDiff:
    """What `other` has that this version has not, the reverse, and what both have otherwise."""
    first, second = [await sync_to_thread(_seen, state, each) for each in (version, other)]

    def work(progress: Progress) -> DatasetDiff:
        return diff_datasets(state.pool, first, second, samples=samples, progress=progress)

    done: DatasetDiff = await state.long_work.run(("diff", first, second, samples), work)
    return done


@post(f"{API}/datasets/{{version:str}}/verify", status_code=200, opt={"body": VerifyRequest})
async def verify(state: State, version: Version, body: RawBody) -> Verification:
    """Compute every digest of a version again from what the pool holds. Changes nothing."""
    sent = decode(body, VerifyRequest)
    found = await sync_to_thread(_seen, state, version)

    def work(progress: Progress) -> Verification:
        return verify_dataset(state.pool, found, problems=sent.problems, progress=progress)

    done: Verification = await state.long_work.run(("verify", found, sent.problems), work)
    return done


@get(f"{API}/datasets/{{version:str}}/trace", sync_to_thread=True)
def trace(
    state: State,
    version: Version,
    trajectory_id: FromQuery[str | None] = None,
    step_id: FromQuery[str | None] = None,
) -> RowOrigin:
    """Where the row of a trajectory or of a step comes from: the calls of its steps, the file that it was imported
    from, its rewards with their sources, and what let it in.
    """
    pool: Pool = state.pool
    return trace_row(pool, _seen(state, version), trajectory_id=trajectory_id, step_id=step_id)


@delete(f"{API}/datasets/{{version:str}}", status_code=200, sync_to_thread=True)
def delete_dataset(state: State, version: Version) -> DatasetVersion:
    """Delete a version by its whole name. Its trajectories stay, until retention takes them."""
    gone: DatasetVersion = reach(state).delete_dataset(version)
    return gone


def _parts(include: str) -> list[str]:
    """What of steps is asked for."""
    asked = [one.strip() for one in include.split(",") if one.strip()]
    for one in asked:
        if one not in (ARRAYS, "messages"):
            raise InvalidRequestError(f"{one!r} cannot be included", path="include", hint="Use messages and arrays")
    return asked


def _seen(state: State, version: str) -> str:
    """The whole name of a version that the caller may see."""
    return str(reach(state).get_dataset(version).version)


ROUTES = [
    make_dataset,
    list_datasets,
    get_dataset,
    dataset_rows,
    frozen,
    diff,
    verify,
    trace,
    delete_dataset,
]
