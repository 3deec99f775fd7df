"""Evaluators that go wrong in every way: each leaves a visible failure and no reward, and holds up nobody else."""

import asyncio
import threading
import time

import pytest

from agentworld.pool.memory import MemoryPool
from agentworld.rewards import EvaluationError, Verdict
from agentworld.rewards.registry import evaluators_from
from agentworld.rewards.running import RunSettings, lanes, plan_of, run_rewards
from agentworld.rewards.running.resting import Rest
from agentworld.rewards.running.subjects import Subjects
from tests.rewards import counting_evaluators
from tests.rewards.counting_evaluators import counted
from tests.rewards.pools import counting, failures, planned, put
from tests.rewards.servers import answering

BAD = "tests.rewards.bad_evaluators"
REASONS = {
    "raises": "raised ValueError: no such thing",
    "exits": "raised SystemExit",
    "dies": "its process ended",
    "not_a_number": "is nan, no finite number",
    "a_list": "is a list, not a number",
    "hangs": "did not end within 0.5 s and was killed",
    "forks": "BlockingIOError",
    "prints_a_gigabyte": "wrote over 16 MiB and was ended",
    "says_much": "bytes",
    "half_a_group": "judged 1 of 2 members",
}


@pytest.fixture
def pool():
    store = MemoryPool()
    yield store
    store.close()


def test_each_leaves_a_visible_failure_and_the_others_judge(pool):
    for n in range(2):
        put(pool, f"t{n}", f"it is {n}", group_id="g", group_size=2, rollout_index=n, task={"reference": "1"})
    tables = [
        {"kind": f"{BAD}:{name}", "reward": name, "seconds": 0.5 if name == "hangs" else 30.0} for name in REASONS
    ]
    plan = planned(*tables, {"kind": "numeric", "answer": "last_number"})
    report = run_rewards(pool, plan, RunSettings(concurrency=2))
    assert {name: (each.evaluated, each.failed) for name, each in report.evaluators.items()} == {
        **dict.fromkeys(REASONS, (0, 2)),
        "half_a_group": (0, 1),
        "numeric": (2, 0),
    }
    found = failures(pool)
    for name, reason in REASONS.items():
        for trajectory in ("t0", "t1"):
            assert reason in found[name, "trajectory", trajectory]
            assert reason in pool.explain_standing(trajectory_id=trajectory).failures[name]
    for n in range(2):
        record = pool.get_trajectory(f"t{n}")
        assert record.rewards == {"reward": float(n)}
        assert record.labels == {f"evaluation.{name}": "failed" for name in REASONS}


def test_what_never_ends_in_this_process_is_left_behind(pool, monkeypatch):
    counting_evaluators.released.clear()
    clock = _Clock(lambda: len(pool.list_evaluations(evaluator="numeric", state="ok").items) == 3)
    monkeypatch.setattr(lanes, "time", clock)
    for n in range(3):
        put(pool, f"t{n}", f"it is {n}", task={"reference": "1"})
    plan = planned(
        {"kind": "tests.rewards.counting_evaluators:stuck", "isolation": "none", "reward": "stuck"},
        {"kind": "numeric", "answer": "last_number"},
    )
    try:
        report = run_rewards(pool, plan, RunSettings(concurrency=1, most_seconds=1000.0))
    finally:
        counting_evaluators.released.set()
    assert (report.evaluators["stuck"].failed, report.evaluators["numeric"].evaluated) == (3, 3)
    assert "did not end within 1000 s and was left behind" in failures(pool)["stuck", "trajectory", "t2"]


def test_one_that_only_fails_rests_and_says_so_and_what_it_missed_is_told(pool, tmp_path):
    for n in range(8):
        put(pool, f"t{n}", f"it is nothing {n} x", task={"reference": "1"})
    said = []
    log = tmp_path / "log"
    plan = planned(counting("number", log), {"kind": "numeric", "answer": "last_number", "reward": "other"})
    settings = RunSettings(concurrency=1, pause_after=2, first_rest=3600.0, longest_rest=3600.0)
    report = run_rewards(pool, plan, settings, say=said.append)
    tally = report.evaluators["number"]
    # Two, and after it was woken at the end two more; the others were not asked.
    assert (tally.evaluated, tally.failed, tally.skipped, len(counted(log))) == (0, 4, 4, 4)
    assert report.evaluators["numeric"].evaluated == 8
    assert "number rests after 2 failures in a row: number raised ValueError" in said[0]
    assert "ValueError" in report.resting["number"]
    assert sum("rests after many failures and was not asked" in why for why in failures(pool).values()) == 4
    assert sum(one.attempts == 0 for one in pool.list_evaluations(state="failed").items) == 4
    assert pool.get_trajectory("t7").labels == {"evaluation.number": "failed"}


def test_what_was_missed_in_a_rest_is_judged_after_it(pool, tmp_path):
    log = tmp_path / "log"
    said, stop = [], threading.Event()
    for n in range(4):
        put(pool, f"t{n}", f"it is {n}")
    plan = planned(counting("flaky", log))
    counting_evaluators.down.set()
    settings = RunSettings(follow=True, concurrency=1, pause_after=2, first_rest=0.2, longest_rest=0.2)
    worker = threading.Thread(target=lambda: run_rewards(pool, plan, settings, say=said.append, stop=stop))
    worker.start()
    try:
        _until(lambda: len(failures(pool)) == 4)
        counting_evaluators.down.clear()
        for n in range(100):
            put(pool, f"u{n}", f"it is u{n}")
            if _soon(lambda: "flaky judges again" in said):
                break
        _until(lambda: all(pool.get_trajectory(f"t{n}").reward == 1.0 for n in (2, 3)))
    finally:
        counting_evaluators.down.clear()
        stop.set()
        worker.join(100)
    assert said[0].startswith("flaky rests after 2 failures in a row")


def test_a_failure_that_may_pass_is_tried_again(pool, monkeypatch):
    monkeypatch.setattr("agentworld.rewards.running.lanes.FIRST_PAUSE", 0.001)
    put(pool, "t", "it is 1")
    answers = iter([(503, "busy", {}), (503, "busy", {}), {"scores": [0.25]}])
    with answering(lambda path, body, headers: next(answers)) as server:
        plan = planned({"kind": "http", "url": server.url, "retries": 0})
        report = run_rewards(pool, plan, RunSettings(retries=2))
    assert (report.evaluators["http"].evaluated, report.failed) == (1, 0)
    [kept] = pool.list_evaluations().items
    assert (kept.attempts, pool.get_trajectory("t").reward) == (3, 0.25)


def test_one_that_says_no_is_not_asked_again(pool):
    put(pool, "t", "it is 1")
    with answering(lambda path, body, headers: (400, "no", {})) as server:
        report = run_rewards(pool, planned({"kind": "http", "url": server.url}), RunSettings(retries=5))
    assert (report.failed, len(server.asked)) == (1, 1)


def test_a_model_that_takes_many_is_given_many_and_one_bad_one_fails_alone(pool):
    for n in range(40):
        put(pool, f"t{n}", f"it is {n}")

    def answer(path, body, headers):
        texts = [each["messages"][-1]["content"] for each in body["inputs"]]
        if "it is 13" in texts and len(texts) > 1:
            return 400, "one of them is too long", {}
        return {"scores": ["x" if text == "it is 13" else float(text.split()[-1]) for text in texts]}

    with answering(answer) as server:
        plan = planned({"kind": "http", "url": server.url, "batch": 8})
        report = run_rewards(pool, plan, RunSettings(concurrency=1))
    assert (report.evaluators["http"].evaluated, report.evaluators["http"].failed) == (39, 1)
    assert list(failures(pool)) == [("http", "trajectory", "t13")]
    assert [pool.get_trajectory(f"t{n}").reward for n in (0, 12, 14, 39)] == [0.0, 12.0, 14.0, 39.0]
    assert max(len(body["inputs"]) for _, body, _ in server.asked) > 1


class _Other:
    name, version, scope, needs, gives, configuration = "other", "1", "trajectory", (), (), None

    def evaluate(self, run):
        raise EvaluationError("it cannot\x1b[31m be", hint="Try \n another")


class _Odd(_Other):
    name = "odd"

    def evaluate(self, run):
        return Verdict({"odd value": 1.0})


def test_evaluators_of_any_class_run(pool):
    put(pool, "t", "it is 1")
    report = run_rewards(pool, plan_of([_Other(), _Odd()]), RunSettings())
    assert report.failed == 2
    assert "is no name of a value" in failures(pool)["odd", "trajectory", "t"]


def test_rests_grow_and_end_with_one_that_judges():
    now = [0.0]
    rest = Rest(RunSettings(pause_after=2, first_rest=10.0, longest_rest=15.0), clock=lambda: now[0])
    assert (rest.failed("a"), rest.admits()) == (False, True)
    assert (rest.failed("b"), rest.admits(), rest.resting) == (True, False, True)
    now[0] = 10.0
    assert (rest.admits(), rest.admits()) == (True, False)  # one alone tries it
    assert rest.failed("c") is False
    now[0] = 24.0
    assert rest.admits() is False
    now[0] = 25.0
    assert rest.admits() is True
    assert (rest.succeeded(), rest.admits(), rest.admits(), rest.error) == (True, True, True, None)


class _Clock:
    """It stands still until something is so; from then on a second takes a microsecond."""

    def __init__(self, begins):
        self._begins = begins

    def monotonic(self):
        return time.monotonic() * 1e6 if self._begins() else 0.0


def test_waiting_until_it_is_durable_is_no_part_of_an_evaluation(pool, monkeypatch):
    """Nor does it count as a failure of the evaluator, or make a further thread."""
    put(pool, "t", "it is 1", task={"reference": "1"})
    waiting, told, goes_on = threading.Event(), [], threading.Event()

    def settle():
        waiting.set()
        assert goes_on.wait(60)

    [evaluator] = evaluators_from([{"kind": "numeric", "answer": "last_number"}])
    settings = RunSettings(concurrency=1, most_seconds=0.0, pause_after=1)
    monkeypatch.setattr(lanes, "COSTLY", 0.0)
    lane = lanes.Lane(pool, evaluator, bytes(16), settings, told.append, 0.0, settle)
    outcomes = []
    run = Subjects(pool, settings).run("t")
    lane.put(lanes.Asked(run, outcomes.append, {}))
    assert waiting.wait(60)
    lane.watch()
    assert ([each.error for each in outcomes], told, lane.rest.admits()) == ([None], [], True)
    goes_on.set()
    lane.close()


def _soon(condition):
    pause = threading.Event()
    for _ in range(10):
        if condition():
            return True
        pause.wait(0.02)
    return False


def _until(condition):
    assert any(_soon(condition) for _ in range(100))


class _Cancelled(_Other):
    name = "cancelled"

    def evaluate(self, run):
        raise asyncio.CancelledError


def test_what_is_no_exception_ends_no_thread(pool):
    for n in range(5):
        put(pool, f"t{n}", f"it is {n}")
    report = run_rewards(pool, plan_of([_Cancelled()]), RunSettings(concurrency=1))
    assert report.evaluators["cancelled"].failed == 5
    assert failures(pool)["cancelled", "trajectory", "t4"].startswith("cancelled raised CancelledError")
