"""What policies and people decide gates what is served, at once, and nothing else; the same in every store."""

import pytest

from agentworld.errors import InvalidRequestError, NotFoundError, QueryError
from agentworld.pool.sql import curating, decisions
from agentworld.pool.sql.judging import made_by
from agentworld.pool.sql.store import SqlPool
from agentworld.records import BatchSpec, CurationPolicy, Decision, Feedback, NewTrajectory, Reward

from ..samples import finished, group, step

SPEC = BatchSpec(unit="trajectory", size=1)


def served(pool, consumer, spec=SPEC):
    """Everything that a new consumer gets, by trajectory, with its steps."""
    found = {}
    while (batch := pool.lease(spec, consumer)) is not None:
        for item in batch.items:
            for entry in item.trajectories:
                found[entry.trajectory.trajectory_id] = [one.step_id for one in entry.steps]
    return found


def policy(*rules, **settings):
    return CurationPolicy(rules=rules, **settings)


def stands(pool, trajectory_id):
    there = pool.get_trajectory(trajectory_id)
    return there.readiness, there.excluded_reason


def steps_of(pool, trajectory_id):
    return {
        one.step_id: (one.readiness, one.excluded_reason) for one in pool.list_steps(trajectory_id=trajectory_id).items
    }


def test_a_rule_keeps_back_what_it_excludes_and_nothing_else(pool):
    finished(pool, "good", reward=1.0)
    finished(pool, "bad", reward=0.0)
    finished(pool, "long", reward=1.0, status="truncated")
    finished(pool, "other", reward=0.0, channel="val")
    before = {name: pool.get_trajectory(name) for name in ("good", "other")}
    active = pool.set_curation(
        policy("when status == 'truncated' then exclude 'ran out of turns'", "when reward < 0.5 then exclude 'wrong'")
    )
    assert active.pending == 0
    assert stands(pool, "bad") == ("excluded", "rule: wrong")
    assert stands(pool, "long") == ("excluded", "rule: ran out of turns")
    assert {name: pool.get_trajectory(name) for name in before} == before
    assert list(served(pool, "one")) == ["good"]
    assert pool.stats().readiness["excluded"] == 2
    assert pool.check() == []


def test_a_changed_policy_decides_anew_at_once(pool):
    finished(pool, "a", reward=0.2)
    finished(pool, "b", reward=0.8)
    pool.set_curation(policy("when reward < 0.5 then exclude 'low'"))
    assert list(served(pool, "one")) == ["b"]
    pool.set_curation(policy("when reward > 0.5 then exclude 'high'"))
    assert stands(pool, "a") == ("ready", None)
    assert stands(pool, "b") == ("excluded", "rule: high")
    # What became fit is served to the consumer that had looked before; what it had had is not handed out again.
    assert list(served(pool, "one")) == ["a"]
    assert list(served(pool, "two")) == ["a"]
    assert pool.clear_curation("train")
    assert not pool.clear_curation("train")
    assert stands(pool, "b") == ("ready", None)
    assert pool.decisions(trajectory_id="b") == []
    assert list(served(pool, "three")) == ["a", "b"]
    assert pool.check() == []


def test_a_reward_or_a_label_changes_what_the_next_lease_serves(pool):
    finished(pool, "a", reward=0.2)
    pool.set_curation(policy("when reward < 0.5 then exclude 'low'", "when label.bad then exclude 'labelled'"))
    assert served(pool, "one") == {}
    pool.add_rewards([Reward(value=0.9, trajectory_id="a")])
    assert list(served(pool, "one")) == ["a"]
    pool.add_feedback([Feedback(kind="label", trajectory_id="a", name="bad", value=True)])
    assert stands(pool, "a") == ("excluded", "rule: labelled")
    assert served(pool, "two") == {}
    pool.add_feedback([Feedback(kind="label", trajectory_id="a", name="bad", value=None)])
    assert list(served(pool, "two")) == ["a"]
    assert pool.check() == []


def test_what_ends_under_a_policy_is_decided_as_it_ends(pool):
    pool.set_curation(policy("when reward < 0.5 then exclude 'low'"))
    pool.create_trajectory(NewTrajectory(trajectory_id="a"))
    pool.append_steps([step("a")])
    assert stands(pool, "a") == ("open", None)
    pool.complete_trajectory("a", "finished", 0.1)
    assert stands(pool, "a") == ("excluded", "rule: low")
    finished(pool, "b", reward=0.6)
    assert list(served(pool, "one")) == ["b"]


def test_rules_about_steps_exclude_steps_alone(pool):
    names = finished(pool, "a", reward=1.0, steps=2)
    pool.append_steps([])
    cut = step("b", finish_reason="length")
    whole = step("b", finish_reason="stop")
    pool.create_trajectory(NewTrajectory(trajectory_id="b"))
    pool.append_steps([cut, whole])
    pool.complete_trajectory("b", "finished", 1.0)
    pool.set_curation(policy("steps when finish_reason == 'length' then exclude 'cut by length'"))
    assert served(pool, "one") == {"a": names, "b": [whole.step_id]}
    assert steps_of(pool, "b")[cut.step_id] == ("excluded", "rule: cut by length")
    assert pool.get_step(whole.step_id).is_last
    assert pool.stats().excluded_steps == 1
    by_step = BatchSpec(unit="step", size=1)
    assert served(pool, "two", by_step).keys() == {"a", "b"}
    pool.clear_curation("train")
    assert served(pool, "three") == {"a": names, "b": [cut.step_id, whole.step_id]}
    assert pool.stats().excluded_steps == 0
    assert pool.check() == []


def test_rules_about_trajectories_see_what_became_of_their_steps(pool):
    finished(pool, "a", reward=1.0, step_changes={"finish_reason": "length"})
    pool.set_curation(
        policy(
            "steps when finish_reason == 'length' then exclude 'cut'",
            "when sampled_tokens == 0 then exclude 'nothing left'",
        )
    )
    assert stands(pool, "a") == ("excluded", "rule: nothing left")
    assert pool.check() == []


def test_the_first_rule_that_decides_ends_the_reading(pool):
    finished(pool, "a", reward=1.0)
    pool.set_curation(
        policy(
            "when reward > 2 then exclude 'never'",
            "when has reward then tag seen",
            "when reward == 1 then weight 2",
            "when has reward then weight 1.5",
            "when reward == 1 then ready",
            "when has reward then exclude 'too late'",
            "when has reward then tag late",
        )
    )
    there = pool.get_trajectory("a")
    assert (there.readiness, there.labels) == ("ready", {"tag.seen": True, "weight": 3.0})
    [decision] = pool.decisions(trajectory_id="a")
    assert (decision.verdict, decision.rule, decision.tags, decision.weight) == ("ready", 5, ("seen",), 3.0)
    found = pool.explain_standing(trajectory_id="a")
    assert [(one.number, one.holds, one.decided) for one in found.rules] == [
        (1, False, False),
        (2, True, False),
        (3, True, False),
        (4, True, False),
        (5, True, True),
        (6, None, False),
        (7, None, False),
    ]
    assert pool.list_trajectories(where="label.tag.seen and label.weight > 2").items == [there]
    pool.set_curation(policy("when reward == 1 then tag other"))
    assert pool.get_trajectory("a").labels == {"tag.other": True}
    pool.clear_curation("train")
    assert pool.get_trajectory("a").labels == {}


def test_labels_that_people_gave_stay(pool):
    finished(pool, "a", reward=1.0)
    pool.add_feedback([Feedback(kind="label", trajectory_id="a", name="mine", value="x")])
    pool.set_curation(policy("when has label.mine then tag mine"))
    assert pool.get_trajectory("a").labels == {"mine": "x", "tag.mine": True}
    pool.add_feedback([Feedback(kind="label", trajectory_id="a", name="mine", value=None)])
    assert pool.get_trajectory("a").labels == {}
    assert pool.check() == []


@pytest.mark.parametrize("name", ["tag.hard", "weight"])
def test_labels_of_rules_are_not_for_people_to_give(pool, name):
    finished(pool, "a")
    with pytest.raises(InvalidRequestError, match="rules of curation"):
        pool.add_feedback([Feedback(kind="label", trajectory_id="a", name=name, value=True)])


def test_the_default_decides_what_no_rule_does(pool):
    finished(pool, "a", reward=1.0)
    finished(pool, "b")
    pool.set_curation(policy("when has reward then ready", default="exclude"))
    assert stands(pool, "a") == ("ready", None)
    assert stands(pool, "b") == ("excluded", "rule: no rule holds")
    pool.set_curation(policy("when has reward then ready", default="review"))
    assert stands(pool, "b") == ("excluded", "review: no rule holds")


def test_ready_passes_the_gate_but_makes_no_reward(pool):
    finished(pool, "a")
    pool.set_curation(policy("when not has reward then ready"))
    assert stands(pool, "a") == ("complete", None)


def test_a_person_excludes_a_step_or_a_trajectory_at_once(pool):
    first, second = finished(pool, "a", reward=1.0, steps=2)
    finished(pool, "b", reward=1.0)
    assert pool.decide([Decision(verdict="exclude", step_id=first, reason="leaks; the answer", source="me")]) == 1
    assert served(pool, "one") == {"a": [second], "b": pool_steps(pool, "b")}
    assert steps_of(pool, "a")[first] == ("excluded", "manual: leaks, the answer")
    assert pool.decide([Decision(verdict="exclude", step_id=first, reason="leaks; the answer", source="me")]) == 0
    assert pool.decide([Decision(verdict="exclude", trajectory_id="b", reason="no")]) == 1
    assert list(served(pool, "two")) == ["a"]
    assert pool.decide([Decision(verdict=None, step_id=first), Decision(verdict=None, trajectory_id="b")]) == 2
    assert pool.decide([Decision(verdict=None, step_id=first)]) == 0
    assert served(pool, "three") == {"a": [first, second], "b": pool_steps(pool, "b")}
    assert pool.check() == []


def pool_steps(pool, trajectory_id):
    return [one.step_id for one in pool.list_steps(trajectory_id=trajectory_id).items]


def test_a_person_stands_over_the_policy(pool):
    finished(pool, "a", reward=0.1)
    pool.set_curation(policy("when reward < 0.5 then exclude 'low'", "when has reward then tag seen"))
    pool.decide([Decision(verdict="ready", trajectory_id="a", source="me")])
    assert stands(pool, "a") == ("ready", None)
    assert list(served(pool, "one")) == ["a"]
    # Whatever the policy says next.
    pool.set_curation(policy("when reward < 0.6 then exclude 'lower'", "when has reward then tag seen"))
    assert stands(pool, "a") == ("ready", None)
    by = {one.by: (one.verdict, one.reason, one.source) for one in pool.decisions(trajectory_id="a")}
    assert by == {"manual": ("ready", None, "me"), "policy": ("exclude", "lower", "policy")}
    pool.decide([Decision(verdict=None, trajectory_id="a")])
    assert stands(pool, "a") == ("excluded", "rule: lower")
    pool.decide([Decision(verdict="exclude", trajectory_id="a", reason="by hand")])
    assert stands(pool, "a") == ("excluded", "manual: by hand")
    pool.clear_curation("train")
    assert stands(pool, "a") == ("excluded", "manual: by hand")
    pool.decide([Decision(verdict=None, trajectory_id="a")])
    assert stands(pool, "a") == ("ready", None)
    assert pool.check() == []


def test_what_is_excluded_for_how_it_came_to_be_stays_so(pool):
    finished(pool, "a", status="failed")
    pool.create_trajectory(NewTrajectory(trajectory_id="b"))
    own = step("b", excluded_reason="broken")
    pool.append_steps([own, step("b")])
    pool.complete_trajectory("b", "finished", 1.0)
    pool.set_curation(policy("steps when step_index == 0 then exclude 'first'", "when has status then ready"))
    assert steps_of(pool, "b")[own.step_id][1] == "broken; rule: first"
    pool.decide([Decision(verdict="ready", trajectory_id="a"), Decision(verdict="ready", step_id=own.step_id)])
    assert stands(pool, "a") == ("excluded", "failed")
    assert steps_of(pool, "b")[own.step_id] == ("excluded", "broken")
    pool.decide([Decision(verdict=None, step_id=own.step_id)])
    pool.clear_curation("train")
    assert steps_of(pool, "b")[own.step_id] == ("excluded", "broken")
    assert pool.check() == []


def test_groups_count_what_their_members_became(pool):
    group(pool, "g", [0.0, 1.0, 1.0])
    assert pool.get_group("g").served == 3
    spec = BatchSpec(unit="group", groups=1, rollouts=2)
    pool.set_curation(policy("when reward < 0.5 then exclude 'low'"))
    assert pool.get_group("g").served == 2
    assert list(served(pool, "one", spec)) == ["g-1", "g-2"]
    pool.clear_curation("train")
    assert pool.get_group("g").served == 3
    assert pool.check() == []


def test_a_policy_in_another_channel_is_another(pool):
    finished(pool, "a", reward=1.0)
    finished(pool, "v", reward=1.0, channel="val")
    pool.set_curation(policy("when has reward then exclude 'x'", channel="val"))
    assert [one.policy.channel for one in pool.curation()] == ["val"]
    assert (stands(pool, "a")[0], stands(pool, "v")[0]) == ("ready", "excluded")
    pool.set_curation(policy("when has reward then exclude 'y'"))
    assert [one.policy.channel for one in pool.curation()] == ["train", "val"]
    pool.clear_curation("val")
    assert (stands(pool, "a")[0], stands(pool, "v")[0]) == ("excluded", "ready")
    assert [one.ended_at is None for one in pool.list_curations()] == [True, False]


def test_a_dry_run_changes_nothing_and_counts(pool):
    for number in range(5):
        finished(pool, f"t{number}", reward=number / 4, step_changes={"finish_reason": "stop"})
    pool.create_trajectory(NewTrajectory(trajectory_id="open"))
    pool.set_curation(policy("when reward == 1 then exclude 'best'"))
    before = pool.list_trajectories().items
    tried = policy(
        "when reward < 0.5 then exclude 'low'",
        "when reward < 0.6 then tag middling",
        "steps when finish_reason == 'stop' then tag whole",
    )
    found = pool.try_curation(tried, samples=1)
    assert pool.list_trajectories().items == before
    assert (found.trajectories, found.steps, found.whole) == (5, 5, True)
    assert found.by_rule == {0: 3, 1: 2, 2: 1, 3: 5}
    assert found.changes == {"excluded -> ready": 1, "ready -> excluded": 2}
    assert {number: len(ids) for number, ids in found.samples.items()} == {0: 1, 1: 1, 2: 1, 3: 1}
    assert found.samples[2] == ["t2"]
    newest = pool.try_curation(tried, limit=2)
    assert (newest.trajectories, newest.whole, newest.by_rule) == (2, False, {0: 2, 3: 2})
    pool.set_curation(tried)
    assert [one.readiness for one in pool.list_trajectories().items] == ["excluded"] * 2 + ["ready"] * 3 + ["open"]


def test_a_deleted_trajectory_leaves_no_decision(pool):
    names = finished(pool, "a", reward=0.0)
    pool.set_curation(policy("when reward < 1 then exclude 'low'", "steps when step_index == 0 then tag first"))
    assert len(pool.decisions(trajectory_id="a")) == 2
    pool.delete_trajectories(["a"])
    assert pool.decisions(trajectory_id="a") == []
    assert pool.decisions(step_id=names[0]) == []
    assert pool.check() == []


def test_what_is_decided_is_told(pool):
    [name] = finished(pool, "a", reward=0.0)
    after = pool.events()[-1].sequence
    pool.set_curation(policy("when reward < 1 then exclude 'low'", name="strict"))
    pool.decide([Decision(verdict="exclude", step_id=name, reason="by hand")])
    pool.clear_curation("train")
    told = [(one.kind, one.trajectory_id, one.step_id, one.data) for one in pool.events(after)]
    version = pool.list_curations()[0].version
    assert told == [
        ("curation.set", None, None, {"channel": "train", "version": version, "name": "strict"}),
        ("decision.set", "a", None, {"verdict": "exclude", "reason": "low", "by": "policy"}),
        ("decision.set", "a", name, {"verdict": "exclude", "reason": "by hand", "by": "manual"}),
        ("curation.cleared", None, None, {"channel": "train", "version": version}),
        ("decision.set", "a", None, {"verdict": None, "reason": None, "by": "policy"}),
    ]


def test_bad_policies_and_decisions_are_refused_whole(pool):
    [name] = finished(pool, "a", reward=0.0)
    with pytest.raises(QueryError, match="rule 2: trajectories have no field 'rewrd'"):
        pool.set_curation(policy("when has reward then ready", "when rewrd > 1 then ready"))
    with pytest.raises(InvalidRequestError, match="no verdict"):
        pool.set_curation(policy(default="drop"))
    with pytest.raises(InvalidRequestError):
        pool.set_curation({"rules": []})
    with pytest.raises(InvalidRequestError):
        pool.set_curation(policy("when has reward then ready", channel="x" * 1000))
    assert pool.curation() == []
    good = Decision(verdict="exclude", step_id=name, reason="x")
    for bad in (
        Decision(verdict="exclude", step_id=name),
        Decision(verdict="exclude", reason="x"),
        Decision(verdict="maybe", step_id=name),
        Decision(verdict="exclude", step_id=name, reason="two\nlines"),
        Decision(verdict="exclude", step_id=name, reason="x", by="policy"),
        Decision(verdict="exclude", step_id=name, reason=3),
        Decision(verdict="ready", step_id=3),
        "exclude",
    ):
        with pytest.raises(InvalidRequestError):
            pool.decide([good, bad])
    with pytest.raises(NotFoundError, match=r"no step 'nowhere'"):
        pool.decide([good, Decision(verdict="ready", step_id="nowhere")])
    with pytest.raises(NotFoundError):
        pool.explain_standing(trajectory_id="nowhere")
    with pytest.raises(InvalidRequestError):
        pool.decisions()
    assert pool.decisions(step_id=name) == []
    assert steps_of(pool, "a")[name] == ("ready", None)


def test_what_keeps_a_step_back_is_explained(pool):
    [name] = finished(pool, "a", reward=0.0, step_changes={"finish_reason": "length"})
    active = pool.set_curation(
        policy("when reward < 1 then exclude 'low'", "steps when finish_reason == 'length' then review 'cut' 0.9")
    )
    found = pool.explain_standing(step_id=name)
    assert (found.trajectory_id, found.step_id, found.readiness) == ("a", name, "excluded")
    assert found.reasons == ("rule: low", "review: cut")
    assert found.policy == active.version
    assert [(one.subject, one.number, one.decided) for one in found.rules] == [
        ("steps", 2, True),
        ("trajectories", 1, True),
    ]
    assert {(one.step_id, one.verdict, one.rule) for one in found.decisions} == {
        (name, "review", 2),
        (None, "exclude", 1),
    }


def test_weights_stay_finite_however_many_rules_there_are(pool):
    finished(pool, "a", reward=1.0)
    pool.set_curation(policy(*["when status == 'finished' then weight 1000000"] * 60))
    assert pool.get_trajectory("a").labels["weight"] == 1e300


def test_a_preview_is_asked_for_in_bounds(pool):
    for wrong in ({"samples": -1}, {"samples": 10**6}, {"limit": -1}):
        with pytest.raises(InvalidRequestError, match="must be from 0"):
            pool.try_curation(policy(), **wrong)


def test_long_trajectories_are_decided_few_at_a_time(pool, monkeypatch):
    monkeypatch.setattr(curating, "SWEPT_STEPS", 3)
    for number in range(7):
        for place in range(number):
            pool.append_steps([step(f"t{number}", step_id=f"t{number}-{place}")])
        finished(pool, f"t{number}", reward=0.0)
    pool.set_curation(policy("when reward == 0 then exclude 'low'", "steps when step_index == 0 then tag first"))
    assert pool.stats().readiness["excluded"] == 7
    assert [one.pending for one in pool.curation()] == [0]
    assert pool.check() == []


def test_a_change_that_was_broken_off_is_gone_on_with(pool, monkeypatch):
    monkeypatch.setattr(curating, "SWEPT_AT_ONCE", 5)
    monkeypatch.setattr(curating, "SWEEP_SECONDS", 0.0)
    for number in range(26):
        finished(pool, f"t{number}", reward=number % 2)

    class Killed(Exception):
        pass

    def kill(stage, done, total):
        raise Killed

    with pytest.raises(Killed):
        pool.set_curation(policy("when reward == 0 then exclude 'low'"), progress=kill)
    [active] = pool.curation()
    assert active.pending or pool.url.startswith("memory")
    # In memory there is nothing to break off; elsewhere leases go on with it bit by bit, and the same call at once.
    spec = BatchSpec(unit="trajectory", size=13, min_size=1, order="fifo")
    found = set()
    while (batch := pool.lease(spec, "one")) is not None:
        found |= {entry.trajectory.trajectory_id for item in batch.items for entry in item.trajectories}
    assert found >= {f"t{number}" for number in range(1, 26, 2)}
    pool.set_curation(active.policy)
    assert [one.pending for one in pool.curation()] == [0]
    assert pool.stats().readiness["excluded"] == 13
    assert pool.check() == []


def test_a_late_step_is_decided_too(pool):
    finished(pool, "a", reward=1.0)
    pool.set_curation(policy("when step_count >= 2 then exclude 'too many'", "steps when late then tag behind"))
    assert stands(pool, "a") == ("ready", None)
    late = step("a")
    assert pool.append_steps([late])[0].outcome == "late"
    assert stands(pool, "a") == ("excluded", "rule: too many")
    assert pool.get_step(late.step_id).labels == {"tag.behind": True}
    assert pool.check() == []


def test_a_signal_on_one_step_decides_that_step_and_its_trajectory(pool):
    first, second = finished(pool, "a", reward=1.0, steps=2)
    pool.set_curation(policy("steps when reward < 0 then exclude 'bad'", "when sampled_tokens < 3 then exclude 'few'"))
    pool.add_rewards([Reward(value=-1.0, step_id=first)])
    assert steps_of(pool, "a")[first] == ("excluded", "rule: bad")
    assert steps_of(pool, "a")[second] == ("excluded", None)
    assert stands(pool, "a") == ("excluded", "rule: few")
    pool.add_rewards([Reward(value=1.0, step_id=first)])
    assert stands(pool, "a") == ("ready", None)
    pool.add_rewards([Reward(value=0.5, trajectory_id="a")])
    assert steps_of(pool, "a") == {first: ("ready", None), second: ("ready", None)}
    assert pool.check() == []


def test_a_failure_that_a_rule_keeps_back_is_served_as_its_group_says_once_none_does(pool):
    pool.set_curation(policy("when status == 'failed' then exclude 'failed'"))
    finished(pool, "a", reward=1.0, group_id="g", group_size=2, group_failures="zero", rollout_index=0)
    finished(pool, "b", status="failed", group_id="g", rollout_index=1)
    assert (pool.get_group("g").state, pool.get_group("g").served) == ("closed", 1)
    assert stands(pool, "b") == ("excluded", "rule: failed")
    pool.clear_curation("train")
    there = pool.get_trajectory("b")
    assert (there.readiness, there.reward, pool.get_group("g").served) == ("ready", 0.0, 2)
    assert served(pool, "one", BatchSpec(unit="group", groups=1, rollouts=2)).keys() == {"a", "b"}
    assert pool.check() == []


def test_one_channel_does_not_wait_for_another(pool, monkeypatch):
    monkeypatch.setattr(curating, "SWEPT_AT_ONCE", 5)
    for number in range(12):
        finished(pool, f"t{number}", reward=1.0)

    class Killed(Exception):
        pass

    def kill(stage, done, total):
        raise Killed

    with pytest.raises(Killed):
        pool.set_curation(policy("when reward == 0 then exclude 'low'"), progress=kill)
    pending = {one.policy.channel: one.pending for one in pool.curation()}
    told = []
    pool.set_curation(
        policy("when reward == 1 then exclude 'x'", channel="val"), progress=lambda *said: told.append(said)
    )
    assert {one.policy.channel: one.pending for one in pool.curation()} == {**pending, "val": 0}
    assert pool.clear_curation("train")
    assert pool.curation("train") == []


def test_a_reason_that_a_caller_brings_is_not_taken_for_one_of_rules(pool):
    own = step("a", excluded_reason="rule: x; mine")
    pool.create_trajectory(NewTrajectory(trajectory_id="a"))
    pool.append_steps([own, step("a")])
    pool.complete_trajectory("a", "finished", 1.0)
    pool.set_curation(policy("steps when step_index == 0 then exclude 'x'"))
    assert steps_of(pool, "a")[own.step_id][1] == "submitted rule: x; mine; rule: x"
    pool.clear_curation("train")
    assert steps_of(pool, "a")[own.step_id] == ("excluded", "submitted rule: x; mine")


def test_of_a_long_trajectory_what_changes_alone_is_asked_about(pool, monkeypatch):
    """Others wait meanwhile; on SQL stores, as the other one has no lock of a pool."""
    asked = []

    def counted(policy, target, row):
        asked.append((target, row["id"]))
        return made_by(policy, target, row)

    monkeypatch.setattr(decisions, "made_by", counted)

    def about_steps():
        found, asked[:] = sorted(name for target, name in asked if target == "step"), []
        return found

    cuts, bad = "steps when finish_reason == 'length' then tag cut", "steps when label.bad then exclude 'bad'"
    pool.set_curation(policy(cuts, bad))
    ends = ("length" if number % 10 == 0 else "stop" for number in range(40))
    pool.append_steps([step("t", step_id=f"s{number}", finish_reason=end) for number, end in enumerate(ends)])
    pool.complete_trajectory("t", "finished", 1.0)
    is_sql = isinstance(pool, SqlPool)
    cut = [f"s{number}" for number in range(0, 40, 10)]
    assert about_steps() == (sorted(cut) if is_sql else [])
    assert {name: list(pool.get_step(name).labels) for name in ("s0", "s1")} == {"s0": ["tag.cut"], "s1": []}
    pool.decide([Decision(verdict="exclude", step_id="s10", reason="no")])
    assert about_steps() == (["s10"] if is_sql else [])
    pool.add_feedback([Feedback(kind="label", name="bad", value=True, step_id="s1")])
    assert about_steps() == (["s1"] if is_sql else [])
    pool.append_steps([step("t", step_id="late", finish_reason="length")])
    assert about_steps() == (["late"] if is_sql else [])
    assert [one.step_id for one in pool.list_steps(where="label.tag.cut").items] == [*cut, "late"]
    assert steps_of(pool, "t")["s1"] == ("excluded", "rule: bad")


def test_a_policy_of_as_many_conditions_as_there_may_be(pool):
    pool.append_steps([step("t", step_id="s")])
    pool.complete_trajectory("t", "finished", 1.0)
    many = [f"steps when {' or '.join(['late'] * 20)} then exclude 'r{number}'" for number in range(99)]
    pool.set_curation(policy(*many, "steps when not late or late then tag seen"))
    assert pool.get_step("s").labels == {"tag.seen": True}
