"""Batches: leased, acknowledged, released, extended; a consumer resumed after its restart."""

from __future__ import annotations

from typing import Any

from litestar import Response, post
from litestar.datastructures import State
from litestar.params import FromPath, RawBody

from agentworld.api.bodies import decode
from agentworld.client.wire import (
    API,
    Deadline,
    LeaseAction,
    LeaseExtension,
    LeaseRequest,
    ResumeReply,
    ResumeRequest,
)
from agentworld.records import Batch, BatchSpec, exact_json


@post(f"{API}/batches/lease", status_code=200, sync_to_thread=True, opt={"body": LeaseRequest})
def lease(state: State, body: RawBody) -> Response[Batch | None]:
    """Lease one batch for `consumer`. 204 without content while not enough units are available."""
    sent = decode(body, LeaseRequest)
    spec = BatchSpec(**{name: getattr(sent, name) for name in BatchSpec.__struct_fields__})
    batch: Batch | None = state.pool.lease(spec, sent.consumer)
    if batch is None:
        return Response(None, status_code=204)
    try:
        content: Any = exact_json.encode(batch)
    except Exception:
        # Nobody learns of this lease, so nobody could end it before its time runs out.
        state.pool.release(batch.batch_id, batch.epoch)
        raise
    return Response(content, status_code=200, media_type="application/json")


@post(f"{API}/batches/{{batch_id:str}}/ack", status_code=204, sync_to_thread=True, opt={"body": LeaseAction})
def acknowledge(state: State, batch_id: FromPath[str], body: RawBody) -> None:
    """Mark the batch's units as consumed; again is no error."""
    state.pool.ack(batch_id, decode(body, LeaseAction).epoch)


@post(f"{API}/batches/{{batch_id:str}}/release", status_code=204, sync_to_thread=True, opt={"body": LeaseAction})
def release(state: State, batch_id: FromPath[str], body: RawBody) -> None:
    """Give the batch's units back; again is no error."""
    state.pool.release(batch_id, decode(body, LeaseAction).epoch)


@post(f"{API}/batches/{{batch_id:str}}/extend", status_code=200, sync_to_thread=True, opt={"body": LeaseExtension})
def extend(state: State, batch_id: FromPath[str], body: RawBody) -> Deadline:
    """Move the deadline to `seconds` from now."""
    sent = decode(body, LeaseExtension)
    return Deadline(state.pool.extend(batch_id, sent.epoch, sent.seconds))


@post(f"{API}/consumers/{{consumer:str}}/resume", status_code=200, sync_to_thread=True, opt={"body": ResumeRequest})
def resume(state: State, consumer: FromPath[str], body: RawBody) -> ResumeReply:
    """After a restart: acknowledge the batches that the checkpoint has, release this consumer's others."""
    settled: dict[str, list[str]] = state.pool.resume(consumer, decode(body, ResumeRequest).applied)
    return ResumeReply(settled.get("acknowledged", []), settled.get("released", []), settled.get("unknown", []))


ROUTES = [lease, acknowledge, release, extend, resume]
