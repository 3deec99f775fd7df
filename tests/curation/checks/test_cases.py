"""Each check says of each labelled case what the label is."""

import pytest

from agentworld.curation.checks import CheckContext, known, run_checks
from agentworld.curation.checks.duplicates import content_digest
from agentworld.curation.checks.reading import Run
from tests.curation.checks.building import calls, run, says, tool, user
from tests.curation.checks.cases import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}: {case.what}")
def test_a_labelled_case(case):
    context = case.context or CheckContext()
    found = [each for each in run_checks(case.run, context) if each.check == case.check]
    assert [each.value for each in found if each.step_id is None] == ([] if case.value is None else [case.value])
    for each in found:
        assert each.trajectory_id == case.run.trajectory.trajectory_id
        if each.step_id is not None:
            assert each.step_id in {step.step_id for step in case.run.steps}


def test_no_case_makes_a_check_fail():
    assert [case.what for case in CASES for each in run_checks(case.run, case.context) if each.check == "failed"] == []


def test_every_check_of_steps_and_trajectories_has_cases_of_both_kinds():
    elsewhere = {"secret", "personal_data", "contaminated"}
    wanted = {name for name, each in known().items() if each.scope in ("step", "trajectory") and name not in elsewhere}
    wanted = {name for name in wanted if known()[name].function.__module__.startswith("agentworld.")}
    assert {case.check for case in CASES if case.value is not None} == wanted
    # Every trajectory with an answer is of one kind or the other.
    assert {case.check for case in CASES if case.value is None} >= wanted - {"kind"}


def test_a_check_of_steps_is_said_of_the_trajectory_too():
    record = run(user("x"), says(""), user("x"), says("a"), user("x"), says("", reasoning="Hm"))
    found = [each for each in run_checks(record) if each.check == "empty_reply"]
    assert [(each.step_id, each.value) for each in found] == [
        ("t1-0", "empty"),
        ("t1-2", "reasoning_only"),
        (None, "empty reasoning_only"),
    ]
    assert found[-1].evidence == {"steps": 2, "first": "t1-0"}


def test_an_error_is_said_of_the_step_that_called():
    record = run(user("x"), says("a"), user("y"), calls(("bash", {})), tool("Error: no"), says("b"))
    found = [each for each in run_checks(record) if each.check == "tool_error"]
    assert [each.step_id for each in found] == ["t1-1", None]
    assert found[0].evidence == {"step": "t1-2", "message": 4, "excerpt": "Error: no"}


def test_each_message_is_read_once_whatever_clients_change_on_the_way_back():
    record = run(user("x"), says("a", reasoning="Hm"), user("y"), says("b"), user("z"), says("c"))
    for step in record.steps[1:]:
        step.prompt_messages[1] = says("a")
    read = [(at, text) for turn in Run(record).turns for at, text in turn.texts()]
    assert read == [(0, "x"), ("reply", "Hm"), ("reply", "a"), (2, "y"), ("reply", "b"), (4, "z"), ("reply", "c")]


def test_a_rewritten_history_is_read_again():
    record = run(user("x"), says("a"), user("y"), says("b"))
    record.steps[1].prompt_messages[0] = user("another")
    assert [text for at, text in Run(record).turns[1].texts()] == ["another", "y", "b"]


def test_choices_of_one_call_are_no_loop():
    record = run(user("x"), says("a"), user("x"), says("a"), user("x"), says("a"))
    assert [each.value for each in run_checks(record) if each.check == "loop"] == [3]
    for number, step in enumerate(record.steps):
        step.choice_index = number
    assert [each for each in run_checks(record) if each.check == "loop"] == []


@pytest.mark.parametrize("reason", ["rule: has errors", "late; manual: no", "quarantined: x; rule: y", "superseded"])
def test_what_follows_from_labels_changes_none(reason):
    """Steps that rules or people keep back are read as before; those that capture left out are not."""
    record = run(user("x"), says("ok"), user("x"), says("ok"), user("x"), says("ok"))
    before = content_digest(record)
    record.steps[1].excluded_reason = reason
    decided = all(part.startswith(("rule", "manual")) for part in reason.split("; "))
    assert (content_digest(record) == before) is decided
    assert [each.value for each in run_checks(record) if each.check == "loop"] == ([3] if decided else [])
