"""Checks by name, one that fails beside others, groups, and what becomes of findings."""

import msgspec
import pytest

from agentworld import extensions
from agentworld.curation.checks import (
    CheckContext,
    CheckSettings,
    Finding,
    Found,
    check,
    chosen,
    known,
    pool_checks,
    registry,
    run_checks,
    run_group_checks,
)
from agentworld.curation.checks.finding import MOST_EVIDENCE
from agentworld.errors import ConfigError
from tests.curation.checks.building import run, says, user

RECORD = run(user("x"), says(""), status="open", reward=None)


@pytest.fixture
def registered(monkeypatch):
    known()
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))


def _register(name, function, **facts):
    return check(name, **{"scope": "trajectory", "says": "It says.", "fails": "It fails.", **facts})(function)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("scope", ["step", "trajectory"])
def test_a_check_that_fails_is_on_record_and_stops_no_other(scope):
    before = run_checks(RECORD)
    _register("bad", lambda *given: 1 / 0, scope=scope)

    def half(*given):
        yield Found("seen")
        raise RuntimeError("half way")

    _register("half", half, scope=scope)
    found = run_checks(RECORD)
    assert found[:-1] == before
    assert (found[-1].label, found[-1].value) == ("check.failed", "bad half")
    assert found[-1].evidence == {
        "errors": {"bad": "ZeroDivisionError: division by zero", "half": "RuntimeError: half way"}
    }


@pytest.mark.usefixtures("registered")
def test_a_check_of_groups_that_fails_is_said_of_every_member():
    _register("bad", lambda *given: 1 / 0, scope="group")
    found = run_group_checks([run(name="a"), run(name="b")])
    assert [(each.check, each.trajectory_id) for each in found if each.check == "failed"] == [
        ("failed", "a"),
        ("failed", "b"),
    ]


@pytest.mark.usefixtures("registered")
def test_a_step_has_one_label_of_a_name():
    _register("twice", lambda turn, run, context: [Found(1), Found(2), Found(3)], scope="step")
    found = [each for each in run_checks(RECORD) if each.check == "twice"]
    assert [(each.step_id, each.value, each.evidence) for each in found] == [
        ("t1-0", 1, {"more": 2}),
        (None, 1, {"steps": 1, "first": "t1-0"}),
    ]


@pytest.mark.usefixtures("registered")
def test_checks_of_packages_come_by_entry_point(monkeypatch):
    class Point:
        name, value = "theirs", "checks_of_others"

        def load(self):
            _register("theirs", lambda *given: [Found("x")])

    registry._load_entry_points.cache_clear()
    monkeypatch.setattr(extensions, "entry_points", lambda group: [Point()] if group == "agentworld.checks" else [])
    assert [each.value for each in run_checks(RECORD) if each.check == "theirs"] == ["x"]
    assert "theirs" not in registry.built_in()
    registry._load_entry_points.cache_clear()
    monkeypatch.setattr(Point, "load", lambda self: 1 / 0)
    with pytest.raises(ConfigError, match="the checks theirs of checks_of_others cannot be loaded"):
        known()
    registry._load_entry_points.cache_clear()


def test_only_what_is_asked_for_runs():
    context = CheckContext(checks=chosen(["incomplete", "difficulty"]))
    assert {each.check for each in run_checks(RECORD, context)} == {"incomplete"}
    assert set(pool_checks(context)) == {"difficulty"}
    assert chosen(["all"]) == set(known())


def test_a_name_that_is_not_known_names_the_nearest():
    with pytest.raises(ConfigError, match="no check is called 'lop'") as raised:
        chosen(["lop"])
    assert raised.value.hint == "Did you mean loop?"


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("name", ["failed", "checked", "Upper", "a b", "", "9a", "a'b"])
def test_names_that_cannot_be(name):
    with pytest.raises(ConfigError if name not in ("", "a b", "a'b") else Exception, match="cannot be"):
        _register(name, lambda *given: ())


@pytest.mark.usefixtures("registered")
def test_a_name_is_given_once():
    with pytest.raises(ConfigError, match="two checks are called 'loop'"):
        _register("loop", lambda *given: ())
    with pytest.raises(ConfigError, match="no scope"):
        _register("mine", lambda *given: (), scope="world")


def test_a_finding_becomes_a_label():
    said = Finding(
        check="loop", version="2", trajectory_id="t", step_id="s", value=3, evidence={"step": "s"}
    ).feedback()
    assert (said.kind, said.name, said.value) == ("label", "check.loop", 3)
    assert (said.trajectory_id, said.step_id, said.source) == ("t", "s", "check:loop@2")
    assert msgspec.json.decode(said.comment) == {"step": "s"}


def test_evidence_is_bounded():
    said = Finding(check="loop", version="1", trajectory_id="t", evidence={"step": "s", "big": "x" * 9_999, "more": 1})
    assert len(said.comment) <= MOST_EVIDENCE
    assert msgspec.json.decode(said.comment) == {"step": "s", "cut": True}


def _member(name, reward, **rewards):
    return run(user("x"), says("y"), name=name, reward=reward, rewards=rewards, group_id="g")


@pytest.mark.parametrize(
    ("members", "value"),
    [
        ([_member("a", 1.0), _member("b", 1.0)], 1.0),
        ([_member("a", 0.0), _member("b", 0.0), _member("c", 0.0)], 0.0),
        ([_member("a", 0.7, correct=1.0), _member("b", 0.9, correct=1.0)], 1.0),
        ([_member("a", 1.0), _member("b", 0.0)], None),
        ([_member("a", 1.0, correct=1.0), _member("b", 1.0, correct=0.0)], None),
        ([_member("a", 1.0)], None),
        ([_member("a", None), _member("b", None)], None),
        ([], None),
    ],
)
def test_groups_without_advantage(members, value):
    found = run_group_checks(members)
    names = [member.trajectory.trajectory_id for member in members]
    assert [(each.check, each.trajectory_id, each.value) for each in found] == (
        [] if value is None else [("zero_advantage", name, value) for name in names]
    )


def test_an_unjudged_rollout_gets_no_label():
    found = run_group_checks([_member("a", 1.0), _member("b", 1.0), _member("c", None)])
    assert [each.trajectory_id for each in found] == ["a", "b"]
    assert found[0].evidence == {"group": "g", "judged": 2, "members": 3}


def test_another_reward_may_say_correctness():
    context = CheckContext(settings=CheckSettings(correct="tests"))
    assert run_group_checks([_member("a", 1.0, tests=1.0), _member("b", 1.0, tests=0.0)], context) == []
