"""Rollouts of NeMo-Gym: what was asked, the items that came back, and the reward; with ids where they were taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentworld.ingest.entry import Entry
from agentworld.ingest.format import Head, Notes, each_alone
from agentworld.ingest.formats import tau2
from agentworld.ingest.formats.chat_messages import ChatReader, tools_of
from agentworld.ingest.formats.completion_facts import usage_of
from agentworld.ingest.formats.groups import group_of
from agentworld.ingest.formats.lineage import Budget, goes_on, untold
from agentworld.ingest.formats.noted import Values, as_finite, as_time
from agentworld.ingest.formats.outcomes import put_metadata, put_value, status_of
from agentworld.ingest.formats.response_items import ItemReader, Turn, as_chat
from agentworld.ingest.run import Run, RunFeedback
from agentworld.records import Message, Sampling, Step
from agentworld.records.trajectory import TerminalStatus

_ASKED, _GIVEN = "responses_create_params", "response"
_READ = frozenset((_ASKED, _GIVEN, "reward", "result", "_ng_task_index", "_ng_rollout_index", "agent_ref",
                   "config"))  # fmt: skip
_LABELS = ("resolved", "success", "passed", "correct", "is_correct", "solved", "mask_sample")


class NemoGym:
    """See Format."""

    name = "nemo-gym"
    title = "NeMo-Gym rollouts"
    bundles = staticmethod(each_alone)

    def claims(self, head: Head) -> bool:
        """By the parameters of the request beside a response."""
        return any(_is_row(value) for value in head.documents)

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """One run a row."""
        for entry in bundle:
            values = Values(entry.name, note)
            for place, value in values.documents(entry):
                if _is_row(value):
                    yield _run(value, values, place)
                else:
                    values.lost(place, "it is no rollout of NeMo-Gym: it needs responses_create_params and response")


def _is_row(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get(_ASKED), dict) and (_GIVEN in value or "reward" in value)


def _run(row: dict[str, Any], values: Values, place: str) -> Run:
    asked: dict[str, Any] = row[_ASKED]
    given = values.object(row, _GIVEN, place) or {}
    run = Run(native_id=None)
    reader = ChatReader(values, run.media)
    turns = asked_of(asked, reader, f"{place}.{_ASKED}")
    fields = _fields(asked, given, values, place)
    result = row.get("result")
    if isinstance(result, dict) and tau2.is_simulation(result):
        run = tau2.simulation(
            result, values, f"{place}.result", before=_before(turns), **{k: v for k, v in fields.items() if v}
        )
        run.metadata["simulation_id"], run.native_id = run.native_id, None
        if (kept := values.bounded(given.get("usage"), f"{place}.{_GIVEN}.usage")) is not None:
            run.metadata["usage"] = kept
    else:
        items = ItemReader(reader)
        items.read(values.items(given, "output", f"{place}.{_GIVEN}") or [], f"{place}.{_GIVEN}.output")
        items.close()
        put_steps(run, turns, items.turns, fields, Budget(values, place))
        run.status = _status(row, given)
        _spread(run, given, values, f"{place}.{_GIVEN}")
    _rewards(run, row, values, place)
    run.created_at = run.created_at or as_time(given.get("created_at")) or 0.0
    agent = values.object(row, "agent_ref", place) or {}
    run.agent = values.name(agent, "name", f"{place}.agent_ref")
    run.rollout_index = values.count(row, "_ng_rollout_index", place)
    index = values.count(row, "_ng_task_index", place)
    if index is not None:
        run.task = {**(run.task or {}), "task_id": (run.task or {}).get("task_id", str(index))}
        run.group_id = group_of("nemo-gym", index, run.agent, asked)
    configured = {key for key in row if key.endswith("_config")}
    put_metadata(run, row, _READ | configured | {each.name for each in run.rewards} | set(_LABELS), values, place)
    about = {key: asked[key] for key in ("metadata", "reasoning", "text") if asked.get(key)}
    if (kept := values.bounded(about, f"{place}.{_ASKED}")) is not None:
        run.metadata["asked"] = kept
    for key in ("error", "incomplete_details"):
        if given.get(key) and (kept := values.bounded(given[key], f"{place}.{_GIVEN}.{key}")) is not None:
            run.metadata[key] = kept
    if isinstance(given.get("id"), str):
        run.metadata["response_id"] = given["id"][:200]
    return run


def asked_of(asked: Mapping[str, Any], reader: ChatReader, place: str) -> list[Turn]:
    """What was asked: instructions, and the input as text or items."""
    turns: list[Turn] = []
    if isinstance(asked.get("instructions"), str):
        turns.append(Turn(Message(role="system", content=asked["instructions"]), place))
    given = asked.get("input")
    if isinstance(given, str):
        return [*turns, Turn(Message(role="user", content=given), place)]
    items = ItemReader(reader)
    items.read(reader.values.items(asked, "input", place) or [], f"{place}.input")
    items.close()
    return [*turns, *items.turns]


def put_steps(run: Run, asked: list[Turn], given: list[Turn], fields: dict[str, Any], budget: Budget) -> None:
    """Replies as steps: those that came back, and those of the input that an engine gave with ids. Ids that do not go
    on from the ids before them are a fork, made by the template.
    """
    turns = [*asked, *given]
    last: Step | None = None
    for number, turn in enumerate(turns):
        if turn.message.role != "assistant" or (number < len(asked) and not turn.facts):
            continue
        if not budget.allows(number):
            break
        step = Step(
            step_id=str(len(run.steps)),
            trajectory_id="",
            parent_step_id=None if last is None else last.step_id,
            prompt_messages=[each.message for each in turns[:number]],
            response_message=turn.message,
            **{**fields, **turn.facts},
        )
        if last is not None and not goes_on(last, step):
            step.fork_reason = "template"
        run.steps.append(step)
        last = step
    run.trailing = untold(run.steps, [each.message for each in turns])


def _before(turns: list[Turn]) -> list[Message]:
    """What the agent was told before anybody spoke."""
    found = []
    for turn in turns:
        if turn.message.role not in ("system", "developer"):
            break
        found.append(turn.message)
    return found


def _fields(asked: Mapping[str, Any], given: Mapping[str, Any], values: Values, place: str) -> dict[str, Any]:
    tools = tools_of(as_chat(asked.get("tools") or given.get("tools")), values, f"{place}.{_ASKED}.tools")
    parallel = asked.get("parallel_tool_calls")
    sampling = Sampling(
        temperature=as_finite(asked.get("temperature")),
        top_p=as_finite(asked.get("top_p")),
        max_tokens=values.count(asked, "max_output_tokens", f"{place}.{_ASKED}"),
        tool_choice=asked.get("tool_choice"),
        parallel_tool_calls=parallel if isinstance(parallel, bool) else None,
    )
    names = [(given, f"{place}.{_GIVEN}"), (asked, f"{place}.{_ASKED}")]
    model = next((name for record, where in names if (name := values.name(record, "model", where))), None)
    return {"model": model, "tools": tools, "sampling": sampling if sampling != Sampling() else None}


def _status(row: Mapping[str, Any], given: Mapping[str, Any]) -> TerminalStatus:
    if row.get("agent_timed_out") is True or given.get("status") == "incomplete" or given.get("incomplete_details"):
        return "truncated"
    if given.get("error") or given.get("status") == "failed" or not given:
        return "failed"
    return status_of(given["status"]) if given.get("status") == "cancelled" else "finished"


def _spread(run: Run, given: Mapping[str, Any], values: Values, place: str) -> None:
    """Usage counts all calls together; where there was one, it is that one's."""
    usage = usage_of(given.get("usage"))
    if usage is not None and len(run.steps) == 1:
        run.steps[0].usage = usage
    elif usage is not None and (kept := values.bounded(given["usage"], f"{place}.usage")) is not None:
        run.metadata["usage"] = kept


def _rewards(run: Run, row: Mapping[str, Any], values: Values, place: str) -> None:
    known = {reward.name for reward in run.rewards}
    if "reward" in known and row.get("reward") is not None:
        # The simulation says it too, with its parts.
        first = next(reward for reward in run.rewards if reward.name == "reward")
        if first.value != as_finite(row["reward"]):
            put_value(run, "gym_reward", row["reward"], values, f"{place}.reward")
    elif row.get("reward") is not None:
        put_value(run, "reward", row["reward"], values, f"{place}.reward")
    for name, value in row.items():
        if name in known or name == "reward" or isinstance(value, bool):
            continue
        if name.endswith(("_reward", "_score")) and as_finite(value) is not None:
            put_value(run, name, value, values, f"{place}.{name}")
    for name in _LABELS:
        if isinstance(row.get(name), bool):
            run.feedback.append(RunFeedback(kind="label", name=name, value=row[name]))


FORMAT = NemoGym()
