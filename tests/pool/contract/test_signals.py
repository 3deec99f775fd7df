import threading

import pytest

from agentworld.errors import ConflictError, GoneError, InvalidRequestError
from agentworld.records import Annotation, Feedback, NewTrajectory, Policy, Reward

from ..samples import finished, ids, step


def test_an_absent_reward_is_not_zero(pool):
    pool.append_steps([step("t", step_id="s")])
    assert (pool.get_step("s").reward, pool.get_step("s").rewards) == (None, {})
    assert pool.add_rewards([Reward(value=0.0, step_id="s")]) == 1
    assert (pool.get_step("s").reward, pool.get_step("s").rewards) == (0.0, {"reward": 0.0})
    assert pool.get_trajectory("t").reward is None


def test_a_late_reward_makes_a_trajectory_ready(pool):
    finished(pool, "t")
    assert pool.get_trajectory("t").readiness == "complete"
    pool.add_rewards([Reward(value=1.0, trajectory_id="t", name="format")])
    assert pool.get_trajectory("t").readiness == "complete"
    pool.add_rewards([Reward(value=1, trajectory_id="t")])
    there = pool.get_trajectory("t")
    assert (there.readiness, there.reward, there.rewards) == ("ready", 1.0, {"format": 1.0, "reward": 1.0})


def test_setting_again_replaces_and_tells_whether_anything_changed(pool):
    pool.append_steps([step("t", step_id="s")])
    assert pool.add_rewards([Reward(value=0.5, step_id="s"), Reward(value=0.5, step_id="s")]) == 1
    assert pool.add_rewards([Reward(value=0.5, step_id="s")]) == 0
    assert pool.add_rewards([Reward(value=0.75, step_id="s")]) == 1
    assert pool.add_rewards([Reward(value=0.25, step_id="s", source="judge")]) == 1
    assert pool.get_step("s").reward == 0.25
    assert pool.stats().rewards == 2
    assert [event.data["value"] for event in pool.events() if event.kind == "reward.set"] == [0.5, 0.75, 0.25]


def test_rewards_sent_with_a_step_count_as_its_own(pool):
    pool.append_steps([step("t", step_id="s", reward=0.5, rewards={"format": 1.0})])
    assert pool.stats().rewards == 2
    assert pool.add_rewards([Reward(value=0.5, step_id="s", source="step")]) == 0


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"step_id": "s", "value": float("nan")},
        {"step_id": "s", "value": True, "name": ""},
        {"step_id": "s", "name": "x" * 257},
        {"step_id": "s", "name": "line\n"},
        {"step_id": "s", "source": ""},
        {"step_id": "s", "trajectory_id": "other"},
        {"step_id": "s/"},
    ],
)
def test_rewards_are_set_all_or_none(pool, bad):
    pool.append_steps([step("t", step_id="s")])
    with pytest.raises(InvalidRequestError) as caught:
        pool.add_rewards([Reward(value=1.0, step_id="s"), Reward(**{"value": 1.0, **bad})])
    assert "rewards[1]" in caught.value.path
    assert pool.get_step("s").reward is None
    assert pool.stats().rewards == 0


def test_what_was_deleted_takes_nothing_any_more(pool):
    pool.append_steps([step("t", step_id="s"), step("kept", step_id="k")])
    pool.delete_trajectories(["t"], "asked for")
    bad = [
        Reward(value=1, trajectory_id="t"),
        Reward(value=1, step_id="s"),
        Reward(value=1, step_id="never-came", trajectory_id="t"),
        Feedback(kind="comment", comment="x", step_id="s"),
        Annotation(name="a", values=[1.0], trajectory_id="t"),
    ]
    for signal in bad:
        with pytest.raises(GoneError, match="asked for") as caught:
            pool.add_signals([Reward(value=1, step_id="k"), signal])
        assert "[1]" in caught.value.path
    for act in (
        lambda: pool.create_trajectory(NewTrajectory(trajectory_id="t")),
        lambda: pool.complete_trajectory("t", "finished"),
    ):
        with pytest.raises(GoneError):
            act()
    assert (pool.get_step("k").rewards, pool.awaited().items, pool.stats().rewards) == ({}, [], 0)


def test_nothing_new_comes_from_a_user_who_was_deleted(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="t", user="anna"))
    pool.append_steps([step("implied", step_id="s")])
    pool.delete_user("anna")
    for name in ("new", "implied"):
        with pytest.raises(GoneError) as caught:
            pool.create_trajectory(NewTrajectory(trajectory_id=name, user="anna"))
        assert caught.value.path == "user"
    pool.create_trajectory(NewTrajectory(trajectory_id="other", user="bert"))


def test_events_come_in_order_and_resume(pool, clock):
    pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    pool.append_steps([step("t", step_id="s")])
    pool.complete_trajectory("t", "finished", 1.0)
    events = pool.events()
    assert [(event.kind, event.trajectory_id, event.step_id) for event in events] == [
        ("trajectory.created", "t", None),
        ("step.appended", "t", "s"),
        ("trajectory.completed", "t", None),
        ("reward.set", "t", None),
    ]
    sequences = [event.sequence for event in events]
    assert sequences == sorted(set(sequences))
    assert events[0].at == clock.now
    assert pool.events(after=sequences[1]) == events[2:]
    assert pool.events(limit=2) == events[:2]
    assert pool.events(after=sequences[-1]) == []
    assert pool.stats().last_event == sequences[-1]


def test_a_policy_only_goes_up_within_its_run(pool):
    assert pool.gateway_state().policies == {}
    pool.set_policy(Policy("m", "r", 3))
    pool.set_policy(Policy("m", "r", 3))
    with pytest.raises(ConflictError) as caught:
        pool.set_policy(Policy("m", "r", 2))
    assert "new run" in caught.value.hint
    pool.set_policy(Policy("m", "back", 1))
    pool.set_policy(Policy("n", "r", 0))
    assert pool.gateway_state().policies == {"m": Policy("m", "back", 1), "n": Policy("n", "r", 0)}
    with pytest.raises(ConflictError):
        pool.set_policy(Policy("m", "r", 2))
    pool.set_policy(Policy("m", "r", 3))
    assert pool.gateway_state().policies["m"] == Policy("m", "r", 3)
    assert pool.events()[0].data == {"model": "m", "run": "r", "version": 3}
    assert len(pool.events()) == 4
    with pytest.raises(InvalidRequestError):
        pool.set_policy(Policy("m", "r", -1))


def test_staleness_counts_within_the_run_that_speaks(pool):
    for version in (1, 3):
        pool.append_steps([step(f"t{version}", step_id=f"s{version}", policy=Policy("m", "r", version))])
    pool.append_steps([step("t0", step_id="s0", policy=None)])
    assert ids(pool.list_steps(where="staleness is null")) == ["s1", "s3", "s0"]
    pool.set_policy(Policy("m", "r", 4))
    assert ids(pool.list_steps(where="staleness == 3")) == ["s1"]
    assert ids(pool.list_trajectories(where="staleness <= 2")) == ["t3"]
    pool.set_policy(Policy("m", "new", 4))
    assert ids(pool.list_steps(where="staleness >= 0")) == []


def test_where_nothing_was_published_version_0_of_the_default_run_speaks(pool):
    for name, policy in (("a", Policy("m")), ("b", Policy("m", "default", 2)), ("c", Policy("m", "r", 0)), ("d", None)):
        pool.append_steps([step(f"t-{name}", step_id=name, policy=policy)])
    assert ids(pool.list_steps(where="staleness <= 2")) == ["a", "b"]
    assert ids(pool.list_steps(where="staleness == 0")) == ["a"]
    assert ids(pool.list_steps(where="staleness is null")) == ["c", "d"]
    pool.set_policy(Policy("other", "default", 9))
    assert ids(pool.list_trajectories(where="staleness == 0")) == ["t-a"]
    pool.set_policy(Policy("m", "default", 3))
    assert ids(pool.list_steps(where="staleness <= 2")) == ["b"]


def test_pausing_is_shared_state(pool):
    assert pool.gateway_state().paused is False
    for paused in (True, True, False, False, True):
        pool.set_paused(paused)
        assert pool.gateway_state().paused is paused
    assert [event.kind for event in pool.events()] == ["gateway.paused", "gateway.resumed", "gateway.paused"]


def test_threads_append_without_loss(pool):
    def work(number):
        for turn in range(20):
            outcomes.append(pool.append_steps([step(f"t{number}", step_id=f"s{number}-{turn}")])[0].outcome)

    outcomes = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["stored"] * 80
    assert pool.stats().steps == 80
    assert [event.sequence for event in pool.events()] == list(range(1, 85))
    for number in range(4):
        found = pool.list_steps(trajectory_id=f"t{number}").items
        assert [(one.step_id, one.step_index) for one in found] == [(f"s{number}-{turn}", turn) for turn in range(20)]
