"""Batches: leased, acknowledged, released, extended, and what is kept of them; consumers settled and requeued."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.concurrency import sync_to_thread
from litestar.datastructures import State
from litestar.params import FromPath, QueryParameter, RawBody

from agentworld.api.access import reach
from agentworld.api.bodies import decode
from agentworld.api.leaving import until_gone
from agentworld.client.wire import (
    API,
    LONGEST_WAIT,
    Deadline,
    LeaseAction,
    LeaseExtension,
    LeaseRequest,
    PoisonedReply,
    RequeueReply,
    RequeueRequest,
    ResumeReply,
    ResumeRequest,
)
from agentworld.errors import InvalidRequestError
from agentworld.pool.lease_rules import check_batch_state
from agentworld.pool.protocol import Page, Pool, SpecReport, UnitExplanation
from agentworld.records import Batch, BatchRecord, BatchSpec

Consumer = Annotated[str | None, QueryParameter(description="Of this consumer alone")]
Cursor = Annotated[str | None, QueryParameter(description="next_cursor of the page before")]
Limit = Annotated[int, QueryParameter(ge=1, le=1000, description="Batches a page, at most")]
Target = Annotated[str, QueryParameter(description="Id of a step, a trajectory or a group")]
Spec = Annotated[str | None, QueryParameter(description="A spec as JSON; without it that of the latest batch")]
InState = Annotated[str | None, QueryParameter(description="leased, acked, released or expired")]


class BatchSpecRequest(BatchSpec, frozen=True, forbid_unknown_fields=True):
    """What a batch is asked for with."""


@post(f"{API}/batches/lease", status_code=200, opt={"body": LeaseRequest})
async def lease(state: State, body: RawBody, request: Request[Any, Any, Any]) -> Response[Batch | None]:
    """Lease one batch for `consumer`. 204 without content while not enough units are available; with `wait_seconds`,
    after that time.
    """
    sent = decode(body, LeaseRequest)
    if not 0 <= sent.wait_seconds <= LONGEST_WAIT:
        raise InvalidRequestError(f"wait_seconds must be from 0 to {LONGEST_WAIT:g}", path="$.wait_seconds")
    spec = BatchSpec(**{name: getattr(sent, name) for name in BatchSpec.__struct_fields__})
    gone = asyncio.ensure_future(until_gone(request))
    try:
        leased = await _leased(reach(state), spec, sent.consumer, gone)
        if leased is None and sent.wait_seconds > 0 and not gone.done():
            leased = await _wait(state, spec, sent, gone)
    finally:
        gone.cancel()
    if leased is None:
        return Response(None, status_code=204)
    answer: Any = leased
    return Response(answer, status_code=200, media_type="application/json")


async def _leased(pool: Pool, spec: BatchSpec, consumer: str, gone: asyncio.Future[None]) -> bytes | None:
    """A batch as JSON. One that nobody will hear of is given back: else it would be lost until its time runs out."""
    batch: Batch | None = await sync_to_thread(pool.lease, spec, consumer)
    if batch is None:
        return None
    try:
        content = await sync_to_thread(msgspec.json.encode, batch)
    except Exception:
        await sync_to_thread(pool.release, batch.batch_id, batch.epoch)
        raise
    await asyncio.sleep(0)  # So that it is known if the client has left meanwhile.
    if gone.done():
        await sync_to_thread(pool.release, batch.batch_id, batch.epoch)
        return None
    return content


async def _wait(state: State, spec: BatchSpec, sent: LeaseRequest, gone: asyncio.Future[None]) -> bytes | None:
    """Try again whenever something was committed, until the time is up, the client leaves or the server closes."""
    pool: Pool = reach(state)
    loop = asyncio.get_running_loop()
    until = loop.time() + sent.wait_seconds
    woken = asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(woken.set)

    stop = await sync_to_thread(pool.watch, wake)
    closing = asyncio.ensure_future(state.closing.wait())
    ends = {closing, gone}
    try:
        while (left := until - loop.time()) > 0:
            woken.clear()  # Before the look: what is committed after it wakes anew.
            content = await _leased(pool, spec, sent.consumer, gone)
            if content is not None:
                return content
            wakes = asyncio.ensure_future(woken.wait())
            try:
                await asyncio.wait(
                    {wakes, *ends}, timeout=min(left, pool.poll_seconds), return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                wakes.cancel()
            if any(end.done() for end in ends):
                return None
        return None
    finally:
        closing.cancel()
        await sync_to_thread(stop)


@post(f"{API}/batches/{{batch_id:str}}/ack", status_code=204, sync_to_thread=True, opt={"body": LeaseAction})
def acknowledge(state: State, batch_id: FromPath[str], body: RawBody) -> None:
    """Mark the batch's units as consumed; again is no error."""
    reach(state).ack(batch_id, decode(body, LeaseAction).epoch)


@post(f"{API}/batches/{{batch_id:str}}/release", status_code=204, sync_to_thread=True, opt={"body": LeaseAction})
def release(state: State, batch_id: FromPath[str], body: RawBody) -> None:
    """Give the batch's units back; again is no error."""
    reach(state).release(batch_id, decode(body, LeaseAction).epoch)


@post(f"{API}/batches/{{batch_id:str}}/extend", status_code=200, sync_to_thread=True, opt={"body": LeaseExtension})
def extend(state: State, batch_id: FromPath[str], body: RawBody) -> Deadline:
    """Move the deadline to `seconds` from now."""
    sent = decode(body, LeaseExtension)
    return Deadline(reach(state).extend(batch_id, sent.epoch, sent.seconds))


@post(f"{API}/consumers/{{consumer:str}}/resume", status_code=200, sync_to_thread=True, opt={"body": ResumeRequest})
def resume(state: State, consumer: FromPath[str], body: RawBody) -> ResumeReply:
    """After a restart: acknowledge the batches that the checkpoint has, release this consumer's others."""
    settled: dict[str, list[str]] = reach(state).resume(consumer, decode(body, ResumeRequest).applied)
    return ResumeReply(settled.get("acknowledged", []), settled.get("released", []), settled.get("unknown", []))


@get(f"{API}/batches", sync_to_thread=True)
def list_batches(
    state: State,
    consumer: Consumer = None,
    batch_state: InState = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[BatchRecord]:
    """Batches that were handed out, the newest first, without their units."""
    check_batch_state(batch_state, "batch_state")
    wanted: Any = batch_state
    return reach(state).list_batches(consumer=consumer, state=wanted, cursor=cursor, limit=limit)


@get(f"{API}/batches/{{batch_id:str}}", sync_to_thread=True)
def get_batch(state: State, batch_id: FromPath[str]) -> BatchRecord:
    """What is kept of a batch: its spec, state and times, its units, and every reward as it was at the lease."""
    record: BatchRecord = reach(state).get_batch(batch_id)
    return record


@get(f"{API}/consumers/{{consumer:str}}/poisoned", sync_to_thread=True)
def poisoned(state: State, consumer: FromPath[str]) -> PoisonedReply:
    """Units that were handed out too often without being acknowledged, and are set aside."""
    return PoisonedReply(reach(state).poisoned(consumer))


@get(f"{API}/consumers/{{consumer:str}}/explain", sync_to_thread=True)
def explain_unit(state: State, consumer: FromPath[str], target: Target, spec: Spec = None) -> UnitExplanation:
    """Why the unit of a step, trajectory or group is, or is not, handed out to this consumer: the first reason. Asked
    as for its latest batch, or with `spec`.
    """
    explained: UnitExplanation = reach(state).explain_unit(consumer, target, _asked(spec))
    return explained


def _asked(spec: str | None) -> BatchSpec | None:
    """The spec that a query gives."""
    asked = None if spec is None else decode(spec.encode(), BatchSpecRequest, "?spec")
    return None if asked is None else BatchSpec(**msgspec.structs.asdict(asked))


@get(f"{API}/consumers/{{consumer:str}}/check", sync_to_thread=True)
def check_spec(state: State, consumer: FromPath[str], spec: Spec = None) -> SpecReport:
    """Whether the pool can give this consumer a batch, and what keeps the rest, with counts and what to do. Asked as
    for its latest batch, or with `spec`. It looks at the newest units within a budget and hands nothing out.
    """
    report: SpecReport = reach(state).check_spec(consumer, _asked(spec))
    return report


@post(f"{API}/consumers/{{consumer:str}}/requeue", status_code=200, sync_to_thread=True, opt={"body": RequeueRequest})
def requeue(state: State, consumer: FromPath[str], body: RawBody) -> RequeueReply:
    """Hand poisoned units out again as if for the first time."""
    return RequeueReply(reach(state).requeue(consumer, decode(body, RequeueRequest).keys))


ROUTES = [
    lease,
    list_batches,
    get_batch,
    acknowledge,
    release,
    extend,
    resume,
    poisoned,
    explain_unit,
    check_spec,
    requeue,
]
