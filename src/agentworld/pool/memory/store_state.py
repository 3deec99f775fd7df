"""State that servers share, keys, and the counters, in memory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentworld.errors import NotFoundError
from agentworld.pool import rules
from agentworld.pool.bounds import check_policy_record
from agentworld.pool.draining import KEPT_SECONDS
from agentworld.pool.keys import ApiKey, IssuedKey, NewKey, StoredKey, key_from, new_secret, secret_digest
from agentworld.pool.memory.counting import counted, policies
from agentworld.pool.memory.store_batches import BatchMethods
from agentworld.pool.metric_rules import check_metrics, metrics_data
from agentworld.pool.results import GatewayState, GatewayWorker, PoolStats
from agentworld.pool.stats import pool_stats
from agentworld.records import Metrics, Policy, check_id


class StateMethods(BatchMethods):
    """Policies, the pause, keys, statistics."""

    def set_policy(self, policy: Policy) -> Policy:
        """See Pool."""
        check_policy_record(policy)
        with self._open():
            known = self._state.versions.get((policy.model, policy.run))
            rules.check_policy(policy, known)
            if self._state.policies.get(policy.model) != policy:
                self._state.versions[policy.model, policy.run] = policy.version
                self._state.policies[policy.model] = policy
                self._state.add_event("policy.set", data=msgspec.to_builtins(policy))
            return policy

    def add_metrics(self, metrics: Sequence[Metrics]) -> int:
        """See Pool."""
        checked = check_metrics(metrics)
        with self._open():
            for each in checked:
                self._state.add_event("metrics.added", data=metrics_data(each), channel=each.channel)
        return len(checked)

    def set_paused(self, paused: bool) -> None:
        """See Pool."""
        with self._open():
            if paused != self._state.paused:
                self._state.paused = paused
                self._state.pauses += paused
                self._state.add_event("gateway.paused" if paused else "gateway.resumed")

    def gateway_state(self) -> GatewayState:
        """See Pool."""
        with self._open():
            return GatewayState(dict(self._state.policies), self._state.paused, self._state.pauses)

    def report_worker(self, worker: str, in_flight: int, pauses: int) -> None:
        """See Pool."""
        with self._open():
            now = self._state.clock()
            self._state.workers[worker] = GatewayWorker(worker, in_flight, pauses, now)
            if self._state.paused:
                return  # Who waits for all to drain must not lose sight of one.
            for silent in [each for each in self._state.workers.values() if each.seen_at < now - KEPT_SECONDS]:
                del self._state.workers[silent.worker]

    def forget_worker(self, worker: str) -> None:
        """See Pool."""
        with self._open():
            self._state.workers.pop(worker, None)

    def _last_words(self) -> list[GatewayWorker]:
        with self._open():
            return sorted(self._state.workers.values(), key=lambda each: each.worker)

    def check_writable(self) -> None:
        """See Pool."""
        with self._open():
            return

    def create_key(self, new: NewKey) -> IssuedKey:
        """See Pool."""
        with self._open():
            key, secret = key_from(new, self._state.clock()), new_secret()
            self._state.keys[key.key_id] = StoredKey(key, secret_digest(secret))
            return IssuedKey(secret, key)

    def revoke_key(self, key_id: str) -> ApiKey:
        """See Pool."""
        check_id(key_id, "key_id")
        with self._open():
            found = self._state.keys.get(key_id)
            if found is None:
                raise NotFoundError(
                    f"no key {key_id[:100]!r}", path="key_id", hint="`agentworld keys list` shows their ids"
                )
            key = found.key
            if key.revoked_at is None:
                key = msgspec.structs.replace(key, revoked_at=self._state.clock())
                self._state.keys[key_id] = StoredKey(key, found.digest)
            return key

    def list_keys(self) -> list[ApiKey]:
        """See Pool."""
        with self._open():
            return [each.key for each in self._state.keys.values()]

    def find_key(self, digest: bytes) -> StoredKey | None:
        """See Pool."""
        with self._open():
            return next((each for each in self._state.keys.values() if each.digest == digest), None)

    def get_key(self, key_id: str) -> StoredKey | None:
        """See Pool."""
        with self._open():
            return self._state.keys.get(key_id)

    def stats(self) -> PoolStats:
        """See Pool."""
        with self._open():
            return pool_stats(counted(self._state, self._leases), len(self._state.events), policies(self._state))
