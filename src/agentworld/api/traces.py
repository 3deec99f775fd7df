"""OTLP over HTTP: spans that agents export as they run, at the path that exporters use by default."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import zlib
from collections.abc import AsyncIterator
from typing import Any

import structlog
from litestar import Litestar, Request, Response, post
from litestar.datastructures import State
from litestar.params import RawBody

from agentworld.api import otlp_replies
from agentworld.api.access import CALLER, reach
from agentworld.api.faults import translate
from agentworld.api.otlp_replies import PROTOBUF, BusyError, kind_of
from agentworld.config import ServeSettings, TracesSettings
from agentworld.errors import AgentWorldError, InvalidRequestError, NotFoundError, TooLargeError
from agentworld.ingest.decoding import decode
from agentworld.ingest.entry import BadDocument
from agentworld.ingest.spans import otlp_json, protobuf
from agentworld.ingest.spans.closing import Looked, close_silent
from agentworld.ingest.spans.live import Taken, take
from agentworld.ingest.spans.node import Span
from agentworld.pool.protocol import Pool
from agentworld.records import MAX_DEPTH

log = structlog.get_logger("agentworld.traces")
AT_ONCE = 8
"""Requests that one process works on; an exporter is told to come again with more."""
_working = threading.BoundedSemaphore(AT_ONCE)
_CHUNK = 64 * 1024
SELDOM = 30.0
_ENCODINGS = ("", "identity", "gzip", "deflate")


def respond(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The exception handler of the route."""
    status, headers, body = otlp_replies.failure(
        kind_of(request.headers.get("content-type", "")), translate(request, error)
    )
    return Response(body, status_code=status, headers=headers, media_type=headers["content-type"])


@post(
    otlp_replies.PATH,
    status_code=200,
    sync_to_thread=True,
    include_in_schema=False,
    exception_handlers={Exception: respond},
)
def export_traces(request: Request[Any, Any, Any], state: State, body: RawBody) -> Response[bytes]:
    """Take spans; calls of models among them become steps."""
    settings: TracesSettings = state.settings.traces
    if not settings.enabled:
        raise NotFoundError("This server takes no traces", hint="Set enabled = true under [traces]")
    kind = kind_of(request.headers.get("content-type", ""))
    if not _working.acquire(blocking=False):
        raise BusyError(f"{AT_ONCE} requests are being worked on", hint="Send it again in a moment")
    try:
        data = _unpacked(body, request.headers.get("content-encoding", ""), settings.max_bytes)
        spans, notes = _spans(data, kind)
        if len(spans) > settings.max_spans:
            raise TooLargeError(
                f"{len(spans)} spans are over the limit of {settings.max_spans}", hint="Export fewer at once"
            )
        grant = CALLER.get()
        channel = grant.channel or settings.channel
        taken = take(reach(state), spans, channel, trajectory_id=grant.trajectory_id, recent=state.traces_recent)
        state.traces_came = True
    finally:
        _working.release()
    said = _told(taken, notes)
    log.info("traces", spans=len(spans), steps=taken.steps, known=taken.known, late=taken.late, refused=taken.refused)
    return Response(otlp_replies.success(kind, taken.refused, said), media_type=kind)


def _unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """The body as it was before it was compressed; no more than `most` bytes of it are ever made."""
    encoding = encoding.strip().lower()
    if encoding not in _ENCODINGS:
        raise InvalidRequestError(
            f"a body in {encoding[:40]!r} cannot be read", path="Content-Encoding", hint="Use gzip, deflate or none"
        )
    if encoding in ("", "identity"):
        if len(body) > most:
            raise _too_large(most)
        return body
    unpacking = zlib.decompressobj(47)  # gzip and zlib, told apart by their heads
    out, size, left = [], 0, body
    try:
        while left and not unpacking.eof:
            piece = unpacking.decompress(left, _CHUNK)
            left = unpacking.unconsumed_tail
            size += len(piece)
            if size > most:
                raise _too_large(most)
            out.append(piece)
    except zlib.error as error:
        raise InvalidRequestError(f"the compressed body is broken: {error}", path="Content-Encoding") from None
    if not unpacking.eof:
        raise InvalidRequestError("the compressed body ends too early", path="Content-Encoding")
    return b"".join(out)


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(f"the spans are over the limit of {most} bytes", hint="Export fewer spans at once")


def _spans(data: bytes, kind: str) -> tuple[list[Span], list[str]]:
    notes: list[str] = []

    def say(place: str, why: str, *, hint: str | None = None, lost: bool = True) -> None:
        if lost and len(notes) < 8:
            notes.append(f"{place}: {why}")

    if kind == PROTOBUF:
        try:
            return list(protobuf.spans_in(data, say)), notes
        except protobuf.Malformed as error:
            raise InvalidRequestError(f"this is no ExportTraceServiceRequest: {error}") from None
    try:
        document, _ = decode(data, "$", MAX_DEPTH)
    except BadDocument as bad:
        raise InvalidRequestError(f"this is no JSON: {bad.why}", path="$") from None
    sent = {name: document[name] for name in otlp_json.TRACES if name in document} if isinstance(document, dict) else {}
    if document != {} and not sent:
        raise InvalidRequestError(
            "this is no ExportTraceServiceRequest", path="$", hint='Send {"resourceSpans": [...]}'
        )

    return list(otlp_json.spans_in(sent, "$", say)) if sent else [], notes


def _told(taken: Taken, notes: list[str]) -> str:
    said = [*taken.reasons, *notes]
    if taken.late:
        said.append(f"{taken.late} calls came after their trajectory had ended; they are on record as late")
    if taken.silent:
        said.append(
            f"{taken.silent} calls of models have no messages, so nothing of them is kept: let the instrumentation "
            "record content, often by OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true"
        )
    return "; ".join(said)[:2000]


@contextlib.asynccontextmanager
async def closing(app: Litestar) -> AsyncIterator[None]:
    """Ends the trajectories of traces that are over, for as long as the application lives."""
    settings: ServeSettings = app.state.settings
    task = asyncio.create_task(_close(app.state, settings.traces)) if settings.traces.enabled else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _close(state: State, settings: TracesSettings) -> None:
    """Look often while traces come here or are open, and seldom where nobody exports any."""
    pool: Pool = state.pool
    pause = min(max(settings.quiet_seconds / 2, 0.05), SELDOM)
    waited = 0.0
    others, looked = True, Looked()
    while True:
        await asyncio.sleep(pause)
        waited += pause
        if not (others or state.traces_came or waited >= SELDOM):
            continue
        state.traces_came, waited = False, 0.0
        try:
            closed, others = await asyncio.to_thread(
                close_silent, pool, settings.quiet_seconds, settings.idle_seconds, looked=looked
            )
            if closed:
                log.info("traces_closed", count=len(closed))
        except AgentWorldError as error:
            log.warning("traces_not_closed", code=error.code)


ROUTES = [export_traces]
