"""Deletion on request: everything of a trajectory goes, nothing of anybody else's does, and nothing comes back."""

import itertools

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentworld.errors import GoneError, NotFoundError
from agentworld.pool.media import media_digest
from agentworld.pool.memory import MemoryPool
from agentworld.records import (
    Annotation,
    BatchSpec,
    Exchange,
    Feedback,
    MediaPart,
    Message,
    NewTrajectory,
    Reward,
    TextPart,
)
from tests.examples import examples
from tests.pool.samples import finished, group, step

_runs = itertools.count()
LONG = list(range(500))
READ = ("tokens", "messages", "logprobs")


def full(pool, name, **settings):
    """A trajectory with something in every place that a pool has; returns its steps' ids."""
    medium = pool.put_media(b"picture of " + name.encode(), "image/png")
    shown = Message(role="user", content=(TextPart("see"), MediaPart(medium, "image/png")))
    pool.create_trajectory(NewTrajectory(trajectory_id=name, metadata={"of": name}, task={"task_id": name}, **settings))
    exchange = Exchange(
        exchange_id=f"x-{name}",
        trajectory_id=name,
        dialect="chat",
        model="m",
        requested_model="m",
        messages=[shown],
        tools=[{"type": "function", "function": {"name": f"tool-{name}"}}],
        choices=[step(name, prompt_ids=[*LONG, 7], response_ids=LONG, response_logprobs=None, prompt_messages=None)],
    )
    pool.append_exchange(exchange)
    pool.append_steps([step(name, metadata={"of": name}, labels={"l": name}), step(name, step_id="no id at all")])
    steps = [one.step_id for one in pool.list_steps(trajectory_id=name).items]
    assert len(steps) == 2
    pool.add_rewards([Reward(value=1.0, step_id=steps[0], details={"why": name}, source=name)])
    pool.add_feedback([Feedback(kind="comment", comment=f"about {name}", trajectory_id=name)])
    pool.add_feedback([Feedback(kind="label", name="quality", value=name, step_id=steps[1])])
    pool.add_annotations([Annotation(name="values", values=[1.0, 2.0], step_id=steps[1])])
    pool.add_rewards([Reward(value=1.0, step_id=f"{name}-never", trajectory_id=name)])
    pool.complete_trajectory(name, "finished", 0.5)
    return steps


def everything(pool, name):
    """All that a pool says of one trajectory."""
    steps = pool.list_steps(trajectory_id=name, include=READ, limit=1000).items
    return (
        pool.get_trajectory(name),
        steps,
        pool.list_exchanges(name),
        pool.list_feedback(trajectory_id=name).items,
        [repr(one) for one in pool.get_annotations(trajectory_id=name)],
        [letter for letter in pool.dead_letters() if letter.trajectory_id == name],
    )


def test_everything_of_a_trajectory_goes(pool):
    steps = full(pool, "gone")
    kept = full(pool, "kept")
    before = everything(pool, "kept")
    deletion = pool.delete_trajectories(["gone"], "asked")
    assert (deletion.trajectories, deletion.steps, deletion.unknown) == (1, 2, [])
    assert deletion.token_blocks == 0  # The blocks are the other one's too.
    assert deletion.message_nodes > 0
    assert deletion.media == 1
    with pytest.raises(NotFoundError):
        pool.get_trajectory("gone")
    for step_id in steps:
        with pytest.raises(NotFoundError):
            pool.get_step(step_id)
    assert pool.list_steps(limit=1000).items == pool.list_steps(trajectory_id="kept", limit=1000).items
    assert pool.list_exchanges("gone") == []
    assert [one.trajectory_id for one in pool.list_feedback().items if one.trajectory_id] == ["kept"]
    assert pool.get_annotations(step_ids=steps) == []
    assert {letter.trajectory_id for letter in pool.dead_letters()} == {"kept"}
    assert [one.id for one in pool.awaited().items] == ["kept-never"]
    assert everything(pool, "kept") == before
    assert len(kept) == 2
    assert pool.check() == []


def test_the_last_one_leaves_no_content(pool):
    for name in ("a", "b"):
        full(pool, name)
    pool.delete_trajectories(["a", "b"])
    stats = pool.stats()
    assert (stats.steps, stats.tokens_flat, stats.tokens_stored, stats.message_nodes) == (0, 0, 0, 0)
    assert (stats.rewards, stats.exchanges, stats.dead_letters, stats.trajectories) == (0, 0, 0, {})
    assert pool.check() == []


def test_a_tombstone_an_event_and_bare_events_stay(pool, clock):
    steps = full(pool, "gone")
    clock.now += 5
    pool.delete_trajectories(["gone"], "asked")
    tombstones = pool.tombstones()
    assert [(one.kind, one.target_id, one.reason, one.at) for one in tombstones] == [
        ("trajectory", "gone", "asked", clock.now),
        *(("step", step_id, "asked", clock.now) for step_id in steps),
    ]
    assert pool.tombstones(after=tombstones[0].sequence, limit=1) == tombstones[1:2]
    events = [event for event in pool.events() if event.trajectory_id == "gone"]
    assert events[-1].kind == "trajectory.deleted"
    assert {key for event in events for key in event.data} <= {"outcome", "status"}
    assert {event.step_id for event in events if event.kind == "step.appended"} == set(steps)


def test_what_comes_later_is_refused(pool):
    steps = full(pool, "gone")
    pool.delete_trajectories(["gone"], "asked")
    with pytest.raises(GoneError):
        pool.create_trajectory(NewTrajectory(trajectory_id="gone"))
    late, again = pool.append_steps([step("gone", metadata={"secret": 1}), step("other", step_id=steps[0])])
    assert (late.outcome, again.outcome) == ("rejected", "rejected")
    assert "deleted" in late.reason
    assert [letter.record for letter in pool.dead_letters()] == ["", ""]
    for target in ({"trajectory_id": "gone"}, {"step_id": steps[0]}):
        with pytest.raises(GoneError):
            pool.add_rewards([Reward(value=1.0, **target)])
    with pytest.raises(GoneError):
        pool.complete_trajectory("gone", "finished")
    assert pool.check() == []


def test_what_has_not_come_yet_is_refused_too(pool):
    deletion = pool.delete_trajectories(["early"])
    assert (deletion.trajectories, deletion.unknown) == (0, ["early"])
    with pytest.raises(GoneError):
        pool.create_trajectory(NewTrajectory(trajectory_id="early"))


def test_deleting_again_changes_nothing(pool):
    full(pool, "gone")
    pool.delete_trajectories(["gone"], "first")
    before = (pool.tombstones(), pool.stats())
    again = pool.delete_trajectories(["gone"], "second")
    assert (again.trajectories, again.unknown) == (0, ["gone"])
    assert (pool.tombstones(), pool.stats()) == before


def test_everything_of_a_user_goes(pool):
    full(pool, "a", user="alice")
    full(pool, "b", user="alice")
    full(pool, "c", user="bob")
    before = everything(pool, "c")
    deletion = pool.delete_user("alice", "asked")
    assert deletion.trajectories == 2
    assert [one.trajectory_id for one in pool.list_trajectories().items] == ["c"]
    assert everything(pool, "c") == before
    assert [(one.kind, one.target_id) for one in pool.tombstones() if one.kind != "step"] == [
        ("user", "alice"),
        ("trajectory", "a"),
        ("trajectory", "b"),
    ]
    assert pool.delete_user("nobody").unknown == ["nobody"]
    assert pool.check() == []


def test_deletion_beats_pins_and_leases(pool):
    finished(pool, "a", reward=1.0)
    finished(pool, "b", reward=1.0)
    pool.pin("dataset", "d1", ["a", "b"])
    batch = pool.lease(BatchSpec(method="sft", size=2), "policy")
    pool.delete_trajectories(["a"])
    assert [one.trajectory_id for one in pool.pins()] == ["b"]
    assert [unit.key for unit in pool.get_batch(batch.batch_id).units] == ["b"]
    assert pool.check() == []
    pool.ack(batch.batch_id, batch.epoch)
    assert pool.lease(BatchSpec(method="sft", size=1), "policy") is None
    assert pool.check() == []


def test_a_released_batch_brings_back_only_what_is_there(pool):
    finished(pool, "a", reward=1.0)
    finished(pool, "b", reward=1.0)
    batch = pool.lease(BatchSpec(method="sft", size=2), "policy")
    pool.delete_trajectories(["a"])
    pool.release(batch.batch_id, batch.epoch)
    again = pool.lease(BatchSpec(method="sft", size=2, min_size=1), "policy")
    assert [item.key for item in again.items] == ["b"]
    assert pool.check() == []


def test_a_group_goes_on_without_it(pool):
    group(pool, "g", [0.0, 1.0, 0.5])
    batch = pool.lease(BatchSpec(method="grpo", groups=1, rollouts=3), "policy")
    assert "g-1" in batch.items[0].rewards
    pool.delete_trajectories(["g-1"])
    assert pool.get_group("g").members == 2
    (unit,) = pool.get_batch(batch.batch_id).units
    assert set(unit.rewards) == {"g-0", "g-2"}
    assert unit.trajectories == ("g-0", "g-2")
    assert pool.check() == []
    pool.delete_trajectories(["g-0", "g-2"])
    with pytest.raises(NotFoundError):
        pool.get_group("g")
    assert pool.check() == []


def test_a_comparison_goes_with_either_side(pool):
    for name in ("a", "b", "c"):
        finished(pool, name, reward=1.0)
    pool.add_feedback([Feedback(kind="comparison", trajectory_id="a", other_id="b")])
    pool.add_feedback([Feedback(kind="comparison", trajectory_id="a", other_id="c", feedback_id="f2")])
    batch = pool.lease(BatchSpec(method="dpo", size=2), "policy")
    assert len(batch.items) == 2
    pool.delete_trajectories(["b"])
    assert [one.feedback_id for one in pool.list_feedback().items] == ["f2"]
    assert [unit.key for unit in pool.get_batch(batch.batch_id).units] == ["comparison:f2"]
    pool.ack(batch.batch_id, batch.epoch)
    assert pool.check() == []


@pytest.mark.parametrize("stage", ["content", "events"])
def test_a_collection_ends_a_deletion_that_was_broken_off(request, stage):
    for kind in ("sqlite_pool", "postgres_pool"):
        pool = request.getfixturevalue(kind)
        pool.create_trajectory(NewTrajectory(trajectory_id="long"))
        for _ in range(3):
            pool.append_steps([step("long") for _ in range(100)])
        pool.add_rewards([Reward(value=1.0, trajectory_id="long", source="secret")])

        class Stop(Exception):
            pass

        drop, scrub, calls = pool._drop, pool._scrub_events, []

        def broken(*arguments, calls=calls, **options):
            calls.append(arguments)
            raise Stop

        setattr(pool, "_drop" if stage == "content" else "_scrub_events", broken)
        with pytest.raises(Stop):
            pool.delete_trajectories(["long"])
        assert calls
        pool._drop, pool._scrub_events = drop, scrub
        pool.collect()
        assert pool.stats().steps == 0
        assert {key for event in pool.events() for key in event.data} <= {"outcome", "status", "trajectories", "steps"}
        assert pool.list_trajectories().items == []
        assert pool.check() == []


@pytest.mark.parametrize("again", ["delete", "purge", "delete another"])
@pytest.mark.parametrize("stage", ["_drop", "_scrub_events"])
def test_what_a_deletion_left_when_it_was_broken_off_goes(request, again, stage):
    """Whatever keeps the pool next finishes it: reward names in events, messages, and the media that they showed."""
    for kind in ("sqlite_pool", "postgres_pool"):
        pool = request.getfixturevalue(kind)
        full(pool, "gone")
        full(pool, "kept")

        class Stop(Exception):
            pass

        def broken(*arguments, stop=Stop, **options):
            raise stop

        setattr(pool, stage, broken)
        with pytest.raises(Stop):
            pool.delete_trajectories(["gone"])
        delattr(pool, stage)
        if again == "delete":
            assert pool.delete_trajectories(["gone"]).unknown == ["gone"]
        elif again == "purge":
            pool.purge()
        else:
            pool.delete_trajectories(["another"])
        told = [event.data for event in pool.events() if event.trajectory_id == "gone"]
        assert {key for data in told for key in data} <= {"outcome", "status"}
        with pytest.raises(NotFoundError):
            pool.get_media(media_digest(b"picture of gone").hex())
        assert pool.get_media(media_digest(b"picture of kept").hex()).data == b"picture of kept"
        assert pool.collect().message_nodes == 0
        assert pool.check() == []


def test_what_was_said_of_a_step_before_it_came_goes_from_events_too(pool):
    pool.add_rewards([Reward(value=1.0, step_id="early", name="secret", source="secret")])
    pool.append_steps([step("gone", step_id="early")])
    pool.append_steps([step("kept", step_id="other")])
    pool.add_rewards([Reward(value=1.0, step_id="other", name="open", source="open")])
    assert "secret" in str([event.data for event in pool.events()])
    pool.delete_trajectories(["gone"])
    told = str([event.data for event in pool.events()])
    assert "secret" not in told
    assert "open" in told


def test_a_long_trajectory_goes_in_parts(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="long"))
    for _ in range(5):
        pool.append_steps([step("long") for _ in range(100)])
    seen = []
    assert pool.delete_trajectories(["long"], progress=lambda *told: seen.append(told)).steps == 500
    assert seen
    assert pool.stats().steps == 0
    assert pool.check() == []


def test_what_was_cached_before_a_deletion_is_stored_anew(pool):
    """Writers remember blocks and messages that they have stored; a deletion makes them forget."""
    conversation = {"prompt_ids": LONG, "response_ids": [1] * 300, "response_logprobs": None, "tools": [{"a": 1}]}
    finished(pool, "gone", step_changes=conversation)
    pool.delete_trajectories(["gone"])
    sent = step("new", **conversation)
    assert pool.append_steps([sent])[0].outcome == "stored"
    read = pool.get_step(sent.step_id, include=READ)
    assert (read.prompt_ids, read.response_ids, read.tools) == (LONG, [1] * 300, [{"a": 1}])
    assert read.prompt_messages == sent.prompt_messages
    assert pool.check() == []


@st.composite
def conversations(draw):
    """Trajectories over few ids and messages, so that much is shared; and which of them are deleted."""
    names = [f"t{number}" for number in range(draw(st.integers(2, 5)))]
    sequences = []
    for name in names:
        for _ in range(draw(st.integers(1, 3))):
            blocks = draw(st.lists(st.integers(0, 2), max_size=3))
            tail = draw(st.integers(0, 130))
            said = draw(st.lists(st.sampled_from(["hello", "again", "why"]), min_size=1, max_size=3))
            tools = draw(st.sampled_from([None, [{"name": "one"}], [{"name": "two"}]]))
            sequences.append((name, [block for block in blocks for _ in range(128)] + [9] * tail, said, tools))
    return names, sequences, draw(st.sets(st.sampled_from(names), min_size=1))


@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(conversations())
def test_content_that_others_share_stays_exactly(pool, drawn):
    _, sequences, gone = drawn
    run = next(_runs)  # Ids that were deleted stay so, and examples share a pool.
    sent = []
    for name, ids, said, tools in sequences:
        messages = [Message(role="user", content=text) for text in said]
        sent.append(
            step(
                f"{run}-{name}",
                prompt_ids=ids,
                prompt_messages=messages,
                tools=tools,
                response_ids=[1],
                response_logprobs=[-1.0],
            )
        )
    pool.append_steps(sent)
    pool.delete_trajectories([f"{run}-{name}" for name in gone])
    for one in sent:
        if one.trajectory_id.rpartition("-")[2] in gone:
            with pytest.raises(NotFoundError):
                pool.get_step(one.step_id)
            continue
        read = pool.get_step(one.step_id, include=READ)
        for field in ("prompt_ids", "response_ids", "prompt_messages", "response_message", "tools"):
            assert msgspec.to_builtins(getattr(read, field)) == msgspec.to_builtins(getattr(one, field))
    assert pool.check() == []
    assert isinstance(pool, MemoryPool) or pool.collect().token_blocks == 0


@pytest.mark.parametrize("indexed", [False, True])
def test_a_rollout_that_is_deleted_counts_as_ended_for_its_group(pool, indexed):
    for number in range(3):
        index = number if indexed else None
        settings = {"group_id": "g", "group_size": 3, "rollout_index": index}
        if number == 1:
            pool.create_trajectory(NewTrajectory(trajectory_id="g-1", **settings))
        else:
            finished(pool, f"g-{number}", reward=float(number), **settings)
    assert (pool.get_group("g").state, pool.get_group("g").ended) == ("open", 2)
    pool.delete_trajectories(["g-1"])  # It had not ended.
    closed = pool.get_group("g")
    assert (closed.state, closed.closed_by, closed.members, closed.ended) == ("closed", "size", 2, 3)
    batch = pool.lease(BatchSpec(method="grpo", groups=1, rollouts=2), "policy")
    assert sorted(one.trajectory.trajectory_id for one in batch.items[0].trajectories) == ["g-0", "g-2"]
    assert pool.check() == []


def test_one_that_had_ended_goes_on_counting_and_another_attempt_stands_for_it(pool):
    finished(pool, "a", reward=1.0, group_id="g", group_size=2, rollout_index=0)
    pool.create_trajectory(NewTrajectory(trajectory_id="b", group_id="g", group_size=2, rollout_index=1))
    pool.create_trajectory(NewTrajectory(trajectory_id="b2", group_id="g", group_size=2, rollout_index=1, attempt=1))
    pool.delete_trajectories(["a", "b"])
    group_now = pool.get_group("g")
    assert (group_now.state, group_now.members, group_now.ended) == ("open", 1, 1)
    assert pool.check() == []
    pool.complete_trajectory("b2", "finished", 1.0)
    assert (pool.get_group("g").state, pool.get_group("g").ended) == ("closed", 2)
    assert pool.check() == []


def test_what_ends_after_its_group_has_closed_with_a_deleted_rollout_is_sound_too(pool):
    for name in ("a", "b", "late"):
        pool.create_trajectory(NewTrajectory(trajectory_id=name, group_id="g", group_size=2))
    pool.delete_trajectories(["a"])
    pool.complete_trajectory("b", "finished", 1.0)
    pool.complete_trajectory("late", "finished", 1.0)
    assert (pool.get_group("g").state, pool.get_group("g").ended, pool.get_group("g").served) == ("closed", 3, 1)
    assert pool.check() == []
