import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.errors import QueryError
from agentworld.query import (
    FIELDS,
    Comparison,
    Conjunction,
    Disjunction,
    Flag,
    Membership,
    Not,
    fields_of,
    parse,
)


def shape(expression):
    """The tree as nested text."""
    match expression:
        case Conjunction(items):
            return "(" + " & ".join(map(shape, items)) + ")"
        case Disjunction(items):
            return "(" + " | ".join(map(shape, items)) + ")"
        case Not(item):
            return "!" + shape(item)
        case Flag(field):
            return str(field)
        case Membership(field, values):
            return f"{field} in {list(values)!r}"
        case Comparison(field, operator, value):
            return f"{field} {operator} {value!r}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("reward >= 0.5", "reward >= 0.5"),
        ("0.5 <= reward", "reward >= 0.5"),
        ("1 > reward", "reward < 1"),
        ("reward == -1e-3", "reward == -0.001"),
        ("reward == .5 and version == 3", "(reward == 0.5 & version == 3)"),
        ("late or ready and complete", "(late | (ready & complete))"),
        ("(late or ready) and complete", "((late | ready) & complete)"),
        ("not late and ready", "(!late & ready)"),
        ("not not late", "!!late"),
        ("not (late or ready)", "!(late | ready)"),
        ("late and ready and complete", "(late & ready & complete)"),
        ("agent is null", "agent == None"),
        ("agent is not null", "agent != None"),
        ("null == agent", "agent == None"),
        ("agent in ('a', \"b\", null)", "agent in ['a', 'b', None]"),
        ("agent not in ('a')", "!agent in ['a']"),
        ("label.quality != 'bad'", "label.quality != 'bad'"),
        ("task.deep.key-1 == true", "task.deep.key-1 == True"),
        ("reward.format_score < 1", "reward.format_score < 1"),
        ("policy.version == 1", "policy.version == 1"),
        (r"agent == 'it\'s \"x\" \\ \n'", "agent == 'it\\'s \"x\" \\\\ \\n'"),
        ("agent=='and'", "agent == 'and'"),
        ("late\n\tand\nready", "(late & ready)"),
    ],
)
def test_trees(source, expected):
    assert shape(parse(source, "steps")) == expected


@pytest.mark.parametrize(
    ("source", "position", "says"),
    [
        ("", 0, "nothing to filter by"),
        ("   ", 0, "nothing to filter by"),
        ("reward >=", 9, "a value must stand there, not the end"),
        ("reward >= and", 10, "Put text in quotes"),
        ("reward = 1", 7, "=="),
        ("reward > 1 && late", 11, "Use and"),
        ("late ready", 5, "Join conditions"),
        ("(late", 5, "')' must stand there"),
        ("late)", 4, "unexpected ')'"),
        ("agent == 'x", 9, "does not end"),
        ("agent == cli", 9, "'cli'"),
        ("agent", 0, "agent == ..."),
        ("reward > 'x'", 9, "compares with a number"),
        ("agent == 1", 9, "a text in quotes"),
        ("reward == true", 10, "compares with a number"),
        ("late == 1", 8, "true or false"),
        ("late > true", 7, "does not order"),
        ("agent < null", 8, "does not order"),
        ("agent in 'a'", 9, "'(' must stand there"),
        ("agent in ()", 10, "a value must stand there"),
        ("agent in ('a',)", 14, "a value must stand there"),
        ("1 == 1", 5, "a field must stand there"),
        ("and late", 0, "a field must stand there"),
        ("reward == 1e999", 10, "too large"),
        ("reward == 1x", 11, "runs into letters"),
        ("late; drop table steps", 4, "unexpected ';'"),
        ("agent is 3", 9, "'null' must stand there"),
        ("not", 3, "a field must stand there"),
    ],
)
def test_errors_name_the_position_and_what_to_write(source, position, says):
    with pytest.raises(QueryError) as caught:
        parse(source, "steps")
    assert f"at position {position} " in caught.value.message
    assert says in caught.value.one_line()
    assert caught.value.path == "where"


@pytest.mark.parametrize(
    ("source", "subject", "near"),
    [
        ("rewrd > 1", "steps", "reward"),
        ("stalness <= 2", "trajectories", "staleness"),
        ("lable.quality == 'x'", "steps", "label.quality"),
        ("label == 'x'", "steps", "label.KEY"),
        ("metadata == 1", "trajectories", "metadata.KEY"),
        ("complet", "steps", "complete"),
        ("policy.versoin == 1", "steps", "policy.version"),
        ("taks == 1", "steps", "task.KEY"),
    ],
)
def test_the_nearest_field_is_named(source, subject, near):
    with pytest.raises(QueryError) as caught:
        parse(source, subject)
    assert caught.value.hint == f"Did you mean {near}?"


def test_a_field_of_the_other_subject_is_unknown():
    assert shape(parse("step_count > 1", "trajectories")) == "step_count > 1"
    with pytest.raises(QueryError, match="steps have no field 'step_count'"):
        parse("step_count > 1", "steps")
    with pytest.raises(QueryError, match="trajectories have no field 'late'"):
        parse("late", "trajectories")


def test_length_depth_and_number_of_conditions_are_bounded():
    assert parse(" or ".join(["late"] * 400), "steps")
    for source in (
        "late or " * 600 + "late",
        "(" * 60 + "late" + ")" * 60,
        "not " * 60 + "late",
        "(" * 4000,
        "agent == '" + "x" * 5000 + "'",
    ):
        with pytest.raises(QueryError):
            parse(source, "steps")


def test_every_field_is_documented_and_parses():
    assert len({field.name for field in FIELDS}) == len(FIELDS)
    for subject in ("steps", "trajectories"):
        for field in fields_of(subject):
            assert field.doc
            if field.plain:
                assert str(parse(f"{field.name} == null", subject).field) == field.name
            if field.keyed:
                assert str(parse(f"{field.name}.k == null", subject).field) == f"{field.name}.k"


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(st.sampled_from("rewadlt.=<>!()',\"\\ 019-not in is") | st.characters(), max_size=30))
def test_any_text_parses_or_is_a_query_error(source):
    # Whatever else is raised fails the test.
    with contextlib.suppress(QueryError):
        assert shape(parse(source, "steps"))


@pytest.mark.parametrize(
    ("source", "subject", "other"),
    [("finish_reason == 'length'", "trajectories", "steps"), ("step_count > 1", "steps", "trajectories")],
)
def test_a_field_of_the_other_kind_is_said_to_be_one(source, subject, other):
    with pytest.raises(QueryError) as caught:
        parse(source, subject)
    assert caught.value.hint == f"It is a field of {other}: list those with it"
