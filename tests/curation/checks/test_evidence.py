"""Evidence holds no part of a secret, whichever check found something beside it, and however long it is."""

import base64
import random

import msgspec
import pytest

from agentworld.curation.checks import CheckContext, EvaluationSets, Found, check, registry, run_checks
from agentworld.curation.checks.private_rules import excerpt, masked
from tests.curation.checks.building import calls, run, says, tool, user

_RANDOM = random.Random(5)


def _base64(size):
    return base64.urlsafe_b64encode(_RANDOM.randbytes(size)).decode().rstrip("=").replace("-", "a").replace("_", "b")


def _pem(kind, size):
    body = _base64(size)
    lines = "\n".join(body[at : at + 64] for at in range(0, len(body), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----"


def _jwt(size):
    return f"eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.eyJ{_base64(size)}.{_base64(256)}"


# Put together here, so that nobody's scanner takes this file for a leak.
KEY = "PRIVATE" + " KEY"
SECRETS = {
    "short jwt": _jwt(60),
    "jwt": _jwt(600),
    "long jwt": _jwt(60_000),
    "rsa": _pem(f"RSA {KEY}", 1190),
    "long rsa": _pem(f"RSA {KEY}", 50_000),
    "pgp": _pem(f"PGP {KEY} BLOCK", 3000),
    "cut rsa": _pem(KEY, 1190)[:900],
    "end of rsa": _pem(KEY, 1190)[-900:],
    "token": "ghp_" + _base64(300),
    "password": "postgres://me:" + _base64(500) + "@db.internal/x",
    "basic": "Authorization: " + "Basic " + _base64(900),
}
PLACES = {
    "a result": lambda it: [user("x"), calls(("bash", {})), tool(f"Error: {it}"), says("ok")],
    "a late result": lambda it: [
        user("x"),
        calls(("bash", {})),
        tool("x\n" * 600_000 + f"{it}\nexit code 1"),
        says("ok"),
    ],
    "behind a traceback": lambda it: [
        user("x"),
        calls(("bash", {})),
        tool(it + " Traceback (most recent call last)" + it[:1500]),
        says("ok"),
    ],
    "arguments": lambda it: [user("x"), calls(("search", {"query": 1, "t": it})), tool("x"), says("ok")],
    "cut arguments": lambda it: [user("x"), calls(("search", '{"a": "' + it)), tool("x"), says("ok")],
    "an argument's name": lambda it: [user("x"), calls(("search", {"query": "x", "n" * 40 + " " + it: 1}))],
    "a tool's name": lambda it: [user("x"), calls((it, {}))],
    "a refusal": lambda it: [user("x"), says("I can't help with that key: " + it)],
    "a call in text": lambda it: [user("x"), says(f"{it} <tool_call>{it}")],
    "a command": lambda it: [user("x"), calls(("bash", {"command": f"{it} > tests/test_a.py {it}"})), tool("x")],
    "a file": lambda it: [user("x"), calls(("write_file", {"path": "tests/" + it, "content": it})), tool("x")],
    "a loop": lambda it: [m for _ in range(7) for m in (user("x"), calls(("bash", {"command": f"curl {it}"})))],
    "a loop of texts": lambda it: [m for _ in range(7) for m in (user("x"), says(it))],
    "the opening": lambda it: [user(f"{it} Zanzibar City {it}"), says("ok")],
    "a hit": lambda it: [user("x"), calls(("bash", {})), tool(f"{it} Zanzibar City {it}"), says("Zanzibar City")],
    "a guess": lambda it: [user("x"), calls(("bash", {})), tool("no"), says(f"{it} Zanzibar City {it}")],
    "an item": lambda it: [user(f"{it} one two three four {it}"), says("ok")],
    "the user's and the reply's text": lambda it: [user("x " + it), says("ok " + it)],
}
FOUND = {
    "tool_error": ("a result", "a late result", "behind a traceback"),
    "bad_tool_call": ("arguments", "cut arguments", "an argument's name", "a tool's name", "a call in text"),
    "refusal": ("a refusal",),
    "reward_hacking": ("a command", "a file"),
    "loop": ("a loop", "a loop of texts"),
    "repeated_action": ("a loop",),
    "leaked_reference": ("the opening",),
    "first_answer_hit": ("a hit",),
    "answer_without_evidence": ("a guess",),
    "contaminated": ("an item",),
    "secret": ("the user's and the reply's text",),
}
CONTEXT = CheckContext(evaluation=EvaluationSets({"a": ["one two three four"]}, 4))


def _shows(text, secret):
    """A part of the secret that the text holds, other than what its shape prescribes."""
    text = text.replace("\\n", "\n").replace("\n", "")
    plain = secret.replace("\n", "")
    low = text.lower()
    inside = plain[60:-40] if len(plain) > 200 else plain[12:]
    return next(
        (inside[at : at + 10] for at in range(0, len(inside) - 10, 5) if inside[at : at + 10].lower() in low), None
    )


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("place", PLACES)
def test_no_check_tells_a_secret(place, secret):
    record = run(*PLACES[place](SECRETS[secret]), task={"task_id": "a", "reference": "Zanzibar City"})
    found = run_checks(record, CONTEXT)
    assert {each.check for each in found} >= {name for name, places in FOUND.items() if place in places}
    for each in found:
        told = msgspec.json.encode([each, each.feedback()]).decode()
        assert _shows(told, SECRETS[secret]) is None, each


@pytest.mark.parametrize("secret", SECRETS)
def test_an_excerpt_from_anywhere_shows_nothing(secret):
    text = f"before it {SECRETS[secret]} and behind it"
    assert _shows(masked(text), SECRETS[secret]) is None
    for start in range(0, len(text), max(7, len(text) // 40)):
        for end in (None, start + 5, start + 60):
            assert _shows(excerpt(text, start, end), SECRETS[secret]) is None


def test_a_run_whose_beginning_is_too_far_off_is_left_out():
    text = "see " + "x" * 70_000 + "a1b2c3 and more"
    assert excerpt(text, 70_001) == "<long> and more"
    assert excerpt(text, 66_000) == "<long>"
    assert excerpt(text, 60_000) == "x" * 120
    assert excerpt(text, 0) == text[:120]


@pytest.fixture
def registered(monkeypatch):
    registry.known()
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("secret", SECRETS)
def test_checks_of_others_tell_none_either(secret):
    @check("told", scope="step", says="x", fails="x")
    def told(turn, run, context):
        yield Found(evidence={"whole": {"texts": [SECRETS[secret]]}})

    @check("worth", scope="trajectory", says="x", fails="x")
    def worth(run, context):
        yield Found(f"is {SECRETS[secret]}")

    @check("raised", scope="trajectory", says="x", fails="x")
    def raised(run, context):
        raise ValueError(f"cannot read {SECRETS[secret]}")

    found = [each for each in run_checks(run(user("x"), says("ok"))) if each.check in ("told", "worth", "failed")]
    assert len(found) == 4
    assert _shows(msgspec.json.encode(found).decode(), SECRETS[secret]) is None
