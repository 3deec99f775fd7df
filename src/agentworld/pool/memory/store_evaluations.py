"""Evaluations and followers of the in-memory store."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from agentworld.pool.base import check_limit, cursor_for, read_cursor
from agentworld.pool.bounds import check_name
from agentworld.pool.memory.state import copied
from agentworld.pool.memory.store_base import MemoryStore
from agentworld.pool.results import Page
from agentworld.pool.review_rules import (
    check_digests,
    check_evaluated,
    check_evaluations,
    check_follower,
    overtaken,
)
from agentworld.records import Evaluation, EvaluationState, EvaluationTarget, Follower


class EvaluationMethods(MemoryStore):
    """See agentworld.pool.curation_methods."""

    def put_evaluations(self, evaluations: Sequence[Evaluation]) -> int:
        """See Pool."""
        sent = check_evaluations(evaluations)
        with self._open():
            state = self._state
            there: dict[str, Collection[str]] = {
                "trajectory": state.trajectories,
                "step": state.steps,
                "group": state.groups,
            }
            kept = {
                (one.evaluator, one.target, one.target_id): one for one in sent if one.target_id in there[one.target]
            }
            for key, one in kept.items():
                state.evaluations.pop(key, None)
                state.last_evaluation += 1
                stamped = msgspec.structs.replace(copied(one), at=one.at or state.clock())
                state.evaluations[key] = (state.last_evaluation, stamped)
            return len(kept)

    def list_evaluations(
        self,
        *,
        evaluator: str | None = None,
        target: EvaluationTarget | None = None,
        target_id: str | None = None,
        state: EvaluationState | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Evaluation]:
        """See Pool."""
        check_evaluated(target, target_id, state)
        after = read_cursor(cursor, "oldest") or 0
        check_limit(limit)
        with self._open():
            found = [
                (number, one)
                for number, one in self._state.evaluations.values()
                if number > after
                and evaluator in (None, one.evaluator)
                and target in (None, one.target)
                and target_id in (None, one.target_id)
                and state in (None, one.state)
            ]
            more = cursor_for(found[limit - 1][0], "oldest") if len(found) > limit else None
            return Page([copied(one) for _, one in found[:limit]], more)

    def known_evaluations(self, fingerprint: bytes, contents: Sequence[bytes]) -> dict[bytes, Evaluation]:
        """See Pool."""
        wanted = set(check_digests(fingerprint, contents))
        with self._open():
            return {
                one.content: copied(one)
                for _, one in self._state.evaluations.values()
                if one.content in wanted and one.fingerprint == fingerprint and one.state == "ok"
            }

    def load_follower(self, name: str) -> Follower | None:
        """See Pool."""
        check_name(name, "name")
        with self._open():
            return self._state.followers.get(name)

    def save_follower(self, name: str, position: int, state: bytes | None = None, *, revision: int = 0) -> Follower:
        """See Pool."""
        check_follower(name, position, state, revision)
        with self._open():
            there = self._state.followers.get(name)
            if (0 if there is None else there.revision) != revision:
                raise overtaken(name)
            saved = Follower(name=name, position=position, state=state, revision=revision + 1, at=self._state.clock())
            self._state.followers[name] = saved
            return saved
