"""Spans of OTLP in protobuf: the few messages of a trace, read from their wire format.

What is not known is passed over, as protobuf's rules want it. Sizes and depths are bounded by the bytes that are there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from agentworld.ingest.spans.node import Say, Span, SpanEvent

_DOUBLE = struct.Struct("<d").unpack
_MAX_DEPTH = 60
Value = int | memoryview


class Malformed(Exception):
    """The bytes are no message; `str` says why."""


def spans_in(data: bytes, say: Say) -> Iterator[Span]:
    """The spans of an ExportTraceServiceRequest, or of a TracesData, which is the same on the wire. A broken span is
    said and left out; Malformed where it cannot be told where spans begin.
    """
    for number, batch in enumerate(_each(memoryview(data), 1)):
        resource: dict[str, Any] = {}
        for inner in _each(batch, 1):
            resource |= _attributes(inner, 1)
        for scope_number, scope in enumerate(_each(batch, 2)):
            named = "".join(_text(value) for inner in _each(scope, 1) for value in _each(inner, 1))
            for at, span in enumerate(_each(scope, 2)):
                place = f"resource_spans[{number}].scope_spans[{scope_number}].spans[{at}]"
                try:
                    yield _span(span, resource, named, place)
                except Malformed as why:
                    say(place, f"the span is broken: {why}")


def _span(data: memoryview, resource: dict[str, Any], scope: str, place: str) -> Span:
    span = Span(resource=resource, scope=scope, place=place)
    attributes: dict[str, Any] = {}
    events: list[SpanEvent] = []
    for field, value in fields(data):
        if isinstance(value, int):
            if field == 7:
                span.start = value / 1e9
            elif field == 8:
                span.end = value / 1e9
        elif field == 1:
            span.trace_id = _id(value)
        elif field == 2:
            span.span_id = _id(value)
        elif field == 4:
            span.parent_id = _id(value)
        elif field == 5:
            span.name = _text(value)
        elif field == 9:
            _put(attributes, value)
        elif field == 11:
            events.append(_event(value))
        elif field == 15:
            span.error = _error(value)
    span.attributes, span.events = attributes, events
    return span


def _event(data: memoryview) -> SpanEvent:
    event = SpanEvent(name="")
    attributes: dict[str, Any] = {}
    for field, value in fields(data):
        if isinstance(value, int):
            if field == 1:
                event.at = value / 1e9
        elif field == 2:
            event.name = _text(value)
        elif field == 3:
            _put(attributes, value)
    event.attributes = attributes
    return event


def _error(data: memoryview) -> str | None:
    message, code = "", 0
    for field, value in fields(data):
        if field == 2 and not isinstance(value, int):
            message = _text(value)
        elif field == 3 and isinstance(value, int):
            code = value
    return (message or "failed") if code == 2 else None


def _attributes(data: memoryview, wanted: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in _each(data, wanted):
        _put(found, pair)
    return found


def _put(found: dict[str, Any], pair: memoryview, depth: int = 0) -> None:
    """Put one KeyValue into a map."""
    key, value = "", None
    for field, inner in fields(pair):
        if isinstance(inner, int):
            continue
        if field == 1:
            key = _text(inner)
        elif field == 2:
            value = _value(inner, depth + 1)
    if key:
        found[key] = value


def _value(data: memoryview, depth: int) -> Any:
    """An AnyValue; of several in its place the last counts."""
    if depth > _MAX_DEPTH:
        raise Malformed(f"attributes nest more than {_MAX_DEPTH} deep")
    found: Any = None
    for field, value in fields(data):
        if isinstance(value, int):
            if field == 2:
                found = bool(value)
            elif field == 3:
                found = value - (1 << 64) if value >> 63 else value
            elif field == 4:
                found = _DOUBLE(value.to_bytes(8, "little"))[0]
        elif field == 1:
            found = _text(value)
        elif field == 5:
            found = [_value(each, depth + 1) for each in _each(value, 1)]
        elif field == 6:
            found = {}
            for each in _each(value, 1):
                _put(found, each, depth + 1)
        elif field == 7:
            found = bytes(value).hex()
    return found


def _each(data: memoryview, wanted: int) -> Iterator[memoryview]:
    for field, value in fields(data):
        if field == wanted and not isinstance(value, int):
            yield value


def _text(value: memoryview) -> str:
    return str(value, "utf-8", "replace")


def _id(value: memoryview) -> str:
    shown = value.hex() if len(value) in (8, 16) else ""
    return shown if shown.strip("0") else ""


def fields(data: memoryview) -> Iterator[tuple[int, Value]]:
    """The fields of a message: numbers, fixed ones too, as whole numbers, the rest as bytes; Malformed."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, at = _varint(data, at)
        if size is None:
            raise Malformed(f"byte {at} begins a field of kind {kind}, which there is not")
        if size > end - at:
            raise Malformed(f"a field of {size} bytes at byte {at} of a message of {end} ends too early")
        piece = data[at : at + size]
        at += size
        yield tag >> 3, piece if kind == 2 else int.from_bytes(piece, "little")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & ((1 << 64) - 1), at
        shift += 7
    raise Malformed(f"a number at byte {at} does not end")


def message(*parts: tuple[int, int | bytes]) -> bytes:
    """A message of numbers (varint) and bytes, to answer with."""
    out = bytearray()
    for field, value in parts:
        if isinstance(value, int):
            out += _as_varint(field << 3) + _as_varint(value)
        else:
            out += _as_varint(field << 3 | 2) + _as_varint(len(value)) + value
    return bytes(out)


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
