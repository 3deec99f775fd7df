"""An append in parts, for an engine that works on one while the next is planned, does what an append at once does."""

import pytest

from agentworld.pool.postgres.writing import WritingConnection
from agentworld.pool.sql import append
from agentworld.pool.sqlite.connection import SqliteConnection
from agentworld.records import Reward

from ..samples import step


def appended(pool, monkeypatch, part):
    """What is told of many appends of one transaction, and what is there afterwards; `part` records are one."""
    for connection in (WritingConnection, SqliteConnection):
        monkeypatch.setattr(connection, "works_ahead", True)
    monkeypatch.setattr(append, "PART", part)
    name = f"p{part}-"
    long = list(range(400))

    def one(number, trajectory, **changes):
        return step(
            f"{name}{trajectory}", step_id=f"{name}s{number}", response_ids=[4, number], created_at=1.0, **changes
        )

    pool.append_steps([one(0, "late")])
    pool.complete_trajectory(f"{name}late", "finished", 1.0)
    pool.add_rewards([Reward(step_id=f"{name}s7", value=0.5)])  # Waits for its step.
    sent = [
        [one(1, "a", prompt_ids=long), one(2, "b")],
        [one(3, "a", prompt_ids=[*long, 5, 6])],
        [one(1, "a", prompt_ids=long), one(2, "b", prompt_ids=[9])],  # There already, and another one.
        [one(4, "late")],
        [one(5, "a", rewards={"x": 1.0})],
        [one(6, "a", supersedes=f"{name}s3", prompt_ids=[*long, 5, 6, 7])],
        [one(7, "b")],
        [one(8, "c", prompt_ids=[1, "2"])],  # Cannot be stored.
        [one(9, "a", prompt_ids=[*long, 5, 6, 7, 8]), one(10, "c")],
    ]
    # In one transaction: the writer is held until all of them wait.
    futures = []
    pool._writer.submit(lambda txn: futures.extend(pool.submit_steps(steps) for steps in sent)).result(100)
    told = [[(result.outcome, result.step_index, result.reason) for result in future.result(100)] for future in futures]
    trajectories = [
        (one.trajectory_id[len(name) :], one.step_count, one.prompt_tokens, one.sampled_tokens, one.readiness)
        for one in pool.list_trajectories(limit=100).items
        if one.trajectory_id.startswith(name)
    ]
    steps = [
        (one.step_id[len(name) :], one.step_index, one.prompt_ids, one.rewards, one.excluded_reason, one.is_last)
        for one in pool.list_steps(include=("tokens",), limit=100).items
        if one.step_id.startswith(name)
    ]
    events = [
        (event.kind, (event.trajectory_id or "")[len(name) :], event.step_id and event.step_id[len(name) :])
        for event in pool.events()
        if (event.trajectory_id or "").startswith(name)
    ]
    # What a signal that waited for a step tells comes after the step's part.
    return told, trajectories, steps, sorted(events, key=str)


@pytest.mark.parametrize("part", [1, 3])
def test_parts_are_as_one(pool, monkeypatch, part):
    if not hasattr(pool, "_writer"):
        pytest.skip("the store in memory has no transactions")
    assert appended(pool, monkeypatch, part) == appended(pool, monkeypatch, 1000)
