"""Secrets and personal data: what is found, what is not, and that evidence never holds it."""

import msgspec
import pytest

from agentworld.curation.checks import run_checks
from agentworld.curation.checks.private_rules import excerpt, masked, personal_data
from agentworld.curation.checks.secret_rules import secrets
from tests.curation.checks.building import calls, run, says, tool, user

# Put together here, so that nobody's scanner takes this file for a leak.
KEYS = {
    "aws_key_id": "AKIA" + "IOSFODNN7EXAMPLE",
    "aws_secret": 'aws_secret_access_key = "' + "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY" + '"',
    "github_token": "ghp_" + "a1B2" * 9,
    "gitlab_token": "glpat-" + "x9" * 10,
    "model_api_key": "sk-proj-" + "Ab3d" * 8,
    "slack_token": "xoxb-" + "123456789012-abcdefghij",
    "google_key": "AIza" + "Sy5" * 11 + "ab",
    "stripe_key": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "hugging_face_token": "hf_" + "Qw" * 17,
    "jwt": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "c2lnbmF0dXJlLW9mLWl0",
    "private_key": "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    "npm_token": "npm_" + "a1B2" * 9,
    "basic_auth": "Authorization: " + "Basic dXNlcjpwYXNzd29yZA==",
    "url_password": "postgres://admin" + ":hunter22@db.internal/x",
}
PERSONAL = {
    "email": "ada.lovelace@royal-society.org.uk",
    "phone": "+44 20 7946 0958",
    "iban": "GB82 WEST 1234 5698 7654 32",
    "card": "4111 1111 1111 1111",
    "ipv4": "8.8.4.4",
}
FINE = [
    "AKIAIOSFODNN7",
    "the sk-learn-compatible-estimators-of-this-package",
    "ghp_short",
    "postgres://localhost:5432/db",
    "https://user:$PASSWORD@host/x",
    "someone@example.com",
    "git@github.com:org/repo.git",
    "decorated @property of x.y",
    "4111 1111 1111 1112",
    "1764451200123456",
    "192.168.0.12 and 127.0.0.1 and 10.1.2.3",
    "version 1.2.3.4.5",
    "2024-01-02 03:04:05.678901",
    "3.14159265358979",
    "GB82 WEST 1234 5698 7654 33",
    "DEADBEEF12345678DEADBEEF",
    "-rw-r--r-- 1 root root 1048576 (12) 1-2",
]


@pytest.mark.parametrize("kind", KEYS)
def test_a_secret_of_each_kind(kind):
    text = f"before\n{KEYS[kind]} after"
    assert [hit.kind for hit in secrets(text)] == [kind]
    assert KEYS[kind][12:30] not in masked(text)
    assert masked(text).startswith("before\n")
    assert masked(text).endswith(" after")


@pytest.mark.parametrize("kind", PERSONAL)
def test_personal_data_of_each_kind(kind):
    for text in (PERSONAL[kind], f"call {PERSONAL[kind]}, please", f"({PERSONAL[kind]})", f'"{PERSONAL[kind]}".'):
        hits = list(personal_data(text))
        assert [hit.kind for hit in hits] == [kind]
        assert text[hits[0].start : hits[0].end].strip("()+") == PERSONAL[kind].strip("+")
        assert PERSONAL[kind] not in excerpt(text)


OTHER_SPELLINGS = {
    "stripe_key": ["sk_" + "test_4eC39HqLyjWDarjtT1zdp7dc", "rk_" + "live_4eC39HqLyjWDarjtT1zdp7dc"],
    "url_password": ["redis://" + ":pw@host", "amqp://u" + ":p%40ss@[::1]"],
    "private_key": [
        "-----BEGIN PGP " + "PRIVATE KEY BLOCK-----\nlQdGBF",
        "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nb3Bl",
        "---- BEGIN SSH2 ENCRYPTED " + "PRIVATE KEY ----\nP2/56w",
    ],
    "aws_secret": ['\\"SecretAccessKey\\": \\"' + "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"],
    "github_token": ["TOKEN\\n" + KEYS["github_token"], "github_pat_" + "11AB_" * 8],
    "basic_auth": ['\\"authorization\\": \\"' + "basic dXNlcjpwYXNzd29yZA=="],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in OTHER_SPELLINGS.items() for text in texts])
def test_a_secret_in_another_spelling(kind, text):
    assert [hit.kind for hit in secrets(text)] == [kind]
    assert text[-9:-6] not in masked(text)


@pytest.mark.parametrize("text", FINE)
def test_what_only_looks_like_it(text):
    assert [*secrets(text), *personal_data(text)] == []


@pytest.mark.parametrize("number", ["378282246310005", "5555-5555-5555-4444", "6011111111111117", "4222222222222"])
def test_cards_of_other_issuers(number):
    assert [hit.kind for hit in personal_data(f"pay {number} now")] == ["card"]


@pytest.mark.parametrize("number", ["(212) 555-0187", "212-555-0187", "+1 212.555.0187", "+49 (0)30 1234567"])
def test_telephone_numbers_are_written_in_many_ways(number):
    assert [hit.kind for hit in personal_data(f"call {number}.")] == ["phone"]


@pytest.mark.parametrize("text", [*(KEYS[kind] for kind in KEYS if kind != "private_key"), *PERSONAL.values()])
def test_texts_without_spaces_and_escapes_of_json(text):
    for before, after in (("\u5bc6\u94a5", "\u3002"), ("a\\n", "\\n"), ('{"a": "', '"}')):
        hits = [*secrets(before + text + after), *personal_data(before + text + after)]
        assert len(before) - 1 <= hits[0].start < len(before) + 12
        assert text[3:14] not in excerpt(before + text + after)


def test_the_checks_say_where_but_never_what():
    key, mail = KEYS["github_token"], PERSONAL["email"]
    record = run(
        user(f"my key is {key}"),
        calls(("bash", {"command": f"curl -H {key} {mail}"})),
        tool(f"Error: {key} of {mail} is not valid"),
        says("It failed."),
    )
    found = run_checks(record)
    by = {(each.check, each.step_id): each for each in found}
    assert by["secret", "t1-0"].value == "github_token"
    assert by["secret", "t1-0"].evidence == {
        "step": "t1-0",
        "counts": {"github_token": 2},
        "places": [
            {"kind": "github_token", "message": 0, "start": 10, "length": len(key)},
            {"kind": "github_token", "message": "reply", "start": 20, "length": len(key)},
        ],
    }
    assert by["secret", "t1-1"].evidence["counts"] == {"github_token": 1}
    assert by["personal_data", "t1-1"].value == "email"
    assert by["tool_error", "t1-0"].evidence["excerpt"] == "Error: <github_token> of <email> is not valid"
    everything = msgspec.json.encode([[each, each.feedback()] for each in found]).decode()
    assert key not in everything
    assert mail not in everything


@pytest.mark.parametrize("cut", range(0, 60, 3))
def test_an_excerpt_holds_no_part_of_a_secret_that_it_cuts(cut):
    key = KEYS["github_token"]
    text = "x" * 30 + " " + key + " " + "y" * 300
    for shown in (excerpt(text, cut), excerpt(text, 0, 31 + cut % 39)):
        assert not any(key[at : at + 6] in shown for at in range(len(key) - 6))
        assert len(shown) <= 120


@pytest.mark.parametrize("start", [60, 1000, 3000])
def test_an_excerpt_from_within_a_long_key_holds_nothing_of_it(start):
    key = "-----BEGIN " + "PRIVATE KEY-----\n" + "MIIEabcdEFGH" * 290 + "\n-----END " + "PRIVATE KEY-----"
    assert excerpt(f"the key: {key} was it", start).startswith("<private_key>")


def test_tools_that_are_offered_are_read_where_they_are_new():
    key = KEYS["github_token"]
    offered = [
        {"type": "function", "function": {"name": "a", "description": f"uses {key}", "parameters": {key: [key]}}}
    ]
    record = run(user("x"), says("ok"), user("y"), says("ok"), tools=offered)
    found = [each for each in run_checks(record) if each.check == "secret"]
    assert [each.step_id for each in found] == ["t1-0", None]
    assert found[0].evidence["counts"] == {"github_token": 3}
    assert {place["message"] for place in found[0].evidence["places"]} == {"tools"}
    record.steps[1].tools = [*offered, {"name": "b"}]
    assert [each.step_id for each in run_checks(record) if each.check == "secret"] == ["t1-0", "t1-1", None]
