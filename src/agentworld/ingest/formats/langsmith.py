"""Runs of LangSmith: run trees and lists of runs as its API and exports give them, and batches as its SDKs send them
(`post` and `patch`, which together are one run).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentworld.ingest.entry import Entry
from agentworld.ingest.format import Head, Notes
from agentworld.ingest.run import Run
from agentworld.ingest.spans.attributes import first
from agentworld.ingest.spans.collecting import Collection
from agentworld.ingest.spans.loose import (
    bounded,
    items,
    number,
    sampling_of,
    seconds,
    table,
    text,
    unpacked,
    usage_of,
    written,
)
from agentworld.ingest.spans.node import Node, Say, Score, ToolRun, Trace
from agentworld.ingest.spans.observed import read_call
from agentworld.ingest.spans.places import Reading, within
from agentworld.ingest.spans.runs import runs_of
from agentworld.ingest.spans.tools import read_tools

_TYPES = ("llm", "chain", "tool", "retriever", "embedding", "prompt", "parser")
_MAX_DEPTH = 90
_KEPT_RUNS = 100
_TOLD = frozenset(("ls_provider", "ls_model_name", "ls_temperature", "ls_agent_type", "lc_agent_name", "user_id"))


class Langsmith:
    """See the module."""

    name = "langsmith"
    title = "LangSmith runs"

    def claims(self, head: Head) -> bool:
        """See Format."""
        return bool(head.documents) and all(_is_known(document) for document in head.documents)

    def bundles(self, entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
        """All together: runs of a trace, and feedback on them, may be in several files."""
        return [entries] if entries else []

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """See Format."""
        reading = Reading(note)
        collection = Collection(reading.say)
        of_runs: dict[str, str] = {}
        waiting: list[tuple[str, dict[str, Any]]] = []
        for place, document in reading.documents(bundle):
            _read(document, reading.at(place), collection, reading.say, of_runs, waiting)
            if not waiting:
                yield from runs_of(collection.over(), reading.say)
        for place, given in waiting:
            _feedback(given, place, collection, reading.say, of_runs)
        yield from runs_of(collection.rest(), reading.say)


def _is_known(document: Any) -> bool:
    if not isinstance(document, dict):
        return False
    listed = document.get("runs")
    if isinstance(listed, list):
        return bool(listed) and isinstance(listed[0], dict) and _is_run(listed[0])
    return _is_batch(document) or _is_run(document) or _is_feedback(document)


def _is_batch(document: dict[str, Any]) -> bool:
    parts = [document.get(name) or [] for name in ("post", "patch")]
    found = [each for part in parts if isinstance(part, list) for each in part]
    return set(document) <= {"post", "patch"} and bool(found) and all(isinstance(each, dict) for each in found)


def _is_run(document: dict[str, Any]) -> bool:
    kind = document.get("run_type")
    return isinstance(kind, str) and ("inputs" in document or "outputs" in document or "trace_id" in document)


def _is_feedback(document: dict[str, Any]) -> bool:
    return (
        "run_id" in document and isinstance(document.get("key"), str) and ("score" in document or "value" in document)
    )


Waiting = list[tuple[str, dict[str, Any]]]


def _read(
    document: Any, place: str, collection: Collection, say: Say, of_runs: dict[str, str], waiting: Waiting
) -> None:
    if not isinstance(document, dict):
        say(place, "a run is an object")
    elif _is_batch(document):
        # A run's second part says how it ended, so that it is read once both are there.
        parts: dict[str, tuple[dict[str, Any], str]] = {}
        for name in ("post", "patch"):
            for index, each in enumerate(items(document.get(name))):
                where = f"{place}.{name}[{index}]"
                known, first_place = parts.get(run_id := _run_id(each) or where, ({}, where))
                parts[run_id] = {**known, **_said(each)}, first_place
        for whole, where in parts.values():
            _run(whole, where, collection, say, of_runs)
    elif isinstance(document.get("runs"), list):
        for index, each in enumerate(document["runs"]):
            _read(each, f"{place}.runs[{index}]", collection, say, of_runs, waiting)
    elif _is_feedback(document):
        waiting.append((place, document))
    elif _is_run(document):
        _run(document, place, collection, say, of_runs)
    else:
        say(place, "this is neither a run nor feedback on one")


def _run_id(given: dict[str, Any]) -> str:
    # The SDK for JavaScript names the run of a patch in the address alone, and in the order.
    order = text(given.get("dotted_order")) or ""
    return text(given.get("id")) or order.rsplit(".", 1)[-1].partition("Z")[2]


def _said(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value not in (None, {}, [], "")}


def _run(
    given: dict[str, Any], place: str, collection: Collection, say: Say, of_runs: dict[str, str], depth: int = 0
) -> None:
    order = text(given.get("dotted_order")) or ""
    run_id = _run_id(given)
    if not run_id:
        say(place, "the run has no id")
        return
    trace_id = text(given.get("trace_id")) or order.split(".", 1)[0].partition("Z")[2] or run_id
    trace = collection.trace(trace_id, place)
    of_runs[run_id] = trace_id
    whole = {**_said(given), "id": run_id}
    if "outputs" not in whole or "inputs" not in whole or "run_type" not in whole:
        # Its other part comes in another batch, or came.
        whole = collection.merged(trace, whole)
    parent = text(first(whole, "parent_run_id", "parent_id"))
    if parent is None and order.count("."):
        parent = order.rsplit(".", 2)[-2].partition("Z")[2]
    trace.add(_node(whole, run_id, parent or "", place, say))
    _of_trace(whole, trace, run_id, root=run_id == trace_id)
    for index, child in enumerate(items(given.get("child_runs"))):
        where = f"{place}.child_runs[{index}]"
        if not isinstance(child, dict):
            say(where, "a run is an object")
        elif depth < _MAX_DEPTH:
            _run({"trace_id": trace_id, "parent_run_id": run_id, **child}, where, collection, say, of_runs, depth + 1)


def _node(given: dict[str, Any], run_id: str, parent: str, place: str, say: Say) -> Node:
    node = Node(
        id=run_id,
        parent=parent,
        name=text(given.get("name")) or "",
        start=seconds(given.get("start_time")),
        end=seconds(given.get("end_time")),
        error=text(given.get("error")),
        place=place,
    )
    kind = given.get("run_type")
    told = table(table(given.get("extra")).get("metadata"))
    inputs, outputs = unpacked(given.get("inputs")), unpacked(given.get("outputs"))
    if kind == "llm":
        node.kind = "llm"
        _call(node, given, inputs, outputs, told, place, say)
    elif kind == "tool":
        node.kind = "tool"
        shown = inputs.get("input", inputs) if isinstance(inputs, dict) else inputs
        said = outputs.get("output", outputs) if isinstance(outputs, dict) else outputs
        call_id = None
        if isinstance(said, dict):  # LangChain's tools give a message.
            inner = table(said.get("kwargs")) or said
            call_id = text(inner.get("tool_call_id"))
            said = inner.get("content", said) if call_id else said
        node.tool = ToolRun(
            name=node.name,
            call_id=call_id or text(table(inputs).get("tool_call_id")),
            arguments=None if shown is None else written(shown),
            result=None if said in (None, {}) else written(said),
        )
    agent = text(told.get("ls_agent_type")) or text(told.get("lc_agent_name"))
    if agent is not None or "agent" in items(given.get("tags")):
        node.kind, node.agent = ("agent" if kind != "llm" else node.kind), text(told.get("lc_agent_name")) or node.name
    return node


def _call(
    node: Node, given: dict[str, Any], inputs: Any, outputs: Any, told: dict[str, Any], place: str, say: Say
) -> None:
    params = table(table(given.get("extra")).get("invocation_params"))
    outputs = None if outputs in ({}, "") else outputs
    if not inputs and outputs is None:
        return
    call = read_call(inputs, outputs, within(say, place))
    counts = table(table(outputs).get("usage_metadata")) or table(first(given, "usage_metadata"))
    call.usage = usage_of(counts.get("input_tokens"), counts.get("output_tokens")) or call.usage
    call.usage = call.usage or usage_of(given.get("prompt_tokens"), given.get("completion_tokens"))
    call.requested_model = (
        call.requested_model or text(first(params, "model", "model_name")) or text(told.get("ls_model_name"))
    )
    call.model = call.model or call.requested_model
    call.sampling = call.sampling or sampling_of(params) or sampling_of({"temperature": told.get("ls_temperature")})
    if not call.tools and params.get("tools"):
        call.tools = read_tools(params["tools"], "extra.invocation_params.tools", within(say, place))
    rest = {name: value for name, value in told.items() if name not in _TOLD}
    call.metadata |= bounded({"provider": told.get("ls_provider"), "tags": given.get("tags"), "metadata": rest})
    if call.prompt or call.replies:
        node.call = call


def _of_trace(given: dict[str, Any], trace: Trace, run_id: str, *, root: bool) -> None:
    told = table(table(given.get("extra")).get("metadata"))
    trace.session = trace.session or text(first(told, "session_id", "thread_id", "conversation_id"))
    trace.user = trace.user or text(first(told, "user_id"))
    if root:
        kept = {
            "project": given.get("session_name"),
            "tags": given.get("tags"),
            "reference_example": given.get("reference_example_id"),
            "metadata": {name: value for name, value in told.items() if name not in _TOLD},
        }
        trace.metadata |= bounded(kept)
    elif given.get("run_type") != "llm":  # Those of calls are on their steps.
        _keep_metadata(given, trace, run_id, told)
    stats = table(given.get("feedback_stats"))
    for key, each in stats.items():
        value = number(table(each).get("avg"))
        values = table(table(each).get("values"))
        said: Any = (
            value
            if value is not None
            else max(values, key=lambda name: number(values[name]) or 0.0)
            if values
            else None
        )
        score = Score(name=str(key), value=said, node="" if root else run_id)
        if said is not None and score not in trace.scores:
            trace.scores.append(score)


def _keep_metadata(given: dict[str, Any], trace: Trace, run_id: str, told: dict[str, Any]) -> None:
    """What a run between the root and the calls of models says of itself, of the first ones."""
    rest = {name: value for name, value in told.items() if name not in _TOLD}
    kept = bounded({"name": given.get("name"), "tags": given.get("tags"), "metadata": rest})
    runs = trace.metadata.setdefault("runs", {})
    if (rest or given.get("tags")) and len(runs) < _KEPT_RUNS:
        runs[run_id] = kept
    if not runs:
        del trace.metadata["runs"]


def _feedback(given: dict[str, Any], place: str, collection: Collection, say: Say, of_runs: dict[str, str]) -> None:
    run_id = str(given.get("run_id"))
    trace_id = text(given.get("trace_id")) or of_runs.get(run_id)
    if trace_id is None or of_runs.get(run_id) is None:
        say(place, f"feedback on the run {run_id[:60]!r}, which is not here")
        return
    value = given.get("score") if given.get("score") is not None else given.get("value")
    if value is None:
        say(place, "the feedback has neither a score nor a value")
        return
    if isinstance(value, bool):
        value = float(value)
    trace = collection.trace(trace_id, place)
    comment = text(given.get("comment"))
    trace.scores.append(
        Score(name=str(given["key"]), value=value, node="" if run_id == trace_id else run_id, comment=comment)
    )


FORMAT = Langsmith()
