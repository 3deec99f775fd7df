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
    Has,
    Like,
    Membership,
    Not,
    fields_of,
    parse,
)
from tests.examples import examples


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
        case Has(field):
            return f"has {field}"
        case Like(field, pattern):
            return f"{field} like {pattern!r}"
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
        ("reward == .5 and version == 3", "(reward == 0.5 & policy.version == 3)"),
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
        ("(late and ready) and complete", "(late & ready & complete)"),
        ("late or (ready or complete)", "(late | ready | complete)"),
        ("meta.a.b == 1", "metadata.a.b == 1"),
        ("meta.\"a b\".c-1.'it' == 1", 'metadata."a b".c-1.it == 1'),
        ("label.a.b == 1", "label.a.b == 1"),
        ('reward."exact match" > 0', 'reward."exact match" > 0'),
        ("has reward.tests", "has reward.tests"),
        ("not has(label.x)", "!has label.x"),
        ("has tokens and has (annotation.values)", "(has tokens & has annotation.values)"),
        ("model like 'qwen%'", "model like 'qwen%'"),
        ("model not like 'q_%'", "!model like 'q_%'"),
        ("label.x like '%'", "label.x like '%'"),
        ("created_at >= 5", "created_at >= 5.0"),
        ("created_at >= '1970-01-02'", "created_at >= 86400.0"),
        ("created_at == '1970-01-01T01:00:00.5+01:00'", "created_at == 0.5"),
        ("created_at > now", "created_at > Now(offset=0.0)"),
        ("now -2h<created_at", "created_at > Now(offset=-7200.0)"),
        ("created_at in (now - 1.5h, now + 1w)", "created_at in [Now(offset=-5400.0), Now(offset=604800.0)]"),
        ("label.x == '2026-01-31'", "label.x == '2026-01-31'"),
        ("version == 9223372036854775807", "policy.version == 9223372036854775807"),
        ("version == 9223372036854775808", "policy.version == 9.223372036854776e+18"),
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
        ("reward between 1 and 2", 7, "Write reward >= LEAST and reward <= MOST"),
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
        ("agent == 'a\0'", 9, "agent never holds U+0000"),
        ("agent in ('a', '\ud800')", 15, "agent never holds U+D800"),
        ("agent like '%\0'", 11, "agent never holds U+0000"),
        ("has", 3, "a field must stand there"),
        ("has 'x'", 4, "a field must stand there"),
        ("has(agent", 9, "')' must stand there"),
        ("has late", 4, "Leave has out: late"),
        ("tokens", 0, "Ask for it: has tokens"),
        ("logprobs is null", 0, "Ask for it: has logprobs"),
        ("annotation.x == 1", 16, "Ask for it: has annotation.x"),
        ("annotation", 0, "Did you mean annotation.NAME?"),
        ("agent like 1", 11, "a pattern in quotes must stand there"),
        ("agent not 'x'", 10, "in or like must stand there"),
        ("reward like 'x'", 0, "no text that is like a pattern"),
        ("created_at like '2026%'", 0, "no text that is like a pattern"),
        ("agent like '" + "%x" * 21 + "'", 11, "too many %"),
        ("agent like '" + "x" * 1001 + "'", 11, "1001 characters"),
        ("agent == 'x' 'y'", 13, "Join conditions"),
        ("created_at > '2026-01-31T10:00:00'", 13, "'2026-01-31T10:00:00Z' for UTC"),
        ("created_at == '2026-01-31'", 14, "is a day, not one moment"),
        ("created_at in ('2026-01-31')", 15, "is a day, not one moment"),
        ("created_at > '2026-02-30'", 13, "is no date or time"),
        ("created_at > 'yesterday'", 13, "is no date or time"),
        ("created_at > '31.1.2026'", 13, "is no date or time"),
        ("created_at > true", 13, "does not order"),
        ("created_at == true", 14, "compares with a date, a time, now"),
        ("created_at > 2h", 13, "Write now - 2h"),
        ("created_at > now - 7200", 19, "a duration such as"),
        ("created_at > now -7200", 18, "Write now - 7200s"),
        ("created_at > now - 2y", 20, "runs into letters"),
        ("created_at > now - 2h - 1m", 22, "Join conditions"),
        ("created_at > - 2h", 13, "a value must stand there"),
        ("reward > now", 9, "reward is no time"),
        ("label.x > now - 1h", 10, "label.x is no time"),
        ("now", 3, "a comparison such as"),
        (r"meta.'a\b' == 1", 7, "in a key"),
        ("meta.'a\nb' == 1", 7, "in a key"),
        ("meta.'a\"' == 1", 7, "in a key"),
        ("meta. == 1", 4, "unexpected '.'"),
        ("agent == ٣", 9, "unexpected"),
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
        ("label == 'x'", "steps", "label.NAME"),
        ("metadata == 1", "trajectories", "metadata.PATH"),
        ("complet", "steps", "complete"),
        ("policy.versoin == 1", "steps", "policy.version"),
        ("taks == 1", "steps", "task.PATH"),
        ("step_idx == 0", "steps", "step_index"),
        ("response_len > 9", "steps", "response_length"),
        ("step_cnt > 1", "trajectories", "step_count"),
        ("traj == 't'", "trajectories", "trajectory_id"),
        ("steps > 1", "trajectories", "step_count"),
        ("completd", "trajectories", "complete"),
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
            assert field.doc.endswith(".")
            assert set(field.indexed) <= set(field.subjects)
            asked = "has {}" if field.kind == "presence" else "{} == null"
            if field.plain:
                assert str(parse(asked.format(field.name), subject).field) == (field.alias_of or field.name)
            if field.keys:
                assert str(parse(asked.format(field.name + ".k"), subject).field) == f"{field.alias_of or field.name}.k"


def test_escapes_of_patterns_are_those_of_texts_and_of_like():
    source = r"model like '50\%\_\\\n\'\x%'"
    assert parse(source, "steps").pattern == r"50\%\_\\" + "\n'x%"


WORDS = [
    *("reward", "reward.x", "label.x", "meta.'a b'", "model", "created_at", "late", "tokens", "annotation.x"),
    *("has", "has(", "like", "is", "and", "or", "not", "in", "now", "null", "true"),
    *("'a%'", "'2026-01-01'", "2h", "1.5", "-3", "9e9"),
    *("==", "<", "(", ")", ",", "-", "+", ".", "\\", "'", '"'),
]


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(st.text(st.sampled_from("rewadlt.=<>!()',\"\\ 019-not in is") | st.characters(), max_size=30))
def test_any_text_parses_or_is_a_query_error(source):
    # Whatever else is raised fails the test.
    with contextlib.suppress(QueryError):
        assert shape(parse(source, "steps"))


@settings(max_examples=examples(500), deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(WORDS), max_size=12))
def test_any_words_parse_or_are_a_query_error(words):
    with contextlib.suppress(QueryError):
        assert shape(parse(" ".join(words), "steps"))


@pytest.mark.parametrize(
    ("source", "subject", "other"),
    [("finish_reason == 'length'", "trajectories", "steps"), ("step_count > 1", "steps", "trajectories")],
)
def test_a_field_of_the_other_kind_is_said_to_be_one(source, subject, other):
    with pytest.raises(QueryError) as caught:
        parse(source, subject)
    assert caught.value.hint == f"It is a field of {other}: list those with it"
