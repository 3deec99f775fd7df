"""The check of a spec before a lease: what it says is what a lease does, and each lack is said with its counts."""

import pytest

from agentworld.errors import InvalidRequestError
from agentworld.pool import spec_check
from agentworld.records import METHODS, Annotation, BatchSpec, Feedback, NewTrajectory, Policy, Reward

from ..samples import finished, group, step


def findings(report):
    return {(one.reason, one.need): one.units for one in report.findings}


def said(report, reason, need=None):
    (found,) = [one for one in report.findings if (one.reason, one.need) == (reason, need)]
    assert found.hint
    return found.message


def test_what_each_method_lacks_is_named_and_not_leased(pool):
    group(pool, "whole", [0.0, 1.0], step_changes={"logprob_space": "raw"})
    group(pool, "unknown", [0.0, 1.0])
    group(pool, "plain", [0.0, 1.0], step_changes={"response_logprobs": None})
    group(pool, "unrewarded", [None, None])
    finished(pool, "alone", reward=1.0)
    finished(pool, "text", step_changes={"prompt_ids": None, "response_ids": None, "response_logprobs": None})
    consumer = pool.consumer("c")
    asked = BatchSpec(method="grpo", groups=3, rollouts=2)
    report = consumer.check(asked)
    assert (report.satisfied, report.fitting, report.looked_at, report.wanted) == (False, 2, 6, 3)
    assert findings(report) == {("no_group", None): 2, ("lacks", "logprobs"): 1, ("readiness", "reward"): 1}
    assert said(report, "lacks", "logprobs") == "1 of 6 groups lacks log-probabilities; 2 of 8 steps lack them"
    assert consumer.lease(asked) is None
    assert [note for note in report.notes if "do not say in which space" in note]
    # Of several spaces any will do; what is in another, or says none, is not leased.
    spaces = ("logprob_space.raw", "logprob_space.temperature")
    exact = BatchSpec(method="grpo", groups=9, min_size=1, rollouts=2, require=spaces)
    report = pool.check_spec("d", exact)
    assert findings(report)["lacks", "logprob_space.raw|temperature"] == 1
    assert "in the space raw or temperature" in said(report, "lacks", "logprob_space.raw|temperature")
    assert report.satisfied
    assert [item.key for item in pool.lease(exact, "d").items] == ["whole"]
    with pytest.raises(InvalidRequestError, match="log-probability space 'cooked'"):
        pool.check_spec("d", BatchSpec(require=("logprob_space.cooked",)))
    # Distillation waits for the teacher's log-probabilities, which then come with the batch.
    distill = BatchSpec(method="distill", size=1, unit="step")
    assert pool.lease(distill, "e") is None
    teacher = "annotation.teacher_logprobs"
    assert "lack the annotation teacher_logprobs" in said(pool.check_spec("e", distill), "lacks", teacher)
    (first,) = [one.step_id for one in pool.list_steps(trajectory_id="alone").items]
    pool.add_annotations([Annotation(name="teacher_logprobs", step_id=first, values=[-0.1, -0.2])])
    assert pool.check_spec("e", distill).satisfied
    (item,) = pool.lease(distill, "e").items
    assert item.trajectories[0].annotations[first]["teacher_logprobs"] == pytest.approx([-0.1, -0.2])
    # So do process reward models for rewards of steps.
    prm = BatchSpec(method="prm", size=1)
    assert pool.lease(prm, "f") is None
    assert ("lacks", "step_reward") in findings(pool.check_spec("f", prm))
    pool.add_rewards([Reward(step_id=first, value=1.0)])
    assert [item.key for item in pool.lease(prm, "f").items] == ["alone"]
    # Texts take the place of ids where a method takes texts.
    sft = BatchSpec(method="sft", size=10, min_size=1)
    lacks = said(pool.check_spec("g", sft), "lacks", "tokens")
    assert lacks == "1 of 10 trajectories lacks ids; 1 of 10 steps lacks them"
    assert len(pool.lease(BatchSpec(method="sft", size=10, min_size=1, require=("messages",)), "g").items) == 10
    assert len(pool.lease(sft, "h").items) == 9
    assert set(METHODS) >= {"sft", "dpo", "kto", "prm", "ppo", "gspo", "gigpo", "dapo", "reinforce_pp", "distill"}


def test_what_stands_in_the_way_of_all_is_said(pool):
    empty = pool.check_spec("c", BatchSpec(method="reinforce", channel="val"))
    assert (empty.satisfied, empty.looked_at, empty.findings[0].message) == (
        False, 0, "there is nothing in the channel 'val'")  # fmt: skip
    pool.set_policy(Policy("m", "r", 7))
    for number in range(3):
        finished(pool, f"t{number}", reward=1.0, step_changes={"policy": Policy("m", "r", number)})
    assert "train" in pool.check_spec("c", BatchSpec(method="reinforce", channel="val")).findings[0].hint
    stale = BatchSpec(method="reinforce", size=1, max_staleness=2, stale="wait")
    report = pool.check_spec("c", stale)
    assert (report.satisfied, findings(report)) == (False, {("stale", None): 3})
    assert said(report, "stale") == "3 of 3 trajectories are staler than 2; the freshest is 5 versions behind"
    finished(pool, "unstamped", reward=1.0, channel="people", step_changes={"policy": None})
    unstamped = pool.check_spec("c", BatchSpec(method="reinforce", channel="people", max_staleness=2))
    assert said(unstamped, "stale") == "the only trajectory is staler than 2; none says which weights sampled it"
    assert "policy_version" in unstamped.findings[0].hint
    spec = BatchSpec(method="reinforce", size=3)
    assert pool.check_spec("c", spec).stopped == "enough units fit"
    batch = pool.lease(spec, "c")
    assert said(pool.check_spec("c"), "leased") == "3 of 3 trajectories are leased to c"
    pool.ack(batch.batch_id, batch.epoch)
    report = pool.check_spec("c", spec)
    assert (report.satisfied, findings(report)) == (False, {("acknowledged", None): 3})
    assert "another name" in report.findings[0].hint
    assert pool.check_spec("other", spec).satisfied
    with pytest.raises(InvalidRequestError, match="has had no batch"):
        pool.check_spec("new")
    group(pool, "small", [1.0])
    report = pool.check_spec("c", BatchSpec(method="grpo", groups=1, rollouts=4))
    assert "fewer than 4 trajectories" in said(report, "too_few")
    assert any("nothing is learnt" in note for note in pool.check_spec("c", BatchSpec(method="rloo")).notes)
    assert pool.lease(BatchSpec(method="dpo"), "c") is None
    assert ("no_pair", None) in findings(pool.check_spec("c", BatchSpec(method="dpo")))
    # A comparison of two of one group is a pair beside that of the group.
    group(pool, "equal", [1.0, 1.0])
    pool.add_feedback([Feedback(kind="comparison", trajectory_id="equal-0", other_id="equal-1")])
    report = pool.check_spec("c", BatchSpec(method="dpo"))
    assert (report.satisfied, report.fitting) == (True, 1)
    assert pool.lease(BatchSpec(method="dpo"), "c").items[0].key.startswith("comparison:")
    assert ("leased", None) in findings(pool.check_spec("c", BatchSpec(method="dpo")))


def test_it_stops_and_says_so(pool, monkeypatch):
    for number in range(12):
        pool.create_trajectory(NewTrajectory(trajectory_id=f"open{number}"))
    spec = BatchSpec(method="reinforce", size=1)
    monkeypatch.setattr(spec_check.check, "__kwdefaults__", {**spec_check.check.__kwdefaults__, "units": 5})
    report = pool.check_spec("c", spec)
    assert (report.satisfied, report.looked_at, report.stopped) == (
        None, 5, "only the newest 5 units were looked at")  # fmt: skip
    monkeypatch.setitem(spec_check.check.__kwdefaults__, "steps", 3)
    pool.append_steps([step("open11") for _ in range(3)])
    assert pool.check_spec("c", spec).stopped == "only the newest 0 units were looked at, as 3 steps are the most"
