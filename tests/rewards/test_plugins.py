"""Functions as evaluators: how they are named, and that none of them can harm who asks."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from agentworld.errors import ConfigError
from agentworld.rewards import EvaluationError, Verdict, checked, evaluator, evaluator_fingerprint
from agentworld.rewards import functions as registered
from agentworld.rewards.isolation.children import Children
from agentworld.rewards.registry import evaluators_from, make_evaluator
from tests.rewards import bad_evaluators
from tests.rewards.runs import group_of, run_of

MODULE = "tests.rewards.bad_evaluators"


def plugin(name, **settings):
    return make_evaluator({"kind": f"{MODULE}:{name}", **settings}, "test")


@pytest.mark.parametrize("isolation", ["process", "none"])
def test_a_function_of_a_trajectory(isolation):
    made = plugin("finished", isolation=isolation, reward="done")
    assert (made.name, made.scope) == ("finished", "trajectory")
    assert checked(made, run_of("x")) == {"t": Verdict({"done": 1.0})}
    assert checked(made, run_of("x", status="failed")) == {"t": Verdict({"done": 0.0})}


@pytest.mark.parametrize("isolation", ["process", "none"])
def test_a_decorated_function_by_its_name_with_parameters(isolation):
    made = make_evaluator({"kind": "length_of_reply", "parameters": {"factor": 2}, "isolation": isolation}, "test")
    assert (made.name, made.version, made.gives) == ("length_of_reply", "3", ("characters", "words"))
    assert checked(made, run_of("a bc"))["t"].values == {"characters": 8.0, "words": 4.0}


@pytest.mark.parametrize("isolation", ["process", "none"])
def test_functions_of_groups_and_steps(isolation):
    group = checked(plugin("first_wins", isolation=isolation), group_of("a", "b"))
    assert [each.values for each in group.values()] == [{"reward": 1.0}, {"reward": 0.0}]
    steps = checked(plugin("each_step", isolation=isolation), run_of("a", "b"))
    assert steps["t-s1"] == Verdict({"reward": 0.5}, {"place": 1})


def test_none_is_not_judged():
    assert checked(plugin("not_judged"), run_of("x")) == {"t": Verdict({})}


def test_an_entry_point_names_a_function(monkeypatch):
    class Point:
        name, value = "from_a_package", f"{MODULE}:finished"

    monkeypatch.setattr(registered, "entry_points", lambda group: [Point()] if group == registered.GROUP else [])
    made = make_evaluator({"kind": "from_a_package"}, "test")
    assert made.name == "from_a_package"
    assert checked(made, run_of("x"))["t"].values == {"reward": 1.0}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raises", r"raised ValueError: no such thing \(at bad_evaluators.py:[0-9]+\)"),
        ("exits", "raised SystemExit"),
        ("dies", "its process ended"),
        ("not_a_number", "reward is nan, no finite number"),
        ("a_list", "reward is a list, not a number"),
        ("hangs", r"did not end within 0\.5 s and was killed"),
        ("spins", r"did not end within 0\.5 s and was killed"),
        ("forks", "BlockingIOError"),
        ("raises_unusually", "Unusual: as some libraries do"),
        ("interrupts", "KeyboardInterrupt"),
        ("prints_a_gigabyte", "wrote over 16 MiB and was ended"),
        ("eats_memory", "MemoryError|more memory"),
        ("says_much", r"the details have \d+ bytes"),
    ],
)
def test_a_bad_function_is_a_failed_evaluation_with_its_reason(name, reason):
    with pytest.raises(EvaluationError, match=reason) as caught:
        checked(plugin(name, seconds=0.5 if name in ("hangs", "spins") else 30.0), run_of("x"))
    assert caught.value.message.startswith(name)
    assert checked(plugin("finished"), run_of("x"))["t"].values == {"reward": 1.0}


def value_of(name, **settings):
    return checked(plugin(name, **settings), run_of("x"))["t"].values["reward"]


def test_what_a_call_leaves_is_not_there_for_the_next():
    assert [value_of("leaves_its_folder") for _ in range(2)] == [1.0, 1.0]
    assert [value_of("leaves_an_alarm") for _ in range(2)] == [1.0, 2.0]


def test_functions_do_not_share_a_child_and_one_keeps_its_own():
    assert [value_of("counts_its_calls") for _ in range(2)] == [1.0, 2.0]
    assert value_of("counts_all_calls") == 1.0


def test_a_call_that_an_earlier_one_ends_is_asked_of_a_fresh_child(tmp_path):
    flag = {"parameters": {"flag": str(tmp_path / "flag")}}
    assert [value_of("leaves_an_end", **flag) for _ in range(2)] == [0.0, 1.0]


def test_idle_children_are_bounded(monkeypatch):
    monkeypatch.setattr("agentworld.rewards.isolation.children.MOST_IDLE", 2)
    kept = Children(512)
    try:
        for number in range(4):
            kept.call(f"{MODULE}:not_judged", None, seconds=30.0, key=f"key {number}")
            assert len(kept._idle) == min(number + 1, 2)
    finally:
        kept.close()


@pytest.mark.parametrize("name", ["raises_unusually", "interrupts"])
def test_nothing_that_a_function_raises_ends_the_thread_that_asked(name):
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(checked, plugin(name, isolation="none"), run_of("x"))
        assert isinstance(asked.exception(), EvaluationError)


def test_calls_from_several_threads_have_a_child_each():
    made = plugin("length_of_reply")
    runs = [run_of("x" * size, trajectory_id=f"t{size}") for size in range(1, 9)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda run: checked(made, run), runs))
    assert [each[f"t{size}"].values["characters"] for size, each in enumerate(found, start=1)] == list(range(1, 9))


def test_a_partial_group_is_a_failed_evaluation():
    with pytest.raises(EvaluationError, match="judged 1 of 2 members; t1 missing"):
        checked(plugin("half_a_group"), group_of("x", "y"))


@pytest.mark.parametrize(
    ("fields", "complaint", "hint"),
    [
        ({"kind": "exakt"}, "no evaluator is called 'exakt'", "Did you mean exact"),
        ({"kind": "nowhere_at_all:x"}, "cannot be imported", None),
        ({"kind": f"{MODULE}:nothing"}, "has no 'nothing'", None),
        ({"kind": f"{MODULE}:MODULE.x"}, "has no", None),
        ({"kind": f"{MODULE}:os"}, "is no function", None),
        ({"kind": f"{MODULE}:finished", "factor": 1}, "unknown field `factor`", "Known fields"),
        ({"kind": f"{MODULE}:finished", "isolation": "sandbox"}, "sandbox", "none, process"),
        ({}, "needs a kind", "exact"),
        ({"kind": 3}, "needs a kind", "exact"),
    ],
)
def test_what_is_no_evaluator_is_refused_with_a_way_out(fields, complaint, hint):
    with pytest.raises(ConfigError, match=complaint) as caught:
        make_evaluator(fields, "test: evaluator[0]")
    assert caught.value.message.startswith("test: evaluator[0]: ")
    if hint:
        assert hint in caught.value.hint


def test_two_functions_cannot_have_one_name():
    with pytest.raises(ConfigError, match="two evaluators are called 'first_wins'"):
        evaluator("first_wins")(bad_evaluators.finished)


def test_a_function_of_another_version_is_another_evaluator(monkeypatch):
    before = evaluator_fingerprint(plugin("length_of_reply"))
    facts = registered.facts_of(bad_evaluators.length_of_reply)._replace(version="4")
    monkeypatch.setattr(bad_evaluators.length_of_reply, "__agentworld_evaluator__", facts)
    assert evaluator_fingerprint(plugin("length_of_reply")) != before


def test_a_function_with_another_text_is_another_evaluator(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in (("edited_before", "0.0"), ("edited_after", "1.0")):
        (tmp_path / f"{name}.py").write_text(f"def judge(run):\n    return {text}\n")
    made = [make_evaluator({"kind": f"edited_{when}:judge"}, "test") for when in ("before", "after")]
    assert made[0].configuration["function"]["source"] != made[1].configuration["function"]["source"]


def test_a_function_beside_another_text_in_its_file_is_another_evaluator(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "edited_beside.py"
    path.write_text("LIMIT = 0.5\n\n\ndef judge(run):\n    return LIMIT\n")
    made = make_evaluator({"kind": "edited_beside:judge"}, "test")
    before = evaluator_fingerprint(made)
    assert evaluator_fingerprint(made) == before
    path.write_text("LIMIT = 0.75\n\n\ndef judge(run):\n    return LIMIT\n")
    assert evaluator_fingerprint(made) != before


@pytest.mark.parametrize("isolation", ["process", "none"])
def test_a_function_sees_the_rewards_that_it_needs_and_no_others(isolation):
    run = run_of("x", rewards={"a": 1.0, "reward": 2.0, "b": 3.0}, labels={"evaluation.a": "failed", "good": True})
    run.steps[0].rewards = {"a": 1.0}
    for needs, seen in ((None, {"a": 1.0}), (["reward"], {"reward": 2.0}), ([], {})):
        settings = {} if needs is None else {"needs": needs}
        made = make_evaluator({"kind": "what_it_sees", "isolation": isolation, **settings}, "test")
        primary = seen.get("reward")
        shown = {"rewards": seen, "reward": primary, "labels": {"good": True}, "of_steps": {}}
        assert checked(made, run)["t"].details == shown
        group = make_evaluator({"kind": "what_it_sees_of_groups", "isolation": isolation, **settings}, "test")
        assert checked(group, group_of(run))["t"].details["rewards"] == ({} if needs is None else seen)
    assert run.trajectory.rewards == {"a": 1.0, "reward": 2.0, "b": 3.0}


def test_a_function_runs_after_those_whose_rewards_it_needs():
    tables = [{"kind": "what_it_sees", "needs": ["words"]}, {"kind": "length_of_reply"}]
    assert [each.name for each in evaluators_from(tables)] == ["length_of_reply", "what_it_sees"]


def test_values_that_a_function_declares_can_be_composed():
    tables = [{"kind": "sum", "weights": {"words": 1.0}}, {"kind": "length_of_reply"}]
    assert [each.name for each in evaluators_from(tables)] == ["length_of_reply", "sum"]
