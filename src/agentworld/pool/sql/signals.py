"""Events, rewards, policies and the pause: small writes inside a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from agentworld.errors import NotFoundError
from agentworld.pool import rules, schema
from agentworld.pool.sql.connections import Reader
from agentworld.pool.sql.rows import from_json, json_or_none
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Policy, Reward

PAUSED = "gateway.paused"

_EVENT = sql(
    insert(schema.events).values({n: parameter(n) for n in ("pk", "kind", "at", "trajectory_id", "step_id", "data")})
)
_FIND_STEP = sql(
    select(schema.steps.c.pk, schema.steps.c.rewards, schema.trajectories.c.trajectory_id)
    .join_from(schema.steps, schema.trajectories, schema.steps.c.trajectory == schema.trajectories.c.pk)
    .where(schema.steps.c.step_id == parameter("target"))
)
_t = schema.trajectories.c
_FIND_TRAJECTORY = sql(
    select(_t.pk, _t.rewards, _t.trajectory_id, _t.status, _t.excluded_reason).where(
        _t.trajectory_id == parameter("target")
    )
)
_r = schema.rewards
_KNOWN_REWARD = sql(
    select(_r.c.value).where(*(_r.c[name] == parameter(name) for name in ("target", "target_id", "name", "source")))
)
_new_reward = upsert(_r).values({c.name: parameter(c.name) for c in _r.c})
_SET_REWARD = sql(
    _new_reward.on_conflict_do_update(
        index_elements=["target", "target_id", "name", "source"],
        set_={name: _new_reward.excluded[name] for name in ("value", "details", "created_at")},
    )
)
_STEP_REWARDS = sql(
    update(schema.steps)
    .where(schema.steps.c.pk == parameter("row"))
    .values(rewards=parameter("rewards"), reward=parameter("reward"))
)
_TRAJECTORY_REWARDS = sql(
    update(schema.trajectories)
    .where(_t.pk == parameter("row"))
    .values(rewards=parameter("rewards"), reward=parameter("reward"), readiness=parameter("readiness"))
)
_p = schema.policies
_KNOWN_POLICY = sql(
    select(_p.c.version, _p.c.current).where(_p.c.model == parameter("model"), _p.c.run == parameter("run"))
)
_RETIRE_RUNS = sql(update(_p).where(_p.c.model == parameter("of_model")).values(current=0))
_new_policy = upsert(_p).values(model=parameter("model"), run=parameter("run"), version=parameter("version"), current=1)
_SET_POLICY = sql(
    _new_policy.on_conflict_do_update(
        index_elements=["model", "run"], set_={"version": _new_policy.excluded.version, "current": 1}
    )
)
_POLICIES = sql(select(_p).where(_p.c.current == 1))
_COUNTER = sql(select(schema.counters.c.value).where(schema.counters.c.name == parameter("name")))


def add_event(
    txn: Transaction,
    kind: str,
    trajectory_id: str | None = None,
    step_id: str | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    """Append to the events."""
    values = {
        "pk": txn.next_pk("events"),
        "kind": kind,
        "at": txn.now,
        "trajectory_id": trajectory_id,
        "step_id": step_id,
    }
    txn.execute(_EVENT, {**values, "data": json_or_none(data)})


def add_rewards(txn: Transaction, rewards: Sequence[Reward]) -> int:
    """Set rewards; returns how many changed something."""
    return sum(_set_reward(txn, reward, f"rewards[{number}]") for number, reward in enumerate(rewards))


def keep_reward(txn: Transaction, target: str, target_id: str, reward: Reward) -> bool:
    """Store the reward beside those of other sources; False where the same value was there."""
    key = {"target": target, "target_id": target_id, "name": reward.name, "source": reward.source}
    known = txn.one(_KNOWN_REWARD, key)
    if known is not None and known[0] == reward.value:
        return False
    details = None if reward.details is None else msgspec.json.encode(reward.details).decode()
    created_at = reward.created_at or txn.now
    pk = txn.next_pk("rewards") if known is None else 0
    txn.execute(
        _SET_REWARD, {"pk": pk, **key, "value": float(reward.value), "details": details, "created_at": created_at}
    )
    if known is None:
        txn.count("rewards")
    return True


def set_policy(txn: Transaction, policy: Policy) -> None:
    """Publish the weights that now speak."""
    known = txn.one(_KNOWN_POLICY, {"model": policy.model, "run": policy.run})
    rules.check_policy(policy, known["version"] if known else None)
    if known is not None and known["version"] == policy.version and known["current"]:
        return
    txn.execute(_RETIRE_RUNS, {"of_model": policy.model})
    txn.execute(_SET_POLICY, {"model": policy.model, "run": policy.run, "version": policy.version})
    add_event(txn, "policy.set", data=msgspec.to_builtins(policy))


def current_policies(connection: Reader) -> dict[str, Policy]:
    """The policy that speaks now, by model."""
    found = connection.execute(_POLICIES)
    return {row["model"]: Policy(row["model"], row["run"], row["version"]) for row in found}


def set_paused(txn: Transaction, paused: bool) -> None:
    """Stop or resume dispatch."""
    known = txn.one(_COUNTER, {"name": PAUSED})
    before = known[0] if known else 0
    if before != int(paused):
        txn.count(PAUSED, int(paused) - before)
        add_event(txn, "gateway.paused" if paused else "gateway.resumed")


def _set_reward(txn: Transaction, reward: Reward, path: str) -> bool:
    rules.check_reward(reward, path)
    on_step = reward.step_id is not None
    target = reward.step_id or reward.trajectory_id or ""
    row = txn.one(_FIND_STEP if on_step else _FIND_TRAJECTORY, {"target": target})
    if row is None:
        kind = "step" if on_step else "trajectory"
        raise NotFoundError(f"no {kind} {target!r}", path=f"{path}.{kind}_id")
    if reward.trajectory_id not in (None, row["trajectory_id"]):
        raise rules.other_trajectory(reward, path)
    if not keep_reward(txn, "step" if on_step else "trajectory", target, reward):
        return False
    values = {**from_json(row["rewards"], {}), reward.name: float(reward.value)}
    primary = values.get(rules.PRIMARY)
    columns = {"row": row["pk"], "rewards": json_or_none(values), "reward": primary}
    if on_step:
        txn.execute(_STEP_REWARDS, columns)
    else:
        readiness = rules.trajectory_readiness(row["status"], primary is not None, row["excluded_reason"])
        txn.execute(_TRAJECTORY_REWARDS, {**columns, "readiness": readiness})
    data = {"name": reward.name, "value": float(reward.value), "source": reward.source}
    add_event(txn, "reward.set", row["trajectory_id"], reward.step_id, data)
    return True
