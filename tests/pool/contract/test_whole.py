"""Trajectories that ended elsewhere: each is stored whole or not at all, known again, and decided on as any other."""

from agentworld.pool.keeping.records import Retention
from agentworld.records import (
    CurationPolicy,
    Decision,
    Feedback,
    Message,
    NewTrajectory,
    Reward,
    Step,
    WholeTrajectory,
)

ASKED = [Message(role="system", content="be brief"), Message(role="user", content="what is 2+2?")]


def turn(trajectory_id, number, messages, **changes):
    """Step `number` of a conversation, whose prompt is `messages`."""
    values = {
        "step_id": f"{trajectory_id}.{number}",
        "trajectory_id": trajectory_id,
        "parent_step_id": f"{trajectory_id}.{number - 1}" if number else None,
        "prompt_messages": list(messages),
        "response_message": Message(role="assistant", content=f"answer {number}"),
        "created_at": 100.0 + number,
        **changes,
    }
    return Step(**values)


def run(trajectory_id="t", steps=3, **changes):
    """A conversation of several turns that was rewarded and labelled."""
    messages, made = list(ASKED), []
    for number in range(steps):
        made.append(turn(trajectory_id, number, messages))
        messages += [made[-1].response_message, Message(role="user", content=f"and then, {number}?")]
    values = {
        "new": NewTrajectory(trajectory_id=trajectory_id, agent="a", task={"task_id": "sum"}, metadata={"k": 1}),
        "steps": made,
        "rewards": [
            Reward(value=0.5, trajectory_id=trajectory_id),
            Reward(value=2.0, step_id=made[0].step_id, name="n"),
        ],
        "feedback": [
            Feedback(kind="label", name="good", value=True, step_id=made[-1].step_id, feedback_id="f" + trajectory_id)
        ],
        "origin": {"format": "atif", "digest": "d-" + trajectory_id},
        "created_at": 50.0,
        "completed_at": 200.0,
        **changes,
    }
    return WholeTrajectory(**values)


def everything(pool):
    """What a pool holds, as far as a refusal could have left something."""
    stats = pool.stats()
    return stats.steps, stats.trajectories, stats.last_event, stats.message_nodes, len(pool.dead_letters())


def test_all_of_it_is_there_as_it_was_said(pool):
    sent = run()
    sent.steps[1].fork_reason = "compaction"
    sent.steps[2].parent_step_id, sent.steps[2].fork_reason = "t.0", "subagent"
    [added] = pool.add_whole([sent])
    assert (added.trajectory_id, added.outcome, added.steps, added.excluded) == ("t", "added", 3, {})
    found = pool.get_trajectory("t")
    assert (found.status, found.readiness, found.reward, found.step_count) == ("finished", "ready", 0.5, 3)
    assert (found.created_at, found.completed_at, found.agent, found.task) == (50.0, 200.0, "a", {"task_id": "sum"})
    assert found.metadata == {"k": 1, "import": {"format": "atif", "digest": "d-t"}}
    steps = pool.list_steps(trajectory_id="t", include=("messages",)).items
    for said, step in zip(sent.steps, steps, strict=True):
        for name in ("step_id", "parent_step_id", "fork_reason", "prompt_messages", "response_message", "created_at"):
            assert getattr(step, name) == getattr(said, name), name
    assert (steps[0].rewards, steps[2].labels, [step.is_last for step in steps]) == (
        {"n": 2.0},
        {"good": 1},
        [False, False, True],
    )
    kinds = [event.kind for event in pool.events(trajectory_id="t")]
    assert (kinds[0], kinds[-1]) == ("trajectory.created", "trajectory.completed")
    assert sorted(kinds[1:-1]) == sorted(["step.appended"] * 3 + ["reward.set"] * 2 + ["feedback.added", "label.set"])
    assert pool.check() == []


def test_the_same_again_is_known_and_another_differs(pool):
    pool.add_whole([run("a"), run("b")])
    before = everything(pool)
    other = run("a", steps=2, origin={"format": "atif", "digest": "other"})
    unsaid = run("b", origin={})
    assert [one.outcome for one in pool.add_whole([run("b"), run("a"), other, unsaid])] == [
        "known",
        "known",
        "differs",
        "differs",
    ]
    assert everything(pool) == before
    assert pool.get_trajectory("a").step_count == 3
    twice = pool.add_whole([run("c"), run("c"), run("c", origin={"digest": "other"})])
    assert [one.outcome for one in twice] == ["added", "known", "differs"]


def bad_message(sent):
    sent.steps[2].response_message = Message(role="assistant", content=7)


def bad_step_elsewhere(sent):
    sent.steps[2].step_id = sent.feedback[0].step_id = "there.1"


def bad_twice(sent):
    sent.steps[2].step_id = sent.feedback[0].step_id = "t.1"


def bad_parent(sent):
    sent.steps[1].parent_step_id = "t.2"


def bad_trajectory(sent):
    sent.steps[1].trajectory_id = "other"


def bad_reward(sent):
    sent.rewards[1].value = float("nan")


def bad_reward_target(sent):
    sent.rewards[1].step_id = "there.1"


def bad_feedback(sent):
    sent.feedback[0].feedback_id, sent.feedback[0].value = "fthere", False


def bad_status(sent):
    sent.status = "open"


def bad_group(sent):
    sent.new.group_id, sent.new.group_size = "g", 3


def bad_origin(sent):
    sent.new.metadata = {"import": 1}


def bad_time(sent):
    sent.completed_at = float("inf")


def bad_depth(sent):
    deep = {}
    for _ in range(5000):
        deep = {"d": deep}
    sent.steps[2].metadata = deep


SPOILED = [
    (bad_message, "steps[2]"),
    (bad_step_elsewhere, "'there.1' is there in trajectory 'there' (at steps[2].step_id)"),
    (bad_twice, "steps[2].step_id"),
    (bad_parent, "steps[1].parent_step_id"),
    (bad_trajectory, "steps[1].trajectory_id"),
    (bad_reward, "rewards[1].value"),
    (bad_reward_target, "rewards[1].step_id"),
    (bad_feedback, "feedback[0].feedback_id"),
    (bad_status, "status"),
    (bad_group, "group_size"),
    (bad_origin, "new.metadata.import"),
    (bad_time, "completed_at"),
    (bad_depth, "steps[2].metadata"),
]


def test_what_cannot_be_stored_refuses_its_trajectory_alone(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="planned", group_id="g", group_size=2))
    pool.add_whole([run("there")])
    before = everything(pool)
    for spoil, reason in SPOILED:
        sent = run()
        spoil(sent)
        [refused] = pool.add_whole([sent])
        assert (refused.trajectory_id, refused.outcome) == ("t", "refused")
        assert reason in refused.reason
        assert everything(pool) == before, spoil
        [first, again, last] = pool.add_whole([run(f"{spoil.__name__}-a"), sent, run(f"{spoil.__name__}-b")])
        assert (first.outcome, again, last.outcome) == ("added", refused, "added")
        before = everything(pool)
    assert [one.outcome for one in pool.add_whole([run()])] == ["added"]
    assert pool.check() == []


def test_what_is_no_whole_trajectory_is_refused(pool):
    named = WholeTrajectory(new=NewTrajectory(), steps=[])
    results = pool.add_whole([None, "t", named, run("a", steps=1)])
    assert [one.outcome for one in results] == ["refused", "refused", "refused", "added"]
    assert "new.trajectory_id" in results[2].reason


def test_what_was_deleted_on_request_does_not_come_back(pool):
    pool.add_whole([run(), run("u", new=NewTrajectory(trajectory_id="u", user="someone"))])
    pool.delete_trajectories(["t"], "asked")
    pool.delete_user("someone")
    again = [run(), run("v", new=NewTrajectory(trajectory_id="v", user="someone")), run("w")]
    again[2].steps[1].step_id = "t.1"
    again[2].steps[2].parent_step_id = None
    results = pool.add_whole(again)
    assert [one.outcome for one in results] == ["deleted", "deleted", "deleted"]
    assert "asked" in results[0].reason
    assert pool.list_trajectories().items == []


def test_quarantined_steps_are_counted_by_reason(pool):
    sent = run()
    sent.steps[1].excluded_reason = "bad"
    sent.steps[2].response_logprobs = [-1.0]
    [added] = pool.add_whole([sent])
    assert (added.outcome, sum(added.excluded.values())) == ("added", 2)
    assert added.excluded[pool.get_step("t.1").excluded_reason] == 1
    assert added.excluded[pool.get_step("t.2").excluded_reason] == 1


def test_the_policy_in_force_decides_on_it(pool):
    pool.set_curation(CurationPolicy(rules=('when reward < 1 then exclude "poor"',)))
    pool.add_whole([run("low"), run("high", rewards=[Reward(value=2.0, trajectory_id="high")])])
    assert [pool.get_trajectory(name).readiness for name in ("low", "high")] == ["excluded", "ready"]
    pool.decide([Decision(verdict="exclude", trajectory_id="high", reason="imported again as high.2")])
    assert "imported again" in pool.get_trajectory("high").excluded_reason
    assert "poor" in pool.get_trajectory("low").excluded_reason


def test_signals_that_waited_for_it_are_set(pool):
    pool.add_rewards([Reward(value=4.0, trajectory_id="t", name="later"), Reward(value=5.0, step_id="t.1", name="s")])
    pool.add_whole([run()])
    assert pool.get_trajectory("t").rewards == {"later": 4.0, "reward": 0.5}
    assert pool.get_step("t.1").rewards == {"s": 5.0}
    assert pool.awaited().items == []


def test_its_group_closes_and_what_comes_later_is_late(pool):
    def rollout(name):
        return run(name, new=NewTrajectory(trajectory_id=name, group_id="g", group_size=2))

    pool.add_whole([rollout("a"), rollout("b"), rollout("c")])
    assert pool.get_group("g").state == "closed"
    assert pool.get_group("g").ended >= 2
    assert [pool.get_trajectory(name).readiness for name in "abc"] == ["ready", "ready", "excluded"]
    assert pool.check() == []


def test_much_at_once_is_stored_in_order(pool):
    sent = [run(f"t{number:03}", steps=5) for number in range(120)]
    sent[77].steps[3].response_message = Message(role="assistant", content=7)
    results = pool.add_whole(sent)
    assert [one.trajectory_id for one in results] == [one.new.trajectory_id for one in sent]
    assert [place for place, one in enumerate(results) if one.outcome != "added"] == [77]
    assert pool.stats().steps == 119 * 5
    assert pool.check() == []


def test_its_age_is_that_of_its_end(pool, clock):
    clock.now = 1000.0
    pool.add_whole([run("old"), run("new", completed_at=0.0)])
    assert pool.get_trajectory("new").completed_at == 1000.0
    assert pool.collect(Retention(max_age=500.0)).trajectories == 1
    assert [one.trajectory_id for one in pool.list_trajectories().items] == ["new"]
