"""One trajectory or group on its way through the evaluators: each begins once those that it reads have ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from agentworld.records import BatchTrajectory
from agentworld.rewards.protocol import Evaluator, RolloutGroup, Subject
from agentworld.rewards.running.admission import Admitted
from agentworld.rewards.running.cache import Outcome
from agentworld.rewards.running.lanes import Asked, Lane
from agentworld.rewards.running.plan import Plan


class Node(NamedTuple):
    """An evaluator on one trajectory, or (without one) on the group."""

    evaluator: str
    trajectory_id: str | None


class Job:
    """Evaluations of one subject. `ended` is called for each, with what was judged, from the lanes' threads; with None
    where the same was told already: of a member of a group that was judged by itself before, or the other way round.

    `admitted`: which of its trajectories each evaluator judges; a group is judged as those members make it. Without it
    all of them do.

    What evaluators of this run say is set on the subject for those that come next. What they said in earlier runs is
    taken off it, as it may be of other content.
    """

    def __init__(
        self,
        plan: Plan,
        lanes: Mapping[str, Lane],
        subject: Subject,
        ended: Callable[[Evaluator, Subject, Outcome | None], None],
        admitted: Admitted | None = None,
    ) -> None:
        self._plan = plan
        self._lanes = lanes
        self._ended = ended
        self._group_id = subject.group_id if isinstance(subject, RolloutGroup) else None
        members = subject.members if isinstance(subject, RolloutGroup) else (subject,)
        self._members = {each.trajectory.trajectory_id: each for each in members}
        every = frozenset(self._members)
        self._admitted = admitted if admitted is not None else {each.name: every for each in plan.evaluators}
        self._fresh: dict[str, dict[str, float]] = {name: {} for name in self._members}
        self._by_name = {each.name: each for each in plan.evaluators}
        self._waiting = self._nodes()
        self._digests: dict[str, list[bytes]] = {}
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """How many evaluations it is."""
        return len(self._waiting)

    def begin(self) -> None:
        """Have those judged that wait for nothing."""
        with self._lock:
            ready = [node for node, inputs in self._waiting.items() if not inputs]
        self._put(ready)

    def _nodes(self) -> dict[Node, set[Node]]:
        """Every evaluation with those that it waits for."""
        singles = self._plan.of_trajectories if self._group_id is None else self._plan.of_members
        nodes = {
            Node(each.name, member): {Node(name, member) for name in self._plan.inputs[each.name]}
            for each in singles
            for member in self._members
            if member in self._admitted[each.name]
        }
        if self._group_id is not None:
            for each in self._plan.of_groups:
                own = self._admitted[each.name]
                inputs: set[Node] = set()
                for name in self._plan.inputs[each.name]:
                    of_group = self._by_name[name].scope == "group"
                    inputs |= {Node(name, None)} if of_group else {Node(name, member) for member in own}
                if own:
                    nodes[Node(each.name, None)] = inputs
        # An input that judges nothing here is not waited for.
        return {node: inputs & nodes.keys() for node, inputs in nodes.items()}

    def _put(self, ready: Sequence[Node]) -> None:
        for node in ready:
            evaluator = self._by_name[node.evaluator]
            subject = self._subject(evaluator, node)
            echo = self._group_id is not None and node.trajectory_id is not None
            done = self._listener(node, evaluator, subject)
            self._lanes[node.evaluator].put(Asked(subject, done, self._digests, echo=echo))

    def _listener(self, node: Node, evaluator: Evaluator, subject: Subject) -> Callable[[Outcome], None]:
        def done(outcome: Outcome) -> None:
            with self._lock:
                if outcome.verdicts is not None and evaluator.scope != "step":
                    for target, verdict in outcome.verdicts.items():
                        self._fresh[target].update(verdict.values)
                ready = []
                for other, inputs in self._waiting.items():
                    if node in inputs:
                        inputs.discard(node)
                        if not inputs:
                            ready.append(other)
            self._put(ready)
            echo = self._group_id is not None and node.trajectory_id is not None and (outcome.cached or outcome.due)
            self._ended(evaluator, subject, None if echo or outcome.echoed else outcome)

        return done

    def _subject(self, evaluator: Evaluator, node: Node) -> Subject:
        if node.trajectory_id is not None:
            return self._with_fresh(evaluator, self._members[node.trajectory_id])
        assert self._group_id is not None
        own = self._admitted[evaluator.name]
        members = tuple(self._with_fresh(evaluator, each) for name, each in self._members.items() if name in own)
        return RolloutGroup(group_id=self._group_id, members=members)

    def _with_fresh(self, evaluator: Evaluator, run: BatchTrajectory) -> BatchTrajectory:
        """The trajectory with the rewards of its record that others gave, and those that this run's evaluators gave."""
        record = run.trajectory
        stored: tuple[str, ...] = getattr(evaluator, "stored", ())
        old = self._plan.given - set(stored)
        rewards = {name: value for name, value in record.rewards.items() if name not in old}
        with self._lock:
            rewards |= self._fresh[record.trajectory_id]
        record = msgspec.structs.replace(record, rewards=rewards, reward=rewards.get("reward"))
        return msgspec.structs.replace(run, trajectory=record)
