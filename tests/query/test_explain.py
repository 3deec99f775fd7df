import msgspec
import pytest

from agentworld.query import explain, parse


@pytest.mark.parametrize(
    ("source", "indexed", "scanned"),
    [
        ("group_id == 'g' and meta.x == 1", ["group_id == 'g'"], ["metadata.x == 1"]),
        ("reward > 0.5 or status == 'failed'", ["reward > 0.5 or status == 'failed'"], []),
        ("reward > 0.5 or agent == 'a'", [], ["reward > 0.5 or agent == 'a'"]),
        ("ready and not open", ["ready"], ["not open"]),
        ("user in ('a', 'b') and user != 'a'", ["user in ('a', 'b')"], ["user != 'a'"]),
        ("user in ('a', null)", [], ["user in ('a', null)"]),
        ("group_id is null and has group_id", [], ["group_id is null", "has group_id"]),
        ("user like 'a%' and user like '%a'", ["user like 'a%'"], ["user like '%a'"]),
        ("created_at > now - 1h and reward.x > 1", ["created_at > now - 1h"], ["reward.x > 1"]),
        ("created_at > now - 1h or reward > 1", [], ["created_at > now - 1h or reward > 1"]),
        ("created_at < now or created_at == now", ["created_at < now or created_at == now"], []),
        ("version > 1", [], ["policy.version > 1"]),
        ("version > 1 and policy.run == 'r'", [], ["policy.version > 1", "policy.run == 'r'"]),
        (
            "version in (1, 2) and policy.run == 'r' and policy.model == 'm'",
            ["policy.version in (1, 2)", "policy.run == 'r'", "policy.model == 'm'"],
            [],
        ),
        ("(reward > 1 and agent == 'a') or priority == 1", ["reward > 1 and agent == 'a' or priority == 1"], []),
    ],
)
def test_what_an_index_finds(source, indexed, scanned):
    found = explain(parse(source, "trajectories"), "trajectories")
    assert (found.indexed, found.scanned, found.scans) == (indexed, scanned, not indexed)


def test_an_explanation_names_the_fields_once_and_is_a_record():
    found = explain(parse("late and (meta.a == 1 or not late) and has tokens", "steps"), "steps")
    assert msgspec.to_builtins(found) == {
        "subject": "steps",
        "expression": "late and (metadata.a == 1 or not late) and has tokens",
        "fields": ["late", "metadata.a", "tokens"],
        "indexed": [],
        "scanned": ["late", "metadata.a == 1 or not late", "has tokens"],
        "scans": True,
        "plan": [],
    }
