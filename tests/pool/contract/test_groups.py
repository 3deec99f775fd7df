import pytest

from agentworld.errors import ConflictError, InvalidRequestError, NotFoundError
from agentworld.records import Feedback, NewTrajectory, Reward

from ..samples import finished, group, step


def begin(pool, name, group_id="g", **settings):
    pool.create_trajectory(NewTrajectory(trajectory_id=name, group_id=group_id, **settings))
    pool.append_steps([step(name)])


def standing(pool, name):
    there = pool.get_trajectory(name)
    return there.readiness, there.reward, there.masked, there.excluded_reason


def counts(pool, group_id="g"):
    there = pool.get_group(group_id)
    return there.state, there.members, there.ended, there.served


def test_a_group_opens_with_its_first_trajectory_and_counts_its_members(pool, clock):
    begin(pool, "a", group_size=3, group_timeout=60.0, channel="val")
    there = pool.get_group("g")
    assert (there.size, there.timeout_at, there.failures, there.channel) == (3, clock.now + 60, None, "val")
    assert there.created_at == clock.now
    begin(pool, "b")
    pool.complete_trajectory("a", "finished", 1.0)
    assert counts(pool) == ("open", 2, 1, 1)
    with pytest.raises(NotFoundError):
        pool.get_group("other")


def test_a_group_closes_once_its_rollouts_have_ended(pool, clock):
    for index, name in enumerate("abc"):
        begin(pool, name, group_size=3, rollout_index=index)
    for name in "ab":
        pool.complete_trajectory(name, "finished", 1.0)
    assert counts(pool) == ("open", 3, 2, 2)
    clock.now += 5
    pool.complete_trajectory("c", "truncated", 0.0)
    there = pool.get_group("g")
    assert (there.state, there.closed_by, there.closed_at, there.served) == ("closed", "size", clock.now, 3)
    assert pool.events()[-1].kind == "group.closed"
    assert pool.events()[-1].data == {"group_id": "g", "by": "size", "ended": 3, "served": 3}


def test_attempts_at_one_rollout_count_once(pool):
    for index in range(2):
        begin(pool, f"a{index}", group_size=2, rollout_index=index)
    pool.complete_trajectory("a0", "finished", 1.0)
    begin(pool, "a1-again", group_size=2, rollout_index=1, attempt=1)
    pool.complete_trajectory("a1", "failed")
    assert counts(pool) == ("open", 3, 1, 1)
    pool.complete_trajectory("a1-again", "finished", 0.5)
    assert counts(pool) == ("closed", 3, 2, 2)


def test_a_new_attempt_reopens_its_rollout_while_the_group_is_open(pool):
    begin(pool, "a", group_size=2, rollout_index=0)
    pool.complete_trajectory("a", "failed")
    assert counts(pool) == ("open", 1, 1, 0)
    begin(pool, "b", group_size=2, rollout_index=0, attempt=1)
    assert counts(pool) == ("open", 2, 0, 0)
    begin(pool, "c", group_size=2, rollout_index=1)
    pool.complete_trajectory("c", "finished", 0.0)
    assert pool.get_group("g").state == "open"
    pool.complete_trajectory("b", "finished", 1.0)
    assert counts(pool) == ("closed", 3, 2, 2)


def test_without_an_index_each_trajectory_is_a_rollout(pool):
    for name in "ab":
        begin(pool, name, group_size=2)
        pool.complete_trajectory(name, "failed")
    assert counts(pool) == ("closed", 2, 2, 0)


def test_a_timeout_closes_with_what_is_there(pool, clock):
    begin(pool, "a", group_size=3, group_timeout=60.0)
    begin(pool, "b", group_size=3, group_timeout=60.0)
    pool.complete_trajectory("a", "finished", 1.0)
    assert pool.close_due_groups() == 0
    clock.now += 60
    assert pool.close_due_groups() == 1
    assert pool.close_due_groups() == 0
    there = pool.get_group("g")
    assert (there.state, there.closed_by, there.served) == ("closed", "timeout", 1)
    assert pool.complete_trajectory("b", "finished", 1.0).excluded_reason == "late_for_group"
    assert standing(pool, "b") == ("excluded", 1.0, False, "late_for_group")
    assert counts(pool) == ("closed", 2, 2, 1)


@pytest.mark.parametrize("touch", ["complete", "create", "step"])
def test_a_write_that_touches_a_group_sees_that_its_time_is_over(pool, clock, touch):
    begin(pool, "a", group_timeout=60.0)
    begin(pool, "b", group_timeout=60.0)
    pool.complete_trajectory("a", "finished", 1.0)
    clock.now += 61
    if touch == "complete":
        pool.complete_trajectory("b", "finished", 1.0)
    elif touch == "create":
        pool.create_trajectory(NewTrajectory(trajectory_id="c", group_id="g"))
    else:
        pool.append_steps([step("c", group_id="g")])
    there = pool.get_group("g")
    assert (there.state, there.closed_by, there.served) == ("closed", "timeout", 1)
    late = "b" if touch == "complete" else "c"
    assert standing(pool, late)[0::3] == ("excluded", "late_for_group")


def test_latecomers_are_stored_and_stay_excluded(pool):
    group(pool, "g", [1.0, 0.0])
    begin(pool, "late", rollout_index=7)
    assert standing(pool, "late") == ("excluded", None, False, "late_for_group")
    [found] = pool.list_steps(trajectory_id="late").items
    assert (found.readiness, found.excluded_reason, found.late) == ("excluded", None, False)
    there = pool.complete_trajectory("late", "finished", 1.0)
    assert (there.readiness, there.reward) == ("excluded", 1.0)
    assert counts(pool) == ("closed", 3, 3, 2)


def fail_some(pool, failures):
    """Rollouts 0 (good), 1 (failed twice, the second with a reward), 2 (failed, then good), 3 (abandoned)."""
    settings = {"group_size": 4, "group_failures": failures}
    begin(pool, "good", rollout_index=0, **settings)
    begin(pool, "first", rollout_index=1, **settings)
    begin(pool, "second", rollout_index=1, attempt=1, **settings)
    begin(pool, "failed", rollout_index=2, **settings)
    begin(pool, "again", rollout_index=2, attempt=1, **settings)
    begin(pool, "left", rollout_index=3, **settings)
    pool.complete_trajectory("good", "finished", 1.0)
    pool.complete_trajectory("first", "failed")
    pool.complete_trajectory("second", "failed", 0.25)
    pool.complete_trajectory("failed", "failed")
    pool.complete_trajectory("again", "finished", 0.5)
    for name in ("first", "second", "failed"):
        assert standing(pool, name)[0::3] == ("excluded", "failed")
    pool.complete_trajectory("left", "abandoned")


def test_failures_are_served_with_zero(pool):
    fail_some(pool, "zero")
    assert counts(pool) == ("closed", 6, 4, 4)
    assert standing(pool, "good") == ("ready", 1.0, False, None)
    assert standing(pool, "second") == ("ready", 0.0, False, None)
    assert standing(pool, "left") == ("ready", 0.0, False, None)
    assert standing(pool, "again") == ("ready", 0.5, False, None)
    assert standing(pool, "first") == ("excluded", None, False, "retried")
    assert standing(pool, "failed") == ("excluded", None, False, "retried")
    given = [event for event in pool.events() if event.kind == "reward.set" and event.data["source"] == "group"]
    assert sorted(event.trajectory_id for event in given) == ["left", "second"]


def test_failures_are_served_for_the_statistics_alone(pool):
    fail_some(pool, "mask")
    assert counts(pool) == ("closed", 6, 4, 4)
    assert standing(pool, "second") == ("ready", 0.25, True, None)
    assert standing(pool, "left") == ("ready", 0.0, True, None)
    assert standing(pool, "again") == ("ready", 0.5, False, None)
    assert standing(pool, "failed") == ("excluded", None, False, "retried")


@pytest.mark.parametrize("failures", ["drop", None])
def test_failures_are_left_out(pool, failures):
    fail_some(pool, failures)
    assert counts(pool) == ("closed", 6, 4, 2)
    for name in ("first", "second", "failed"):
        assert standing(pool, name)[0::3] == ("excluded", "failed")
    assert standing(pool, "left")[0::3] == ("excluded", "abandoned")


def test_a_reward_after_the_close_counts_for_a_member(pool):
    fail_some(pool, "zero")
    pool.add_rewards([Reward(value=0.125, trajectory_id="left", source="judge")])
    assert standing(pool, "left") == ("ready", 0.125, False, None)
    assert pool.get_group("g").served == 4


def test_a_member_is_served_before_it_has_its_reward(pool):
    begin(pool, "a", group_size=1)
    pool.complete_trajectory("a", "finished")
    assert counts(pool) == ("closed", 1, 1, 1)
    pool.add_rewards([Reward(value=1, trajectory_id="a")])
    assert standing(pool, "a")[0] == "ready"
    assert counts(pool) == ("closed", 1, 1, 1)


@pytest.mark.parametrize(
    "other", [{"group_size": 3}, {"group_timeout": 9.0}, {"group_failures": "drop"}, {"group_failures": "mask"}]
)
def test_a_group_is_planned_once(pool, other):
    said = {"group_size": 2, "group_timeout": 10.0, "group_failures": "zero"}
    begin(pool, "a", **said)
    begin(pool, "b", **said)
    with pytest.raises(ConflictError) as caught:
        pool.create_trajectory(NewTrajectory(trajectory_id="c", group_id="g", **{**said, **other}))
    assert caught.value.path == next(iter(other))
    with pytest.raises(NotFoundError):
        pool.get_trajectory("c")
    assert pool.get_group("g").members == 2


@pytest.mark.parametrize("plan", [{"group_size": 3}, {"group_timeout": 9.0}, {"group_failures": "zero"}])
def test_what_is_said_of_a_group_needs_one(pool, plan):
    with pytest.raises(InvalidRequestError) as caught:
        pool.create_trajectory(NewTrajectory(trajectory_id="a", **plan))
    assert caught.value.path == next(iter(plan))
    assert "group_id" in caught.value.hint
    with pytest.raises(NotFoundError):
        pool.get_trajectory("a")


def test_what_nobody_said_may_be_said_later(pool):
    pool.append_steps([step("a", group_id="g")])
    assert pool.get_group("g").size is None
    pool.create_trajectory(NewTrajectory(trajectory_id="a", group_id="g", group_size=2, group_failures="zero"))
    begin(pool, "b")
    there = pool.get_group("g")
    assert (there.size, there.failures, there.members) == (2, "zero", 2)
    for name in "ab":
        pool.complete_trajectory(name, "failed")
    assert counts(pool) == ("closed", 2, 2, 2)


def test_a_size_that_is_reached_when_it_is_said_closes(pool):
    finished(pool, "a", reward=1.0, group_id="g")
    assert counts(pool) == ("open", 1, 1, 1)
    begin(pool, "b", group_size=1)
    assert pool.get_group("g").state == "closed"
    assert standing(pool, "b")[3] == "late_for_group"


def test_a_group_without_size_and_time_never_closes(pool, clock):
    finished(pool, "a", reward=1.0, group_id="g")
    clock.now += 10**6
    assert pool.close_due_groups() == 0
    assert counts(pool) == ("open", 1, 1, 1)


def test_declaring_moves_a_trajectory_to_its_group(pool):
    pool.append_steps([step("a", group_id="g"), step("b", group_id="g")])
    assert counts(pool) == ("open", 2, 0, 0)
    pool.create_trajectory(NewTrajectory(trajectory_id="a", group_id="h", rollout_index=0))
    assert counts(pool) == ("open", 1, 0, 0)
    assert counts(pool, "h") == ("open", 1, 0, 0)
    pool.create_trajectory(NewTrajectory(trajectory_id="b"))
    assert counts(pool) == ("open", 0, 0, 0)
    assert pool.get_trajectory("b").group_id is None


def test_declaring_out_of_a_closed_group_is_not_late(pool):
    group(pool, "g", [1.0])
    pool.append_steps([step("a", group_id="g")])
    assert standing(pool, "a")[0::3] == ("excluded", "late_for_group")
    pool.create_trajectory(NewTrajectory(trajectory_id="a", group_id="h"))
    assert standing(pool, "a")[0::3] == ("open", None)


def test_groups_are_listed(pool):
    for name in ("c", "a", "b"):
        begin(pool, f"t-{name}", group_id=name, group_size=1, channel="val" if name == "a" else "train")
    pool.complete_trajectory("t-b", "finished")

    def named(**filters):
        return [one.group_id for one in pool.list_groups(**filters).items]

    assert named() == ["c", "a", "b"]
    assert named(state="open") == ["c", "a"]
    assert named(state="closed") == ["b"]
    assert named(channel="val") == ["a"]
    assert named(channel="train", state="open") == ["c"]
    first = pool.list_groups(limit=2)
    assert [one.group_id for one in pool.list_groups(cursor=first.next_cursor).items] == ["b"]


@pytest.mark.parametrize(
    "bad",
    [
        {"group_timeout": 0.0},
        {"group_timeout": float("inf")},
        {"group_failures": "ignore"},
        {"priority": float("nan")},
        {"user": ""},
        {"user": "a\x00"},
    ],
)
def test_bad_settings_are_refused(pool, bad):
    with pytest.raises(InvalidRequestError) as caught:
        pool.create_trajectory(NewTrajectory(trajectory_id="t", group_id="g", **bad))
    assert caught.value.path == next(iter(bad))
    assert pool.list_groups().items == []


def test_feedback_that_changes_nothing_to_serve_by_closes_no_group(pool, clock):
    finished(pool, "a", reward=1.0, group_id="g", group_size=2, group_timeout=10.0)
    finished(pool, "b", reward=0.0)
    clock.now += 11
    pool.add_feedback([Feedback(kind="comparison", feedback_id="f", trajectory_id="a", other_id="b")])
    assert pool.get_group("g").state == "open"
    pool.add_feedback([Feedback(kind="label", name="ok", value=1, trajectory_id="a")])
    assert pool.get_group("g").state == "closed"
