"""The numbers of a run, and its progress as lines."""

import io
import math

from agentworld.agents import progress as progress_module
from agentworld.agents.progress import Printed
from agentworld.agents.report import RolloutResult, build_report, summarize


def result(task="t1", reward=1.0, **fields):
    fields = {"task_set": "sums", "agent": "loop", "status": "finished", "rollout_index": 0, "attempt": 0, **fields}
    return RolloutResult(task_id=task, group_id=f"run:{task}", trajectory_id="trj_1", reward=reward, **fields)


def test_the_standard_error_takes_tasks_as_units():
    # Rollouts of one task are alike: four equal ones say no more than one.
    rollouts = [result(task, reward) for task, reward in (("a", 1.0), ("b", 0.0), ("c", 1.0)) for _ in range(4)]
    found = summarize(rollouts, "sums", "loop")
    assert (found.tasks, found.rollouts) == (3, 12)
    assert math.isclose(found.mean_reward, 2 / 3)
    assert math.isclose(found.standard_error, math.sqrt((1 / 9 + 1 / 9 + 4 / 9) / 2 / 3))


def test_failed_rollouts_are_in_no_mean():
    found = summarize([result(), result(reward=None, status="failed"), result("b", 0.0, status="truncated")], "s", "a")
    assert (found.mean_reward, found.failed, found.truncated) == (0.5, 1, 1)


def test_one_task_has_no_standard_error_and_none_no_mean():
    assert summarize([result()], "s", "a").standard_error is None
    assert summarize([], "s", "a").mean_reward is None


def test_a_summary_for_each_set_and_agent():
    report = build_report(
        "run",
        2.0,
        [
            result(steps=2, prompt_tokens=10, response_tokens=5),
            result(agent="other", reward=0.0),
            result(task_set="words", status="failed", reward=None, error="no"),
        ],
    )
    assert [(s.task_set, s.agent, s.mean_reward) for s in report.summaries] == [
        ("sums", "loop", 1.0),
        ("sums", "other", 0.0),
        ("words", "loop", None),
    ]
    assert report.summary("sums").rollouts == 2
    assert report.summary().prompt_tokens == 10
    assert (report.failed, report.common_error()) == (1, "no")


def test_progress_without_a_terminal_is_lines(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress_module, "monotonic", lambda: now[0])
    stream = io.StringIO()
    progress = Printed(stream)
    progress.start("mine", 5, 2)
    progress.done(result(steps=3))
    now[0] += 6.0
    progress.done(result(reward=None, status="failed"))
    progress.done(result(reward=0.0, steps=3))
    progress.note("waiting")
    progress.note("still waiting")
    progress.stop()
    assert stream.getvalue().splitlines() == [
        "mine: 5 rollouts, 2 of them complete already",
        "mine: 4/5 failed 1, reward 1.000, 0.5 steps/s",
        "mine: waiting",
        "mine: 5/5 failed 1, reward 0.500, 1.0 steps/s",
    ]


def test_progress_on_a_terminal_is_a_bar():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    progress = Printed(stream)
    progress.start("mine", 1, 0)
    progress.done(result())
    progress.stop()
    assert "1/1" in stream.getvalue()
    assert "reward 1.000" in stream.getvalue()
