"""Random lives of groups end alike in every store, and their numbers are those of their members."""

import itertools

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentworld.errors import AgentWorldError, NotFoundError
from agentworld.pool.group_rules import rollout_ended, serves
from agentworld.pool.memory import MemoryPool
from agentworld.records import NewTrajectory, Reward
from tests.examples import examples

from ..samples import step

numbers = itertools.count()
NAMES = ["a", "b", "c", "d", "e"]
names = st.sampled_from(NAMES)
creations = st.fixed_dictionaries(
    {},
    optional={
        "group_id": st.sampled_from(["g", "g", "h"]),
        "group_size": st.integers(1, 3),
        "rollout_index": st.integers(0, 2),
        "attempt": st.integers(0, 1),
        "group_timeout": st.sampled_from([5.0, 9.0]),
        "group_failures": st.sampled_from(["zero", "mask", "drop"]),
    },
)
actions = st.one_of(
    st.tuples(st.just("create"), names, creations),
    st.tuples(st.just("step"), names, st.sampled_from([None, "g"])),
    st.tuples(
        st.just("complete"),
        names,
        st.tuples(st.sampled_from(["finished", "failed", "truncated", "abandoned"]), st.sampled_from([None, 1.0])),
    ),
    st.tuples(st.just("reward"), names, st.sampled_from([0.0, 0.5])),
    st.tuples(st.just("wait"), st.just(""), st.sampled_from([3.0, 6.0])),
    st.tuples(st.just("look"), st.just(""), st.none()),
)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=st.lists(actions, max_size=14))
@example(  # The one that began first ends last.
    acts=[
        ("step", "a", "g"),
        ("create", "a", {"group_id": "h", "group_timeout": 5.0}),
        ("wait", "", 3.0),
        ("create", "b", {"group_id": "g", "group_timeout": 9.0}),
        ("wait", "", 6.0),
    ]
)
@example(  # Both end at once.
    acts=[
        ("create", "a", {"group_id": "h", "group_timeout": 5.0}),
        ("create", "b", {"group_id": "g", "group_timeout": 5.0}),
        ("wait", "", 6.0),
    ]
)
def test_groups_live_alike_in_every_store(pool, clock, acts):
    number = next(numbers)  # Keeps the records of one example apart from those of the others.
    model = MemoryPool(clock=clock)
    stores = (pool, model)
    begun = pool.stats().last_event
    for place, (kind, name, detail) in enumerate(acts):
        if kind == "wait":
            clock.now += detail
            continue
        outcomes = [_act(store, kind, name, detail, number, place) for store in stores]
        assert outcomes[0] == outcomes[1]
    for store in stores:
        store.close_due_groups()
    for name in ("g", "h"):
        found = [_read(store.get_group, f"{name}{number}") for store in stores]
        assert found[0] == found[1]
        members = pool.list_trajectories(group_id=f"{name}{number}").items
        if found[0] is not None:
            rollouts = {}
            for one in members:
                alone = one.rollout_index is None
                rollouts.setdefault((alone, one.trajectory_id if alone else one.rollout_index), []).append(one.status)
            assert found[0].members == len(members)
            assert found[0].served == sum(serves(one.readiness) for one in members)
            assert found[0].ended == sum(map(rollout_ended, rollouts.values()))
    for name in NAMES:
        there, expected = (_read(store.get_trajectory, f"{name}{number}") for store in stores)
        assert there == expected
    told = [store.events(after=after, limit=1000) for store, after in zip(stores, (begun, 0), strict=True)]
    closed = [
        [one.data for one in events if one.kind == "group.closed" and one.data["group_id"][1:] == str(number)]
        for events in told
    ]
    assert closed[0] == closed[1]


def _act(store, kind, name, detail, number, place):
    trajectory_id = f"{name}{number}"
    try:
        if kind == "create":
            group = {"group_id": f"{detail['group_id']}{number}"} if "group_id" in detail else {}
            store.create_trajectory(NewTrajectory(trajectory_id=trajectory_id, **{**detail, **group}))
        elif kind == "step":
            group_id = None if detail is None else f"{detail}{number}"
            sent = step(trajectory_id, step_id=f"s{place}-{number}", group_id=group_id, response_ids=[1, 2])
            return store.append_steps([sent])[0].outcome
        elif kind == "complete":
            store.complete_trajectory(trajectory_id, *detail)
        elif kind == "reward":
            return store.add_rewards([Reward(value=detail, trajectory_id=trajectory_id)])
        else:
            store.close_due_groups()
    except AgentWorldError as error:
        return error.code, error.path
    return None


def _read(get, name):
    try:
        return get(name)
    except NotFoundError:
        return None
