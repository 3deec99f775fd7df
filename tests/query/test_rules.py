"""Rules of curation: what they say, and what is refused with its place."""

import pytest

from agentworld.errors import QueryError
from agentworld.query import parse_rule, parse_rules, printed


@pytest.mark.parametrize(
    ("source", "subject", "when", "action", "text", "number"),
    [
        ("when reward >= 0.5 then ready", "trajectories", "reward >= 0.5", "ready", "", 1.0),
        (
            "steps when finish_reason == 'length' then exclude \"cut, then left\"",
            "steps",
            "finish_reason == 'length'",
            "exclude",
            "cut, then left",
            1.0,
        ),
        (
            "when label.then == 'then' then review 'look' 0.8",
            "trajectories",
            "label.then == 'then'",
            "review",
            "look",
            0.8,
        ),
        ("when has label.odd then review 'look'", "trajectories", "has label.odd", "review", "look", 0.5),
        ("when task.level > 3 then tag hard", "trajectories", "task.level > 3", "tag", "hard", 1.0),
        ("when not has reward\nthen weight 0", "trajectories", "not has reward", "weight", "", 0.0),
    ],
)
def test_what_a_rule_says(source, subject, when, action, text, number):
    rule = parse_rule(source)
    assert (rule.subject, printed(rule.when)) == (subject, when)
    assert (rule.action, rule.text, rule.number) == (action, text, number)
    assert rule.decides == (action in ("ready", "exclude", "review"))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("reward > 1", "there is no 'when'"),
        ("when reward > 1", "there is no 'then'"),
        ("when reward > 1 then", "an action must follow then, not the end"),
        ("when reward > 1 then drop", "not 'drop'"),
        ("when reward > 1 then exclude", "exclude needs its reason"),
        ("when reward > 1 then exclude ' '", "exclude needs its reason"),
        ("when reward > 1 then exclude 'a\nb'", "one line"),
        ("when reward > 1 then tag", "tag needs a name"),
        ("when reward > 1 then weight heavy", "weight needs a number"),
        ("when reward > 1 then weight -1", "-1 is not from 0"),
        ("when reward > 1 then ready now", "unexpected 'now'"),
        ("when then ready", "nothing to filter by"),
        ("when rewrd > 1 then ready", "no field 'rewrd', at position 5"),
        ("when finish_reason == 'stop' then ready", "finish_reason"),
        ("steps when step_count < 1 then ready", "It is a field of trajectories: leave out `steps`"),
        ("when finish_reason == 'stop' then ready", "It is a field of steps: write `steps when ...`"),
        ("when staleness > 1 then ready", "staleness is no field of rules"),
        ("when ready then ready", "ready is no field of rules"),
        ("when label.tag.hard then ready", "label.tag.hard is no field of rules"),
        ("when created_at > now - 1d then ready", "now is no value of rules"),
        ("when created_at in (1, now) then ready", "now is no value of rules"),
    ],
)
def test_what_is_refused(source, says):
    with pytest.raises(QueryError) as caught:
        parse_rules(["when has reward then ready", source])
    assert says in str(caught.value)
    assert caught.value.message.startswith("rule 2: ")
    assert caught.value.path == "rules[1]"


def test_a_policy_is_bounded():
    with pytest.raises(QueryError, match="at most 100"):
        parse_rules(["when has reward then ready"] * 101)
    with pytest.raises(QueryError, match="must be a text"):
        parse_rules([None])
