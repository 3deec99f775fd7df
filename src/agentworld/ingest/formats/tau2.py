"""Results of tau2-bench: simulations of a customer and an agent, both of which may call tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from agentworld.ingest.entry import Entry
from agentworld.ingest.format import Head, Notes
from agentworld.ingest.formats.chat_messages import ChatReader, tools_of
from agentworld.ingest.formats.completion_facts import facts_of_completion, usage_of
from agentworld.ingest.formats.groups import group_of
from agentworld.ingest.formats.lineage import Budget, untold
from agentworld.ingest.formats.noted import Values, as_finite, as_time, kind_of
from agentworld.ingest.formats.outcomes import put_label, put_metadata, put_value, status_of
from agentworld.ingest.formats.tau2_ticks import turns_of
from agentworld.ingest.run import Run
from agentworld.records import Message, Sampling, Step, Tool
from agentworld.records.trajectory import TerminalStatus

_READ = frozenset(
    ("id", "task_id", "messages", "reward_info", "termination_reason", "start_time", "end_time", "trial", "ticks")
)
_BESIDE = re.compile(r"(?:^|(?<=[!/]))(?:results\.json|simulations/[^/!]*\.json)$")
_STEP = ("cost", "turn_idx", "context_truncation")


class Tau2:
    """See Format."""

    name = "tau2"
    title = "tau2-bench simulations"

    def claims(self, head: Head) -> bool:
        """By its results, or by the fields of one simulation."""
        return any(_is_results(value) or is_simulation(value) for value in head.documents)

    def bundles(self, entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
        """Results whose simulations lie in files of a folder beside them, with these; each of the others alone."""
        found: dict[str, list[Entry]] = {}
        for entry in entries:
            beside = _BESIDE.search(entry.name)
            found.setdefault(entry.name[: beside.start()] if beside else f"{entry.name}\0", []).append(entry)
        return found.values()

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """One run a simulation."""
        told: _Told | None = None
        index: dict[str, Values] = {}
        for entry in sorted(bundle, key=lambda entry: "simulations/" in entry.name):
            values = Values(entry.name, note)
            for place, value in values.documents(entry):
                if _is_results(value):
                    told = _told(value, values, place)
                    if isinstance(value.get("simulations"), list):
                        yield from _results(value["simulations"], told, values, place)
                    for each in values.items(value, "simulation_index", place) or ():
                        if isinstance(each, dict) and isinstance(each.get("id"), str):
                            index[each["id"]] = values
                elif is_simulation(value):
                    index.pop(str(value.get("id")), None)
                    yield simulation(value, values, place) if told is None else _placed(value, told, values, place)
                else:
                    values.lost(place, "it is no simulation of tau2: it has no messages with a task_id")
        for name, values in index.items():
            values.lost("$.simulation_index", f"the simulation {name[:80]} is in no file beside it")


def _is_results(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("simulations"), list):
        return "info" in value or "tasks" in value
    info = value.get("info")
    return isinstance(info, dict) and "tasks" in value and bool({"agent_info", "environment_info"} & info.keys())


def is_simulation(value: Any) -> bool:
    """Whether it is the record of one simulation."""
    if not isinstance(value, dict) or "task_id" not in value:
        return False
    if not isinstance(value.get("messages"), list) and not isinstance(value.get("ticks"), list):
        return False
    return "termination_reason" in value or "reward_info" in value


class _Told(msgspec.Struct):
    """What results say of all their simulations. `fields` go on every step."""

    fields: dict[str, Any]
    tasks: dict[str, Any]
    domain: str | None
    agent: str | None
    about: dict[str, Any]


def _told(results: dict[str, Any], values: Values, place: str) -> _Told:
    where = f"{place}.info"
    info = values.object(results, "info", place) or {}
    agent = values.object(info, "agent_info", where) or {}
    environment = values.object(info, "environment_info", where) or {}
    user = values.object(info, "user_info", where) or {}
    fields: dict[str, Any] = {"model": values.name(agent, "llm", f"{where}.agent_info")}
    asked = agent.get("llm_args")
    if isinstance(asked, dict):
        sampling = Sampling(temperature=as_finite(asked.get("temperature")), top_p=as_finite(asked.get("top_p")))
        if sampling != Sampling():
            fields["sampling"] = sampling
    fields["tools"] = tools_of(environment.get("tool_defs"), values, f"{where}.environment_info.tool_defs")
    tasks = [task for task in values.items(results, "tasks", place) or () if isinstance(task, dict) and "id" in task]
    domain = values.text(environment, "domain_name", f"{where}.environment_info")
    about = {
        "domain": domain,
        "git_commit": info.get("git_commit"),
        "user": {key: user[key] for key in ("implementation", "llm") if user.get(key)},
        "policy": values.bounded(environment.get("policy"), f"{where}.environment_info.policy"),
    }
    return _Told(
        fields=fields,
        tasks={str(task["id"]): task for task in tasks},
        domain=domain,
        agent=values.name(agent, "implementation", f"{where}.agent_info"),
        about={key: value for key, value in about.items() if value},
    )


def _results(simulations: list[Any], told: _Told, values: Values, place: str) -> Iterator[Run]:
    for number, each in enumerate(simulations):
        at = f"{place}.simulations[{number}]"
        if is_simulation(each):
            yield _placed(each, told, values, at)
        else:
            values.lost(at, "it is no simulation: it has no messages with a task_id")


def _placed(record: dict[str, Any], told: _Told, values: Values, place: str) -> Run:
    task = told.tasks.get(str(record["task_id"]))
    run = simulation(record, values, place, domain=told.domain, task=task, **told.fields)
    run.agent = told.agent
    run.metadata.update(told.about)
    return run


def simulation(
    record: Mapping[str, Any],
    values: Values,
    place: str,
    *,
    before: Sequence[Message] = (),
    tools: list[Tool] | None = None,
    domain: str | None = None,
    task: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Run:
    """One simulation. `before`: what the agent was shown first, where the file has that."""
    run = Run(native_id=values.text(record, "id", place) or None)
    messages = values.items(record, "messages", place) or []
    where = f"{place}.messages"
    if not messages and (ticks := values.items(record, "ticks", place)):
        values.said(f"{place}.ticks", "what was spoken in pieces is read as turns, without its sounds and its timing")
        messages, where = turns_of(ticks, values, f"{place}.ticks"), f"{place}.ticks: turn"
    told = _read(run, messages, list(before), {"tools": tools, **fields}, values, where)
    info = values.object(record, "reward_info", place)
    if info is not None:
        _rewards(run, info, values, f"{place}.reward_info")
    ended = record.get("termination_reason")
    run.status = _status(ended)
    put_label(run, record, "termination_reason", values, place)
    run.created_at = as_time(record.get("start_time")) or as_time(record.get("timestamp")) or 0.0
    run.completed_at = as_time(record.get("end_time")) or 0.0
    name = str(record["task_id"])
    run.task = {"task_id": name}
    if domain is not None:
        run.task["task_set"] = f"tau2-{domain}"
    if task and (kept := values.bounded(dict(task), f"{place} (task)")) is not None:
        run.task["task"] = kept
    run.group_id = group_of("tau2", name, domain, task, fields.get("model"))
    run.rollout_index = values.count(record, "trial", place)
    put_metadata(run, record, _READ | {"policy"} if before else _READ, values, place)
    if told:
        run.metadata["user_turns"] = told
    return run


def _status(ended: Any) -> TerminalStatus:
    if ended in ("user_stop", "agent_stop"):
        return "finished"
    return status_of(ended) if ended != "too_many_errors" else "failed"


def _rewards(run: Run, info: Mapping[str, Any], values: Values, place: str) -> None:
    details = values.bounded({key: value for key, value in info.items() if key != "reward"}, place)
    if not put_value(run, "reward", info.get("reward"), values, f"{place}.reward", details) and details:
        run.metadata["reward_info"] = details
    parts = values.object(info, "reward_breakdown", place) or {}
    for name, value in parts.items():
        put_value(run, f"reward.{name}", value, values, f"{place}.reward_breakdown.{name}")


def _read(
    run: Run, messages: list[Any], shown: list[Message], fields: dict[str, Any], values: Values, place: str
) -> list[int]:
    """Read the turns. What the user calls, and what these calls gave, the agent never saw: it is kept beside the steps,
    and the numbers of these turns are returned.
    """
    reader, aside = ChatReader(values, run.media), ChatReader(values, run.media)
    scripted = _scripted(messages)
    budget = Budget(values, place)
    users: list[Message] = []
    numbers: list[int] = []
    for number, item in enumerate(_flat(messages)):
        where = f"{place}[{number}]"
        if not isinstance(item, dict):
            values.lost(where, f"a turn must be an object, not {kind_of(item)}")
            continue
        if item.get("is_audio"):
            values.said(where, "the turn was spoken; what the file has of it as text is kept")
        if item.get("requestor") == "user" or (item.get("role") == "user" and item.get("tool_calls")):
            users.append(_of_user(aside, item, where))
            numbers.append(number)
            continue
        raw = item.get("raw_data")
        message = reader.message(_with_raw(item, raw), where)
        if message.role == "assistant" and number not in scripted and budget.allows(len(shown)):
            run.steps.append(_step(run, item, raw, shown, message, fields, values, where))
        shown.append(message)
    run.trailing = [*users, *untold(run.steps, shown)]
    return numbers


def _flat(messages: list[Any]) -> Iterator[Any]:
    """Turns; results that were given together each by itself."""
    for item in messages:
        inner = item.get("tool_messages") if isinstance(item, dict) else None
        if isinstance(inner, list):
            yield from inner
        else:
            yield item


def _scripted(messages: list[Any]) -> set[int]:
    """A greeting at the beginning that no model wrote: alone of the agent's turns it has no usage and no raw data."""
    said = [each for each in messages if isinstance(each, dict) and each.get("role") == "assistant"]
    if not messages or not said or messages[0] is not said[0] or len(said) < 2:
        return set()
    told = [bool(each.get("usage") or each.get("raw_data")) for each in said]
    return {0} if not told[0] and all(told[1:]) else set()


def _of_user(reader: ChatReader, item: Mapping[str, Any], place: str) -> Message:
    """A turn of the simulated user's own: its calls are its, so that it stays the user's."""
    given = {key: item.get(key) for key in ("role", "content", "tool_calls")}
    if given["role"] == "tool":
        given["tool_call_id"] = item.get("id")
        return msgspec.structs.replace(reader.message(given, place), name="user")
    calls = reader.calls(given, place)
    message = reader.message({"role": "user", "content": item.get("content")}, place)
    content = message.content if item.get("content") is not None else None
    return msgspec.structs.replace(message, content=content, tool_calls=calls)


def _with_raw(item: Mapping[str, Any], raw: Any) -> dict[str, Any]:
    """A turn in the shape of chat. Arguments are the text that was sent, where the raw answer of the engine has it."""
    given = {key: item.get(key) for key in ("role", "content", "tool_calls") if item.get(key) is not None}
    if given.get("role") == "tool":
        given["tool_call_id"] = item.get("id") or item.get("tool_call_id")
        return given
    message = _raw_message(raw)
    if item.get("role") != "assistant" or not message:
        return given
    for key in ("reasoning_content", "reasoning"):
        if isinstance(message.get(key), str):
            given[key] = message[key]
    sent = {
        call["id"]: call["function"]["arguments"]
        for call in message.get("tool_calls") or ()
        if isinstance(call, dict)
        and isinstance(call.get("id"), str)
        and isinstance(call.get("function"), dict)
        and isinstance(call["function"].get("arguments"), str)
    }
    calls = given.get("tool_calls")
    if isinstance(calls, list):
        given["tool_calls"] = [
            {**call, "arguments": sent.get(call.get("id"), call.get("arguments"))}
            if isinstance(call, dict) and isinstance(call.get("id"), str)
            else call
            for call in calls
        ]
    return given


def _raw_message(raw: Any) -> dict[str, Any]:
    """The message of a raw answer, of a chat completion or as LiteLLM dumps it."""
    if not isinstance(raw, dict):
        return {}
    choices = raw.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else raw
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict):
        return {}
    calls = message.get("tool_calls")
    return message if calls is None or isinstance(calls, list) else {**message, "tool_calls": None}


def _step(
    run: Run,
    item: Mapping[str, Any],
    raw: Any,
    shown: list[Message],
    message: Message,
    fields: dict[str, Any],
    values: Values,
    place: str,
) -> Step:
    facts = facts_of_completion(raw, values, f"{place}.raw_data")
    if (usage := usage_of(item.get("usage"))) is not None:
        facts["usage"] = usage
    seconds = as_finite(item.get("generation_time_seconds"))
    return Step(
        step_id=str(len(run.steps)),
        trajectory_id="",
        parent_step_id=run.steps[-1].step_id if run.steps else None,
        prompt_messages=list(shown),
        response_message=message,
        latency_ms=None if seconds is None else seconds * 1000,
        metadata={key: item[key] for key in _STEP if item.get(key) is not None},
        **{**fields, **facts, "created_at": as_time(item.get("timestamp")) or facts.get("created_at", 0.0)},
    )


FORMAT = Tau2()
