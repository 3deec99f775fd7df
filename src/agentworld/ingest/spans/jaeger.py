"""Traces as Jaeger's interface gives them: `{"data": [{"traceID", "spans", "processes"}]}`, or one of these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentworld.ingest.spans.loose import items, number, table, text
from agentworld.ingest.spans.node import Say, Span, SpanEvent


def is_jaeger(document: Any) -> bool:
    """Whether a document is one that `traces_in` reads."""
    if not isinstance(document, dict):
        return False
    if isinstance(document.get("data"), list):
        listed = document["data"]
        return bool(listed) and isinstance(listed[0], dict) and "traceID" in listed[0]
    return "traceID" in document and ("spans" in document or "operationName" in document)


def spans_in(document: Any, place: str, say: Say) -> Iterator[Span]:
    """The spans of one document."""
    listed = document.get("data")
    traces: list[Any] = listed if isinstance(listed, list) else [document]
    for index, trace in enumerate(traces):
        where = f"{place}.data[{index}]" if traces[0] is not document else place
        if not isinstance(trace, dict):
            say(where, "a trace is an object")
            continue
        spans = trace.get("spans", [trace] if "operationName" in trace else [])
        if not isinstance(spans, list):
            say(f"{where}.spans", "spans are a list")
            continue
        processes = table(trace.get("processes"))
        for at, span in enumerate(spans):
            if isinstance(span, dict):
                yield _span(span, processes, f"{where}.spans[{at}]")
            else:
                say(f"{where}.spans[{at}]", "a span is an object")


def _span(span: dict[str, Any], processes: dict[str, Any], place: str) -> Span:
    attributes = _tags(span.get("tags"))
    process = span.get("process") or processes.get(str(span.get("processID")))
    resource: dict[str, Any] = {}
    if isinstance(process, dict):
        resource = {**_tags(process.get("tags")), "service.name": text(process.get("serviceName"))}
    parent = ""
    for reference in items(span.get("references")):
        if isinstance(reference, dict) and (not parent or reference.get("refType") == "CHILD_OF"):
            parent = text(reference.get("spanID")) or ""
    start = (number(span.get("startTime")) or 0.0) / 1e6
    failed = attributes.get("error") in (True, "true") or attributes.get("otel.status_code") == "ERROR"
    said = text(attributes.get("otel.status_description")) or text(attributes.get("exception.message")) or "failed"
    events = []
    for log in items(span.get("logs")):
        if isinstance(log, dict):
            fields = _tags(log.get("fields"))
            name = text(fields.pop("event", None)) or text(fields.get("name")) or ""
            events.append(SpanEvent(name=name, at=(number(log.get("timestamp")) or 0.0) / 1e6, attributes=fields))
    return Span(
        trace_id=text(span.get("traceID")) or "",
        span_id=text(span.get("spanID")) or "",
        parent_id=parent or text(span.get("parentSpanID")) or "",
        name=text(span.get("operationName")) or "",
        start=max(start, 0.0),
        end=max(start + (number(span.get("duration")) or 0.0) / 1e6, 0.0),
        error=said if failed else None,
        attributes=attributes,
        events=events,
        resource=resource,
        scope=text(attributes.get("otel.scope.name")) or text(attributes.get("otel.library.name")) or "",
        place=place,
    )


def _tags(given: Any) -> dict[str, Any]:
    """Tags as a map; texts that say they are numbers as such."""
    found: dict[str, Any] = {}
    for tag in items(given):
        if isinstance(tag, dict) and isinstance(tag.get("key"), str):
            value = tag.get("value")
            if tag.get("type") in ("int64", "float64") and isinstance(value, str):
                value = number(value)
            found[tag["key"]] = value
    return found
