"""A member of a group is judged for itself and for its group at the same moment: it counts once, whoever is first."""

import threading
import time

import pytest

from agentworld.pool.memory import MemoryPool
from agentworld.rewards.running import RunSettings, run_rewards
from agentworld.rewards.running.lanes import Lane
from tests.rewards.counting_evaluators import counted, down
from tests.rewards.pools import counting, failures, planned, put


@pytest.fixture
def group_first(monkeypatch):
    """Evaluations of members for themselves wait until `passed` is set; returns it with what may set it."""
    passed = threading.Event()
    settled = Lane._is_settled

    def waiting(self, asked):
        if self.evaluator.scope == "trajectory" and not asked.echo:
            assert passed.wait(100)
        return settled(self, asked)

    monkeypatch.setattr(Lane, "_is_settled", waiting)
    return passed


def _after(monkeypatch, passed):
    """The member's own turn comes once its group has its answer."""
    tell = Lane._tell

    def told(self, asked, outcome):
        tell(self, asked, outcome)
        if asked.echo:
            passed.set()

    monkeypatch.setattr(Lane, "_tell", told)


def _during(monkeypatch, passed):
    """The member's own turn comes while it is being judged for its group."""
    one = Lane._one

    def judged(self, asked, said, seconds):
        if asked.echo:
            passed.set()
            until = time.monotonic() + 100
            while not self._same[asked.content]:
                assert time.monotonic() < until
                time.sleep(0.001)
        one(self, asked, said, seconds)

    monkeypatch.setattr(Lane, "_one", judged)


@pytest.mark.parametrize("order", [_after, _during])
@pytest.mark.parametrize("fails", [False, True])
def test_a_member_that_its_group_asks_about_counts_once(request, tmp_path, monkeypatch, group_first, order, fails):
    pool = MemoryPool()
    put(pool, "t0", "it is so", group_id="g", group_size=1)
    log = tmp_path / "log"
    if fails:
        down.set()
        request.addfinalizer(down.clear)
    by_group = {"kind": "normalise", "value": "correct", "by": "mean"}
    plan = planned(counting("shaky", log, reward="correct"), by_group)
    order(monkeypatch, group_first)
    report = run_rewards(pool, plan, RunSettings(concurrency=2))
    tally = report.evaluators["shaky"]
    # What failed is no answer: a turn that comes after that asks once more.
    tries = 2 if fails and order is _after else 1
    assert (tally.evaluated, tally.cached, tally.failed) == ((0, 0, tries) if fails else (1, 0, 0))
    assert counted(log) == ["t0"] * tries
    assert tally.mean == (None if fails else 1.0)
    assert pool.get_trajectory("t0").rewards.get("correct") == (None if fails else 1.0)
    assert (("shaky", "trajectory", "t0") in failures(pool)) == fails
    pool.close()
