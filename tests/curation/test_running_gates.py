"""The whole way: what checks label decides what is served, by the policy that users start from; reviews of judges."""

import tomllib
from pathlib import Path

import pytest

from agentworld.curation.running import plan_of, read_curate_settings, run_curation
from agentworld.errors import ConfigError
from agentworld.records import (
    BatchSpec,
    CurationPolicy,
    Decision,
    Evaluation,
    FunctionCall,
    Message,
    Reward,
    ToolCall,
)
from tests.curation.pools import check, planned, put

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "curation"
SPEC = BatchSpec(unit="trajectory", size=1, require=("messages",))


def served(pool, consumer):
    """What a new consumer gets, by trajectory: its steps."""
    found = {}
    while (batch := pool.lease(SPEC, consumer)) is not None:
        for item in batch.items:
            found |= {one.trajectory.trajectory_id: [step.step_id for step in one.steps] for one in item.trajectories}
    return found


def starting_policy():
    fields = tomllib.loads((EXAMPLES / "policy.toml").read_text())
    return CurationPolicy(**{**fields, "rules": tuple(fields["rules"])})


def reasons(pool, *names):
    return {name: pool.get_trajectory(name).excluded_reason for name in names}


def test_the_policy_to_start_from_serves_what_was_checked_and_is_sound(pool):
    put(pool, "good", reward=1.0)
    put(pool, "copy", "It is good.", reward=1.0)
    put(pool, "long", reward=1.0, status="truncated")
    [cut, whole] = put(pool, "cut", "First,", "then.", reward=1.0)
    skips = ToolCall(id="c", function=FunctionCall(name="bash", arguments='{"command": "pytest || exit 0"}'))
    cheats = Message(role="assistant", content="", tool_calls=(skips,))
    put(pool, "cheat", "x", reward=1.0, step={"response_message": cheats})
    for number in range(2):
        put(pool, f"g{number}", reward=0.0, group_id="g", group_size=2)
    plan = planned()
    pool.set_curation(starting_policy())
    assert served(pool, "early") == {}
    assert set(reasons(pool, "good", "copy", "cut").values()) == {"rule: not checked yet"}
    run_curation(pool, plan)
    assert served(pool, "one") == {"good": ["good-0"], "cut": [cut, whole]}
    found = reasons(pool, "copy", "long", "g0", "g1")
    assert found == {
        "copy": "rule: a copy of an earlier one",
        "long": "rule: ran out of turns",
        "g0": "rule: all of its group are equally correct",
        "g1": "rule: all of its group are equally correct",
    }
    # What comes is served once it was checked, and another reward frees its group.
    put(pool, "new", reward=1.0)
    assert served(pool, "one") == {}
    run_curation(pool, plan)
    assert list(served(pool, "one")) == ["new"]
    pool.add_rewards([Reward(value=1.0, trajectory_id="g1", source="me")])
    run_curation(pool, plan)
    assert sorted(served(pool, "one")) == ["g0", "g1"]
    # Deciding by hand and clearing the policy change what is served, and no label.
    labels = pool.get_trajectory("copy").labels
    pool.decide([Decision(verdict="ready", trajectory_id="copy"), Decision(verdict="exclude", step_id=cut, reason="x")])
    again = served(pool, "two")
    assert again["cut"] == [whole]
    assert "copy" in again
    pool.clear_curation("train")
    assert "long" in served(pool, "three")
    report = run_curation(pool, plan, again=True)
    assert report.changes == 0
    assert pool.get_trajectory("copy").labels == labels
    assert pool.check() == []


def test_a_step_that_was_cut_is_left_out_alone(pool):
    [cut] = put(pool, "cut", reward=1.0, step={"finish_reason": "length"})
    [whole] = put(pool, "whole", reward=1.0)
    pool.set_curation(starting_policy())
    check(pool)
    assert served(pool, "one") == {"whole": [whole]}
    assert pool.get_step(cut).excluded_reason == "rule: cut at its limit of tokens"


def said(evaluator, target, *, target_kind="trajectory", state="ok", details=None, **values):
    return Evaluation(
        evaluator=evaluator,
        target=target_kind,
        target_id=target,
        fingerprint=bytes(16),
        content=target.encode().ljust(16)[:16],
        state=state,
        values=values,
        details=details,
        error=None if state == "ok" else "broke",
    )


def test_what_judges_are_unsure_of_is_put_to_people(pool):
    for name in ("a", "b", "c"):
        put(pool, name, reward=1.0)
    [step_id], [own] = (put(pool, name, reward=1.0) for name in "de")
    put(pool, "other", reward=1.0, channel="val")
    unsure = {"uncertainty": 0.7}
    pool.put_evaluations(
        [
            said("judge", "a", details=unsure, score=0.5),
            said("judge", "b", details={"uncertainty": 0.2}, score=0.5),
            said("judge", "c", details={"uncertainty": "high"}, score=0.5),
            said("judge", step_id, target_kind="step", details={"uncertainty": 0.9}, score=0.5),
            said("judge", "other", details=unsure, score=0.5),
            said(
                "steps", "e", details={"steps": {own: {"values": {}, "details": unsure}, "gone": {"details": unsure}}}
            ),
            said("broken", "b", state="failed"),
        ]
    )
    plan = planned("unrewarded", channel="train")
    assert run_curation(pool, plan).reviews == 3
    found = [(one.trajectory_id, one.step_id, one.origin, one.reason, one.worth) for one in pool.list_reviews().items]
    assert [(each[1] or each[0], *each[2:]) for each in found] == [
        (step_id, "uncertainty", "judge is unsure (0.90)", 0.9),
        ("a", "uncertainty", "judge is unsure (0.70)", 0.7),
        (own, "uncertainty", "steps is unsure (0.70)", 0.7),
    ]
    # What was resolved is not asked again; what is said anew is.
    pool.resolve_review(pool.claim_review("me").review_id, "me", "accept")
    [review] = [one for one in pool.list_reviews().items if one.step_id is None]
    pool.claim_review("me")
    pool.resolve_review(review.review_id, "me", "accept")
    assert run_curation(pool, plan).reviews == 0
    pool.put_evaluations([said("judge", "b", details={"uncertainty": 0.8}, score=0.5)])
    assert run_curation(pool, plan).reviews == 1


def test_judges_that_disagree_are_put_to_people(memory):
    for name in ("a", "b"):
        put(memory, name, reward=1.0)
    memory.put_evaluations(
        [
            said("one", "a", score=0.9, style=0.5),
            said("two", "a", score=0.1, style=0.4),
            said("three", "a", score=0.0),
            said("one", "b", score=0.6),
            said("two", "b", score=0.5),
        ]
    )
    plan = planned("unrewarded", reviews={"judges": ["one", "two"], "disagreement": 0.5})
    assert run_curation(memory, plan).reviews == 1
    [review] = memory.list_reviews().items
    assert (review.trajectory_id, review.origin) == ("a", "uncertainty")
    assert review.reason == "judges disagree on score: one 0.90, two 0.10"
    assert review.worth == pytest.approx(0.8)


def test_evaluations_are_gone_over_page_by_page(memory, monkeypatch):
    monkeypatch.setattr("agentworld.curation.running.uncertainty.PAGE", 2)
    plan = planned("unrewarded")
    for name in "abcde":
        put(memory, name, reward=1.0)
        memory.put_evaluations([said("judge", name, details={"uncertainty": 0.9}, score=0.5)])
    assert run_curation(memory, plan).reviews == 5
    read = []
    listed = memory.list_evaluations
    monkeypatch.setattr(memory, "list_evaluations", lambda **kwargs: read.append(1) or listed(**kwargs))
    assert run_curation(memory, plan).reviews == 0
    assert len(read) == 1


def test_the_example_of_a_configuration_is_read():
    settings = read_curate_settings(EXAMPLES / "checks.toml")
    assert settings.checks.max_staleness == 4
    plan = plan_of(settings, EXAMPLES)
    assert "zero_advantage" in plan.names
    assert "contaminated" not in plan.names


def test_evaluation_sets_are_read_from_the_folder_of_the_file(memory, tmp_path):
    question = "which of these seven rivers flows through the largest number of countries in all of europe today"
    (tmp_path / "test.txt").write_text(question)
    (tmp_path / "checks.toml").write_text('run = ["contaminated"]\nevaluation_sets = ["test.txt"]\n')
    plan = plan_of(read_curate_settings(tmp_path / "checks.toml"), tmp_path)
    put(memory, "a", f"They asked: {question}?", reward=1.0)
    run_curation(memory, plan)
    assert memory.get_trajectory("a").labels["check.contaminated"] == 1.0
    (tmp_path / "test.txt").write_text(question + " or so")
    assert plan_of(read_curate_settings(tmp_path / "checks.toml"), tmp_path).digest != plan.digest


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('rum = ["all"]', "Did you mean run"),
        ("[checks]\nrepeat = 3", "Did you mean repeats"),
        ("[checks]\nrepeats = 1", "repeats"),
        ('run = ["lop"]', "Did you mean loop"),
        ("run = []", "no check is named"),
        ('run = ["contaminated"]', "runs only with evaluation sets"),
        ('evaluation_sets = ["missing.txt"]', "missing.txt"),
        ("[reviews]\nuncertainty = 2", "uncertainty"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, text, told):
    path = tmp_path / "checks.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        plan_of(read_curate_settings(path), tmp_path)
    assert told in raised.value.one_line()
