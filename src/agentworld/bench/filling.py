"""Large pools in little time: rows of trajectories and steps as many rollouts leave them, without their content."""

from __future__ import annotations

import functools
from typing import Any, cast

import numpy as np
from sqlalchemy import Table, insert

from agentworld.pool import counters, schema
from agentworld.pool.protocol import Pool
from agentworld.pool.sql.statements import Statement, parameter, sql
from agentworld.pool.sql.store import SqlPool
from agentworld.pool.sql.transaction import Transaction

TURNS = 50
ROLLOUTS = 16
USERS = 500
STARTED = 1_750_000_000.0
SECONDS = 10.0  # between the beginnings of two trajectories
_OPEN = 64  # of the newest trajectories
_AT_ONCE = 200
_COLUMNS = {
    "trajectories": "pk trajectory_id declared group_id group_size rollout_index attempt agent channel status reward "
    "rewards readiness step_count prompt_tokens response_tokens policy_model policy_run policy_version created_at "
    "completed_at user_id priority usable_steps lacks sampled_tokens ready_seq",
    "steps": "pk step_id content trajectory choice_index channel step_index agent model policy_model policy_run "
    "policy_version token_source prompt_length response_length present id_count logprobs metadata late created_at "
    "latency_ms sampled",
}


def _insert(table: Table) -> Statement:
    return sql(insert(table).values({name: parameter(name) for name in _COLUMNS[table.name].split()}))


_ADD_TRAJECTORY, _ADD_STEP = _insert(schema.trajectories), _insert(schema.steps)


def fill(pool: Pool, steps: int, seed: int, turns: int = TURNS) -> int:
    """Add trajectories of `turns` steps each, `steps` in all; returns how many trajectories.

    One in a hundred failed, one in fifty is of the channel `val`, the newest 64 are open; rewards are uniform over
    [0, 1), and there are a hundred versions of one policy, one after the other.
    """
    store = cast(SqlPool, pool)
    random = np.random.default_rng([seed, 5])
    count = steps // turns
    for begin in range(0, count, _AT_ONCE):
        made = [_trajectory(random, number, count, turns) for number in range(begin, min(begin + _AT_ONCE, count))]
        store._writer.submit(functools.partial(_write, made)).result()
    return count


def _trajectory(random: np.random.Generator, number: int, count: int, turns: int) -> dict[str, Any]:
    status = "open" if number >= count - _OPEN else "failed" if random.random() < 0.01 else "finished"
    reward = None if status == "open" else float(random.random())
    began = STARTED + number * SECONDS
    return {
        "trajectory_id": f"t{number}",
        "declared": 1,
        "group_id": f"g{number // ROLLOUTS}",
        "group_size": ROLLOUTS,
        "rollout_index": number % ROLLOUTS,
        "attempt": 0,
        "agent": "agent",
        "channel": "val" if random.random() < 0.02 else "train",
        "status": status,
        "reward": reward,
        "rewards": None if reward is None else f'{{"reward":{reward!r}}}',
        "readiness": {"open": "open", "failed": "excluded", "finished": "ready"}[status],
        "step_count": turns,
        "prompt_tokens": turns * 12_000,
        "response_tokens": turns * 250,
        "policy_model": "m",
        "policy_run": "r",
        "policy_version": number * 100 // count,
        "created_at": began,
        "completed_at": None if status == "open" else began + SECONDS,
        "user_id": f"u{number % USERS}",
        "priority": 0.0,
        "usable_steps": turns,
        "lacks": 0,
        "sampled_tokens": turns * 250,
    }


def _write(made: list[dict[str, Any]], txn: Transaction) -> None:
    first = txn.next_pk("trajectories", len(made))
    key = txn.next_pk("steps", sum(row["step_count"] for row in made))
    ready = txn.next_pk("ready_seq", len(made))
    steps = []
    for number, row in enumerate(made):
        row["pk"], row["ready_seq"] = first + number, ready + number
        txn.count(counters.TRAJECTORIES + row["status"])
        txn.count(counters.READINESS + row["readiness"])
        txn.count(counters.CHANNEL_TRAJECTORIES + row["channel"])
        txn.count(counters.CHANNEL_STEPS + row["channel"], row["step_count"])
        for turn in range(row["step_count"]):
            steps.append(_step(row, turn, key))
            key += 1
    txn.many(_ADD_TRAJECTORY, made)
    txn.many(_ADD_STEP, steps)
    txn.count(counters.STEPS, len(steps))


def _step(trajectory: dict[str, Any], turn: int, key: int) -> dict[str, Any]:
    return {
        "pk": key,
        "step_id": f"{trajectory['trajectory_id']}-{turn}",
        "content": key.to_bytes(16, "little"),
        "trajectory": trajectory["pk"],
        "choice_index": 0,
        "channel": trajectory["channel"],
        "step_index": turn,
        "agent": "agent",
        "model": "m",
        **{name: trajectory[name] for name in ("policy_model", "policy_run", "policy_version")},
        "token_source": "engine",
        "prompt_length": 0,
        "response_length": 250,
        "present": 0,
        "id_count": 0,
        "logprobs": bytes(1_000),  # As wide as rows are that a search has to read.
        "metadata": f'{{"k":{key % 1000}}}',
        "late": 0,
        "created_at": trajectory["created_at"] + turn * SECONDS / trajectory["step_count"],
        "latency_ms": 100.0,
        "sampled": 250,
    }
