"""Trajectories of SWE-agent (.traj), of all its versions, and rows of data sets that were made of these."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from agentworld.ingest.entry import Entry
from agentworld.ingest.format import Head, Notes, each_alone
from agentworld.ingest.formats.chat_messages import ChatReader
from agentworld.ingest.formats.lineage import Budget, Lineage, untold
from agentworld.ingest.formats.noted import Values, as_finite, as_text, kind_of
from agentworld.ingest.formats.outcomes import put_label, put_metadata, put_value, status_of
from agentworld.ingest.run import Run, RunFeedback, place_run
from agentworld.records import Message, Sampling

_CHAT = frozenset(("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content", "reasoning"))
_NOT_CHAT = ("message_type", "is_demo", "thought", "action", "agent")
_OUTCOMES = ("target", "resolved", "reward", "score")
_READ = frozenset(("trajectory", "history", "info", "messages", "replay_config", "attempts", "exit_status", *_OUTCOMES))
_OF_INFO = frozenset(("exit_status", "score", "reward", "resolved"))
_OF_CALLS = ("thinking_blocks", "tool_call_ids", "cache_control")
_MOST_DISCARDED = 64  # answers in a row that the agent threw away
_STEP = ("execution_time", "state", "extra_info")


class SweAgent:
    """See Format."""

    name = "swe-agent"
    title = "SWE-agent trajectories (.traj, and rows of data sets)"
    bundles = staticmethod(each_alone)

    def claims(self, head: Head) -> bool:
        """By a history or a trajectory whose elements have SWE-agent's fields."""
        return any(_kind(value) is not None for value in head.documents)

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """One run a document; one for each attempt where there were several."""
        for entry in bundle:
            values = Values(entry.name, note)
            for place, document in values.documents(entry):
                if _kind(document) is None:
                    values.lost(place, "it is no trajectory of SWE-agent: it has no history of messages")
                else:
                    yield from _runs(document, values, place)


def _kind(document: Any) -> str | None:
    if not isinstance(document, dict):
        return None
    if _some(document.get("attempts"), lambda each: _kind(each) is not None):
        return "attempts"
    trajectory = document.get("trajectory")
    if _some(trajectory, lambda each: "role" in each and ("text" in each or "system_prompt" in each)):
        return "row"
    if _some(document.get("history"), _is_of_history):
        return "history"
    if isinstance(document.get("info"), dict) and isinstance(trajectory, list):
        if not trajectory and isinstance(document.get("history"), list):
            return "history"  # It ended before the first call.
        if _some(trajectory, lambda each: "observation" in each and ("response" in each or "action" in each)):
            told = _some(document.get("history"), lambda each: "role" in each and "content" in each)
            return "history" if told else "trajectory"
    if _some(_messages(document), _is_of_history):
        return "messages"
    return None


def _some(values: Any, is_one: Any) -> bool:
    return isinstance(values, list) and any(isinstance(each, dict) and is_one(each) for each in values[:16])


def _is_of_history(item: Mapping[str, Any]) -> bool:
    return "role" in item and "agent" in item and ("content" in item or "message_type" in item)


def _messages(document: Mapping[str, Any]) -> Any:
    """Messages of a row; some data sets have them as JSON text."""
    given = document.get("messages")
    if isinstance(given, str) and given.startswith("[{") and "instance_id" in document:
        try:
            return json.loads(given)
        except (ValueError, RecursionError):
            return None
    return given


def _runs(document: dict[str, Any], values: Values, place: str) -> Iterator[Run]:
    kind = _kind(document)
    if kind != "attempts":
        run = _run(document, kind or "history", values, place)
        place_run(run, place)
        yield run
        return
    best = (values.object(document, "info", place) or {}).get("best_attempt_idx")
    for number, attempt in enumerate(document["attempts"]):
        where = f"{place}.attempts[{number}]"
        found = _kind(attempt)
        if found in (None, "attempts"):
            values.lost(where, "it is no trajectory of SWE-agent")
            continue
        run = _run(attempt, found or "history", values, where)
        place_run(run, place, str(number))
        run.rollout_index = number
        run.metadata["attempt"] = {"number": number, "of": len(document["attempts"]), "is_chosen": number == best}
        yield run


def _run(document: dict[str, Any], kind: str, values: Values, place: str) -> Run:
    run = Run(native_id=None)
    info = values.object(document, "info", place) or {}
    config = _config(document, values, place)
    fields = _fields(document, config, values, place)
    if kind == "row":
        _read_row(run, document["trajectory"], fields, values, f"{place}.trajectory")
    elif kind == "trajectory":
        _read_steps(run, document["trajectory"], fields, values, f"{place}.trajectory")
    else:
        name = "messages" if kind == "messages" else "history"
        history = _messages(document) if kind == "messages" else document["history"]
        processed = _processors(config)
        _read_history(run, history, document.get("trajectory"), fields, values, place, name, processed)
    ended = info.get("exit_status", document.get("exit_status"))
    if ended is not None or kind != "messages":
        run.status = status_of(ended)
    put_label(run, {"exit_status": ended}, "exit_status", values, place)
    for record, where in ((document, place), (info, f"{place}.info")):
        for key in _OUTCOMES:
            if record.get(key) is not None:
                put_value(run, key, record[key], values, f"{where}.{key}")
    _identify(run, document, config)
    put_metadata(run, document, _READ, values, place)
    put_metadata(run, info, _OF_INFO, values, f"{place}.info")
    return run


def _config(document: Mapping[str, Any], values: Values, place: str) -> dict[str, Any]:
    """How the run can be made again; newer versions keep it as JSON text."""
    given = document.get("replay_config")
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            values.lost(f"{place}.replay_config", "it is no JSON")
    return given if isinstance(given, dict) else {}


def _processors(config: Mapping[str, Any]) -> str | None:
    """The processors that shortened the history for the model, by their names."""
    agent = config.get("agent")
    given = agent.get("history_processors", agent.get("history_processor")) if isinstance(agent, dict) else None
    kinds = [each.get("type") for each in (given if isinstance(given, list) else [given]) if isinstance(each, dict)]
    named = [kind[:60] for kind in kinds if isinstance(kind, str) and kind not in ("default", "cache_control")]
    return ", ".join(named) or None


def _fields(document: Mapping[str, Any], config: Mapping[str, Any], values: Values, place: str) -> dict[str, Any]:
    """What goes on every step."""
    agent = config.get("agent")
    model = agent.get("model") if isinstance(agent, dict) else None
    model = model if isinstance(model, dict) else {}
    where = f"{place}.replay_config.agent.model"
    name = values.name(model, "name", where)
    for key in ("model_name", "model"):
        if name is None and isinstance(document.get(key), str):
            name = values.name(document, key, place)
    fields: dict[str, Any] = {"model": name}
    temperature, top_p = as_finite(model.get("temperature")), as_finite(model.get("top_p"))
    if temperature is not None or top_p is not None:
        fields["sampling"] = Sampling(temperature=temperature, top_p=top_p)
    return fields


def _identify(run: Run, document: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    problem = config.get("problem_statement")
    named = problem.get("id") if isinstance(problem, dict) else None
    task = next((each for each in (document.get("instance_id"), named) if isinstance(each, str) and each), None)
    if task is not None:
        run.task = {"task_id": task}
    run.agent = "swe-agent"


# --- the history, which the model is shown -----------------------------------------------------------------------
def _read_history(
    run: Run,
    history: list[Any],
    trajectory: Any,
    fields: dict[str, Any],
    values: Values,
    place: str,
    name: str,
    processed: str | None,
) -> None:
    """Replies of the history; each is shown what its `query` says, or else what stands before it of its agent."""
    asked = _queries(trajectory)
    if processed and not any(each.query for each in asked):
        values.said(place, f"what {processed} left out of prompts is not in the file; they are shown the whole history")
    reader = ChatReader(values, run.media)
    conversations: dict[str, list[Message]] = {}
    lineage = Lineage(Budget(values, place))
    for number, item in enumerate(history):
        where = f"{place}.{name}[{number}]"
        if not isinstance(item, dict):
            values.lost(where, f"a message must be an object, not {kind_of(item)}")
            continue
        agent = values.name(item, "agent", where) or "main"
        message = _message(reader, item, values, where)
        before = conversations.setdefault(agent, [])
        if message.role == "assistant" and not item.get("is_demo"):
            found = _call_of(item, message, asked)
            if found is None:
                lineage.add(before, message, otherwise="subagent", **fields)
            else:
                while (other := asked.popleft()) is not found:
                    _put(lineage, other, None, fields, values, place)
                _put(lineage, found, message, fields, values, place, before)
            step = lineage.steps[-1] if lineage.steps else None
            about = _besides(item, message) if step is not None and step.response_message is message else None
            if step is not None and (kept := values.bounded(about, f"{where} (other fields)")) is not None:
                step.metadata = {**step.metadata, "message": kept}
        before.append(message)
    for other in asked:
        _put(lineage, other, None, fields, values, place)
    if len(conversations) > 1:
        _name_agents(lineage, conversations)
    run.steps = lineage.steps
    run.trailing = _untold(lineage, conversations)


def _besides(item: Mapping[str, Any], message: Message) -> dict[str, Any]:
    """What a reply of the history has besides what is read of it; a thought where its text has it not."""
    known = _CHAT.union(_NOT_CHAT, _OF_CALLS)
    found = {key: value for key, value in item.items() if key not in known and value not in (None, "", [], {})}
    thought = item.get("thought")
    if isinstance(thought, str) and thought.strip() and thought.strip() not in f"{message.text}\n{message.reasoning}":
        found["thought"] = thought
    return found


def _untold(lineage: Lineage, conversations: Mapping[str, list[Message]]) -> list[Message]:
    """What no step has: what follows the last reply, and what the model was never shown as it stands in the history."""
    found = []
    for messages in conversations.values():
        last = max((at for at, each in enumerate(messages) if each.role == "assistant"), default=-1)
        found += [each for at, each in enumerate(messages) if at > last or not lineage.holds(each)]
    return found


def _name_agents(lineage: Lineage, conversations: Mapping[str, list[Message]]) -> None:
    agents = {id(message): agent for agent, messages in conversations.items() for message in messages}
    for step in lineage.steps:
        step.agent = agents.get(id(step.response_message))


def _message(reader: ChatReader, item: Mapping[str, Any], values: Values, place: str) -> Message:
    given = {key: value for key, value in item.items() if key in _CHAT}
    ids = item.get("tool_call_ids")
    if given.get("role") == "tool" and isinstance(ids, list) and ids and isinstance(ids[0], str):
        given["tool_call_id"] = ids[0]
        if len(ids) > 1:
            values.said(f"{place}.tool_call_ids", "one result is of several calls; it is kept as that of the first")
    thoughts = [
        block["thinking"]
        for block in values.items(item, "thinking_blocks", place) or ()
        if isinstance(block, dict) and isinstance(block.get("thinking"), str)
    ]
    if thoughts and not given.get("reasoning_content"):
        given["reasoning_content"] = "\n".join(thoughts)
    return reader.message(given, place)


class _Asked:
    """One element of `trajectory`: a call of the model, with what it was shown where the file has that."""

    def __init__(self, record: dict[str, Any], number: int) -> None:
        self.record = record
        self.number = number
        query = record.get("query")
        self.query = query if isinstance(query, list) and any(query) else None
        self.said = record.get("response", record.get("output"))


def _queries(trajectory: Any) -> deque[_Asked]:
    given = trajectory if isinstance(trajectory, list) else []
    return deque(_Asked(each, number) for number, each in enumerate(given) if isinstance(each, dict))


def _call_of(item: Mapping[str, Any], message: Message, asked: deque[_Asked]) -> _Asked | None:
    """Which of the next calls said this reply: the first whose answer and action it has, or one of them."""
    for each in islice(asked, _MOST_DISCARDED):
        does = item.get("action") or ""
        is_same = does.strip() == str(each.record.get("action") or "").strip() if isinstance(does, str) else False
        if isinstance(each.said, str) and each.said == message.text and (each.said or is_same):
            return each
        if does and is_same:
            return each
    return None


def _put(
    lineage: Lineage,
    asked: _Asked,
    reply: Message | None,
    fields: dict[str, Any],
    values: Values,
    place: str,
    before: list[Message] | None = None,
) -> None:
    """A call as a step. Without a reply in the history it is one that the agent threw away."""
    where = f"{place}.trajectory[{asked.number}]"
    metadata = {
        key: kept for key in _STEP if (kept := values.bounded(asked.record.get(key), f"{where}.{key}")) is not None
    }
    if reply is None:
        if asked.query is None or not isinstance(asked.said, str) or not asked.said:
            return  # Nothing was sampled, or what it was shown is not known: its observation tells of the end.
        reply = Message(role="assistant", content=asked.said)
        metadata["discarded"] = True
    elif (
        isinstance(asked.said, str)
        and asked.said.strip() not in ("", reply.text.strip())
        and (kept := values.bounded(asked.said, f"{where}.response")) is not None
    ):
        metadata["response"] = kept  # What came back, where the history has it otherwise.
    if asked.query is None:
        shown = before or []
    else:
        reader = ChatReader(values, {})
        shown = [
            _message(reader, item, values, f"{where}.query[{number}]")
            for number, item in enumerate(asked.query)
            if isinstance(item, dict)
        ]
    lineage.add(shown, reply, metadata=metadata, **fields)


# --- files without a history -------------------------------------------------------------------------------------
def _read_steps(run: Run, trajectory: list[Any], fields: dict[str, Any], values: Values, place: str) -> None:
    """Steps with their answers and observations alone."""
    lineage = Lineage(Budget(values, place))
    shown: list[Message] = []
    for number, item in enumerate(trajectory):
        if not isinstance(item, dict):
            values.lost(f"{place}[{number}]", f"a step must be an object, not {kind_of(item)}")
            continue
        asked = _Asked(item, number)
        said = asked.said if asked.said is not None else item.get("action")
        reply = Message(role="assistant", content=as_text(said) if said is not None else None)
        _put(lineage, asked, reply, fields, values, place.removesuffix(".trajectory"), shown)
        shown.append(reply)
        if item.get("observation") is not None:
            shown.append(Message(role="user", content=as_text(item["observation"])))
    run.steps = lineage.steps
    run.trailing = untold(run.steps, shown)


def _read_row(run: Run, turns: list[Any], fields: dict[str, Any], values: Values, place: str) -> None:
    """Turns of a data set: the text of each, the system's by its own name."""
    reader = ChatReader(values, run.media)
    lineage = Lineage(Budget(values, place))
    shown: list[Message] = []
    masked: dict[str, bool] = {}
    for number, turn in enumerate(turns):
        where = f"{place}[{number}]"
        if not isinstance(turn, dict):
            values.lost(where, f"a turn must be an object, not {kind_of(turn)}")
            continue
        role = turn.get("role")
        text = turn.get("system_prompt") if role == "system" and turn.get("system_prompt") else turn.get("text")
        message = reader.message({"role": role, "content": text}, where)
        if message.role == "assistant":
            step = lineage.add(shown, message, **fields)
            if step is not None and isinstance(turn.get("mask"), bool):
                masked[step.step_id] = turn["mask"]
        shown.append(message)
    run.steps = lineage.steps
    run.trailing = untold(run.steps, shown)
    if len(set(masked.values())) > 1 or True in masked.values():
        for key, value in masked.items():
            run.feedback.append(RunFeedback(kind="label", name="mask", value=value, step=key))


FORMAT = SweAgent()
