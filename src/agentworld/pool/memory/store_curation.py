"""Policies and decisions of the in-memory store."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentworld.pool.base import check_limit
from agentworld.pool.bounds import check_name
from agentworld.pool.decision_rules import (
    Preview,
    check_decisions,
    check_one_subject,
    check_policy,
    check_preview,
    compile_policy,
)
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.memory import decisions as made
from agentworld.pool.memory import groups
from agentworld.pool.memory.store_base import MemoryStore
from agentworld.records import ActivePolicy, CurationPolicy, CurationPreview, Decision, Standing


class CurationMethods(MemoryStore):
    """See agentworld.pool.curation_methods."""

    def set_curation(
        self, policy: CurationPolicy, *, source: str = "api", progress: Progress = no_progress
    ) -> ActivePolicy:
        """See Pool."""
        policy = check_policy(policy)
        check_name(source, "source")
        version = compile_policy(policy.rules, policy.default).version
        with self._open():
            now = self._state.active_policy(policy.channel)
            if now is not None and now.version == version:
                return now
            self._end(policy.channel)
            active = ActivePolicy(policy=policy, version=version, source=source, created_at=self._state.clock())
            self._state.curations.append(active)
            data = {"channel": policy.channel, "version": version, "name": policy.name}
            self._state.add_event("curation.set", data=data, channel=policy.channel)
            self._decide_all(policy.channel, progress)
            return active

    def clear_curation(self, channel: str, *, progress: Progress = no_progress) -> bool:
        """See Pool."""
        check_name(channel, "channel")
        with self._open():
            ended = self._end(channel)
            if ended is None:
                return False
            data = {"channel": channel, "version": ended.version}
            self._state.add_event("curation.cleared", data=data, channel=channel)
            self._decide_all(channel, progress)
            return True

    def curation(self, channel: str | None = None) -> list[ActivePolicy]:
        """See Pool."""
        with self._open():
            active = [one for one in self._state.curations if one.ended_at is None]
            return sorted(
                (one for one in active if channel in (None, one.policy.channel)), key=lambda one: one.policy.channel
            )

    def list_curations(self, channel: str | None = None, *, limit: int = 100) -> list[ActivePolicy]:
        """See Pool."""
        check_limit(limit)
        with self._open():
            found = [one for one in self._state.curations if channel in (None, one.policy.channel)]
            return found[::-1][:limit]

    def try_curation(
        self, policy: CurationPolicy, *, samples: int = 5, limit: int | None = None, progress: Progress = no_progress
    ) -> CurationPreview:
        """See Pool."""
        policy = check_policy(policy)
        check_preview(samples, limit)
        read = compile_policy(policy.rules, policy.default)
        preview = Preview(read, samples)
        with self._open():
            ended = [
                one
                for one in self._state.trajectories.values()
                if one.channel == policy.channel and one.status != "open"
            ][::-1]
            wanted = ended if limit is None else ended[:limit]
            for number, there in enumerate(wanted):
                progress("look", number, len(wanted))
                preview.add("trajectory", there.trajectory_id, made.holding(self._state, "trajectory", there))
                one = made.make(self._state, read, "trajectory", there)
                preview.stands(there.readiness, made.would_stand(self._state, there, one))
                if not read.steps:
                    continue
                for step_id in self._state.steps_of[there.trajectory_id]:
                    step = self._state.steps[step_id].step
                    if step.channel == there.channel:
                        preview.add("step", step_id, made.holding(self._state, "step", step))
            return preview.result(whole=len(wanted) == len(ended))

    def decide(self, decisions: Sequence[Decision]) -> int:
        """See Pool."""
        sent = check_decisions(decisions)
        with self._open():
            count, changed = made.decide(self._state, sent)
            for trajectory_id in changed:
                groups.settle(self._state, self._state.trajectories[trajectory_id])
            return count

    def decisions(self, *, trajectory_id: str | None = None, step_id: str | None = None) -> list[Decision]:
        """See Pool."""
        target, target_id = check_one_subject(trajectory_id, step_id)
        with self._open():
            return made.listed(self._state, target, target_id)

    def explain_standing(self, *, trajectory_id: str | None = None, step_id: str | None = None) -> Standing:
        """See Pool."""
        target, target_id = check_one_subject(trajectory_id, step_id)
        with self._open():
            return made.standing(self._state, target, target_id)

    def _end(self, channel: str) -> ActivePolicy | None:
        for number, one in enumerate(self._state.curations):
            if one.policy.channel == channel and one.ended_at is None:
                ended = msgspec.structs.replace(one, ended_at=self._state.clock())
                self._state.curations[number] = ended
                return ended
        return None

    def _decide_all(self, channel: str, progress: Progress) -> None:
        ended = [t for t in self._state.trajectories.values() if t.channel == channel and t.status != "open"]
        for there in ended:
            groups.settle(self._state, there)
        # Told at the end, so that nothing is broken off in the middle.
        progress("decide", len(ended), len(ended))
