import pytest

from agentworld.query import bind, evaluate, parse, printed, with_texts

VALUES = {
    "reward": 0.5,
    "late": False,
    "ready": True,
    "agent": "cli",
    "label.n": 1,
    "label.yes": True,
    "label.list": [1],
    "policy.version": 3,
    "created_at": 1000.0,
    "label.big": 2**64,
    "label.text": "50% of [x]",
}


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("reward == 0.5", True),
        ("reward != 0.5", False),
        ("version == 3.0", True),
        ("ready and not late", True),
        ("ready == true and late == false", True),
        ("late or reward > 1", False),
        ("model == null", True),
        ("model != 'x'", True),
        ("model > 'a' or model <= 'a'", False),
        ("not model > 'a'", True),
        ("model in ('x', null)", True),
        ("agent < 'd' and agent >= 'cli'", True),
        ("label.n == true", False),
        ("label.n >= 1", True),
        ("label.n < 'x'", False),
        ("label.yes", True),
        ("label.yes == 1", False),
        ("label.n", False),
        ("label.list == 1", False),
        ("label.gone is null", True),
        ("label.n in ('1', 1)", True),
        ("agent not in ('x', 'y')", True),
        ("has agent and has label.n and has label.list and not has model", True),
        ("agent like 'c%' and agent not like 'C%' and agent like '_l_'", True),
        ("label.text like '50\\% of [x]' and label.text not like '50_of%'", True),
        ("label.n like '1' or model like '%'", False),
        ("label.big == 18446744073709551616 and label.big > 9223372036854775807", True),
        ("created_at >= now - 10m and created_at < now", True),
        ("created_at == 1000 and created_at == '1970-01-01T00:16:40Z'", True),
        ("created_at in (now - 1s, now - 30s)", True),
    ],
)
def test_logic_is_two_valued_and_types_do_not_mix(where, holds):
    expression = bind(parse(where, "steps"), 1030.0)
    assert evaluate(expression, lambda field: VALUES.get(str(field))) is holds


def test_an_unbound_now_is_refused():
    with pytest.raises(TypeError, match="bound before"):
        evaluate(parse("created_at > now", "steps"), lambda field: 1.0)


def test_texts_and_patterns_can_be_written_in_another_way():
    source = "not (label.ab == 'ab' or meta.b.a in ('a', 1, null)) and label.b like 'a_%' and agent == 'a' and late"
    bound = with_texts(parse(source, "steps"), str.upper)
    expected = (
        "not (label.ab == 'AB' or metadata.b.a in ('A', 1, null)) and label.b like 'A_%' and agent == 'a' and late"
    )
    assert printed(bound) == expected
