"""Signals, events and what was rejected, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.errors import NotFoundError
from agentworld.pool import rules
from agentworld.pool.base import check_after, check_limit
from agentworld.pool.memory.store_base import MemoryStore
from agentworld.pool.results import DeadLetter
from agentworld.records import Event, Reward


class SignalMethods(MemoryStore):
    """Rewards, feedback, annotations, events, dead letters."""

    def add_rewards(self, rewards: Sequence[Reward]) -> int:
        """See Pool."""
        with self._open():
            for number, reward in enumerate(rewards):
                rules.check_reward(reward, f"rewards[{number}]")
                if reward.step_id is not None:
                    step = self._state.steps.get(reward.step_id)
                    if step is None:
                        raise NotFoundError(f"no step {reward.step_id!r}", path=f"rewards[{number}].step_id")
                    if reward.trajectory_id not in (None, step.step.trajectory_id):
                        raise rules.other_trajectory(reward, f"rewards[{number}]")
                else:
                    self._state.trajectory(reward.trajectory_id or "", f"rewards[{number}].trajectory_id")
            return sum(self._state.set_reward(reward) for reward in rewards)

    def events(self, after: int = 0, limit: int = 1000) -> list[Event]:
        """See Pool."""
        with self._open():
            return self._state.events[check_after(after) :][: check_limit(limit)]

    def dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """See Pool."""
        with self._open():
            return self._state.dead[check_after(after) :][: check_limit(limit)]
