"""Trajectories of mini-swe-agent (.traj.json): text actions, tool calls, and answers of Responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from agentworld.ingest.entry import Entry
from agentworld.ingest.format import Head, Notes, each_alone
from agentworld.ingest.formats.chat_messages import ChatReader
from agentworld.ingest.formats.completion_facts import facts_of_completion, usage_of
from agentworld.ingest.formats.lineage import Budget, Lineage
from agentworld.ingest.formats.noted import Values, as_finite, as_time, kind_of
from agentworld.ingest.formats.outcomes import put_label, put_metadata, put_value, status_of
from agentworld.ingest.formats.response_items import ItemReader
from agentworld.ingest.run import Run, place_run
from agentworld.records import Message, Sampling
from agentworld.records.step import ForkReason

_ENDINGS = ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT_FINAL_OUTPUT", "mswea_bash_command")
_OUTCOMES = ("reward", "resolved", "score")
_READ = frozenset(("messages", "info", "trajectory_format", "instance_id", *_OUTCOMES))
_OF_INFO = frozenset(("exit_status", "config", *_OUTCOMES))
_EXTRA_OF_REPLY = ("cost", "model_response_cost")


class MiniSweAgent:
    """See Format."""

    name = "mini-swe-agent"
    title = "mini-swe-agent trajectories (.traj.json)"
    bundles = staticmethod(each_alone)

    def claims(self, head: Head) -> bool:
        """By its name in the file, by how it ends a task, or by its info beside messages."""
        if any(_is_document(value) for value in head.documents):
            return True
        turns = [each for each in head.documents if _is_turn(each)]
        if not turns or len(turns) < len(head.documents):
            return False
        return head.name.endswith(".traj.json") or any(_tells(each) for each in turns[:3])

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """One run a document; a file that is a list of messages is one run."""
        for entry in bundle:
            values = Values(entry.name, note)
            alone: list[Any] = []
            for place, value in values.documents(entry):
                if _is_document(value):
                    yield _run(value, value["messages"], values, place)
                elif _is_turn(value):
                    alone.append(value)
                else:
                    values.lost(place, "it is no trajectory of mini-swe-agent: it has no messages")
            if alone:
                yield _run({}, alone, values, "$")


def _is_document(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    if str(value.get("trajectory_format", "")).startswith("mini-swe-agent"):
        return True
    info = value.get("info")
    if isinstance(info, dict) and ("mini_version" in info or {"exit_status", "model_stats"} <= info.keys()):
        return True
    return any(_is_turn(each) and _tells(each) for each in value["messages"][:3]) and "info" in value


def _is_turn(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("role"), str) or value.get("object") == "response" or "call_id" in value


def _tells(turn: Mapping[str, Any]) -> bool:
    content = turn.get("content")
    return isinstance(content, str) and any(ending in content for ending in _ENDINGS)


def _run(document: dict[str, Any], messages: list[Any], values: Values, place: str) -> Run:
    run = Run(native_id=None, agent="mini-swe-agent")
    place_run(run, place)
    info = values.object(document, "info", place) or {}
    config = values.object(info, "config", f"{place}.info") or {}
    where = f"{place}.info.config.model"
    model = values.object(config, "model", f"{place}.info.config") or {}
    fields: dict[str, Any] = {"model": values.name(model, "model_name", where)}
    asked = model.get("model_kwargs")
    if isinstance(asked, dict):
        sampling = Sampling(temperature=as_finite(asked.get("temperature")), top_p=as_finite(asked.get("top_p")))
        if sampling != Sampling():
            fields["sampling"] = sampling
    left = _read(run, messages, fields, values, f"{place}.messages" if document else place)
    ended = info.get("exit_status")
    if document:
        run.status = status_of(ended)
    put_label(run, {"exit_status": ended}, "exit_status", values, f"{place}.info")
    for record, at in ((document, place), (info, f"{place}.info")):
        for key in _OUTCOMES:
            if record.get(key) is not None:
                put_value(run, key, record[key], values, f"{at}.{key}")
    task = document.get("instance_id", info.get("instance_id"))
    if isinstance(task, str) and task:
        run.task = {"task_id": task}
    put_metadata(run, document, _READ, values, place)
    put_metadata(run, info, _OF_INFO, values, f"{place}.info")
    if isinstance(config.get("agent_type"), str):
        run.metadata["agent_type"] = config["agent_type"][:200]
    if left:
        run.metadata["ended"] = left
    return run


def _read(run: Run, messages: list[Any], fields: dict[str, Any], values: Values, place: str) -> dict[str, Any]:
    """Read the messages; returns what the last one says of the end."""
    reader = ChatReader(values, run.media)
    lineage = Lineage(Budget(values, place))
    shown: list[Message] = []
    left: dict[str, Any] = {}
    otherwise: ForkReason = "history_rewritten"
    for number, item in enumerate(messages):
        where = f"{place}[{number}]"
        if not isinstance(item, dict):
            values.lost(where, f"a message must be an object, not {kind_of(item)}")
            continue
        extra: dict[str, Any] = values.object(item, "extra", where) or {}
        at = as_time(extra.get("timestamp", item.get("timestamp"))) or 0.0
        run.created_at = run.created_at or at
        run.completed_at = at or run.completed_at
        if item.get("role") == "exit":
            # The agent's own note of its end, which no model was shown.
            said = reader.message({**item, "role": "user"}, where)
            shown.append(msgspec.structs.replace(said, name="exit"))
            left = {key: extra[key] for key in ("exit_status",) if isinstance(extra.get(key), str)}
            continue
        if item.get("role") != "assistant" and item.get("object") != "response" and extra.get("response"):
            # What the agent could not read: it kept the answer here, and put its complaint in the conversation.
            for message, facts in _answer(extra["response"], values, f"{where}.extra.response"):
                kept = {**_metadata(extra), "discarded": True}
                _place(lineage, at, shown, message, otherwise, {**fields, **facts, "metadata": kept})
            otherwise = "retry"
        for message, facts in _turns(item, extra, reader, values, where):
            if message.role == "assistant":
                _place(lineage, at, shown, message, otherwise, {**fields, **facts, "metadata": _metadata(extra)})
                otherwise = "history_rewritten"
            shown.append(message)
    run.steps = lineage.steps
    last = max((index for index, each in enumerate(shown) if each.role == "assistant"), default=-1)
    run.trailing = [each for index, each in enumerate(shown) if index > last or not lineage.holds(each)]
    return left


def _metadata(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {key: extra[key] for key in _EXTRA_OF_REPLY if as_finite(extra.get(key)) is not None}


def _place(
    lineage: Lineage, at: float, shown: list[Message], reply: Message, otherwise: ForkReason, fields: dict[str, Any]
) -> None:
    step = lineage.add(shown, reply, otherwise=otherwise, **fields)
    if step is not None:
        step.created_at = step.created_at or at


def _turns(
    item: dict[str, Any], extra: Mapping[str, Any], reader: ChatReader, values: Values, place: str
) -> Iterator[tuple[Message, dict[str, Any]]]:
    """The messages of an element, with fields for their steps."""
    if item.get("object") == "response":
        yield from _response(item, reader, values, place)
    elif "call_id" in item:
        items = ItemReader(reader)
        items.read([item], place)
        items.close()
        yield from ((turn.message, turn.facts) for turn in items.turns)
    else:
        is_reply = item.get("role") == "assistant"
        facts = facts_of_completion(extra.get("response"), values, f"{place}.extra.response") if is_reply else {}
        yield reader.message(item, place), facts


def _response(
    response: dict[str, Any], reader: ChatReader, values: Values, place: str
) -> Iterator[tuple[Message, dict[str, Any]]]:
    items = ItemReader(reader, one_reply=True)
    items.read(values.items(response, "output", place) or [], f"{place}.output")
    items.close()
    facts = {
        "model": values.name(response, "model", place),
        "usage": usage_of(response.get("usage")),
        "created_at": as_time(response.get("created_at")),
    }
    known = {key: value for key, value in facts.items() if value is not None}
    yield from ((turn.message, {**known, **turn.facts}) for turn in items.turns)


def _answer(given: Any, values: Values, place: str) -> Iterator[tuple[Message, dict[str, Any]]]:
    """The reply of an answer that an engine gave, of chat or of Responses."""
    reader = ChatReader(values, {})
    if not isinstance(given, dict):
        values.lost(place, "the answer that the agent could not read is in the file only as a description")
    elif given.get("object") == "response" or "output" in given:
        yield from _response(given, reader, values, place)
    else:
        choices = values.items(given, "choices", place)
        message = choices[0].get("message") if choices and isinstance(choices[0], dict) else None
        if isinstance(message, dict):
            said = reader.message({**message, "role": "assistant"}, f"{place}.choices[0].message")
            yield said, facts_of_completion(given, values, place)


FORMAT = MiniSweAgent()
