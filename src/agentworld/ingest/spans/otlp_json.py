"""Spans in JSON: OTLP's own encoding, spans as SDKs print them, rows of Phoenix, flat maps of attributes.

Ids of OTLP are hex, or base64 where a general JSON encoder of protobuf wrote them; whole numbers and times are texts.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

from agentworld.ingest.spans.attributes import flattened
from agentworld.ingest.spans.loose import items, number, seconds, table, text
from agentworld.ingest.spans.node import Say, Span, SpanEvent

_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]{16}|[0-9a-fA-F]{32})")
_MAX_DEPTH = 60
LOGS = ("resourceLogs", "resource_logs")
METRICS = ("resourceMetrics", "resource_metrics")
TRACES = ("resourceSpans", "resource_spans")
_FLAT = ("gen_ai.", "llm.", "openinference.", "langfuse.", "langsmith.", "ai.", "traceloop.", "gcp.vertex.agent.")


def is_spans(document: Any) -> bool:
    """Whether a document is one that `spans_in` reads."""
    if not isinstance(document, dict):
        return False
    if any(isinstance(document.get(name), list) for name in (*TRACES, *LOGS, *METRICS)):
        return True
    return _is_span(document) or _is_printed(document) or _is_row(document) or _is_flat(document)


def spans_in(document: Any, place: str, say: Say) -> Iterator[Span]:
    """The spans of one document. Log records that are events of a call come as spans that have only their ids and that
    event; what belongs to no trace is said.
    """
    if not isinstance(document, dict):
        say(place, "this is no object with spans")
    elif _is_span(document):
        yield from _one(document, {}, "", place, say)
    elif _is_printed(document) or _is_row(document):
        yield _printed(document, place)
    elif _is_flat(document):
        yield Span(attributes=dict(document), name=text(document.get("name")) or "", place=place)
    else:
        yield from _batches(document, place, say)


def _batches(document: dict[str, Any], place: str, say: Say) -> Iterator[Span]:
    found = False
    for name in TRACES:
        for number_, batch in enumerate(_list(document.get(name), f"{place}.{name}", say)):
            found = True
            where = f"{place}.{name}[{number_}]"
            resource = _attributes(_object(batch, "resource").get("attributes"), where, say)
            scopes = (
                _any(batch, "scopeSpans", "scope_spans", "instrumentationLibrarySpans")
                if isinstance(batch, dict)
                else None
            )
            for index, scope in enumerate(_list(scopes, f"{where}.scopeSpans", say)):
                spans = _any(scope, "spans") if isinstance(scope, dict) else None
                named = text(_object(scope, "scope").get("name")) or ""
                for at, span in enumerate(_list(spans, f"{where}.scopeSpans[{index}].spans", say)):
                    yield from _one(span, resource, named, f"{where}.scopeSpans[{index}].spans[{at}]", say)
    for name in LOGS:
        for number_, batch in enumerate(_list(document.get(name), f"{place}.{name}", say)):
            found = True
            yield from _logs(batch, f"{place}.{name}[{number_}]", say)
    for name in METRICS:
        if document.get(name):
            found = True
            say(f"{place}.{name}", "metrics tell of no calls; they are passed over", lost=False)
    if not found:
        say(place, "there are no spans", lost=False)


def _one(given: Any, resource: dict[str, Any], scope: str, place: str, say: Say) -> Iterator[Span]:
    if not isinstance(given, dict):
        say(place, "a span is an object")
        return
    trace_id, span_id = (_id(_any(given, *names)) for names in (("traceId", "trace_id"), ("spanId", "span_id")))
    for name, value in (("traceId", trace_id), ("spanId", span_id)):
        if value == "" and _any(given, name) is not None:
            say(f"{place}.{name}", "the id is neither hex nor base64 of its length")
    events = []
    for index, event in enumerate(_list(given.get("events"), f"{place}.events", say)):
        if isinstance(event, dict):
            inner = _attributes(event.get("attributes"), f"{place}.events[{index}]", say)
            at = seconds(_any(event, "timeUnixNano", "time_unix_nano"))
            events.append(SpanEvent(name=text(event.get("name")) or "", at=at, attributes=inner))
    attributes = _attributes(given.get("attributes"), place, say)
    yield Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=_id(_any(given, "parentSpanId", "parent_span_id")),
        name=text(given.get("name")) or "",
        start=seconds(_any(given, "startTimeUnixNano", "start_time_unix_nano")),
        end=seconds(_any(given, "endTimeUnixNano", "end_time_unix_nano")),
        error=_error(given.get("status")),
        attributes=attributes,
        events=events,
        resource=resource,
        scope=scope,
        place=place,
    )


def _logs(batch: Any, place: str, say: Say) -> Iterator[Span]:
    others = 0
    resource = _attributes(_object(batch, "resource").get("attributes"), place, say)
    scopes = _any(batch, "scopeLogs", "scope_logs") if isinstance(batch, dict) else None
    for scope in _list(scopes, f"{place}.scopeLogs", say):
        records = _any(scope, "logRecords", "log_records") if isinstance(scope, dict) else None
        for record in _list(records, f"{place}.logRecords", say):
            if not isinstance(record, dict):
                say(f"{place}.logRecords", "a log record is an object")
                continue
            attributes = _attributes(record.get("attributes"), place, say)
            name = text(_any(record, "eventName", "event_name")) or text(attributes.get("event.name")) or ""
            trace_id, span_id = _id(_any(record, "traceId", "trace_id")), _id(_any(record, "spanId", "span_id"))
            if not name.startswith("gen_ai."):
                others += 1
                continue
            body = any_value(record.get("body"))
            event = SpanEvent(name=name, at=seconds(_any(record, "timeUnixNano")), attributes=attributes, body=body)
            yield Span(trace_id=trace_id, span_id=span_id, events=[event], resource=resource, place=place)
    if others:
        say(place, f"{others} log records are no events of calls; they are passed over", lost=False)


def _printed(given: dict[str, Any], place: str) -> Span:
    """A span as an SDK prints it (`context`, times as text), or a row with `context.trace_id` and `attributes.NAME`."""
    context = table(given.get("context"))
    trace_id = context.get("trace_id") or given.get("context.trace_id") or given.get("traceId")
    span_id = context.get("span_id") or given.get("context.span_id") or given.get("spanId") or given.get("id")
    attributes = flattened(table(given.get("attributes")))
    attributes |= {
        key.removeprefix("attributes."): value for key, value in given.items() if key.startswith("attributes.")
    }
    if isinstance(kind := given.get("span_kind"), str):
        attributes.setdefault("openinference.span.kind", kind)
    status = given.get("status")
    code = status.get("status_code", status.get("code")) if isinstance(status, dict) else given.get("status_code")
    said = (
        status.get("description") or status.get("message") if isinstance(status, dict) else given.get("status_message")
    )
    failed = str(code).upper().endswith("ERROR") or code == 2
    resource = given.get("resource")
    resource = resource.get("attributes", resource) if isinstance(resource, dict) else {}
    events = [
        SpanEvent(
            name=text(event.get("name")) or "",
            at=seconds(event.get("timestamp") or event.get("time")),
            attributes=event["attributes"] if isinstance(event.get("attributes"), dict) else {},
        )
        for event in items(given.get("events"))
        if isinstance(event, dict)
    ]
    return Span(
        trace_id=_id(trace_id),
        span_id=_id(span_id),
        parent_id=_id(given.get("parent_id") or given.get("parentSpanId")),
        name=text(given.get("name")) or "",
        start=seconds(given.get("start_time") or given.get("startTime")),
        end=seconds(given.get("end_time") or given.get("endTime")),
        error=(text(said) or "failed") if failed else None,
        attributes=attributes,
        events=events,
        resource=resource if isinstance(resource, dict) else {},
        place=place,
    )


def any_value(value: Any, depth: int = 0) -> Any:
    """OTLP's AnyValue as the value that it stands for."""
    if not isinstance(value, dict):
        return value
    for key, inner in value.items():
        name = key.replace("_", "").lower()
        if name == "stringvalue" or name == "boolvalue":
            return inner
        if name == "intvalue":
            return _whole(inner)
        if name == "doublevalue":
            return number(inner)
        if name == "bytesvalue":
            return inner
        if depth > _MAX_DEPTH:
            return None
        if name == "arrayvalue":
            listed = inner.get("values") if isinstance(inner, dict) else None
            return [any_value(each, depth + 1) for each in listed] if isinstance(listed, list) else []
        if name == "kvlistvalue":
            listed = inner.get("values") if isinstance(inner, dict) else None
            return _pairs(listed if isinstance(listed, list) else [], depth + 1)
    return None


def _pairs(listed: list[Any], depth: int) -> dict[str, Any]:
    return {
        each["key"]: any_value(each.get("value"), depth)
        for each in listed
        if isinstance(each, dict) and isinstance(each.get("key"), str)
    }


def _whole(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip("-").isdigit() and len(value) < 25:
        return int(value)
    return value if isinstance(value, int | float) else None


def _attributes(given: Any, place: str, say: Say) -> dict[str, Any]:
    if isinstance(given, dict):
        return dict(given)  # Some writers simplify the list of pairs.
    if given is None:
        return {}
    if not isinstance(given, list):
        say(f"{place}.attributes", "attributes are a list of keys and values")
        return {}
    found = _pairs(given, 0)
    if len(found) != len(given):
        say(f"{place}.attributes", "attributes without a key are left out, and of those with one key the last is taken")
    return found


def _error(status: Any) -> str | None:
    if not isinstance(status, dict) or status.get("code") not in (2, "2", "STATUS_CODE_ERROR", "ERROR", "Error"):
        return None
    return text(status.get("message")) or "failed"


def _id(value: Any) -> str:
    """An id as lower-case hex; "" where it is none, or all zeros."""
    if not isinstance(value, str):
        return ""
    if found := _HEX.fullmatch(value):
        shown = found[1].lower()
    else:
        try:
            data = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return ""
        shown = data.hex() if len(data) in (8, 16) else ""
    return shown if shown.strip("0") else ""


def _is_span(document: dict[str, Any]) -> bool:
    return isinstance(document.get("attributes"), list) and isinstance(document.get("name"), str)


def _is_printed(document: dict[str, Any]) -> bool:
    context = document.get("context")
    return isinstance(document.get("attributes"), dict) and isinstance(context, dict) and "trace_id" in context


def _is_row(document: dict[str, Any]) -> bool:
    return "context.trace_id" in document and "context.span_id" in document


def _is_flat(document: dict[str, Any]) -> bool:
    return any(isinstance(key, str) and key.startswith(_FLAT) for key in document)


def _any(given: dict[str, Any], *names: str) -> Any:
    return next((given[name] for name in names if given.get(name) is not None), None)


def _object(given: Any, name: str) -> dict[str, Any]:
    inner = given.get(name) if isinstance(given, dict) else None
    return inner if isinstance(inner, dict) else {}


def _list(given: Any, place: str, say: Say) -> list[Any]:
    if given is None:
        return []
    if not isinstance(given, list):
        say(place, "this is a list")
        return []
    return given
