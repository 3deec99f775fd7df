"""A trace as a run: its calls of models become steps in the order of time, with what was before and beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from agentworld.ingest.run import Run, RunFeedback, RunReward, linear_steps
from agentworld.ingest.spans.call_ids import with_ids
from agentworld.ingest.spans.lineage import Lineage
from agentworld.ingest.spans.loose import bounded, named, number
from agentworld.ingest.spans.node import Call, Node, Say, Score, ToolRun, Trace
from agentworld.ingest.spans.places import file_of
from agentworld.records import FunctionCall, Message, Step, ToolCall

_MAX_ANCESTORS = 200


def runs_of(traces: Iterable[Trace], say: Say) -> Iterator[Run]:
    """The runs of traces, of those that have one."""
    for trace in traces:
        if (run := run_of(trace, say)) is not None:
            yield run


def run_of(trace: Trace, say: Say) -> Run | None:
    """The run; None, which is said, where no model and no tool was called in it."""
    nodes = sorted(trace.nodes.values(), key=lambda node: node.start)
    calls = [node for node in nodes if node.kind == "llm" and node.call is not None]
    told = {node.id for node in calls}
    around = {above.id for node in calls for above in ancestors(node, trace)}
    for node in nodes:
        if node.kind == "llm" and node.call is None:
            if node.error is not None:
                say(node.place, f"the call of a model failed: {_short(node.error)}", lost=False)
            elif node.id not in around and not any(above.id in told for above in ancestors(node, trace)):
                say(node.place, "the call of a model has no messages: its content was not recorded")
    calls = without_doubles(calls, trace, say)
    # The rest of a trace that was taken in pieces is no new version of the first.
    named_so = trace.trace_id if trace.part == 1 else f"{trace.trace_id}.{trace.part}"
    run = Run(native_id=named_so or None, file=next((file_of(node.place) for node in nodes), None))
    steps = _Steps(run, trace, say)
    for node in calls:
        steps.add(node)
    steps.add_tools([node for node in nodes if node.tool is not None])
    if not run.steps and not run.trailing:
        if not calls:
            say("$", f"no model was called in the trace {_short(trace.trace_id)} of {len(nodes)} spans", lost=False)
        return None
    _tell(run, trace, nodes, steps, say)
    return run


class _Steps:
    """Builds the steps of one run."""

    def __init__(self, run: Run, trace: Trace, say: Say) -> None:
        self.run = run
        self.trace = trace
        self.keys: dict[str, str] = {}  # of nodes: the step that their first reply became
        self.failed = 0
        self.other_tools = 0
        self._say = say
        self._lineage = Lineage()
        self._shared: dict[Message, Message] = {}
        self._awaiting: str | None = None  # the step after which the run has a call without a reply

    def add(self, node: Node) -> None:
        call = node.call
        assert call is not None
        prompt = [self._shared.setdefault(each, each) for each in with_ids(call.prompt)]
        if not call.replies:
            self._without_reply(node, prompt)
            return
        agent = agent_of(node, self.trace)
        place = self._lineage.place(prompt, call.tools, agent)
        if place.parent is not None and place.parent == self._awaiting:
            self.run.trailing, self._awaiting = [], None  # This call shows it.
        key = str(len(self.run.steps))
        self.keys[node.id] = key
        for index, reply in enumerate(call.replies):
            said = with_ids([*prompt, reply.message])[-1]
            own = str(len(self.run.steps))
            self.run.steps.append(
                Step(
                    step_id=own,
                    trajectory_id="",
                    exchange_id=f"x{key}" if len(call.replies) > 1 else None,
                    choice_index=index,
                    parent_step_id=place.parent,
                    fork_reason=place.fork_reason if index == 0 else "parallel",
                    agent=agent,
                    prompt_messages=prompt,
                    response_message=self._shared.setdefault(said, said),
                    finish_reason=named(reply.finish_reason),
                    **fields_of(node, call),
                )
            )
            self._lineage.add(own, prompt, said, call.tools, agent, place.keys)
        self.run.media |= call.media

    def _without_reply(self, node: Node, prompt: list[Message]) -> None:
        if node.error is not None:
            self.failed += 1
            self._say(node.place, f"the call of a model failed: {_short(node.error)}", lost=False)
            return
        call = node.call
        assert call is not None
        place = self._lineage.place(prompt, call.tools, None)
        if self.run.steps and place.parent is None:
            self._say(node.place, "the call of a model has no reply on record, and continues no other")
            return
        self._say(node.place, "the call of a model has no reply on record", lost=False)
        if place.parent is not None:
            parent = self.run.steps[int(place.parent)]
            self.run.trailing = prompt[len(parent.prompt_messages or ()) + 1 :]
        else:
            # What earlier replies the prompt shows is all that there is.
            self.run.steps, self.run.trailing = linear_steps(prompt, tools=call.tools or None)
            self.run.media |= call.media
            for step in self.run.steps:
                assert step.response_message is not None
                self._lineage.add(step.step_id, step.prompt_messages or [], step.response_message, call.tools, None)
        self._awaiting = place.parent if place.parent is not None else str(len(self.run.steps) - 1)

    def add_tools(self, nodes: list[Node]) -> None:
        """Put what tools said and no call showed behind the last step. An execution that names no call is that of the
        next call of its tool; one that names no tool, of the next call at all.
        """
        shown = {message.tool_call_id for message in self.run.trailing if message.role == "tool"}
        called: dict[str, list[str]] = {}
        for step in self.run.steps:
            shown |= {message.tool_call_id for message in step.prompt_messages or () if message.role == "tool"}
            for call in step.response_message.tool_calls if step.response_message is not None else ():
                for name in {call.function.name, ""}:
                    called.setdefault(name, []).append(call.id)
        known = set(called.get("", ()))
        counted: dict[str, int] = {}
        for node in nodes:
            tool = node.tool
            assert tool is not None
            call_id = tool.call_id
            if call_id not in known and call_id not in shown:
                at = counted[tool.name] = counted.get(tool.name, -1) + 1
                of_tool = called.get(tool.name, [])
                call_id = of_tool[at] if at < len(of_tool) else None
            if call_id is None:
                self._called_by_code(node, tool)
            elif tool.result is not None and call_id not in shown:
                shown.add(call_id)
                self.run.trailing.append(Message(role="tool", content=tool.result, tool_call_id=call_id))

    def _called_by_code(self, node: Node, tool: ToolRun) -> None:
        if self.run.steps:
            self.other_tools += 1
            return
        # Of a trace that has nothing but executions of tools, they are what there is.
        self._say(node.place, "a tool was called, and no call of a model is on record that asked for it", lost=False)
        call_id = tool.call_id or f"call_{len(self.run.trailing)}"
        called = ToolCall(id=call_id, function=FunctionCall(tool.name, tool.arguments or "{}"))
        self.run.trailing.append(Message(role="assistant", tool_calls=(called,)))
        if tool.result is not None:
            self.run.trailing.append(Message(role="tool", content=tool.result, tool_call_id=call_id))


def fields_of(node: Node, call: Call) -> dict[str, Any]:
    """What a step has of its call beside messages and lineage."""
    told = {
        "span_id": None if node.id.startswith("#") else node.id,
        "span": node.name,
        "response_id": call.response_id,
        **call.metadata,
    }
    return {
        "tools": call.tools or None,
        "model": named(call.model),
        "requested_model": named(call.requested_model),
        "sampling": call.sampling,
        "usage": call.usage,
        "created_at": node.start,
        "latency_ms": round((node.end - node.start) * 1000, 3) if 0 < node.start <= node.end else None,
        "metadata": bounded(told),
    }


def agent_of(node: Node, trace: Trace) -> str | None:
    """The agent within whose run a node is: of several, the innermost."""
    found = next((each.agent for each in (node, *ancestors(node, trace)) if each.agent), trace.agent)
    return named(found)


def without_doubles(calls: list[Node], trace: Trace, say: Say) -> list[Node]:
    """The calls, each once: where a framework and the client that it uses both tell of one, one within the other, the
    inner is kept, or the one that has messages.
    """
    by_id = {node.id: node for node in calls}
    doubles: set[str] = set()
    for inner in calls:
        outer = next((by_id[above.id] for above in ancestors(inner, trace) if above.id in by_id), None)
        if outer is not None and outer.id not in doubles and same_call(outer, inner):
            doubles.add(outer.id)
            say(outer.place, "the call is told twice, one within the other; the inner one is kept", lost=False)
    return [node for node in calls if node.id not in doubles]


def same_call(one: Node, other: Node) -> bool:
    """Whether two nodes, one within the other, can be one call of a model: they have one reply, or one of them none."""
    assert one.call is not None
    assert other.call is not None
    mine, yours = one.call.replies, other.call.replies
    if not mine or not yours:
        return not mine
    return said(mine[0].message) == said(yours[0].message)


def said(message: Message) -> tuple[str, list[str]]:
    """What two tellings of one reply have in common."""
    return message.text.strip(), [call.function.name for call in message.tool_calls]


def ancestors(node: Node, trace: Trace) -> Iterator[Node]:
    """What a node is within, the nearest first."""
    for _ in range(_MAX_ANCESTORS):
        above = trace.nodes.get(node.parent) if node.parent else None
        if above is None or above is node:
            return
        yield above
        node = above


def _tell(run: Run, trace: Trace, nodes: list[Node], steps: _Steps, say: Say) -> None:
    """Rewards, labels, times and what else is known of the whole."""
    _tell_scores(run, trace, steps, say)
    root = next((node for node in nodes if node.parent not in trace.nodes), None)
    agents = [node for node in nodes if node.agent]
    run.agent = trace.agent or (agents[0].agent if agents else None)
    run.agent = named(run.agent)
    run.user = named(trace.user)
    run.group_id = trace.group_id
    run.task = trace.task
    run.status = "failed" if root is not None and root.error is not None else "finished"
    run.created_at = min((node.start for node in nodes if node.start), default=0.0)
    run.completed_at = max((node.end for node in nodes if node.end), default=0.0)
    told = {
        "trace_id": trace.trace_id,
        "session": trace.session,
        "root": root.name if root is not None else None,
        "error": _short(root.error) if root is not None and root.error is not None else None,
        "failed_calls": steps.failed or None,
        "tools_called_by_code": steps.other_tools or None,
        **trace.metadata,
    }
    run.metadata = bounded(told)


def _tell_scores(run: Run, trace: Trace, steps: _Steps, say: Say) -> None:
    """Scores on the nearest call that their node is or is within; of several numbers under one name the first one."""
    keys = dict(steps.keys)
    for own, key in steps.keys.items():
        # A call that was told twice is the step of the inner telling.
        for above in ancestors(trace.nodes[own], trace):
            if above.call is not None:
                keys.setdefault(above.id, key)
    first: dict[tuple[str | None, str], Score] = {}
    for score in trace.scores:
        node = trace.nodes.get(score.node)
        around = (node, *ancestors(node, trace)) if node is not None else ()
        step = next((keys[each.id] for each in around if each.id in keys), None)
        if not isinstance(score.value, str | bool):
            known = first.setdefault((step, score.name), score)
            if known is not score:
                place, same = node.place if node is not None else "$", known.value == score.value
                why = f"the score {_short(score.name)} is {_short(str(known.value))} already"
                more = "it is kept once" if same else f"{_short(str(score.value))} is not kept"
                say(place, f"{why}; {more}", lost=not same)
                continue
        _score(run, score, step)


def _score(run: Run, score: Score, step: str | None) -> None:
    value = (
        score.value
        if isinstance(score.value, bool)
        else number(score.value)
        if not isinstance(score.value, str)
        else score.value
    )
    if isinstance(value, bool) or not isinstance(value, float):
        run.feedback.append(
            RunFeedback(kind="label", name=named(score.name) or "score", value=value, comment=score.comment, step=step)
        )
        return
    details = {"comment": score.comment} if score.comment else None
    run.rewards.append(RunReward(name=named(score.name) or "score", value=value, step=step, details=details))


def _short(said: str) -> str:
    return repr(said[:200])
