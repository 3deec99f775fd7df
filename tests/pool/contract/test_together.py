"""Many appends at once give what the same appends one by one give, on every store."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentworld.errors import AgentWorldError, ConflictError
from agentworld.pool.memory import MemoryPool
from agentworld.records import Exchange, Message, NewTrajectory, Policy, Step
from tests.examples import examples

from ..samples import ids, step

_numbers = itertools.count()
SAID = [Message(role="user", content="question")]


@st.composite
def appends(draw):
    """One step or call: ids of few values, so that duplicates, conflicts, retries and shared prefixes are frequent."""
    number = draw(st.integers(0, 5))
    trajectory = draw(st.integers(0, 1))
    shared = draw(st.sampled_from([0, 127, 128, 260]))
    said = {
        "prompt_ids": draw(st.none() | st.just(list(range(shared)))),
        "response_ids": draw(st.none() | st.just([number] * draw(st.sampled_from([1, 130])))),
        "response_logprobs": draw(st.none() | st.just([-0.5])),
        "prompt_messages": draw(st.none() | st.just(SAID * draw(st.integers(0, 3)))),
        "response_message": draw(st.none() | st.just(Message(role="assistant", content="answer"))),
        "supersedes": draw(st.none() | st.integers(0, 5)),
        "channel": draw(st.sampled_from(["train", "train", "val"])),
        "policy": draw(st.none() | st.builds(Policy, st.just("m"), st.just("r"), st.integers(0, 2))),
        "reward": draw(st.none() | st.just(1.0)),
        "finish_reason": draw(st.sampled_from(["stop", "stop", "abort"])),
        "agent": draw(st.sampled_from(["a", "a", "\x00"])),
    }
    call = draw(st.none() | st.integers(0, 2))
    return number, trajectory, said, call


def sent(run, one):
    """The append as records of run `run`."""
    number, trajectory, said, call = one
    said = {**said, "supersedes": None if said["supersedes"] is None else f"s{run}-{said['supersedes']}"}
    record = Step(step_id=f"s{run}-{number}", trajectory_id=f"t{run}-{trajectory}", created_at=5.0, **said)
    if call is None:
        return record
    return Exchange(
        exchange_id=f"e{run}-{call}",
        trajectory_id=record.trajectory_id,
        dialect="chat",
        model="m",
        requested_model="m",
        messages=SAID,
        choices=[record],
        created_at=5.0,
        error={"code": "x"} if call == 2 else None,
    )


def submit(store, record):
    """The future of one append."""
    if isinstance(record, Exchange):
        return store.submit_exchange(record)
    return store.submit_steps([record])


def outcome(future, run):
    """What became of an append, without the name of its run."""
    try:
        results = future.result()
    except ConflictError as error:
        return type(error).__name__
    return [(one.step_id.replace(run, ""), one.outcome, one.step_index, one.reason) for one in results]


def seen(store, run):
    """All that can be read of a run."""
    found = []
    for name in (f"t{run}-0", f"t{run}-1"):
        for listed in store.list_steps(trajectory_id=name, include=("tokens", "messages", "logprobs")).items:
            found.append(str(listed).replace(run, ""))
        try:
            there = store.get_trajectory(name)
        except AgentWorldError:
            continue
        found.append(
            (there.status, there.step_count, there.prompt_tokens, there.sampled_tokens, there.policy, there.channel)
        )
        found.append([kept.exchange_id.replace(run, "") for kept in store.list_exchanges(name)])
    return found


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared_pool(request, tmp_path_factory):
    if request.param == "sqlite":
        from agentworld.pool.sqlite import SqlitePool

        store = SqlitePool(tmp_path_factory.mktemp("together") / "pool.db")
    else:
        from agentworld.pool.postgres import PostgresPool

        store = PostgresPool(request.getfixturevalue("postgres").fresh_pool_url())
    yield store
    store.close()


@settings(max_examples=examples(60), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(work=st.lists(appends(), min_size=1, max_size=10), ended=st.booleans())
def test_together_is_as_one_by_one(shared_pool, work, ended):
    memory = MemoryPool()
    # No name of a run is part of another, or of anything else that is compared.
    runs = {how: f"run{next(_numbers):06}" for how in ("together", "alone", "memory")}
    stores = {"together": shared_pool, "alone": shared_pool, "memory": memory}
    outcomes, states = {}, {}
    for how, run in runs.items():
        store = stores[how]
        if ended:
            store.create_trajectory(NewTrajectory(trajectory_id=f"t{run}-0"))
            store.complete_trajectory(f"t{run}-0", "finished", 1.0)
        records = [sent(run, one) for one in work]
        if how == "together":
            futures = [submit(store, record) for record in records]
            outcomes[how] = [outcome(future, run) for future in futures]
        else:
            outcomes[how] = [outcome(submit(store, record), run) for record in records]
        states[how] = seen(store, run)
    assert outcomes["together"] == outcomes["alone"] == outcomes["memory"]
    assert states["together"] == states["alone"]
    assert [line for line in states["together"] if not isinstance(line, str)] == [
        line for line in states["memory"] if not isinstance(line, str)
    ]


def test_the_pool_is_sound_after_all_of_that(shared_pool):
    # What trajectories count over their steps is among what the check counts again.
    assert shared_pool.check() == []


def test_events_stand_in_the_order_of_the_steps(pool):
    pool.submit_steps([step("t", step_id="a"), step("u", step_id="b"), step("t", step_id="c")]).result()
    told = [(event.kind, event.trajectory_id, event.step_id) for event in pool.events()]
    assert told == [
        ("trajectory.created", "t", None),
        ("step.appended", "t", "a"),
        ("trajectory.created", "u", None),
        ("step.appended", "u", "b"),
        ("step.appended", "t", "c"),
    ]
    assert [event.data for event in pool.events() if event.step_id] == [{"outcome": "stored"}] * 3


def test_a_conflicting_call_fails_alone(pool):
    plain = {"trajectory_id": "t", "dialect": "chat", "model": "m", "requested_model": "m", "messages": []}
    first = Exchange(exchange_id="e", **plain, choices=[step("t", step_id="a")])
    other = Exchange(exchange_id="e", **plain, retry_count=1, choices=[step("t", step_id="b")])
    futures = [pool.submit_exchange(first), pool.submit_exchange(other), pool.submit_steps([step("t", step_id="c")])]
    assert futures[0].result()[0].outcome == futures[2].result()[0].outcome == "stored"
    with pytest.raises(ConflictError):
        futures[1].result()
    assert ids(pool.list_steps()) == ["a", "c"]
    assert pool.stats().exchanges == 1


def test_what_was_deleted_does_not_come_back_and_nothing_of_it_is_kept(pool):
    gone = step("t", step_id="a", prompt_messages=[Message(role="user", content="secret")])
    pool.append_steps([gone])
    pool.delete_trajectories(["t"], "asked for")
    again = step("t", step_id="z", prompt_messages=[Message(role="user", content="secret")])
    moved = step("u", step_id="a", prompt_messages=[Message(role="user", content="secret")])
    results = pool.append_steps([again, step("u", step_id="b"), moved])
    assert [result.outcome for result in results] == ["rejected", "stored", "rejected"]
    assert "deleted" in results[0].reason
    assert "asked for" in results[0].reason
    assert "deleted" in results[2].reason
    assert ids(pool.list_steps()) == ["b"]
    assert [letter.record for letter in pool.dead_letters()] == ["", ""]
