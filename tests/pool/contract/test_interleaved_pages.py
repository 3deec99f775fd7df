"""Pages of a pool whose trajectories were written side by side, by machines whose clocks differ, and partly deleted."""

import random

import pytest

from agentworld.pool.schema import BLOCK_BITS
from agentworld.pool.sql import search
from agentworld.records import NewTrajectory, Step
from tests.pool.samples import ids

BEGAN = 1_000_000.0
TRAJECTORIES, TURNS, AT_ONCE = 120, 50, 20
LIMITS = (7, 100, 1000)


@pytest.fixture
def filled(pool, clock):
    """A pool, and what is left of it in the order of its pages: of steps and of trajectories."""
    dice = random.Random(5)
    facts, steps = [], []
    for begin in range(0, TRAJECTORIES, AT_ONCE):
        together = []
        for number in range(begin, begin + AT_ONCE):
            name, user = f"t{number:03}", f"u{dice.randrange(9)}"
            clock.now = BEGAN + number * TURNS
            pool.create_trajectory(NewTrajectory(trajectory_id=name, user=user, group_id=f"g{number % 7}"))
            status = dice.choices(["finished", "failed", "open"], [20, 2, 1])[0]
            facts.append({"name": name, "user": user, "status": status, "group": number % 7, "at": clock.now})
            together.append(facts[-1])
        # Each round of turns in an order of its own; one trajectory pauses until the others have ended.
        order = [owner for owner in together[1:] for _ in range(TURNS)]
        dice.shuffle(order)
        for owner in order + together[:1] * TURNS:
            at = BEGAN + len(steps) + dice.choice([0, 0, 0, dice.uniform(-40, 40), dice.choice([-1, 1]) * 10_000])
            steps.append({**owner, "id": f"s{len(steps)}", "at": at, "turn": len(steps) % 5})
    for begin in range(0, len(steps), 500):
        pool.append_steps(
            [
                Step(
                    step_id=one["id"], trajectory_id=one["name"], created_at=one["at"], step_index=one["turn"],
                    response_ids=[1], token_source="submitted",
                )
                for one in steps[begin : begin + 500]
            ]
        )  # fmt: skip
    for one in facts:
        if one["status"] != "open":
            pool.complete_trajectory(one["name"], one["status"])
    gone = {one["name"] for one in facts[40:80]}  # Two blocks of steps, of which nothing is left.
    pool.delete_trajectories(sorted(gone))
    return pool, [one for one in steps if one["name"] not in gone], [one for one in facts if one["name"] not in gone]


def conditions():
    """Conditions and what they mean for the facts of a step or a trajectory."""
    for begin, end in ((0, 60), (1_990, 2_100), (1_500, 4_500), (-20_000, 1_500), (10_000, 30_000), (2_500, 3_500)):
        first, last = BEGAN + begin, BEGAN + end
        yield f"created_at >= {first} and created_at < {last}", lambda f, a=first, b=last: a <= f["at"] < b
        yield (
            f"created_at > {first} and created_at <= {last} and status == 'failed'",
            lambda f, a=first, b=last: a < f["at"] <= b and f["status"] == "failed",
        )
    yield (
        f"created_at < {BEGAN - 9_000} or created_at > {BEGAN + 9_000}",
        lambda f: not BEGAN - 9_000 <= f["at"] <= BEGAN + 9_000,
    )
    yield "status == 'failed'", lambda f: f["status"] == "failed"
    yield "status != 'failed' and user == 'u3'", lambda f: f["status"] != "failed" and f["user"] == "u3"
    yield "user in ('u1', 'u4')", lambda f: f["user"] in ("u1", "u4")
    yield "group_id == 'g2' and status == 'finished'", lambda f: f["group"] == 2 and f["status"] == "finished"
    yield "trajectory_id in ('t000', 't001', 't119')", lambda f: f["name"] in ("t000", "t001", "t119")
    yield f"created_at >= {BEGAN} or user == 'u2'", lambda f: f["at"] >= BEGAN or f["user"] == "u2"


def pages_of(call, name, dice, **asked):
    """Every id of a listing, by pages of sizes that change."""
    found, cursor = [], None
    while True:
        page = call(cursor=cursor, limit=dice.choice(LIMITS), **asked)
        found += [getattr(item, name) for item in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


def test_pages_hold_every_match_once_and_in_order(filled, monkeypatch):
    pool, steps, facts = filled
    assert len(steps) > 2 << BLOCK_BITS - 1
    monkeypatch.setattr(search, "_FIRST_CHUNK", 30)
    # The store in memory looks at every row.
    for few in (0,) if pool.url.startswith("memory") else (0, 40, 1_000):
        monkeypatch.setattr(search, "FEW", few)
        dice = random.Random(few)
        for where, holds in conditions():
            for order in ("oldest", "newest"):
                way = 1 if order == "oldest" else -1
                found = pages_of(pool.list_steps, "step_id", dice, where=where, order=order)
                assert found == [one["id"] for one in steps if holds(one)][::way], (few, where, order)
                found = pages_of(pool.list_trajectories, "trajectory_id", dice, where=where, order=order)
                assert found == [one["name"] for one in facts if holds(one)][::way], (few, where, order)
    monkeypatch.undo()
    # A condition beside a filter is not all that is asked.
    for where, holds in conditions():
        wanted = [one["id"] for one in steps if holds(one) and one["group"] == 4]
        assert pages_of(pool.list_steps, "step_id", random.Random(1), where=where, group_id="g4") == wanted, where
        wanted = [one["name"] for one in facts if holds(one) and one["group"] == 4]
        assert ids(pool.list_trajectories(where=where, group_id="g4")) == wanted, where
