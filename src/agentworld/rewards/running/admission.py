"""Which trajectories an evaluator judges: those that its `where` matches, asked of the pool when their turn comes."""

from __future__ import annotations

from collections.abc import Mapping

from agentworld.pool.protocol import Pool
from agentworld.rewards.protocol import RolloutGroup, Subject
from agentworld.rewards.running.plan import Plan

PAGE = 100
Admitted = Mapping[str, frozenset[str]]
"""By evaluator, the ids of the trajectories that it judges."""


class Admission:
    """Asks the pool once for each `where` that evaluators of the plan share, and not at all where none has one."""

    def __init__(self, pool: Pool, plan: Plan) -> None:
        self._pool = pool
        self._plan = plan

    def of(self, subject: Subject) -> Admitted:
        """Of a trajectory, or of the members of a group, who judges which.

        Of evaluators that give the same reward the first one in the file that matches is the one.
        """
        members = subject.members if isinstance(subject, RolloutGroup) else (subject,)
        every = frozenset(each.trajectory.trajectory_id for each in members)
        known: dict[str, frozenset[str]] = {}

        def matching(where: str) -> frozenset[str]:
            if where not in known:
                known[where] = self._matching(where, subject) & every
            return known[where]

        admitted = {}
        for each in self._plan.evaluators:
            where = self._plan.wheres.get(each.name)
            own = every if where is None else matching(where)
            for rival in self._plan.rivals.get(each.name, ()):
                own -= matching(rival)
            admitted[each.name] = own
        return admitted

    def _matching(self, where: str, subject: Subject) -> frozenset[str]:
        of_group = subject.group_id if isinstance(subject, RolloutGroup) else None
        alone = None if isinstance(subject, RolloutGroup) else subject.trajectory.trajectory_id
        found: set[str] = set()
        cursor: str | None = None
        while True:
            page = self._pool.list_trajectories(
                where=where, trajectory_id=alone, group_id=of_group, cursor=cursor, limit=PAGE
            )
            found |= {each.trajectory_id for each in page.items}
            cursor = page.next_cursor
            if cursor is None:
                return frozenset(found)
