"""One sample of an Inspect log -> a run: calls of the model out of its events, or its messages where it has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentworld.ingest.formats import values as limits
from agentworld.ingest.formats.groups import group_of
from agentworld.ingest.formats.inspect_messages import InspectMessages, Texts
from agentworld.ingest.formats.inspect_scores import put_score, put_scores
from agentworld.ingest.formats.lineage import Budget, Lineage
from agentworld.ingest.formats.noted import Values, as_finite, as_time
from agentworld.ingest.formats.outcomes import put_metadata
from agentworld.ingest.run import Run, linear_steps
from agentworld.records import Message, Sampling, Usage
from agentworld.records.step import ForkReason

_READ = frozenset(
    (
        "id", "epoch", "input", "target", "messages", "output", "scores", "score", "events", "events_data", "uuid",
        "transcript", "attachments", "message_pool", "call_pool", "message_refs", "error", "metadata", "store",
        "timelines", "eval_id",
    )
)  # fmt: skip
_GRADING = ("scorer", "scorers")
_AGENTS = ("agent", "subagent")
_DEEPEST = 64


class _Calls:
    """Where among the spans, steps and sub-tasks of a sample an event stands."""

    def __init__(self, events: list[Any]) -> None:
        self._spans: dict[str, tuple[str, str, Any]] = {}
        for event in events:
            if isinstance(event, dict) and event.get("event") == "span_begin" and isinstance(event.get("id"), str):
                kind, name = str(event.get("type") or ""), str(event.get("name") or "")
                self._spans[event["id"]] = (kind, name, event.get("parent_id"))
        self._steps: list[str] = []

    def step(self, event: Mapping[str, Any]) -> None:
        """Older logs have no spans, but where a step of the plan begins and ends."""
        if event.get("action") == "begin":
            self._steps.append(str(event.get("type") or ""))
        elif self._steps:
            self._steps.pop()

    def where(self, event: Mapping[str, Any]) -> tuple[bool, str | None]:
        """Whether an event is a grader's, and the innermost agent that it is of."""
        agent, span, grading = None, event.get("span_id"), any(step in _GRADING for step in self._steps)
        for _ in range(_DEEPEST):
            known = self._spans.get(span) if isinstance(span, str) else None
            if known is None:
                break
            kind, name, span = known
            grading = grading or kind in _GRADING
            if kind in _AGENTS and agent is None:
                agent = name or None
        return grading, agent


def sample_run(sample: dict[str, Any], log: Mapping[str, Any], values: Values, place: str) -> Run:
    """The run of a sample; `log`: what the header of its log says."""
    task = values.object(log, "eval", "header") or {}
    run = Run(native_id=_native_id(sample, task))
    transcript = values.object(sample, "transcript", place) or {}
    texts = Texts(values, place, transcript.get("content"), sample.get("attachments"))
    messages = InspectMessages(values, texts, run.media)
    events = _flat(sample.get("events", transcript.get("events")), 0)
    lineage = Lineage(Budget(values, place))
    _read(run, list(events), _pool(sample, values, place), lineage, messages, texts, values, place)
    said = messages.conversation(sample.get("messages"), f"{place}.messages")
    _finish(run, said, lineage, sample, task, values, place)
    put_scores(run, sample, values, place)
    _describe(run, sample, task, values, place)
    if messages.faults and (kept := values.bounded(messages.faults, f"{place} (faults of tools)")) is not None:
        run.metadata["tool_faults"] = kept
    return run


def _native_id(sample: Mapping[str, Any], task: Mapping[str, Any]) -> str | None:
    if isinstance(sample.get("uuid"), str) and sample["uuid"]:
        return str(sample["uuid"])
    named = [str(task[key]) for key in ("run_id", "task_id", "eval_id") if isinstance(task.get(key), str)]
    if not named:
        return None
    return "/".join([*named, str(sample.get("id")), str(sample.get("epoch", 1))])


def _flat(events: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Events in order; older logs have those of sub-tasks and tools within theirs."""
    if not isinstance(events, list) or depth > _DEEPEST:
        return
    for event in events:
        if isinstance(event, dict):
            yield event
            yield from _flat(event.get("events"), depth + 1)


def _pool(sample: Mapping[str, Any], values: Values, place: str) -> list[Any]:
    data = values.object(sample, "events_data", place) or {}
    return values.items(data, "messages", f"{place}.events_data") or values.items(sample, "message_pool", place) or []


def _read(
    run: Run,
    events: list[dict[str, Any]],
    pool: list[Any],
    lineage: Lineage,
    messages: InspectMessages,
    texts: Texts,
    values: Values,
    place: str,
) -> None:
    """Calls of the model as steps; those that graders made of it are told of by their scores."""
    calls = _Calls(events)
    compacted, last_agent, graded = False, None, 0
    for number, event in enumerate(events):
        where, kind = f"{place}.events[{number}]", event.get("event")
        if kind == "step":
            calls.step(event)
        elif kind == "compaction":
            compacted = True
        elif kind == "score" and event.get("intermediate") is True and isinstance(event.get("score"), dict):
            name = event["scorer"] if isinstance(event.get("scorer"), str) else "intermediate_score"
            step = lineage.steps[-1].step_id if lineage.steps else None
            put_score(run, name, texts.put_in(event["score"]), values, f"{where}.score", step)
        elif kind == "model":
            grading, agent = calls.where(event)
            if grading or event.get("role") in ("grader", "judge"):
                graded += 1
                continue
            role = values.name(event, "role", where)
            agent = role or agent
            reason: ForkReason = "history_rewritten"
            if compacted:
                reason = "compaction"
            elif lineage.steps and agent != last_agent:
                reason = "subagent"
            if _call(event, pool, lineage, messages, texts, values, where, reason, agent):
                compacted, last_agent = False, agent
    if graded:
        values.said(place, "calls of graders are no steps of the agent; their scores tell of them")


def _call(
    event: Mapping[str, Any],
    pool: list[Any],
    lineage: Lineage,
    messages: InspectMessages,
    texts: Texts,
    values: Values,
    place: str,
    reason: ForkReason,
    agent: str | None,
) -> bool:
    """One call; whether it had a reply."""
    output = values.object(event, "output", place) or {}
    choices = values.items(output, "choices", f"{place}.output") or []
    if event.get("error") or not choices:
        why = event.get("error") or output.get("error") or "it has no choices"
        values.said(place, f"a call of the model has no reply: {str(why)[:200]}")
        return False
    shown = _input(event, pool, values, place)
    prompt = messages.conversation(shown, f"{place}.input")
    tools = texts.tools(event.get("tools"), f"{place}.tools")
    usage = _usage(output.get("usage"))
    config = values.object(event, "config", place) or {}
    seconds = as_finite(output.get("time"))
    seconds = as_finite(event.get("working_time")) if seconds is None else seconds
    made = False
    for number, choice in enumerate(choices):
        at = f"{place}.output.choices[{number}]"
        said = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(said, dict):
            values.lost(at, "a choice needs a message")
            continue
        step = lineage.add(
            prompt,
            messages.message({"role": "assistant", **said}, f"{at}.message"),
            otherwise=reason,
            exchange_id=str(event["uuid"])[:200] if isinstance(event.get("uuid"), str) else place,
            choice_index=number,
            agent=agent,
            model=values.name(output, "model", f"{place}.output") or values.name(event, "model", place),
            requested_model=values.name(event, "model", place),
            tools=tools,
            sampling=_sampling(config, event, values, place),
            finish_reason=values.name(choice, "stop_reason", at),
            usage=usage,
            created_at=as_time(event.get("timestamp")) or 0.0,
            latency_ms=None if seconds is None else seconds * 1000,
        )
        made = made or step is not None
    return made


def _input(event: Mapping[str, Any], pool: list[Any], values: Values, place: str) -> Any:
    """What a call was shown: its own messages, or those of the pool that its ranges name."""
    refs = event.get("input_refs")
    if event.get("input") or not isinstance(refs, list):
        return event.get("input")
    found: list[Any] = []
    for ref in refs:
        if (
            not isinstance(ref, list)
            or len(ref) != 2
            or not all(type(end) is int for end in ref)
            or not 0 <= ref[0] <= ref[1] <= len(pool)
        ):
            values.lost(f"{place}.input_refs", "a range of messages is not in the sample's pool")
            continue
        if len(found) + ref[1] - ref[0] > limits.MAX_PROMPTS:
            values.lost(f"{place}.input_refs", f"it names more than {limits.MAX_PROMPTS} messages")
            break
        found += pool[ref[0] : ref[1]]
    return found


def _usage(given: Any) -> Usage | None:
    """Tokens; those that came from a cache are part of the prompt, though Inspect counts them apart."""
    if not isinstance(given, dict):
        return None
    count = {
        key: given[key] if type(given.get(key)) is int and 0 <= given[key] < 2**31 else 0
        for key in ("input_tokens", "output_tokens", "total_tokens")
    }
    prompt = max(count["input_tokens"], count["total_tokens"] - count["output_tokens"])
    return Usage(prompt_tokens=prompt, completion_tokens=count["output_tokens"])


def _sampling(config: Mapping[str, Any], event: Mapping[str, Any], values: Values, place: str) -> Sampling | None:
    where, seed, parallel = f"{place}.config", config.get("seed"), config.get("parallel_tool_calls")
    sampling = Sampling(
        temperature=as_finite(config.get("temperature")),
        top_p=as_finite(config.get("top_p")),
        top_k=values.count(config, "top_k", where),
        max_tokens=values.count(config, "max_tokens", where),
        seed=seed if type(seed) is int and abs(seed) < 2**63 else None,
        frequency_penalty=as_finite(config.get("frequency_penalty")),
        presence_penalty=as_finite(config.get("presence_penalty")),
        tool_choice=event.get("tool_choice") if event.get("tools") else None,
        parallel_tool_calls=parallel if isinstance(parallel, bool) else None,
    )
    return sampling if sampling != Sampling() else None


def _finish(
    run: Run,
    said: list[Message],
    lineage: Lineage,
    sample: Mapping[str, Any],
    task: Mapping[str, Any],
    values: Values,
    place: str,
) -> None:
    """The steps, and of the sample's messages those that no call was shown or gave."""
    if lineage.steps:
        run.steps = lineage.steps
        run.trailing = [each for each in said[lineage.shown(said) :] if not lineage.holds(each)]
    else:
        output = sample.get("output")
        output = output if isinstance(output, dict) else {}
        model = values.name(output, "model", f"{place}.output") or values.name(task, "model", "header.eval")
        run.steps, run.trailing = linear_steps(said, model=model)
        if run.steps:
            run.steps[-1].usage = _usage(output.get("usage")) if len(run.steps) == 1 else None
    if not run.steps and not run.trailing and sample.get("input") is not None:
        messages = InspectMessages(values, Texts(values, place, sample.get("attachments")), run.media)
        run.trailing = messages.conversation(sample["input"], f"{place}.input")


def _describe(run: Run, sample: Mapping[str, Any], task: Mapping[str, Any], values: Values, place: str) -> None:
    name = values.name(task, "task", "header.eval")
    run.task = {"task_id": str(sample.get("id"))[:1000]}
    if name is not None:
        run.task["task_set"] = name
    if (target := values.bounded(sample.get("target"), f"{place}.target")) is not None:
        run.task["reference"] = target
    epoch = values.count(sample, "epoch", place)
    run.rollout_index = max(0, epoch - 1) if epoch is not None else None
    names = [task.get(key) for key in ("run_id", "task_id", "eval_id")]
    if any(isinstance(each, str) for each in names):
        run.group_id = group_of("inspect", *names, sample.get("id"))
    run.agent = values.name(task, "solver", "header.eval")
    if sample.get("error") is not None:
        run.status = "failed"
    elif sample.get("limit") is not None:
        run.status = "truncated"
    run.created_at = as_time(sample.get("started_at")) or next((s.created_at for s in run.steps), 0.0)
    run.completed_at = as_time(sample.get("completed_at")) or next((s.created_at for s in reversed(run.steps)), 0.0)
    put_metadata(run, sample, _READ, values, place)
    for key in ("metadata", "store"):
        if (kept := values.bounded(sample.get(key), f"{place}.{key}")) is not None:
            run.metadata["sample_metadata" if key == "metadata" else key] = kept
    error = sample.get("error")
    if isinstance(error, dict):
        run.metadata["error"] = {"message": str(error.get("message"))[:2000]}
    about = {key: task[key] for key in ("run_id", "eval_id", "created", "model", "task_version") if task.get(key)}
    if (kept := values.bounded(about, "header.eval")) is not None:
        run.metadata["eval"] = kept
