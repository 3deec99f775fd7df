import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.query import parse, printed
from tests.examples import examples

from .strategies import conditions, expressions

EXPRESSIONS = {subject: expressions(subject) for subject in ("steps", "trajectories")}


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("1>=reward and( meta.x=='a' or not late )", "reward <= 1 and (metadata.x == 'a' or not late)"),
        ('agent == "it\'s"', r"agent == 'it\'s'"),
        ("not (agent in ('a', \"b\"))", "agent not in ('a', 'b')"),
        ("not (late and ready)", "not (late and ready)"),
        ("has (meta.'a b'.c)", 'has metadata."a b".c'),
        (r"agent not like '50\%\n%'", r"agent not like '50\%\n%'"),
        ("agent == null or agent != null", "agent is null or agent is not null"),
        ("created_at > '2026-01-31' and created_at < 0.5", None),
        ("created_at > now-120m and created_at < now + 90s", "created_at > now - 2h and created_at < now + 90s"),
        ("version == 3.0 and reward > 1e30", "policy.version == 3.0 and reward > 1e+30"),
    ],
)
def test_expressions_have_one_text(source, text):
    if text is None:
        text = "created_at > '2026-01-31T00:00:00Z' and created_at < '1970-01-01T00:00:00.500000Z'"
    assert printed(parse(source, "steps")) == text


def typed(expression):
    """The tree with the types of its values, which Python's equality does not see."""
    return repr(expression)


SUBJECTS = ["steps", "trajectories"]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_condition_that_is_printed_parses_to_itself(subject):
    trees = [parse(source, subject) for source in conditions(subject)]
    assert [typed(parse(printed(tree), subject)) for tree in trees] == [typed(tree) for tree in trees]


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(st.sampled_from(SUBJECTS).flatmap(lambda subject: st.tuples(st.just(subject), EXPRESSIONS[subject])))
def test_what_is_printed_parses_to_the_same_tree(drawn):
    subject, source = drawn
    tree = parse(source, subject)
    assert typed(parse(printed(tree), subject)) == typed(tree)


def quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(
    st.text(max_size=20), st.floats(-1e12, 1e12), st.floats(0, 1e12), st.floats(allow_nan=False, allow_infinity=False)
)
def test_values_are_printed_exactly(text, moment, duration, number):
    source = (
        f"label.x == {quoted(text)} and label.x like {quoted(text)} and created_at > {moment!r} and"
        f" created_at < now - {duration:.30f}s and reward > {number!r}"
    )
    tree = parse(source, "steps")
    assert typed(parse(printed(tree), "steps")) == typed(tree)
