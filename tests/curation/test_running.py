"""Checks over a pool, on every store: what is labelled, what is looked at again, and what is taken away."""

import pytest

from agentworld.curation.running import follower_name, run_curation
from agentworld.records import Feedback, NewTrajectory, Policy, Reward, Step
from tests.curation.pools import check, everything, found, found_on_steps, planned, put

GATING = ("incomplete", "unrewarded", "truncated", "exact_duplicate", "zero_advantage", "stale", "quarantined")


def test_labels_say_what_checks_find_and_again_is_nothing_to_do(pool):
    put(pool, "good", reward=1.0)
    put(pool, "failed", status="failed")
    [cut, whole] = put(pool, "cut", "a", "b", reward=0.0, step={"finish_reason": "length"})
    put(pool, "copy", "It is good.", reward=0.5)
    put(pool, "open", status=None)
    for number in range(3):
        put(pool, f"g{number}", reward=1.0, group_id="g", group_size=3)
    report = check(pool, *GATING)
    assert (report.trajectories, report.steps, report.groups) == (7, 8, 1)
    assert found(pool, "good") == {}
    assert found(pool, "failed") == {"incomplete": "failed", "unrewarded": True}
    assert found(pool, "cut") == {"truncated": True}
    assert found_on_steps(pool, "cut") == {cut: {"check.truncated": True}, whole: {"check.truncated": True}}
    assert found(pool, "copy") == {"exact_duplicate": "good"}
    assert [found(pool, f"g{number}") for number in range(3)] == [{"zero_advantage": 1.0}] * 3
    assert "checked" not in pool.get_trajectory("open").labels
    assert report.labels == {
        "incomplete": 1,
        "unrewarded": 1,
        "truncated": 3,
        "exact_duplicate": 1,
        "zero_advantage": 3,
    }
    [evidence] = [one for one in pool.list_feedback(trajectory_id="copy").items if one.name == "check.exact_duplicate"]
    assert (evidence.comment, evidence.source) == ('{"of":"good","steps":1}', "check:exact_duplicate@1")
    before = pool.stats().last_event
    again = check(pool, *GATING)
    assert (again.trajectories, again.groups, again.changes) == (0, 0, 0)
    everywhere = run_curation(pool, planned(*GATING), again=True)
    assert (everywhere.trajectories, everywhere.groups, everywhere.changes) == (7, 1, 0)
    assert pool.stats().last_event == before
    assert pool.check() == []


def test_a_pass_costs_what_is_new(pool):
    for number in range(4):
        put(pool, f"t{number}", reward=1.0)
    assert check(pool).trajectories == 4
    put(pool, "new", reward=1.0)
    put(pool, "copy", "It is t0.", reward=1.0)
    report = check(pool)
    assert (report.trajectories, report.steps) == (2, 2)
    # It remembers what the first pass saw.
    assert found(pool, "copy")["exact_duplicate"] == "t0"
    pool.add_rewards([Reward(value=0.5, trajectory_id="t1")])
    pool.add_feedback([Feedback(kind="label", trajectory_id="t2", name="mine", value=1)])
    assert check(pool).trajectories == 1


def test_a_label_that_no_longer_holds_is_taken_away(pool):
    for number in range(2):
        put(pool, f"g{number}", reward=1.0, group_id="g", group_size=2)
    put(pool, "a")
    check(pool, "unrewarded", "zero_advantage")
    assert found(pool, "a") == {"unrewarded": True}
    pool.add_rewards([Reward(value=0.0, trajectory_id="a"), Reward(value=0.0, trajectory_id="g1", source="me")])
    report = check(pool, "unrewarded", "zero_advantage")
    assert report.removed == {"unrewarded": 1, "zero_advantage": 2}
    assert [found(pool, name) for name in ("a", "g0", "g1")] == [{}] * 3
    assert pool.check() == []


def test_labels_of_checks_that_do_not_run_stay(pool):
    put(pool, "a")
    check(pool, "unrewarded")
    pool.add_rewards([Reward(value=1.0, trajectory_id="a")])
    pool.add_feedback([Feedback(kind="label", trajectory_id="a", name="mine", value="x")])
    check(pool, "incomplete")
    assert pool.get_trajectory("a").labels.keys() == {"check.unrewarded", "mine", "checked"}
    check(pool, "unrewarded", "incomplete")
    assert pool.get_trajectory("a").labels.keys() == {"mine", "checked"}


def test_what_another_rollout_changes_is_labelled_anew(pool):
    put(pool, "a", reward=0.0, task={"task_id": "one"})
    check(pool, "difficulty")
    assert found(pool, "a") == {"difficulty": 1.0}
    put(pool, "b", reward=1.0, task={"task_id": "one"})
    report = check(pool, "difficulty")
    assert (report.trajectories, report.labels) == (1, {"difficulty": 2})
    assert found(pool, "a") == found(pool, "b") == {"difficulty": 0.5}
    pool.delete_trajectories(["b"])
    check(pool, "difficulty")
    assert found(pool, "a") == {"difficulty": 1.0}


def test_what_was_deleted_is_no_earlier_one(pool):
    put(pool, "a", "Same.", reward=1.0)
    check(pool, "exact_duplicate")
    pool.delete_trajectories(["a"])
    put(pool, "b", "Same.", reward=1.0)
    put(pool, "c", "Same.", reward=1.0)
    check(pool, "exact_duplicate")
    assert (found(pool, "b"), found(pool, "c")) == ({}, {"exact_duplicate": "b"})


def test_other_weights_make_stale_what_they_leave_behind_and_nothing_else_is_read(pool):
    pool.set_policy(Policy("m", "r", 5))
    for version in (3, 4, 5):
        put(pool, f"v{version}", reward=1.0, step={"policy": Policy("m", "r", version)})
    put(pool, "other", reward=1.0, step={"policy": Policy("n", "r", 0)})
    check(pool, "stale", max_staleness=1)
    assert [found(pool, f"v{version}") for version in (3, 4, 5)] == [{"stale": 2}, {}, {}]
    pool.set_policy(Policy("m", "r", 6))
    report = check(pool, "stale", max_staleness=1)
    assert report.trajectories == 1
    assert [found(pool, f"v{version}") for version in (3, 4, 5)] == [{"stale": 2}, {"stale": 2}, {}]
    pool.set_policy(Policy("m", "s", 0))
    assert check(pool, "stale", max_staleness=1).trajectories == 1
    assert found(pool, "v5") == {"stale": "other_run"}
    assert found(pool, "other") == {}


def test_only_the_channel_that_is_meant(pool):
    put(pool, "a", channel="train")
    put(pool, "b", channel="val")
    assert check(pool, "unrewarded", channel="val").trajectories == 1
    assert (found(pool, "a"), found(pool, "b")) == ({}, {"unrewarded": True})
    put(pool, "c", channel="train")
    put(pool, "d", channel="val")
    pool.add_rewards([Reward(value=1.0, trajectory_id=name) for name in ("a", "b")])
    assert check(pool, "unrewarded", channel="val").trajectories == 2
    assert (found(pool, "c"), found(pool, "d"), found(pool, "b")) == ({}, {"unrewarded": True}, {})


def test_a_late_step_is_looked_at(pool):
    put(pool, "a", reward=1.0)
    check(pool, "quarantined", "unrewarded")
    late = Step(step_id="late", trajectory_id="a", response_ids=[1, 2], response_logprobs=[-1.0])
    [result] = pool.append_steps([late])
    assert result.outcome == "late"
    assert check(pool, "quarantined", "unrewarded").trajectories == 1


def test_ids_alone_are_compared_too(pool):
    for name, ids in (("a", [1, 2]), ("b", [1, 2]), ("c", [1, 3])):
        pool.create_trajectory(NewTrajectory(trajectory_id=name))
        pool.append_steps([Step(step_id=f"{name}-0", trajectory_id=name, prompt_ids=[7], response_ids=ids)])
        pool.complete_trajectory(name, "finished", 1.0)
    check(pool, "exact_duplicate", "incomplete")
    assert [found(pool, name) for name in "abc"] == [{}, {"exact_duplicate": "a"}, {}]


def test_other_thresholds_are_another_run(pool):
    put(pool, "a", reward=1.0)
    plans = [planned("loop", repeats=3), planned("loop", repeats=4), planned("loop", channel="train")]
    assert len({follower_name(plan) for plan in plans}) == 3
    assert [run_curation(pool, plan).trajectories for plan in (*plans, *plans)] == [1, 1, 1, 0, 0, 0]


def test_the_first_pass_goes_page_by_page(pool):
    for number in range(120):
        put(pool, f"t{number:03}", "Same." if number in (3, 110) else f"It is {number}.", reward=1.0)
    shown = []
    report = run_curation(
        pool, planned("exact_duplicate", "unrewarded"), progress=lambda stage, done, total: shown.append((done, total))
    )
    assert report.trajectories == 120
    assert shown[:3] == [(50, 120), (100, 120), (120, 120)]
    assert found(pool, "t110") == {"exact_duplicate": "t003"}
    assert {name for name, (labels, _) in everything(pool).items() if "checked" not in labels} == set()


def test_texts_that_no_file_can_hold_break_nothing(pool):
    odd = "\ud800 odd"
    for name in ("a", "b"):
        put(
            pool,
            name,
            odd,
            odd,
            reward=float(name == "a"),
            task={"task_id": odd, "reference": odd},
            metadata={"x": odd},
        )
    report = check(pool)
    assert (report.trajectories, report.errors) == (2, {})
    assert found(pool, "a")["difficulty"] == 0.5
    assert found(pool, "b")["exact_duplicate"] == "a"
    put(pool, "c", odd, odd, reward=0.0, task={"task_id": odd})
    assert check(pool).errors == {}
    assert found(pool, "a")["difficulty"] == 0.666667


@pytest.mark.parametrize("name", ["check.unrewarded", "check.failed"])
def test_a_label_that_somebody_else_gave_gives_way_to_what_is_found(memory, name):
    put(memory, "a", reward=1.0)
    memory.add_feedback([Feedback(kind="label", trajectory_id="a", name=name, value="unrewarded")])
    check(memory, "unrewarded")
    assert found(memory, "a") == {}
