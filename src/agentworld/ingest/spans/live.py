"""Spans as they come, into a pool: a call of a model becomes a step at once, and the trajectory ends once the trace is
silent.

Nothing depends on what a server remembers, so that any server on the pool can take any part of a trace, in any
order and as often as an exporter repeats it: a step is known by its span's id, and what stands in the pool says what a
call continues. What is not a call of a model is not kept; it says the agent's name, and how the trace ended.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

import msgspec

from agentworld.errors import AgentWorldError, ConflictError, GoneError, NotFoundError, PoolError
from agentworld.ingest.spans import judging
from agentworld.ingest.spans.attributes import first
from agentworld.ingest.spans.call_ids import with_ids
from agentworld.ingest.spans.conventions import node_of, scores_of
from agentworld.ingest.spans.joining import tell
from agentworld.ingest.spans.judging import SOURCE
from agentworld.ingest.spans.lineage import Lineage
from agentworld.ingest.spans.loose import bounded, named, text
from agentworld.ingest.spans.node import Node, Score, Span, Trace
from agentworld.ingest.spans.recent import Known, Recent
from agentworld.ingest.spans.recorded import is_other, is_same
from agentworld.ingest.spans.runs import agent_of, ancestors, fields_of, without_doubles
from agentworld.pool.protocol import Pool
from agentworld.records import Feedback, NewTrajectory, Step, Trajectory

PREFIX = "trace-"
"""How the ids of trajectories begin that a trace made. One that a span names is its program's to end."""
ROOT = "trace"
"""The label that says how the root of a trace ended."""
LOOKED_AT = 100
"""So many of a trajectory's latest steps a call is compared with."""
_MAX_ANCESTORS = 200
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
        before = taken.refused
        try:
            _Taking(pool, own, each, channel, taken, recent or Recent(), now()).run()
        except PoolError:
            raise
        except AgentWorldError as error:
            taken.refuse(len(each) - (taken.refused - before), f"{own}: {error.one_line()}"[:300])
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
        self._trace = Trace(trace_id=spans[0].trace_id)
        self._notes: list[str] = []
        self._refused: set[str] = set()
        self._on_record: dict[str, str] = {}  # of calls: the step that each one is
        self._made = self._kept = False
        self._spans: dict[str, Span] = {}
        for span in spans:
            if (first_one := self._spans.setdefault(span.span_id, span)) is not span:
                if msgspec.structs.replace(span, place="") != msgspec.structs.replace(first_one, place=""):
                    taken.refuse(1, f"the span {span.span_id} is there twice; the first one is taken")
                continue
            self._trace.add(node_of(span, self._say))
            tell(self._trace, span)

    def _say(self, place: str, why: str, *, hint: str | None = None, lost: bool = True) -> None:
        if lost and len(self._notes) < 20:
            self._notes.append(f"{place}: {why}"[:300])

    def _refuse(self, node_id: str, why: str) -> None:
        """Count a span that cannot be taken, once."""
        self._taken.refuse(int(node_id not in self._refused), why[:300])
        self._refused.add(node_id)

    def run(self) -> None:
        nodes = sorted(self._trace.nodes.values(), key=lambda node: node.start)
        calls = [node for node in nodes if node.call is not None and node.call.replies]
        calls = without_doubles(calls, self._trace, self._say)
        self._taken.silent += sum(node.kind == "llm" and node.call is None and node.error is None for node in nodes)
        scores = [score for span in self._spans.values() for score in scores_of(span)]
        roots = [node for node in nodes if not node.parent]
        if (there := self._there()) is None:
            calls = [node for node in calls if not self._is_elsewhere(node)]
            scores = [score for score in scores if score.node not in self._refused]
            if calls or scores or any(node.kind == "agent" for node in roots):
                there = self._create()
        if there is None:
            # Most traces of a service call no model; their roots make no trajectories.
            for node in roots:
                if node.kind != "llm":
                    self._refuse(node.id, f"{self._id} has no call of a model that this root could be of")
            return
        if calls:
            self._append(calls, there.step_count)
        for node in calls:
            # A call that is told twice is the step of the inner telling.
            for above in ancestors(node, self._trace) if node.id in self._on_record else ():
                if above.call is not None:
                    self._on_record.setdefault(above.id, self._on_record[node.id])
        self._tell_roots(roots)
        for score in scores:
            if score.node not in self._refused:
                self._judge(score, there)
        self._settle(there)
        if self._made and not self._kept and self._pool.get_trajectory(self._id).step_count == 0:
            self._pool.complete_trajectory(self._id, "abandoned")

    def _there(self) -> Trajectory | None:
        try:
            return self._pool.get_trajectory(self._id)
        except GoneError:
            raise
        except NotFoundError:
            return None

    def _is_elsewhere(self, node: Node) -> bool:
        """Whether the span is on record in another trajectory: this one is not there."""
        try:
            step = self._pool.get_step(self._step_id(node), include=())
        except NotFoundError:
            return False
        self._refuse(node.id, f"the span {node.id} is on record in {step.trajectory_id}")
        return True

    def _create(self) -> Trajectory:
        metadata = {"source": SOURCE, "trace_id": self._trace.trace_id, "session": self._trace.session}
        new = NewTrajectory(
            trajectory_id=self._id,
            channel=self._channel,
            group_id=self._trace.group_id if _SAFE.fullmatch(self._trace.group_id or "") else None,
            user=named(self._trace.user),
            metadata=bounded({**metadata, **self._trace.metadata}),
        )
        try:
            made = self._pool.create_trajectory(new)
        except ConflictError:
            # Another server has just created it from spans that said something else.
            return self._pool.get_trajectory(self._id)
        self._made = True
        return made

    def _append(self, calls: list[Node], count: int) -> None:
        """Put calls into the trajectory, which has `count` steps."""
        known = self._recent.take(self._id, count) or self._read(count)
        steps: list[Step] = []
        of_steps: dict[str, Node] = {}
        for node in calls:
            if (record := self._record(node, known)) is not None:
                self._know(node, record)
                if record.exchange_id == self._step_id(node):
                    for index in range(1, len(node.call.replies) if node.call is not None else 0):
                        self._know(node, self._stored(f"{self._step_id(node)}.{index}"))
                continue
            for step in self._steps(node, known):
                steps.append(step)
                of_steps[step.step_id] = node
        stored = 0
        for result in self._pool.append_steps(steps) if steps else []:
            node = of_steps[result.step_id]
            if result.outcome == "rejected":
                self._refuse(node.id, result.reason or "it cannot be stored")
            elif result.outcome in ("late", "stored"):
                stored += 1
                self._taken.late += result.outcome == "late"
                self._taken.steps += result.outcome == "stored"
                self._on_record.setdefault(node.id, result.step_id)
            else:  # Another server took the span at this moment, or it is in another trajectory.
                self._know(node, self._stored(result.step_id))
        self._kept = self._kept or stored > 0
        if stored == len(steps):
            known.count += stored
            known.whole = known.whole and len(known.steps) + stored <= LOOKED_AT
            known.steps = [*known.steps, *steps][-LOOKED_AT:]
            self._recent.put(self._id, known)

    def _know(self, node: Node, record: Step | None) -> None:
        """Count a call that is on record, as what this span says or as something else."""
        if record is None or record.trajectory_id != self._id:
            where = record.trajectory_id if record is not None else "another trajectory"
            self._refuse(node.id, f"the span {node.id} is on record in {where}")
        elif is_other(record, node):
            self._refuse(node.id, f"the span {node.id} is on record with other content, which stays")
        else:
            self._taken.known += 1
            index = record.choice_index
            self._on_record[node.id] = record.step_id.removesuffix(f".{index}") if index else record.step_id

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

    def _record(self, node: Node, known: Known) -> Step | None:
        """The call as it is on record: under its span's id, or told by another span within or around this one."""
        step_id = self._step_id(node)
        for step in known.steps:
            if step.step_id == step_id:
                return step
        if (same := next((step for step in known.steps if is_same(step, node)), None)) is not None:
            return same
        found = None if known.whole else self._stored(step_id)
        return found if found is not None and found.trajectory_id == self._id else None

    def _stored(self, step_id: str) -> Step | None:
        try:
            return self._pool.get_step(step_id, include=("messages",))
        except NotFoundError:
            return None

    def _tell_roots(self, roots: list[Node]) -> None:
        """How the roots of the trace ended."""
        for node in roots:
            if node.id in self._refused:
                continue
            ended = "error" if node.error is not None else "ok"
            value = {"root": node.name[:200], "status": ended, "received_at": round(self._now, 3)}
            label = Feedback(
                kind="label",
                feedback_id=f"{self._trace.trace_id}.{node.id}.root",
                trajectory_id=self._id,
                name=ROOT,
                value=value,
                source=SOURCE,
            )
            try:
                self._pool.add_signals([label])
            except ConflictError:
                known = judging.told(self._pool, self._id, str(label.feedback_id))
                if not isinstance(known, dict) or {**known, "received_at": value["received_at"]} != value:
                    self._refuse(node.id, f"the span {node.id} is on record with other content, which stays")
                continue  # Else it is there already, and came at another moment.
            self._kept = True

    def _judge(self, score: Score, there: Trajectory) -> None:
        """Put a score on the call that it is of, or let it wait for that. It waits neither after the trajectory's
        end, which would end the wait, nor for a root that has come and was no call.
        """
        step_id, parent = self._owner(score.node)
        root = f"{self._trace.trace_id}.{parent}.root"
        if (
            parent
            and there.status == "open"
            and not (ROOT in there.labels and judging.told(self._pool, self._id, root) is not None)
        ):
            why = judging.wait(self._pool, self._id, self._trace.trace_id, score, parent)
        else:
            why = judging.put(self._pool, self._id, step_id, self._trace.trace_id, score)
        if why is not None:
            self._refuse(score.node, why)
        else:
            self._kept = True

    def _settle(self, there: Trajectory) -> None:
        """Put the scores to their calls that waited for a span of this request."""
        trace_id = self._trace.trace_id
        for kept in judging.waiting(self._pool, there):
            came = str(kept.get("parent"))
            if kept.get("trace") != trace_id or kept.get("step") or came not in self._trace.nodes:
                continue
            score = judging.score_of(kept)
            step_id, parent = self._owner(came)
            why = None
            if not parent:
                why = judging.put(self._pool, self._id, step_id, trace_id, score)
            if why is None and (parent or step_id not in (None, f"{trace_id}.{came}")):
                why = judging.wait(self._pool, self._id, trace_id, score, parent or came, step_id)
            if why is not None:
                self._taken.refuse(0, why)

    def _owner(self, node_id: str) -> tuple[str | None, str]:
        """The step of the nearest call that a span is or is within, none where that is the whole trace; or the span
        that has to come before that is known.
        """
        for _ in range(_MAX_ANCESTORS):
            if node_id in self._on_record:
                return self._on_record[node_id], ""
            node = self._trace.nodes.get(node_id)
            if node is None:
                step_id = f"{self._trace.trace_id}.{node_id}"
                known = judging.is_step(self._pool, self._id, step_id)
                return (step_id, "") if known else (None, node_id)
            if not node.parent:
                break
            node_id = node.parent
        return None, ""
