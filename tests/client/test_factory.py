import inspect

import numpy as np
import pytest

from agentworld import Pool
from agentworld.client import AsyncFactory, Factory, calls
from agentworld.client.absent import NOT_OVER_HTTP
from agentworld.client.keeping import KeepingMethods
from agentworld.config import ModelSettings
from agentworld.errors import (
    AgentWorldError,
    ConfigError,
    ConflictError,
    GoneError,
    InvalidRequestError,
    NotFoundError,
    StaleLeaseError,
)
from agentworld.factory import connect, open_pool
from agentworld.pool.keeping.records import Retention
from agentworld.pool.memory import MemoryPool
from agentworld.records import Annotation, BatchSpec, Feedback, Message, Metrics, NewTrajectory, Policy, Reward, Step
from agentworld.testing import ScriptedEngine
from tests.api.serving import Serving


@pytest.fixture
def server():
    with Serving() as running:
        yield running


@pytest.fixture(params=["http", "embedded"])
def factory(request):
    """The same surface twice: over HTTP, and on a pool in this process."""
    if request.param == "embedded":
        with open_pool("memory://") as pool:
            yield pool
    else:
        with Serving() as running, connect(running.url) as connected:
            yield connected


def step(number, trajectory_id="t1", **more):
    fields = {"prompt_ids": [1, 2], "response_ids": [3], "response_logprobs": [-0.5], "token_source": "submitted"}
    return Step(step_id=f"s{number}", trajectory_id=trajectory_id, **(fields | more))


def test_trajectories(factory):
    made = factory.create_trajectory(NewTrajectory(trajectory_id="t1", task={"task_id": "1"}, group_id="g"))
    assert (made.trajectory_id, made.status) == ("t1", "open")
    assert factory.start_trajectory(NewTrajectory(trajectory_id="t2")).trajectory_id == "t2"
    ended = factory.complete_trajectory("t1", "finished", 1.0)
    assert ended == factory.get_trajectory("t1")
    assert (ended.status, ended.reward) == ("finished", 1.0)
    first = factory.list_trajectories(limit=1)
    second = factory.list_trajectories(limit=1, cursor=first.next_cursor)
    assert [page.items[0].trajectory_id for page in (first, second)] == ["t1", "t2"]
    assert [each.trajectory_id for each in factory.list_trajectories(where="reward >= 1").items] == ["t1"]
    assert [each.trajectory_id for each in factory.list_trajectories(order="newest").items] == ["t2", "t1"]
    assert factory.list_exchanges("t1") == []


def test_who_gave_a_reward_and_said_what(factory):
    factory.create_trajectory(NewTrajectory(trajectory_id="t1"))
    factory.append_steps([step(n) for n in range(120)])
    factory.add_rewards([Reward(value=n, step_id=f"s{n}", source=f"j{n % 2}", details={"n": n}) for n in range(120)])
    factory.add_rewards([Reward(value=0.5, trajectory_id="t1", source=source) for source in ("ada", "ben")])
    found = factory.rewards_on(trajectory_ids=["t1"], step_ids=[f"s{n}" for n in range(120)])
    of_trajectory = [(one.source, one.value) for one in found if one.step_id is None]
    assert of_trajectory == [("ada", 0.5), ("ben", 0.5)]
    of_steps = {(one.step_id, one.source, one.value, one.details["n"]) for one in found if one.step_id is not None}
    assert of_steps == {(f"s{n}", f"j{n % 2}", float(n), n) for n in range(120)}
    with pytest.raises(InvalidRequestError, match="over 1000"):
        factory.rewards_on(step_ids=["s"] * 1001)
    said = [
        Feedback(kind="rating", value=n, name="ab"[n % 2], trajectory_id="t1", source="xyz"[n % 3]) for n in range(12)
    ]
    factory.add_feedback(said)
    first = factory.list_feedback(source="x", limit=1)
    rest = factory.list_feedback(source="x", cursor=first.next_cursor)
    assert [one.value for one in (*first.items, *rest.items)] == [0, 3, 6, 9]
    assert [one.value for one in factory.list_feedback(name="b", source="x", trajectory_id="t1").items] == [3, 9]
    assert rest.next_cursor is None


def test_steps(factory):
    message = Message(role="user", content="hi")
    sent = step(1, prompt_messages=[message], response_message=Message(role="assistant", content="ho"))
    assert [result.outcome for result in factory.append_steps([sent, step(2)])] == ["stored", "stored"]
    assert [result.outcome for result in factory.append_steps([sent])] == ["duplicate"]
    read = factory.get_step("s1")
    assert read.prompt_ids == [1, 2]
    assert read.response_logprobs == [-0.5]
    assert read.prompt_messages == [message]
    assert factory.get_step("s1", include=()).prompt_ids is None
    assert [each.step_id for each in factory.list_steps(trajectory_id="t1").items] == ["s1", "s2"]
    assert factory.list_steps(include=("tokens",)).items[1].response_ids == [3]
    assert factory.dead_letters() == []


def test_signals_and_state(factory):
    factory.append_steps([step(1)])
    assert factory.add_rewards([Reward(value=0.5, trajectory_id="t1"), Reward(value=1, step_id="s1", name="x")]) == 2
    assert factory.set_policy(Policy("m", "r", 3)) == Policy("m", "r", 3)
    assert factory.add_metrics([Metrics(run="r", step=3, values={"loss": None})]) == 1
    factory.set_paused(True)
    state = factory.gateway_state()
    assert (state.paused, state.policies["m"].version, state.pauses) == (True, 3, 1)
    assert factory.drain().drained  # There is no gateway.
    assert factory.gateway_workers() == []
    assert factory.stats().rewards == 2
    kinds = [event.kind for event in factory.events()]
    assert kinds[0] == "trajectory.created"
    last = factory.events()[-1].sequence
    assert factory.events(after=last) == []


def test_feedback_and_annotations(factory):
    factory.append_steps([step(1)])
    label = Feedback(kind="label", name="quality", value=["good"], step_id="s1")
    assert factory.add_feedback([label, Feedback(kind="comparison", trajectory_id="t1", other_id="t2")]) == 2
    assert factory.get_step("s1").labels == {"quality": ["good"]}
    assert [one.other_id for one in factory.list_feedback(kind="comparison").items] == ["t2"]
    assert factory.list_feedback(step_id="s1").items[0].feedback_id.startswith("fbk_")
    sent = np.array([[1.5, np.nan]], dtype=np.float16)
    assert factory.add_annotations([Annotation(name="values", values=sent, step_id="s1")]) == 1
    assert factory.add_annotations([Annotation(name="big", values=[2**63], dtype="uint64", trajectory_id="t1")]) == 1
    [found] = factory.get_annotations(step_ids=["none"] * 60 + ["s1"], names=["values"])
    assert (found.dtype, found.shape, found.values.dtype) == ("float16", (1, 2), np.float16)
    np.testing.assert_array_equal(found.values, sent)
    assert {one.name: one.values.tolist() for one in factory.get_annotations(trajectory_id="t1")}["big"] == [2**63]
    with pytest.raises(ConflictError):
        factory.add_feedback([Feedback(kind="rating", value=n, step_id="s1", feedback_id="f") for n in (1, 2)])
    with pytest.raises(InvalidRequestError):
        factory.add_annotations([Annotation(name="values", values=["x"], step_id="s1")])


def test_signals_wait_for_their_target(factory):
    result = factory.add_signals([Reward(value=1, step_id="s1"), Reward(value=2, trajectory_id="t1")])
    assert (result.changed, result.set, result.waiting) == (2, 0, ["s1", "t1"])
    first = factory.awaited(limit=1)
    rest = factory.awaited(cursor=first.next_cursor)
    assert [(one.kind, one.id) for page in (first, rest) for one in page.items] == [
        ("step", "s1"),
        ("trajectory", "t1"),
    ]
    factory.append_steps([step(1)])
    assert (factory.get_step("s1").reward, factory.get_trajectory("t1").reward) == (1.0, 2.0)


def test_groups(factory):
    for name in ("t1", "t2"):
        factory.create_trajectory(NewTrajectory(trajectory_id=name, group_id=f"g-{name}", group_size=1))
    factory.complete_trajectory("t1", "failed")
    assert factory.get_group("g-t1").closed_by == "size"
    assert [one.group_id for one in factory.list_groups(state="open").items] == ["g-t2"]
    assert [one.group_id for one in factory.list_groups().items] == ["g-t1", "g-t2"]


def test_a_consumer_streams_and_resumes(factory):
    for number in range(4):
        factory.append_steps([step(number, f"t{number}")])
        factory.complete_trajectory(f"t{number}", "finished", 1.0)
    consumer = factory.consumer("c")
    stream = consumer.stream(BatchSpec(method="sft", size=2), timeout=0.0)
    batch = next(stream)
    assert [item.key for item in batch.items] == ["t0", "t1"]
    assert batch.extend(1000) == batch.deadline
    batch.ack()
    other = next(stream)
    assert consumer.lease(BatchSpec(method="sft")) is None
    assert consumer.resume(applied=[]) == {"acknowledged": [], "released": [other.batch_id], "unknown": []}
    with pytest.raises(StaleLeaseError):
        other.ack()
    again = consumer.lease(BatchSpec(method="sft", size=2))
    again.release()


def test_errors_are_those_that_were_raised(factory):
    with pytest.raises(NotFoundError) as missing:
        factory.get_trajectory("none")
    assert missing.value.code == "not_found"
    factory.create_trajectory(NewTrajectory(trajectory_id="t1"))
    factory.complete_trajectory("t1", "failed")
    with pytest.raises(ConflictError):
        factory.complete_trajectory("t1", "finished")
    with pytest.raises(InvalidRequestError):
        factory.lease(BatchSpec(method="magic"), "c")


def test_the_context_manager_completes(factory):
    with factory.trajectory(task={"task_id": "1"}, group="g", agent="a") as t:
        assert t.base_url is None
        result = t.step(prompt_ids=[1], response_ids=[2], model="m", policy_version=4)
        t.reward(1.0)
        t.reward(0.5, name="format", step_id=result.step_id)
        t.feedback("label", name="quality", value="good", step_id=result.step_id)
        t.feedback("rating", value=3)
        t.annotate("ref_logprobs", [-0.5], step_id=result.step_id)
        t.annotate("advantages", [1.0])
    done = factory.get_trajectory(t.trajectory_id)
    assert (done.status, done.reward, done.group_id, done.agent) == ("finished", 1.0, "g", "a")
    stored = factory.get_step(result.step_id)
    assert (stored.group_id, stored.policy, stored.token_source) == ("g", Policy("m", "default", 4), "submitted")
    assert stored.rewards["format"] == 0.5
    assert (stored.labels, stored.annotations) == ({"quality": "good"}, ["ref_logprobs"])
    assert done.annotations == ["advantages"]
    assert [one.value for one in factory.list_feedback(trajectory_id=t.trajectory_id).items] == [3]


def test_the_context_manager_fails_what_raises(factory):
    with pytest.raises(ZeroDivisionError), factory.trajectory() as t:
        raise ZeroDivisionError
    assert factory.get_trajectory(t.trajectory_id).status == "failed"


def test_completing_early_wins(factory):
    with factory.trajectory() as t:
        t.complete("truncated", reward=0.0)
    assert factory.get_trajectory(t.trajectory_id).status == "truncated"


def test_a_step_takes_messages_as_dicts_and_arrays_of_ids(factory):
    numpy = pytest.importorskip("numpy")
    with factory.trajectory() as t:
        result = t.step(
            prompt_ids=numpy.array([1, 2]),
            response_ids=numpy.array([3]),
            response_logprobs=numpy.array([-0.5]),
            prompt_messages=[{"role": "user", "content": "hi"}],
            response_message={"role": "assistant", "content": "ho"},
        )
    stored = factory.get_step(result.step_id)
    assert stored.prompt_ids == [1, 2]
    assert stored.response_message == Message(role="assistant", content="ho")


@pytest.mark.parametrize(
    ("fields", "path"),
    [({"prompt_ids": ["a"]}, "$.prompt_ids[0]"), ({"colour": 1}, "$"), ({"prompt_messages": [{}]}, "$.prompt_mess")],
)
def test_a_wrong_field_of_a_step_is_named(factory, fields, path):
    with factory.trajectory() as t, pytest.raises(InvalidRequestError) as wrong:
        t.step(**fields)
    assert wrong.value.path.startswith(path)


def test_a_refused_step_raises(factory):
    with factory.trajectory() as t:
        t.step(step_id="s1", prompt_ids=[1], response_ids=[2])
        with pytest.raises(InvalidRequestError, match="conflict"):
            t.step(step_id="s1", prompt_ids=[1], response_ids=[3])


def test_chat_goes_through_the_gateway_and_is_a_step():
    with ScriptedEngine(lambda request: "four", model="m") as engine:
        model = ModelSettings(name="m", upstream=engine.url, driver="builtin", tokens="engine")
        with Serving(models=(model,)) as server, Factory(server.url) as factory:
            with factory.trajectory() as t:
                reply = t.chat([{"role": "user", "content": "2+2?"}], temperature=0.5, max_tokens=8)
                assert reply.message == Message(role="assistant", content="four")
                assert reply.finish_reason == "stop"
                assert reply.usage.completion_tokens > 0
                with pytest.raises(InvalidRequestError):
                    t.chat([{"role": "wizard", "content": "2+2?"}])
            steps = factory.list_steps(trajectory_id=t.trajectory_id).items
            assert len(steps) == 1
            assert steps[0].sampling.temperature == 0.5


def test_chat_without_a_gateway_says_so(factory):
    with factory.trajectory() as t, pytest.raises(AgentWorldError, match="no gateway"):
        t.chat([{"role": "user", "content": "hi"}])


def test_open_pool_is_a_pool():
    from agentworld.pool import Pool

    with open_pool("memory://") as pool:
        assert isinstance(pool, Pool)
        assert isinstance(pool.store, MemoryPool)


def test_what_is_no_server_of_ours_is_said():
    said = r"is no AgentWorld server: it answered 404 .*agentworld serve"
    with (
        ScriptedEngine("four") as engine,
        connect(engine.url) as factory,
        pytest.raises(ConfigError, match=said),
    ):
        factory.start_trajectory(NewTrajectory())
    with pytest.raises(ConfigError, match="cannot be read"):
        calls.stats().read(b"<html>hello</html>", "http://127.0.0.1:1")


def test_a_record_that_is_missing_stays_a_record_that_is_missing(server):
    with connect(server.url) as factory, pytest.raises(NotFoundError, match="no trajectory 'none'"):
        factory.get_trajectory("none")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda factory: factory.append_steps(step(1)), "a list of Step, not Step"),
        (lambda factory: factory.add_rewards(Reward(trajectory_id="t", value=1.0)), "not Reward"),
        (lambda factory: factory.set_policy("m"), "a Policy, not str (at policy)"),
        (lambda factory: factory.follow(kinds=["step.added"]), "Known: trajectory.created"),
        (lambda factory: factory.trajectory(grop="g"), "field 'grop' (at grop)"),
        (lambda factory: factory.trajectory().step(token_source="me"), "Known: derived, engine, none"),
        (lambda factory: factory.trajectory(group_failures="keep"), "Known: drop, mask, zero"),
    ],
)
def test_a_wrong_argument_is_an_error_that_says_what_to_write(factory, call, said):
    with pytest.raises(InvalidRequestError) as caught:
        call(factory)
    assert said in str(caught.value)


def test_signals_of_another_kind_are_refused(server):
    with connect(server.url) as factory, pytest.raises(InvalidRequestError, match="a Feedback, not Reward"):
        factory.add_feedback([Reward(trajectory_id="t", value=1.0)])


def test_a_rollout_is_tried_again_before_its_group_is_full(factory):
    for index, failing in ((0, 0), (1, 2)):
        for attempt in factory.attempts(3, group="g", group_size=2, rollout_index=index):
            with attempt as trajectory:
                trajectory.step(prompt_ids=[1], response_ids=[2])
                if failing:
                    failing -= 1
                    raise RuntimeError("the agent died")
                trajectory.reward(1.0)
    there = factory.list_trajectories(group_id="g").items
    assert [(one.rollout_index, one.attempt, one.status, one.readiness) for one in there] == [
        (0, 0, "finished", "ready"),
        (1, 0, "failed", "excluded"),
        (1, 1, "failed", "excluded"),
        (1, 2, "finished", "ready"),
    ]
    group = factory.get_group("g")
    assert (group.state, group.ended, group.served) == ("closed", 2, 2)


def test_the_error_of_the_last_attempt_is_raised(factory):
    began = []
    with pytest.raises(RuntimeError, match="attempt 1"):
        for attempt in factory.attempts(2, group="g", group_size=1, rollout_index=0):
            with attempt as trajectory:
                began.append(trajectory.trajectory_id)
                raise RuntimeError(f"attempt {len(began) - 1}")
    assert [factory.get_trajectory(name).status for name in began] == ["failed", "failed"]
    assert factory.get_group("g").state == "closed"


def test_an_attempt_ends_also_where_the_next_one_cannot_begin(factory):
    def fail():
        raise ConnectionError("nobody there")

    attempt = next(factory.attempts(2, group="g", group_size=1, rollout_index=0))
    attempt.begin_next = fail
    with pytest.raises(ConnectionError, match="nobody there"), attempt:
        raise RuntimeError("the agent died")
    assert factory.get_trajectory(attempt.trajectory_id).status == "failed"


def test_attempts_that_cannot_be_meant_are_refused(factory):
    for fields in ({"times": 0}, {"trajectory_id": "t"}, {"group": "g"}):
        with pytest.raises(InvalidRequestError):
            factory.attempts(**fields)


def test_what_is_deleted_and_collected_is_gone_for_the_embedded_pool_and_over_http(factory):
    for name, user in (("a", "u"), ("b", "u"), ("c", "v"), ("d", "v"), ("e", None)):
        with factory.trajectory(trajectory_id=name, user=user) as t:
            t.step(prompt_ids=[1], response_ids=[2], token_source="submitted")
    told = []
    done = factory.delete_trajectories(
        ["a", "nobody"], "they asked", progress=lambda stage, done, total: told.append((done, total))
    )
    assert (done.trajectories, done.steps, done.unknown) == (1, 1, ["nobody"])
    assert told
    with pytest.raises(GoneError):
        factory.complete_trajectory("a", "finished")
    assert factory.delete_user("u").trajectories == 1
    assert factory.delete_user("nobody").trajectories == 0
    with pytest.raises(InvalidRequestError, match="user"):
        factory.delete_user("")
    limits = Retention(max_steps=1)
    assert factory.collect(limits, dry_run=True).trajectories == 2
    assert factory.collect(limits, include_waiting=True).trajectories == 2
    assert [one.trajectory_id for one in factory.list_trajectories().items] == ["e"]
    with pytest.raises(InvalidRequestError, match="max_age"):
        factory.collect(Retention(max_age=-1))


def test_a_purge_is_asked_for_with_the_last_of_what_is_deleted():
    pool = MemoryPool()
    purged = []
    pool.purge = lambda **_: purged.append([one.trajectory_id for one in pool.list_trajectories().items])
    with Serving(pool) as running, connect(running.url) as factory:
        for name in "abc":
            factory.create_trajectory(NewTrajectory(trajectory_id=name))
        factory.delete_trajectories(["a", "b"], purge=True)
        factory.collect(dry_run=True, purge=True)  # Which changes nothing.
        factory.delete_user("nobody", purge=True)
    assert purged == [["c"], ["c"]]


def test_the_methods_that_delete_are_the_same_for_event_loops():
    for name, method in inspect.getmembers(KeepingMethods, inspect.isfunction):
        if not name.startswith("_"):
            other = getattr(AsyncFactory, name)
            assert inspect.iscoroutinefunction(other)
            assert inspect.signature(other) == inspect.signature(method)


def test_what_a_server_does_not_offer_says_what_to_use(server):
    with connect(server.url) as factory, open_pool("memory://") as pool:
        offered = {name for name in [*dir(Pool), *dir(pool), "poll_seconds"] if not name.startswith("_")} - {"store"}
        assert {name for name in offered if not hasattr(factory, name)} == set(NOT_OVER_HTTP)
        with pytest.raises(InvalidRequestError, match="Use append_steps"):
            factory.submit_steps([])
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            factory.nothing()


def test_the_pool_lists_its_methods():
    with open_pool("memory://") as pool:
        assert {"append_steps", "lease", "trajectory", "attempts"} <= set(dir(pool))
