"""State that servers share, and the counters, in memory."""

from __future__ import annotations

import msgspec

from agentworld.forest import BLOCK_SIZE
from agentworld.pool import rules
from agentworld.pool.memory.store_batches import BatchMethods
from agentworld.pool.results import GatewayState, PoolStats
from agentworld.records import Policy


class StateMethods(BatchMethods):
    """Policies, the pause, statistics."""

    def set_policy(self, policy: Policy) -> Policy:
        """See Pool."""
        with self._open():
            known = self._state.versions.get((policy.model, policy.run))
            rules.check_policy(policy, known)
            if self._state.policies.get(policy.model) != policy:
                self._state.versions[policy.model, policy.run] = policy.version
                self._state.policies[policy.model] = policy
                self._state.add_event("policy.set", data=msgspec.to_builtins(policy))
            return policy

    def set_paused(self, paused: bool) -> None:
        """See Pool."""
        with self._open():
            if paused != self._state.paused:
                self._state.paused = paused
                self._state.add_event("gateway.paused" if paused else "gateway.resumed")

    def gateway_state(self) -> GatewayState:
        """See Pool."""
        with self._open():
            return GatewayState(dict(self._state.policies), self._state.paused)

    def stats(self) -> PoolStats:
        """See Pool."""
        with self._open():
            by_status: dict[str, int] = {}
            for trajectory in self._state.trajectories.values():
                by_status[trajectory.status] = by_status.get(trajectory.status, 0) + 1
            return PoolStats(
                trajectories=by_status,
                steps=len(self._state.steps),
                exchanges=len(self._state.exchanges),
                excluded_steps=sum(found.step.excluded_reason is not None for found in self._state.steps.values()),
                tokens_flat=self._state.tokens_flat,
                tokens_stored=len(self._state.blocks) * BLOCK_SIZE + self._state.tokens_in_tails,
                message_nodes=len(self._state.nodes),
                rewards=len(self._state.rewards),
                batches=self._leases.counts(),
                last_event=len(self._state.events),
                failed_exchanges=sum(kept.error is not None for _, kept in self._state.exchanges.values()),
                dead_letters=len(self._state.dead),
            )
