import pytest

from agentworld.errors import ConflictError, InvalidRequestError, NotFoundError, PoolError
from agentworld.records import NewTrajectory, Policy

from ..samples import ids, step

SETTINGS = {
    "group_id": "g",
    "group_size": 4,
    "rollout_index": 2,
    "attempt": 1,
    "task": {"task_id": "7", "nested": {"b": 1, "a": [None, 1.5, "\x00"]}},
    "agent": "cli",
    "channel": "val",
    "metadata": {"k": True},
}


def test_settings_read_back(pool, clock):
    made = pool.create_trajectory(NewTrajectory(trajectory_id="t", **SETTINGS))
    there = pool.get_trajectory("t")
    assert there == made
    assert {name: getattr(there, name) for name in SETTINGS} == SETTINGS
    assert list(there.task["nested"]) == ["b", "a"]
    assert (there.status, there.readiness, there.created_at, there.step_count) == ("open", "open", clock.now, 0)


def test_an_id_is_given_where_none_is_sent(pool):
    assert pool.create_trajectory(NewTrajectory()).trajectory_id.startswith("trj_")


def test_creating_twice_is_one_trajectory(pool):
    first = pool.create_trajectory(NewTrajectory(trajectory_id="t", **SETTINGS))
    assert pool.create_trajectory(NewTrajectory(trajectory_id="t", **SETTINGS)) == first
    with pytest.raises(ConflictError) as caught:
        pool.create_trajectory(NewTrajectory(trajectory_id="t", **{**SETTINGS, "group_size": 5}))
    assert caught.value.path == "group_size"
    assert pool.stats().trajectories == {"open": 1}


def test_an_empty_task_is_not_an_absent_one(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="empty", task={}))
    pool.create_trajectory(NewTrajectory(trajectory_id="absent"))
    assert (pool.get_trajectory("empty").task, pool.get_trajectory("absent").task) == ({}, None)


def test_a_step_implies_its_trajectory_and_creation_declares_it(pool):
    pool.append_steps([step("t", group_id="g", channel="judge", agent="a")])
    there = pool.get_trajectory("t")
    assert (there.group_id, there.channel, there.agent, there.step_count) == ("g", "judge", "a", 1)
    pool.create_trajectory(NewTrajectory(trajectory_id="t", **SETTINGS))
    assert pool.get_trajectory("t").task == SETTINGS["task"]
    assert [event.kind for event in pool.events()].count("trajectory.created") == 1


@pytest.mark.parametrize("bad", ["", "a/b", " ", "x" * 129, "\ud800", "é"])
def test_ids_that_cannot_stand_in_a_path_are_refused(pool, bad):
    with pytest.raises(InvalidRequestError):
        pool.create_trajectory(NewTrajectory(trajectory_id=bad or " "))
    with pytest.raises(InvalidRequestError):
        pool.create_trajectory(NewTrajectory(group_id=bad or " "))
    assert pool.stats().trajectories == {}


def test_whose_it_is_and_how_urgent_read_back(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="a", user="anna", priority=2.5))
    pool.create_trajectory(NewTrajectory(trajectory_id="b"))
    there = pool.get_trajectory("a")
    assert (there.user, there.priority) == ("anna", 2.5)
    assert ids(pool.list_trajectories(where="user == 'anna'")) == ["a"]
    assert ids(pool.list_trajectories(where="priority < 1")) == ["b"]
    with pytest.raises(ConflictError) as caught:
        pool.create_trajectory(NewTrajectory(trajectory_id="a", user="bert", priority=2.5))
    assert caught.value.path == "user"


@pytest.mark.parametrize(
    ("status", "reward", "readiness"),
    [
        ("finished", None, "complete"),
        ("finished", 0.0, "ready"),
        ("truncated", 1.0, "ready"),
        ("truncated", None, "complete"),
        ("failed", 1.0, "excluded"),
        ("abandoned", None, "excluded"),
    ],
)
def test_completion_decides_readiness(pool, clock, status, reward, readiness):
    pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    pool.append_steps([step("t", step_id="s")])
    assert pool.get_step("s").readiness == "open"
    clock.now += 5
    there = pool.complete_trajectory("t", status, reward)
    assert (there.status, there.reward, there.readiness) == (status, reward, readiness)
    assert there.excluded_reason == (status if readiness == "excluded" else None)
    assert there.completed_at == clock.now
    assert there == pool.get_trajectory("t")
    assert pool.get_step("s").readiness == readiness
    assert pool.stats().trajectories == {status: 1}
    found = pool.list_trajectories(where=f"excluded_reason == '{status}'").items
    assert found == ([there] if readiness == "excluded" else [])


def test_a_trajectory_ends_once(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    first = pool.complete_trajectory("t", "finished")
    assert pool.complete_trajectory("t", "finished") == first
    with pytest.raises(ConflictError):
        pool.complete_trajectory("t", "failed")
    with pytest.raises(InvalidRequestError):
        pool.complete_trajectory("t", "open")
    with pytest.raises(NotFoundError):
        pool.complete_trajectory("other", "finished")
    assert [event.kind for event in pool.events()] == ["trajectory.created", "trajectory.completed"]


def test_a_bad_reward_leaves_the_trajectory_open(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    with pytest.raises(InvalidRequestError):
        pool.complete_trajectory("t", "finished", float("nan"))
    assert pool.get_trajectory("t").status == "open"
    assert [event.kind for event in pool.events()] == ["trajectory.created"]


def test_counts_and_policy_follow_the_steps(pool):
    policies = [Policy("m", "r", 3), Policy("m", "r", 2), Policy("m", "r", 5), Policy("other", "x", 0)]
    pool.append_steps([step("t", policy=policy) for policy in policies])
    there = pool.get_trajectory("t")
    assert (there.step_count, there.prompt_tokens, there.response_tokens) == (4, 12, 8)
    assert there.policy == Policy("m", "r", 2)


def test_pages_follow_creation_in_both_orders(pool):
    names = [f"t{number}" for number in range(7)]
    for name in names:
        pool.create_trajectory(NewTrajectory(trajectory_id=name, channel="val" if name == "t3" else "train"))
    for order, expected in (("oldest", names), ("newest", names[::-1])):
        seen, cursor = [], None
        while True:
            page = pool.list_trajectories(order=order, cursor=cursor, limit=3)
            seen += ids(page)
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == expected
    assert ids(pool.list_trajectories(channel="val")) == ["t3"]
    assert ids(pool.list_trajectories(trajectory_id="t5")) == ["t5"]
    assert pool.list_trajectories(group_id="none").items == []


def test_a_full_last_page_has_no_cursor(pool):
    for name in ("a", "b"):
        pool.create_trajectory(NewTrajectory(trajectory_id=name))
    assert pool.list_trajectories(limit=2).next_cursor is None


def test_a_page_of_new_rows_goes_on_where_the_last_ended(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="a"))
    pool.create_trajectory(NewTrajectory(trajectory_id="b"))
    page = pool.list_trajectories(limit=1)
    pool.create_trajectory(NewTrajectory(trajectory_id="c"))
    assert ids(pool.list_trajectories(cursor=page.next_cursor)) == ["b", "c"]


@pytest.mark.parametrize("bad", [{"cursor": "zz"}, {"cursor": "n1"}, {"limit": 0}, {"limit": 1001}, {"order": "x"}])
def test_bad_paging_is_refused(pool, bad):
    with pytest.raises(InvalidRequestError):
        pool.list_trajectories(**bad)


def test_what_was_returned_is_the_callers(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="t", metadata={"a": [1]}))
    pool.get_trajectory("t").metadata["a"].append(2)
    assert pool.get_trajectory("t").metadata == {"a": [1]}


def test_a_closed_pool_says_so(pool):
    pool.close()
    with pytest.raises(PoolError, match="closed"):
        pool.get_trajectory("t")
    with pytest.raises(PoolError, match="closed"):
        pool.create_trajectory(NewTrajectory())
    pool.close()
