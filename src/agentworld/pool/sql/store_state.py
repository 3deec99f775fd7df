"""State that the servers of a pool share, keys, and the counters."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select

from agentworld.pool import schema
from agentworld.pool.bounds import check_policy_record
from agentworld.pool.keys import ApiKey, IssuedKey, NewKey, StoredKey
from agentworld.pool.metric_rules import check_metrics
from agentworld.pool.results import GatewayState, GatewayWorker, PoolStats
from agentworld.pool.sql import keys, signals, workers
from agentworld.pool.sql.policies import add_metrics
from agentworld.pool.sql.statements import sql
from agentworld.pool.sql.store_base import SqlStore
from agentworld.pool.stats import policy_stats, pool_stats
from agentworld.records import Metrics, Policy, check_id

PROBES = "gateway.probes"  # how often it was tried whether the pool can be written
_COUNTERS = sql(select(schema.counters))
_p, _t = schema.policies.c, schema.trajectories.c
_POLICIES = sql(
    select(
        _p.model,
        _p.run,
        _p.version,
        select(_t.policy_version)
        .where(_t.policy_model == _p.model, _t.policy_run == _p.run, _t.policy_version.is_not(None))
        .order_by(_t.policy_model.desc(), _t.policy_run.desc(), _t.policy_version.desc())
        .limit(1)
        .scalar_subquery()
        .label("sampled"),
    )
    .where(_p.current == 1)
    .order_by(_p.model)
)
_LAST_EVENT = sql(select(func.coalesce(func.max(schema.events.c.pk), 0)))


class StateMethods(SqlStore):
    """Policies, the pause, keys, statistics."""

    def set_policy(self, policy: Policy) -> Policy:
        """See Pool."""
        check_policy_record(policy)
        self._writer.submit(lambda txn: signals.set_policy(txn, policy)).result()
        return policy

    def add_metrics(self, metrics: Sequence[Metrics]) -> int:
        """See Pool."""
        checked = check_metrics(metrics)
        if checked:
            self._writer.submit(lambda txn: add_metrics(txn, checked)).result()
        return len(checked)

    def set_paused(self, paused: bool) -> None:
        """See Pool."""
        self._writer.submit(lambda txn: signals.set_paused(txn, paused)).result()

    def gateway_state(self) -> GatewayState:
        """See Pool."""
        with self._database.reading() as connection:
            policies = signals.current_policies(connection)
            counters = {row["name"]: row["value"] for row in connection.execute(_COUNTERS)}
        return GatewayState(policies, bool(counters.get(signals.PAUSED)), counters.get(signals.PAUSES, 0))

    def report_worker(self, worker: str, in_flight: int, pauses: int) -> None:
        """See Pool."""
        self._writer.submit(lambda txn: workers.report(txn, worker, in_flight, pauses)).result()

    def forget_worker(self, worker: str) -> None:
        """See Pool."""
        self._writer.submit(lambda txn: workers.forget(txn, worker)).result()

    def _last_words(self) -> list[GatewayWorker]:
        with self._database.reading() as connection:
            return workers.last_words(connection)

    def check_writable(self) -> None:
        """See Pool."""
        self._writer.submit(lambda txn: txn.count(PROBES)).result()

    def create_key(self, new: NewKey) -> IssuedKey:
        """See Pool."""
        return self._writer.submit(lambda txn: keys.create(txn, new)).result()

    def revoke_key(self, key_id: str) -> ApiKey:
        """See Pool."""
        check_id(key_id, "key_id")
        return self._writer.submit(lambda txn: keys.revoke(txn, key_id)).result()

    def list_keys(self) -> list[ApiKey]:
        """See Pool."""
        with self._database.reading() as connection:
            return keys.all_keys(connection)

    def find_key(self, digest: bytes) -> StoredKey | None:
        """See Pool."""
        with self._database.reading() as connection:
            return keys.by_digest(connection, digest)

    def get_key(self, key_id: str) -> StoredKey | None:
        """See Pool."""
        with self._database.reading() as connection:
            return keys.by_id(connection, key_id)

    def stats(self) -> PoolStats:
        """See Pool."""
        with self._database.reading() as connection:
            counted: dict[str, int] = {row["name"]: row["value"] for row in connection.execute(_COUNTERS)}
            last_event = connection.execute(_LAST_EVENT)[0][0]
            policies = {
                row["model"]: policy_stats(row["run"], row["version"], row["sampled"])
                for row in connection.execute(_POLICIES)
            }
        return pool_stats(counted, last_event, policies)
