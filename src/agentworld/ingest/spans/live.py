"""Spans as they come, into a pool: a call of a model becomes a step at once, and the trajectory ends once the trace is
silent.

Nothing depends on what a server remembers, so that any server on the pool can take any part of a trace, in any
order and as often as an exporter repeats it: a step is known by its span's id, and what stands in the pool says what a
call continues. What is not a call of a model is not kept; it says the agent's name, and how the trace ended.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from agentworld.errors import AgentWorldError, ConflictError, GoneError, NotFoundError, PoolError
from agentworld.ingest.spans.attributes import first
from agentworld.ingest.spans.call_ids import with_ids
from agentworld.ingest.spans.conventions import node_of, scores_of
from agentworld.ingest.spans.joining import tell
from agentworld.ingest.spans.lineage import Lineage
from agentworld.ingest.spans.loose import bounded, named, number, text
from agentworld.ingest.spans.node import Node, Score, Span, Trace
from agentworld.ingest.spans.recent import Known, Recent
from agentworld.ingest.spans.runs import agent_of, fields_of, said, without_doubles
from agentworld.pool.protocol import Pool
from agentworld.records import Feedback, NewTrajectory, Reward, Step, TerminalStatus, Trajectory

SOURCE = "otlp"
PREFIX = "trace-"
"""How the ids of trajectories begin that a trace made. One that a span names is its program's to end."""
ROOT = "trace"
"""The label that says how the root of a trace ended."""
LOOKED_AT = 100
"""So many of a trajectory's latest steps a call is compared with."""
_PAGE = 100
_SLACK = 0.05
"""Seconds by which clocks of one machine and their rounding may differ."""
_PER_ROUND = 5
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@~-]{0,99}")


class Taken(msgspec.Struct, kw_only=True):
    """What became of the spans of one request. `refused`: those that should be on record and are not;
    `silent`: calls of models without messages.
    """

    steps: int = 0
    known: int = 0
    late: int = 0
    refused: int = 0
    silent: int = 0
    reasons: list[str] = []

    def refuse(self, count: int, why: str) -> None:
        """Count spans that cannot be taken."""
        self.refused += count
        if why not in self.reasons and len(self.reasons) < 8:
            self.reasons.append(why)


def take(
    pool: Pool,
    spans: Sequence[Span],
    channel: str,
    *,
    trajectory_id: str | None = None,
    recent: Recent | None = None,
    now: Callable[[], float] = time.time,
) -> Taken:
    """Put the calls of models among the spans into the pool; `trajectory_id`: all into this one; `recent`: what
    this process knows of what it wrote last. PoolError where the pool cannot be written now: what was stored by then is
    known when the spans come again.
    """
    taken = Taken()
    traces: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        if not span.trace_id or not span.span_id:
            taken.refuse(1, "a span needs a trace_id of 16 bytes and a span_id of 8")
            continue
        traces.setdefault((trajectory_id or _trajectory_id(span), span.trace_id), []).append(span)
    # A trajectory may hold several traces, the one that began first before the others.
    for (own, _), each in sorted(traces.items(), key=lambda item: min(span.start for span in item[1])):
        try:
            _Taking(pool, own, each, channel, taken, recent or Recent(), now()).run()
        except PoolError:
            raise
        except AgentWorldError as error:
            taken.refuse(len(each), f"{own}: {error.one_line()}"[:300])
    return taken


def _trajectory_id(span: Span) -> str:
    """The trajectory that a span is of: the one that it names, else one for its trace."""
    named = text(first(span.attributes, "agentworld.trajectory_id") or span.resource.get("agentworld.trajectory_id"))
    return named if named is not None and _SAFE.fullmatch(named) else f"{PREFIX}{span.trace_id}"


class _Taking:
    """The spans of one trace that go to one trajectory, in one request."""

    def __init__(
        self,
        pool: Pool,
        trajectory_id: str,
        spans: list[Span],
        channel: str,
        taken: Taken,
        recent: Recent,
        now: float,
    ) -> None:
        self._pool = pool
        self._recent = recent
        self._id = trajectory_id
        self._channel = channel
        self._taken = taken
        self._now = now
        self._spans = spans
        self._trace = Trace(trace_id=spans[0].trace_id)
        self._notes: list[str] = []
        for span in spans:
            self._trace.add(node_of(span, self._say))
            tell(self._trace, span)

    def _say(self, place: str, why: str, *, hint: str | None = None, lost: bool = True) -> None:
        if lost and len(self._notes) < 20:
            self._notes.append(f"{place}: {why}"[:300])

    def run(self) -> None:
        nodes = sorted(self._trace.nodes.values(), key=lambda node: node.start)
        calls = [node for node in nodes if node.call is not None and node.call.replies]
        calls = without_doubles(calls, self._trace, self._say)
        self._taken.silent += sum(node.kind == "llm" and node.call is None and node.error is None for node in nodes)
        told = any(not node.parent for node in nodes) or any(scores_of(span) for span in self._spans)
        there = self._there(create=bool(calls)) if calls or told else None
        if there is None:
            return
        if calls:
            self._append(calls, there.step_count)
        self._tell_signals(nodes)

    def _there(self, *, create: bool) -> Trajectory | None:
        try:
            return self._pool.get_trajectory(self._id)
        except GoneError:
            raise
        except NotFoundError:
            if not create:
                return None
        metadata = {"source": SOURCE, "trace_id": self._trace.trace_id, "session": self._trace.session}
        new = NewTrajectory(
            trajectory_id=self._id,
            channel=self._channel,
            group_id=self._trace.group_id if _SAFE.fullmatch(self._trace.group_id or "") else None,
            user=named(self._trace.user),
            metadata=bounded({**metadata, **self._trace.metadata}),
        )
        try:
            return self._pool.create_trajectory(new)
        except ConflictError:
            # Another server has just created it from spans that said something else.
            return self._pool.get_trajectory(self._id)

    def _append(self, calls: list[Node], count: int) -> None:
        """Put calls into the trajectory, which has `count` steps."""
        known = self._recent.take(self._id, count) or self._read(count)
        steps: list[Step] = []
        of_steps: dict[str, str] = {}
        for node in calls:
            if self._is_known(node, known):
                self._taken.known += 1
                continue
            for step in self._steps(node, known):
                steps.append(step)
                of_steps[step.step_id] = node.id
        refused: dict[str, str] = {}
        stored = 0
        for result in self._pool.append_steps(steps) if steps else []:
            if result.outcome == "rejected":
                refused.setdefault(of_steps[result.step_id], result.reason or "it cannot be stored")
            elif result.outcome in ("late", "stored"):
                stored += 1
                self._taken.late += result.outcome == "late"
                self._taken.steps += result.outcome == "stored"
            else:  # Another server took the same span at this moment.
                self._taken.known += 1
        for why in refused.values():
            self._taken.refuse(1, why[:300])
        if stored == len(steps):
            known.count += stored
            known.whole = known.whole and len(known.steps) + stored <= LOOKED_AT
            known.steps = [*known.steps, *steps][-LOOKED_AT:]
            self._recent.put(self._id, known)

    def _read(self, count: int) -> Known:
        page = self._pool.list_steps(trajectory_id=self._id, order="newest", limit=LOOKED_AT, include=("messages",))
        known = Known(lineage=Lineage(LOOKED_AT), steps=page.items[::-1], whole=page.next_cursor is None, count=count)
        for step in known.steps:
            step.prompt_messages = known.share(step.prompt_messages or [])
            if (reply := step.response_message) is not None:
                known.lineage.add(step.step_id, step.prompt_messages, reply, step.tools or [], step.agent)
        return known

    def _steps(self, node: Node, known: Known) -> list[Step]:
        call = node.call
        assert call is not None
        prompt = known.share(with_ids(call.prompt))
        agent = agent_of(node, self._trace)
        place = known.lineage.place(prompt, call.tools, agent)
        for data, kind in call.media.values():
            self._pool.put_media(data, kind)
        steps = []
        for index, reply in enumerate(call.replies):
            (message,) = known.share(with_ids([*prompt, reply.message])[-1:])
            step_id = f"{self._step_id(node)}.{index}" if index else self._step_id(node)
            fields = fields_of(node, call)
            fields["metadata"] = {**fields["metadata"], "received_at": round(self._now, 3), "parent_span": node.parent}
            if self._notes:
                fields["metadata"]["notes"] = self._notes
            steps.append(
                Step(
                    step_id=step_id,
                    trajectory_id=self._id,
                    exchange_id=self._step_id(node) if len(call.replies) > 1 else None,
                    choice_index=index,
                    parent_step_id=place.parent,
                    fork_reason=place.fork_reason if index == 0 else "parallel",
                    agent=agent,
                    prompt_messages=prompt,
                    response_message=message,
                    finish_reason=named(reply.finish_reason),
                    **fields,
                )
            )
            known.lineage.add(step_id, prompt, message, call.tools, agent, place.keys)
        return steps

    def _step_id(self, node: Node) -> str:
        return f"{self._trace.trace_id}.{node.id}"

    def _is_known(self, node: Node, known: Known) -> bool:
        """Whether the call is on record: under its span's id, or told by another span within or around this one."""
        step_id = self._step_id(node)
        if any(step.step_id == step_id or _same(step, node) for step in known.steps):
            return True
        if known.whole:
            return False
        try:
            return self._pool.get_step(step_id, include=()).trajectory_id == self._id
        except NotFoundError:
            return False

    def _tell_signals(self, nodes: list[Node]) -> None:
        """What is said of the calls and of the trace: evaluations, and how its root ended."""
        sent: list[Reward | Feedback] = []
        for span in self._spans:
            sent += [self._signal(score) for score in scores_of(span)]
        for node in nodes:
            if not node.parent:
                ended = "error" if node.error is not None else "ok"
                value = {"root": node.name[:200], "status": ended, "received_at": round(self._now, 3)}
                sent.append(
                    Feedback(
                        kind="label",
                        feedback_id=f"{self._trace.trace_id}.{node.id}.root",
                        trajectory_id=self._id,
                        name=ROOT,
                        value=value,
                        source=SOURCE,
                    )
                )
        for signal in sent:
            try:
                self._pool.add_signals([signal])
            except ConflictError:
                continue  # It is there already, and came at another moment.

    def _signal(self, score: Score) -> Reward | Feedback:
        step_id: str | None = f"{self._trace.trace_id}.{score.node}"
        try:
            self._pool.get_step(str(step_id), include=())
        except NotFoundError:
            step_id = None
        value = score.value if isinstance(score.value, str | bool) else number(score.value)
        if isinstance(value, float) and math.isfinite(value):
            details = {"comment": score.comment} if score.comment else None
            return Reward(
                name=named(score.name) or "score",
                value=value,
                source=SOURCE,
                details=details,
                trajectory_id=self._id,
                step_id=step_id,
            )
        return Feedback(
            kind="label",
            feedback_id=f"{self._trace.trace_id}.{score.node}.{_word(score.name)}",
            name=named(score.name) or "score",
            value=value,
            comment=score.comment,
            source=SOURCE,
            trajectory_id=self._id,
            step_id=step_id,
        )


def _word(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:40]


def _same(step: Step, node: Node) -> bool:
    """Whether a step and a span are one call: another span within or around this one told of it, or the gateway
    recorded it while this one lasted. They have one reply then.
    """
    call = node.call
    assert call is not None
    if step.response_message is None or said(step.response_message) != said(call.replies[0].message):
        return False
    told_by = step.metadata.get("span_id")
    if told_by is not None:
        return node.parent == told_by or step.metadata.get("parent_span") == node.id
    if not node.start or not step.created_at or step.latency_ms is None:
        return False
    begin, end = step.created_at, step.created_at + step.latency_ms / 1000
    shown, asked = (messages[-1].text if messages else "" for messages in (step.prompt_messages, call.prompt))
    return node.start <= begin + _SLACK and end <= node.end + _SLACK and shown == asked


class Looked(msgspec.Struct):
    """How far the open traces have been looked at: what comes after `cursor` is next, None is the first."""

    cursor: str | None = None


def close_silent(
    pool: Pool,
    quiet_seconds: float,
    idle_seconds: float,
    *,
    looked: Looked | None = None,
    now: Callable[[], float] = time.time,
) -> tuple[list[str], bool]:
    """End the trajectories whose trace is over: its root came and then nothing for `quiet_seconds`, or nothing came for
    `idle_seconds` (0: for ever). Any number of servers may do it at once. One round looks at some hundred traces;
    `looked` lets the next round go on behind them. Returns what was ended here, and whether others are open.
    """
    looked = looked or Looked()
    closed: list[str] = []
    others = looked.cursor is not None
    for _ in range(_PER_ROUND):
        cursor, looked.cursor = looked.cursor, None
        page = pool.list_trajectories(where=f"open and trajectory_id like '{PREFIX}%'", cursor=cursor, limit=_PAGE)
        looked.cursor = page.next_cursor
        for each in page.items:
            if each.metadata.get("source") != SOURCE:
                continue
            if (status := _over(pool, each, now(), quiet_seconds, idle_seconds)) is None:
                others = True
                continue
            try:
                pool.complete_trajectory(each.trajectory_id, status)
                closed.append(each.trajectory_id)
            except (ConflictError, NotFoundError):
                continue  # It was ended or deleted since it was listed.
        if looked.cursor is None:
            break
    return closed, others or looked.cursor is not None


def _over(pool: Pool, trajectory: Trajectory, now: float, quiet: float, idle: float) -> TerminalStatus | None:
    """How the trajectory ended; None where it has not."""
    page = pool.list_steps(trajectory_id=trajectory.trajectory_id, order="newest", limit=1, include=("messages",))
    step = page.items[0] if page.items else None
    root: Any = trajectory.labels.get(ROOT)
    root = root if isinstance(root, dict) else None
    times = [trajectory.created_at, number(step.metadata.get("received_at")) if step is not None else None]
    times.append(number(root.get("received_at")) if root is not None else None)
    latest = max(each for each in times if each is not None)
    if root is not None and latest < now - quiet:
        return "failed" if root.get("status") == "error" else "finished"
    if idle > 0 and latest < now - idle:
        reply = step.response_message if step is not None else None
        answered = reply is not None and not reply.tool_calls
        return "finished" if answered else "abandoned"
    return None
