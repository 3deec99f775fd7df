"""`agentworld keys`, and servers that ask for them."""

import json
import time

import pytest

from agentworld.client.wire import KEY_VARIABLE
from agentworld.factory import open_pool
from agentworld.pool.keys import NewKey, secret_digest
from tests.api.serving import Serving


@pytest.fixture
def pool(tmp_path):
    return f"sqlite:///{tmp_path}/pool.db"


def test_a_key_is_made_listed_and_revoked(cli, pool):
    arguments = ("--name", "trainer 1", "--scope", "write", "--scope", "read", "--channel", "val", "--expires", "30d")
    code, out, err = cli("keys", "create", "--pool", pool, *arguments)
    secret = out.strip()
    assert code == 0
    assert secret.startswith("aw-k-")
    assert secret not in err
    with open_pool(pool) as opened:
        (key,) = opened.list_keys()
        assert opened.find_key(secret_digest(secret)).key == key
    assert (key.name, key.scopes, key.channel) == ("trainer 1", ("write", "read"), "val")
    assert 29 * 86_400 < key.expires_at - time.time() < 31 * 86_400
    code, out, _ = cli("keys", "list", "--pool", pool)
    for text in (key.key_id, "trainer 1", "write read", "val", "valid"):
        assert text in out
    assert secret not in out
    assert cli("keys", "revoke", key.key_id, "--pool", pool)[0] == 0
    (listed,) = json.loads(cli("keys", "list", "--json", "--pool", pool)[1])
    assert listed["revoked_at"] >= listed["created_at"]
    assert "revoked" in cli("keys", "list", "--pool", pool)[1]


def test_what_is_made_as_json_has_its_secret_once(cli, pool):
    code, out, _ = cli("keys", "create", "--pool", pool, "--name", "a", "--scope", "admin", "--json")
    made = json.loads(out)
    assert code == 0
    assert made["key"]["expires_at"] is None
    assert made["secret"] not in cli("keys", "list", "--json", "--pool", pool)[1]


@pytest.mark.parametrize(
    ("wrong", "said", "code"),
    [
        (("--scope", "root"), "'root' is no scope", 1),
        (("--scope", "write", "--expires", "soon"), "'soon' is no duration", 2),
        (("--scope", "write", "--expires", "0d"), "expires in 1 s to 100 years", 1),
        (("--scope", "write", "--expires", "0.9s"), "expires in 1 s to 100 years", 1),
        (("--scope", "admin", "--channel", "val"), "cannot be bound", 1),
        ((), "Missing option '--scope'", 2),
    ],
)
def test_what_is_no_key_is_refused(refused, pool, wrong, said, code):
    assert said in refused("keys", "create", "--pool", pool, "--name", "a", *wrong, code=code)


def test_an_unknown_key_cannot_be_revoked(cli, refused, pool):
    cli("keys", "create", "--pool", pool, "--name", "a", "--scope", "read")
    assert "no key 'key_x'" in refused("keys", "revoke", "key_x", "--pool", pool)


@pytest.mark.parametrize("arguments", [("--host", "0.0.0.0"), ("--require-keys",), ("--host", "::")])
def test_a_server_that_needs_keys_does_not_start_without_an_admin(cli, refused, pool, arguments):
    cli("keys", "create", "--pool", pool, "--name", "a", "--scope", "read")
    with open_pool(pool) as opened:
        opened.revoke_key(opened.create_key(NewKey(name="gone", scopes=("admin",))).key.key_id)
    line = refused("serve", "--pool", pool, "--port", "0", *arguments)
    assert "no key with the scope admin" in line
    assert f"agentworld keys create --pool {pool} --scope admin" in line


def test_nor_can_a_pool_in_memory_have_one(refused):
    assert "memory has no keys" in refused("serve", "--pool", "memory://", "--host", "192.0.2.1", code=2)


def test_names_of_hosts_are_checked(refused, pool):
    assert "no name of a host" in refused("serve", "--pool", pool, "--allowed-host", "http://x", code=2)


def test_commands_show_their_key_to_a_server(cli, refused, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "")  # So that what a command sets is gone after the test.
    with Serving(require_keys=True) as server:
        admin = server.pool.create_key(NewKey(name="admin", scopes=("admin",))).secret
        reader = server.pool.create_key(NewKey(name="reader", scopes=("read",))).secret
        line = refused("pool", "stats", "--url", server.url)
        assert "this server needs an API key" in line
        assert "AGENTWORLD_API_KEY, or as --api-key" in line
        assert "Bearer" not in line
        monkeypatch.setenv(KEY_VARIABLE, reader)
        assert cli("pool", "stats", "--url", server.url)[0] == 0
        assert "lacks the scope admin" in refused("keys", "list", "--url", server.url)
        monkeypatch.setenv(KEY_VARIABLE, admin)
        code, out, _ = cli("keys", "create", "--url", server.url, "--name", "new", "--scope", "read")
        assert code == 0
        monkeypatch.setenv(KEY_VARIABLE, "")
        assert cli("--api-key", out.strip(), "pool", "stats", "--url", server.url)[0] == 0
        assert "characters that no key has" in refused("--api-key", "a b", "pool", "stats", "--url", server.url)
