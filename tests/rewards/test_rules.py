"""Rules: right and wrong answers of each kind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.errors import ConfigError
from agentworld.rewards import EvaluationError, checked
from agentworld.rewards.numbers import read_number
from agentworld.rewards.registry import make_evaluator
from tests.rewards.runs import calling, run_of

TEXT = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "size": {"type": "integer", "minimum": 1}},
    "required": ["city"],
    "additionalProperties": False,
}
# (settings, reply, reference, value): what is judged right or wrong, by kind.
ANSWERS = [
    ({"kind": "exact"}, " Paris ", "Paris", 1),
    ({"kind": "exact"}, "paris", "Paris", 0),
    ({"kind": "exact"}, "Paris", ["Rome", "Paris"], 1),
    ({"kind": "exact"}, "7", 7, 1),
    ({"kind": "exact", "answer": "after_answer"}, "thinking\nAnswer: 7", 7, 1),
    ({"kind": "exact", "answer": "after_answer"}, "7", 7, 0),
    ({"kind": "exact", "answer": "boxed"}, r"\boxed{7}", 7, 1),
    ({"kind": "normalised"}, "The  Eiffel-Tower!", "an eiffel tower", 1),
    ({"kind": "normalised"}, "Eiffel", "Eiffel tower", 0),
    ({"kind": "normalised"}, "ＦＵＬＬ width", "full WIDTH", 1),
    ({"kind": "normalised", "ignore_case": False}, "Paris", "paris", 0),
    ({"kind": "normalised", "ignore_punctuation": False}, "Paris.", "Paris", 0),
    ({"kind": "normalised", "ignore_articles": False}, "the end", "end", 0),
    ({"kind": "normalised", "contained": True}, "It is in Paris, France.", "paris", 1),
    ({"kind": "normalised", "contained": True}, "It is parish.", "paris", 0),
    ({"kind": "numeric"}, "1,000.50", "+1000.5", 1),
    ({"kind": "numeric"}, "$5", 5, 1),
    ({"kind": "numeric"}, "-$5", -5, 1),
    ({"kind": "numeric"}, "12 m^2", "12", 1),
    ({"kind": "numeric"}, "12 km/h.", "12", 1),
    ({"kind": "numeric"}, "3/4", 0.75, 1),
    ({"kind": "numeric"}, "1e3", 1000, 1),
    ({"kind": "numeric"}, "−2 °C", -2, 1),
    ({"kind": "numeric"}, ".5", "0.5", 1),
    ({"kind": "numeric"}, "12 or 13", "12", 0),
    ({"kind": "numeric"}, "about 12", "12", 0),
    ({"kind": "numeric"}, "twelve", "12", 0),
    ({"kind": "numeric"}, "nan", "12", 0),
    ({"kind": "numeric"}, "3/0", "3", 0),
    ({"kind": "numeric"}, "12.01", "12", 0),
    ({"kind": "numeric", "tolerance": 0.01}, "12.01", "12", 1),
    ({"kind": "numeric", "tolerance": 0.01}, "12.02", "12", 0),
    ({"kind": "numeric", "relative": 0.1}, "-110", "-100", 1),
    ({"kind": "numeric", "relative": 0.1}, "111", "100", 0),
    ({"kind": "numeric", "answer": "last_number"}, "It is 3, so 12 in all.", "12", 1),
    ({"kind": "numeric", "answer": "last_number"}, "It is 1e3", 1000, 1),
    ({"kind": "numeric", "answer": "last_number"}, "It is 1e3", 3, 0),
    ({"kind": "numeric", "answer": "last_number"}, "about 1.5E-4.", "0.00015", 1),
    ({"kind": "numeric", "answer": "last_number"}, "1e99999", 99999, 0),
    ({"kind": "numeric", "answer": "last_number"}, "so 12,345,678.5 in all", 12345678.5, 1),
    ({"kind": "numeric", "answer": "last_number"}, "one of 1,2,3", 3, 1),
    ({"kind": "numeric", "answer": "last_number"}, "it is .5", 0.5, 1),
    ({"kind": "numeric", "answer": "last_number"}, "so 5%.", 0.05, 1),
    ({"kind": "numeric", "answer": "last_number"}, "so 5 %", "5%", 1),
    ({"kind": "numeric", "answer": "last_number"}, "so 5%", 5, 1),
    ({"kind": "numeric"}, "0.05", "5%", 1),
    ({"kind": "numeric"}, "5", "5%", 1),
    ({"kind": "numeric"}, "5%", 0.5, 0),
    ({"kind": "numeric"}, "0.5%", "50%", 0),
    ({"kind": "numeric", "tolerance": 0.5}, "0.3", "5%", 0),
    ({"kind": "numeric", "tolerance": 0.5}, "0.054", "5%", 1),
    ({"kind": "numeric"}, "1,5", 15, 0),
    ({"kind": "numeric"}, "12,34,567", 1234567, 1),
]
REPLIES = [
    ({"kind": "regex", "pattern": r"\bParis\b"}, "in Paris.", 1),
    ({"kind": "regex", "pattern": r"\bParis\b"}, "in Parisian", 0),
    ({"kind": "regex", "pattern": "paris", "flags": "i"}, "PARIS", 1),
    ({"kind": "regex", "pattern": "paris", "full": True}, "paris!", 0),
    ({"kind": "regex", "pattern": "sorry", "absent": True}, "I do it", 1),
    ({"kind": "regex", "pattern": "sorry", "absent": True}, "sorry, no", 0),
    ({"kind": "regex", "pattern": ".*", "answer": "boxed"}, "no box", 0),
    ({"kind": "format", "tags": ["think", "answer"]}, "<think>a</think>\n<answer>b</answer>", 1),
    ({"kind": "format", "tags": ["think", "answer"]}, "<answer>b</answer><think>a</think>", 0),
    ({"kind": "format", "tags": ["think", "answer"]}, "<think>a</think><answer>b", 0),
    ({"kind": "format", "tags": ["think"]}, "<think>a</think><think>b</think>", 0),
    ({"kind": "format", "tags": ["think", "answer"]}, "<think>a<answer>b</answer></think>", 0),
    ({"kind": "format", "tags": ["think"]}, "so <think>a</think>", 0),
    ({"kind": "format", "tags": ["think"]}, "<think>a</think> then", 0),
    ({"kind": "format", "tags": ["think"], "only": False}, "so <think>a</think> then", 1),
    ({"kind": "format", "pattern": r"\[.*\]"}, "[a\nb]", 1),
    ({"kind": "format", "pattern": r"\[.*\]"}, "[a] b", 0),
    ({"kind": "json_schema", "schema": TEXT}, '{"city": "Rome", "size": 2}', 1),
    ({"kind": "json_schema", "schema": TEXT}, 'Here:\n```json\n{"city": "Rome"}\n```', 1),
    ({"kind": "json_schema", "schema": TEXT}, '{"city": 3}', 0),
    ({"kind": "json_schema", "schema": TEXT}, '{"city": "Rome", "size": 0}', 0),
    ({"kind": "json_schema", "schema": TEXT}, '{"size": 2}', 0),
    ({"kind": "json_schema", "schema": TEXT}, '{"city": "Rome", "other": 1}', 0),
    ({"kind": "json_schema", "schema": TEXT}, "Rome", 0),
    ({"kind": "json_schema", "schema": {"type": "number"}}, "NaN", 0),
    ({"kind": "json_schema", "schema": {}}, "", 0),
]


def value(settings, run):
    """The one value of a trajectory."""
    return checked(make_evaluator(settings, "test"), run)["t"].values["reward"]


@pytest.mark.parametrize(("settings", "reply", "reference", "expected"), ANSWERS)
def test_answers_against_a_reference(settings, reply, reference, expected):
    assert value(settings, run_of("before", reply, task={"reference": reference})) == expected


@pytest.mark.parametrize(("settings", "reply", "expected"), REPLIES)
def test_replies_by_their_form(settings, reply, expected):
    assert value(settings, run_of("before", reply)) == expected


@pytest.mark.parametrize("kind", ["exact", "normalised", "numeric"])
def test_no_answer_is_wrong_and_no_reference_is_no_judgement(kind):
    assert value({"kind": kind, "reference": "4"}, run_of()) == 0
    for task in (None, {}, {"reference": None}, {"reference": []}):
        with pytest.raises(EvaluationError, match="has no reference"):
            value({"kind": kind}, run_of("4", task=task))
    assert value({"kind": kind, "reference_field": "right"}, run_of("4", task={"right": "4"})) == 1


def test_a_reference_that_cannot_be_compared_is_no_judgement():
    with pytest.raises(EvaluationError, match="is no number"):
        value({"kind": "numeric", "reference": "four"}, run_of("4"))
    with pytest.raises(EvaluationError, match="nothing is left of the reference"):
        value({"kind": "normalised", "reference": "The !"}, run_of("4"))


def test_a_regular_expression_that_takes_for_ever_is_a_failed_evaluation():
    endless = {"kind": "regex", "pattern": "(a+)+$", "seconds": 0.5}
    with pytest.raises(EvaluationError, match=r"did not end within 0\.5 s"):
        value(endless, run_of("a" * 60 + "b"))
    assert value({"kind": "regex", "pattern": "a"}, run_of("a")) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "numeric"},
        {"kind": "exact"},
        {"kind": "regex", "pattern": "a"},
        {"kind": "json_schema", "schema": {}},
        {"kind": "program", "command": ["true"]},
        {"kind": "expression", "expression": "numeric(answer, reference)"},
    ],
)
def test_what_reads_numbers_is_another_evaluator_than_before_it_read_exponents(settings):
    facts = make_evaluator(settings, "test").configuration
    assert (facts if "revision" in facts else facts["settings"])["revision"] == 2


@given(st.text(max_size=40))
def test_any_text_is_a_number_or_none(text):
    number = read_number(text)
    assert number is None or number == number + 0


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"kind": "regex", "pattern": "("}, "no regular expression"),
        ({"kind": "regex", "pattern": "a", "flags": "q"}, "flags are letters"),
        ({"kind": "regex"}, "pattern"),
        ({"kind": "format"}, "needs `tags` or `pattern`"),
        ({"kind": "numeric", "tolerance": -1}, "tolerance"),
        ({"kind": "length", "free": 5, "limit": 5}, "has to be under limit"),
        ({"kind": "json_schema", "schema": {"type": "nothing"}}, "the schema is none"),
        ({"kind": "tool_calls", "expected": [{"nam": "x"}]}, "nam"),
        ({"kind": "exact", "answer": "somewhere"}, "somewhere"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        make_evaluator(settings, "test")


def test_a_schema_fetches_nothing():
    settings = {"kind": "json_schema", "schema": {"$ref": "http://127.0.0.1:9/schema.json"}}
    with pytest.raises(EvaluationError, match="Unresolvable"):
        value(settings, run_of("{}"))


WEATHER = {"name": "weather", "arguments": {"city": "Rome", "days": 2}}
TIME = {"name": "time"}
ROME, PARIS, NOW = ("weather", '{"days": 2.0, "city": "Rome"}'), ("weather", '{"city": "Paris"}'), ("time", "")


@pytest.mark.parametrize(
    ("settings", "calls", "expected"),
    [
        ({}, [ROME, NOW], 1),
        ({}, [NOW, ROME], 0),
        ({}, [ROME, NOW, NOW], 0),
        ({}, [ROME], 0),
        ({}, [], 0),
        ({"match": "any_order"}, [NOW, ROME], 1),
        ({"match": "any_order"}, [NOW, ROME, ROME], 0),
        ({"match": "subsequence"}, [PARIS, ROME, PARIS, NOW], 1),
        ({"match": "subsequence"}, [NOW, ROME], 0),
        ({"match": "subset"}, [PARIS, NOW, ROME], 1),
        ({"match": "subset"}, [PARIS, NOW], 0),
        ({"arguments": "ignore"}, [PARIS, NOW], 1),
        ({}, [("weather", '{"city": "Rome", "days": 2, "unit": "C"}'), NOW], 0),
        ({"arguments": "subset"}, [("weather", '{"city": "Rome", "days": 2, "unit": "C"}'), NOW], 1),
        ({}, [("weather", "not json"), NOW], 0),
        ({}, [("weather", "[1]"), NOW], 0),
        ({}, [("weather", '{"city": "Rome", "days": true}'), NOW], 0),
        ({"partial": True}, [ROME, PARIS, NOW], 2 / 3),
        ({"partial": True, "match": "subset"}, [PARIS, NOW], 0.5),
        ({"partial": True, "match": "any_order"}, [NOW, ROME], 1),
    ],
)
def test_tool_calls(settings, calls, expected):
    made = [calling(call) for call in calls]
    settings = {"kind": "tool_calls", "expected": [WEATHER, TIME], **settings}
    assert value(settings, run_of(*made, "done")) == pytest.approx(expected)


def test_each_expected_call_has_a_made_call_of_its_own():
    """The first made call agrees with both expected ones, the second with one alone: both find theirs."""
    expected = [{"name": "f", "arguments": {"a": 1}}, {"name": "f", "arguments": {"a": 1, "b": 2}}]
    settings = {"kind": "tool_calls", "expected": expected, "match": "subset", "arguments": "subset"}
    both, one = ("f", '{"a": 1, "b": 2}'), ("f", '{"a": 1}')
    assert value(settings, run_of(calling(both, one))) == 1
    assert value(settings, run_of(calling(one, both))) == 1
    assert value(settings, run_of(calling(both))) == 0
    assert value(settings, run_of(calling(one, one))) == 0


def test_expected_calls_of_the_task():
    run = run_of(calling(NOW), task={"calls": [TIME]})
    assert value({"kind": "tool_calls", "reference_field": "calls"}, run) == 1
    with pytest.raises(EvaluationError, match="no expected calls"):
        value({"kind": "tool_calls"}, run)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"free": 20, "limit": 30}, 0.0),
        ({"free": 10, "limit": 30}, -0.5),
        ({"free": 5, "limit": 15}, -1.0),
        ({"free": 10, "limit": 30, "low": 0.0, "high": 1.0}, 0.5),
        ({"free": 0, "limit": 60, "of": "all"}, -0.5),
        ({"free": 0, "limit": 8, "unit": "characters"}, -0.5),
    ],
)
def test_length(settings, expected):
    """The replies have 10 and 20 tokens; the last has 4 characters."""
    assert value({"kind": "length", **settings}, run_of("first", "last")) == pytest.approx(expected)


def test_an_unknown_length_is_no_judgement():
    run = run_of("x")
    run.steps[0].response_ids = None
    with pytest.raises(EvaluationError, match="has no tokens"):
        value({"kind": "length", "free": 1, "limit": 2}, run)
