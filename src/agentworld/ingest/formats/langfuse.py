"""Exports of Langfuse: traces and observations as its API and its interface give them, JSON and tables, batches of its
ingestion API, and documents that hold observations' messages alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentworld.ingest.entry import Entry
from agentworld.ingest.format import Head, Notes
from agentworld.ingest.formats.langfuse_tables import documents, is_table, is_trace_row, scores
from agentworld.ingest.run import Run
from agentworld.ingest.spans.attributes import first
from agentworld.ingest.spans.collecting import Collection
from agentworld.ingest.spans.loose import bounded, items, sampling_of, seconds, table, text, unpacked, usage_of, written
from agentworld.ingest.spans.node import Node, NodeKind, Say, Score, ToolRun, Trace
from agentworld.ingest.spans.observed import read_call
from agentworld.ingest.spans.places import Reading, within
from agentworld.ingest.spans.runs import runs_of

_KINDS: dict[str, NodeKind] = {
    "GENERATION": "llm",
    "TOOL": "tool",
    "AGENT": "agent",
}
_TYPES = frozenset(
    ("GENERATION", "SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL")
)
_EVENTS = {
    "trace-create": "trace",
    "score-create": "score",
    "generation-create": "GENERATION",
    "generation-update": "GENERATION",
    "span-create": "SPAN",
    "span-update": "SPAN",
    "event-create": "EVENT",
    "agent-create": "AGENT",
    "tool-create": "TOOL",
    "observation-create": None,
    "observation-update": None,
}


class Langfuse:
    """See the module."""

    name = "langfuse"
    title = "Langfuse exports"

    def claims(self, head: Head) -> bool:
        """See Format."""
        return is_table(head) or (bool(head.documents) and all(_is_known(document) for document in head.documents))

    def bundles(self, entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
        """All together: observations and scores of a trace may be in files of their own."""
        return [entries] if entries else []

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """See Format."""
        reading = Reading(note)
        collection = Collection(reading.say)
        for place, document in reading.documents(bundle, documents):
            _read(document, reading.at(place), collection, reading.say)
            yield from runs_of(collection.over(), reading.say)
        yield from runs_of(collection.rest(), reading.say)


def _is_known(document: Any) -> bool:
    if not isinstance(document, dict):
        return False
    return bool(
        _is_trace(document)
        or _is_observation(document)
        or _is_score(document)
        or _is_batch(document)
        or is_trace_row(document)
        or _is_messages(document)
        or _listed(document) is not None
    )


def _listed(document: dict[str, Any]) -> list[Any] | None:
    """The records of a page of the API."""
    data = document.get("data")
    if isinstance(data, list) and data and all(isinstance(each, dict) for each in data):
        inner = data[0]
        if _is_trace(inner) or _is_observation(inner) or _is_score(inner):
            return data
    return None


def _is_trace(document: dict[str, Any]) -> bool:
    if isinstance(document.get("trace"), dict) and isinstance(document.get("observations"), list):
        return True
    listed = document.get("observations")
    return (
        "id" in document
        and isinstance(listed, list)
        and ("scores" in document or "timestamp" in document or bool(listed))
    )


def _is_observation(document: dict[str, Any]) -> bool:
    trace = first(document, "traceId", "trace_id")
    kind = document.get("type")
    return isinstance(trace, str) and "id" in document and isinstance(kind, str) and kind.upper() in _TYPES


def _is_score(document: dict[str, Any]) -> bool:
    named = isinstance(document.get("name"), str) and ("value" in document or "stringValue" in document)
    return (
        named
        and isinstance(first(document, "traceId", "trace_id"), str)
        and ("dataType" in document or "observationId" in document)
    )


def _is_batch(document: dict[str, Any]) -> bool:
    batch = document.get("batch")
    return (
        isinstance(batch, list) and bool(batch) and isinstance(batch[0], dict) and str(batch[0].get("type")) in _EVENTS
    )


def _is_messages(document: dict[str, Any]) -> bool:
    """Whether it maps ids of observations to what their messages were understood as."""
    return bool(document) and all(
        isinstance(each, dict)
        and bool(each)
        and set(each) <= {"input", "output"}
        and all(isinstance(side, dict) and isinstance(side.get("success"), bool) for side in each.values())
        for each in document.values()
    )


def _read(document: Any, place: str, collection: Collection, say: Say) -> None:
    if not isinstance(document, dict):
        say(place, "a record is an object")
    elif _is_batch(document):
        for index, event in enumerate(document["batch"]):
            _event(event, f"{place}.batch[{index}]", collection, say)
    elif (listed := _listed(document)) is not None:
        for index, each in enumerate(listed):
            _read(each, f"{place}.data[{index}]", collection, say)
    elif _is_trace(document):
        _trace(document, place, collection, say)
    elif _is_observation(document):
        trace_id = str(first(document, "traceId", "trace_id"))
        _observation(document, place, collection.trace(trace_id, place), say)
    elif is_trace_row(document):
        trace = collection.trace(text(document.get("id")) or "", place)
        _of_trace(document, trace)
        _add_scores(scores(document, ""), trace)
    elif _is_score(document):
        _score(document, collection.trace(str(first(document, "traceId", "trace_id")), place))
    elif _is_messages(document):
        _messages(document, place, collection, say)
    else:
        say(place, "this is neither a trace, an observation nor a score")


def _trace(document: dict[str, Any], place: str, collection: Collection, say: Say) -> None:
    given = {**document, **table(document.get("trace"))}
    trace = collection.trace(text(given.get("id")) or "", place)
    _of_trace(given, trace)
    for index, each in enumerate(document["observations"]):
        where = f"{place}.observations[{index}]"
        if isinstance(each, dict):
            _observation(each, where, trace, say)
        elif isinstance(each, str):
            # Lists of traces name their observations by id alone.
            say(
                where,
                "only the id of the observation is here: export the observations too",
                hint="Use the API's traces/ID",
            )
        else:
            say(where, "an observation is an object")
    for index, each in enumerate(items(given.get("scores"))):
        if isinstance(each, dict):
            _score(each, trace)
        elif not isinstance(each, str):
            say(f"{place}.scores[{index}]", "a score is an object")


def _of_trace(given: dict[str, Any], trace: Trace) -> None:
    trace.user = trace.user or text(first(given, "userId", "user_id"))
    trace.session = trace.session or text(first(given, "sessionId", "session_id"))
    kept = {name: given.get(name) for name in ("name", "tags", "release", "version", "environment", "metadata")}
    for name, value in bounded(kept).items():
        trace.metadata.setdefault(f"trace_{name}" if name in ("name", "metadata") else name, value)


def _observation(given: dict[str, Any], place: str, trace: Trace, say: Say) -> None:
    known = trace.nodes.get(node_id := text(given.get("id")) or f"#{len(trace.nodes)}")
    kind = _KINDS.get(str(given.get("type", "")).upper(), "other")
    told = table(unpacked(given.get("metadata")))
    attributes = table(told.get("attributes"))
    operation = first(attributes, "gen_ai.operation.name", "openinference.span.kind")
    node = Node(
        id=node_id,
        parent=text(first(given, "parentObservationId", "parent_observation_id")) or "",
        kind=kind,
        name=text(given.get("name")) or "",
        start=seconds(first(given, "startTime", "start_time")),
        end=seconds(first(given, "endTime", "end_time")),
        place=place,
    )
    if str(given.get("level", "")).upper() == "ERROR":
        node.error = text(first(given, "statusMessage", "status_message")) or "failed"
    if known is not None and kind == "other":
        node.kind = known.kind
    said = given.get("output")
    if kind == "llm":
        _generation(node, given, said, place, say)
    elif kind == "tool" or str(operation).lower() in ("tool", "execute_tool"):
        node.kind = "tool"
        name = text(first(attributes, "gen_ai.tool.name", "tool.name")) or node.name
        call_id = text(first(attributes, "gen_ai.tool.call.id", "tool_call.id"))
        shown, told_of = given.get("input"), None if said is None else written(said)
        node.tool = ToolRun(
            name=name, call_id=call_id, arguments=None if shown is None else written(shown), result=told_of
        )
    elif kind == "agent":
        node.agent = node.name or "agent"
    trace.add(node)
    _add_scores(scores(given, node.id), trace)
    trace.user = trace.user or text(given.get("userId"))
    trace.session = trace.session or text(given.get("sessionId"))


def _generation(node: Node, given: dict[str, Any], said: Any, place: str, say: Say) -> None:
    if given.get("input") is None and said is None:
        return
    call = read_call(given.get("input"), said, within(say, place))
    counts = table(first(given, "usageDetails", "usage_details", "usage"))
    call.usage = (
        usage_of(
            first(counts, "input", "promptTokens", "prompt_tokens", "input_tokens"),
            first(counts, "output", "completionTokens", "completion_tokens", "output_tokens"),
        )
        or usage_of(first(given, "promptTokens"), first(given, "completionTokens"))
        or call.usage
    )
    call.model = text(first(given, "model", "providedModelName", "provided_model_name")) or call.model
    call.sampling = sampling_of(unpacked(first(given, "modelParameters", "model_parameters"))) or call.sampling
    call.metadata |= bounded({"prompt_name": given.get("promptName"), "prompt_version": given.get("promptVersion")})
    if call.prompt or call.replies:
        node.call = call
    else:
        say(place, "neither its input nor its output has messages")


def _score(given: dict[str, Any], trace: Trace) -> None:
    name, kind = text(given.get("name")), str(given.get("dataType", "")).upper()
    value = given.get("value")
    if kind == "CATEGORICAL" or value is None:
        value = first(given, "stringValue", "string_value") if given.get("stringValue") is not None else value
    if kind == "BOOLEAN" and value in (0, 1, 0.0, 1.0):
        value = float(value)
    if name is None or value is None:
        return
    observation = text(first(given, "observationId", "observation_id")) or ""
    _add_scores([Score(name=name, value=value, node=observation, comment=text(given.get("comment")))], trace)


def _add_scores(found: Iterable[Score], trace: Trace) -> None:
    trace.scores += [score for score in found if score not in trace.scores]


def _event(event: Any, place: str, collection: Collection, say: Say) -> None:
    body = table(event.get("body")) if isinstance(event, dict) else {}
    kind = str(event.get("type")) if isinstance(event, dict) else ""
    if kind == "sdk-log":
        return
    if not body or kind not in _EVENTS:
        say(place, f"events of type {kind[:40]!r} are not known")
        return
    if kind == "trace-create":
        _of_trace(body, collection.trace(text(body.get("id")) or "", place))
        return
    trace = collection.trace(text(body.get("traceId")) or "", place)
    if kind == "score-create":
        _score(body, trace)
        return
    body = {**body, "type": body.get("type") or _EVENTS[kind] or "SPAN"}
    _observation(collection.merged(trace, body), place, trace, say)


def _messages(document: dict[str, Any], place: str, collection: Collection, say: Say) -> None:
    """Observations of which only the messages are on record: neither their kind nor their order."""
    trace = collection.trace("", place)
    # Conversations grow, so the one with the longer input comes later.
    for name, sides in sorted(document.items(), key=lambda item: _length(item[1])):
        where = f"{place}.{name}"
        for side, told in sides.items():
            if not told["success"]:
                why = table(told.get("error")).get("message")
                reason = f": {str(why)[:300]!r}" if why else ""
                say(f"{where}.{side}", f"its messages were not understood when this was exported{reason}", lost=False)
        given, said = (table(sides.get(side)).get("data") for side in ("input", "output"))
        if not isinstance(said, list):
            continue
        if isinstance(given, list):
            call = read_call(given, said, within(say, where))
            if call.replies:
                trace.add(Node(id=name, kind="llm", place=where, call=call))
        elif results := [each["json"] for each in said if isinstance(each, dict) and set(each) == {"json"}]:
            result = written(results[0] if len(results) == 1 else results)
            trace.add(Node(id=name, kind="tool", place=where, tool=ToolRun(name="", result=result)))
    _without_wrappers(trace, say)


def _length(sides: dict[str, Any]) -> int:
    data = table(sides.get("input")).get("data")
    return len(data) if isinstance(data, list) else 0


def _without_wrappers(trace: Trace, say: Say) -> None:
    """Take out what frameworks put around a call of a model: it has the same reply, and a part of the prompt."""
    calls = [(node, node.call) for node in trace.nodes.values() if node.call is not None]
    for node, call in calls:
        for other, inner in calls:
            if (
                len(call.prompt) < len(inner.prompt)
                and other.id in trace.nodes
                and call.replies[0].message.text == inner.replies[0].message.text
                and all(message in inner.prompt for message in call.prompt)
            ):
                say(node.place, f"it shows a part of what the call {other.id[:60]!r} has; that one is kept", lost=False)
                del trace.nodes[node.id]
                break


FORMAT = Langfuse()
