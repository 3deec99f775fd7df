"""Evaluators: the checker as a reward, and formulas that cannot do more than calculate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.records import BatchTrajectory, Message, Step, Trajectory
from agentworld.rewards import EvaluationError, ExpressionReward, Verdict, fields_of, rewards_of
from agentworld.rewards.composition import Composition
from agentworld.rewards.protocol import EvaluatorKind
from agentworld.rewards.rules.answer import AnswerRule
from agentworld.tasks import checker_reward, ready_task_set
from agentworld.tasks.environments import ToolEnvironment


def run_of(*replies, **trajectory):
    """A finished trajectory with these replies."""
    steps = [
        Step(step_id=f"s{number}", trajectory_id="t", response_message=Message(role="assistant", content=text))
        for number, text in enumerate(replies)
    ]
    record = Trajectory(trajectory_id="t", status="finished", step_count=len(steps), response_tokens=30, **trajectory)
    return BatchTrajectory(trajectory=record, steps=steps)


def value(expression, run=None):
    run = run or run_of("x", "Answer: 42", task={"reference": 42})
    return ExpressionReward(expression=expression).evaluate(run).values["reward"]


def test_the_checker_judges_the_last_reply():
    task_set = ready_task_set("arithmetic")
    (task,) = task_set.tasks(1)
    evaluator = checker_reward(task_set)
    right = f"Answer: {task.reference}"
    assert evaluator.evaluate(run_of("thinking", right, task=task.payload())) == Verdict({"reward": 1.0})
    assert evaluator.evaluate(run_of(right, "Answer: no", task=task.payload())) == Verdict({"reward": 0.0})
    assert evaluator.evaluate(run_of(task=task.payload())) == Verdict({"reward": 0.0})
    (reward,) = rewards_of(evaluator, run_of(right, task=task.payload()))
    assert (reward.value, reward.trajectory_id, reward.name, reward.source) == (1.0, "t", "reward", "checker")


def test_the_checker_refuses_other_tasks():
    task_set = ready_task_set("arithmetic")
    (other,) = ready_task_set("conversion").tasks(1)
    with pytest.raises(EvaluationError, match="holds no task"):
        checker_reward(task_set).evaluate(run_of("x"))
    with pytest.raises(InvalidRequestError, match="holds no task"):
        checker_reward(task_set).evaluate(run_of("x", task={"task_id": 7}))
    with pytest.raises(InvalidRequestError, match="not of arithmetic"):
        checker_reward(task_set).evaluate(run_of("x", task=other.payload()))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("exact(after_answer(answer), reference) - 0.01 * n_steps", 0.98),
        ("numeric(after_answer(answer), reference)", 1.0),
        ("1 if finished and not truncated else -1", 1.0),
        ("0 < n_steps <= 2", 1.0),
        ("'42' in answer", 1.0),
        ("maximum(0, 1 - response_tokens / 60) + minimum(reward, 5)", 0.5),
        ("-absolute(length(lower(answer)) - 12)", -2.0),
        ("failed or prompt_tokens", 0.0),
    ],
)
def test_formulas(expression, expected):
    assert value(expression) == pytest.approx(expected)


def test_absent_answer_and_reference_are_empty():
    assert fields_of(run_of())["answer"] == fields_of(run_of())["reference"] == ""


@pytest.mark.parametrize(
    ("expression", "message", "hint"),
    [
        ("n_step * 2", "no field 'n_step', at column 1", "n_steps"),
        ("1 + exakt(answer, reference)", "no function 'exakt', at column 5", "exact"),
        ("exact(answer)", "exact takes 2 arguments, not 1", None),
        ("1 +", "cannot be read", None),
        ("1 + (n_steps", r"cannot be read at column 5: '\(' was never closed", None),
        ("", "cannot be read", None),
        ("().__class__", "no part of a reward formula", None),
        ("answer[0]", "no part of a reward formula", None),
        ("9 ** 9 ** 9", "no part of a reward formula", None),
        ("[1 for x in answer]", "no part of a reward formula", None),
        ("(lambda: 1)()", "no part of a reward formula", None),
        ("exact(*answer)", "exact takes 2 arguments|no part", None),
        ("f'{answer}'", "no part of a reward formula", None),
        ("__import__('os')", "no function '__import__'", None),
        ("1j", "no part of a reward formula", None),
    ],
)
def test_anything_else_is_refused_before_it_is_used(expression, message, hint):
    with pytest.raises(ConfigError, match=message) as caught:
        ExpressionReward(expression=expression)
    if hint:
        assert hint in caught.value.hint


@pytest.mark.parametrize(
    "expression", ["1 / (n_steps - 2)", "answer", "answer * 9", "answer < 3", "1e308 * 10", "length(3)"]
)
def test_a_formula_without_a_value_says_so(expression):
    with pytest.raises(InvalidRequestError, match=r"has no value|no finite number"):
        value(expression)


@given(st.text(max_size=30))
def test_any_text_is_a_formula_or_a_clear_error(text):
    try:
        reward = ExpressionReward(expression=text)
    except ConfigError:
        return
    try:
        assert isinstance(reward.evaluate(run_of("Answer: 42")).values["reward"], float)
    except InvalidRequestError:
        pass


@pytest.mark.parametrize("kind", [EvaluatorKind, AnswerRule, Composition])
def test_what_says_not_how_it_judges_cannot_be_made(kind):
    with pytest.raises(TypeError, match="abstract"):
        kind(name="x")
    with pytest.raises(TypeError, match="abstract"):
        ToolEnvironment()
