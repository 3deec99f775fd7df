import pytest

from agentworld.query import evaluate, parse

VALUES = {
    "reward": 0.5,
    "late": False,
    "ready": True,
    "agent": "cli",
    "label.n": 1,
    "label.yes": True,
    "label.list": [1],
    "version": 3,
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
    ],
)
def test_logic_is_two_valued_and_types_do_not_mix(where, holds):
    assert evaluate(parse(where, "steps"), lambda field: VALUES.get(str(field))) is holds
