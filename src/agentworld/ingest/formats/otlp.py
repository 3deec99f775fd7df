"""OpenTelemetry traces as files: OTLP in JSON and protobuf, Jaeger's JSON, printed spans, maps of attributes; with the
GenAI, OpenInference and other conventions that tell of calls of models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentworld.ingest.entry import BadDocument, Entry
from agentworld.ingest.format import Head, Notes
from agentworld.ingest.run import Run
from agentworld.ingest.spans import jaeger, otlp_json, protobuf
from agentworld.ingest.spans.assembling import Assembly
from agentworld.ingest.spans.node import Say, Span
from agentworld.ingest.spans.places import Reading
from agentworld.ingest.spans.runs import runs_of

_PROTOBUF = (".binpb", ".otlp", ".pb")
# Test cases of the conventions: YAML whose document is written as JSON.
_CASE = re.compile(r"^schema:\s*gen-ai-(input|output)-messages\.json\s*$", re.MULTILINE)
_DOCUMENT = re.compile(r"^document:\s*", re.MULTILINE)


class Otlp:
    """See the module."""

    name = "otlp"
    title = "OpenTelemetry traces (OTLP, Jaeger; GenAI, OpenInference)"

    def claims(self, head: Head) -> bool:
        """See Format."""
        if head.shape == "binary":
            return head.name.lower().endswith(_PROTOBUF)
        if head.shape in ("text", "yaml"):
            return bool(head.documents) and bool(_CASE.search(head.documents[0]))
        known = [_is_known(document) for document in head.documents]
        return bool(known) and known[0] and sum(known) * 2 > len(known)

    def bundles(self, entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
        """All together, as the spans of one trace may be in several of them."""
        return [entries] if entries else []

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """See Format."""
        reading = Reading(note)
        assembly = Assembly(reading.say)
        for entry in bundle:
            reading.file = entry.name
            for span in _spans(entry, reading.say):
                span.place = reading.at(span.place)
                yield from runs_of(assembly.add(span), reading.say)
        yield from runs_of(assembly.rest(), reading.say)


def _is_known(document: Any) -> bool:
    return otlp_json.is_spans(document) or jaeger.is_jaeger(document)


def _spans(entry: Entry, say: Say) -> Iterator[Span]:
    if entry.name.lower().endswith(_PROTOBUF):
        try:
            yield from protobuf.spans_in(entry.read(), say)
        except (protobuf.Malformed, BadDocument) as error:
            say("$", f"this is no OTLP in protobuf: {error}")
        return
    if entry.name.lower().endswith((".yaml", ".yml")):
        yield from _case(entry, say)
        return
    for place, document in entry.documents():
        if isinstance(document, BadDocument):
            say(place, document.why)
        elif jaeger.is_jaeger(document):
            yield from jaeger.spans_in(document, place, say)
        elif otlp_json.is_spans(document):
            yield from otlp_json.spans_in(document, place, say)
        else:
            say(place, "this is no trace")


def _case(entry: Entry, say: Say) -> Iterator[Span]:
    """One test case of the conventions for messages."""
    text = entry.read().decode("utf-8", "replace")
    kind, begin = _CASE.search(text), _DOCUMENT.search(text)
    if kind is None or begin is None:
        say("$", "this is no test case of the GenAI conventions")
        return
    try:
        document, _ = json.JSONDecoder().raw_decode(text, begin.end())
    except (ValueError, RecursionError):
        say("document", "its document is not written as JSON")
        return
    yield Span(attributes={f"gen_ai.{kind[1]}.messages": document, "gen_ai.operation.name": "chat"}, place="document")


FORMAT = Otlp()
