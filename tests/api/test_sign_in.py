"""A browser signs in: a key for a cookie, which may do what the key may, and ends with it."""

from http.cookies import SimpleCookie

import pytest

from agentworld.gateway.browser_sessions import (
    COOKIE,
    BrowserSession,
    cookie_of,
    read_browser_sessions,
    signed_browser_session,
)
from agentworld.pool.keys import NewKey, secret_digest
from tests.api.serving import Serving

SESSION = "/api/v1/session"


@pytest.fixture
def closed():
    with Serving(require_keys=True) as running:
        yield running


def key(server, *scopes, **fields):
    return server.pool.create_key(NewKey(name="page", scopes=scopes or ("read",), **fields))


def signed_in(server, secret):
    """The cookie of a sign-in, as a browser sends it, and what it came with."""
    status, headers, said = server.send("POST", SESSION, {"key": secret})
    assert status == 200, said
    [morsel] = SimpleCookie(headers["set-cookie"]).values()
    return {"Cookie": f"other=1; {morsel.key}={morsel.value}"}, morsel, said


def forgotten(headers):
    """The names of cookies that a reply takes away."""
    sent = [SimpleCookie(each) for each in headers.get_all("set-cookie") or ()]
    return sorted(
        name for one in sent for name, morsel in one.items() if (morsel.value, morsel["max-age"]) == ("", "0")
    )


def test_a_key_becomes_a_cookie_that_no_script_and_no_other_site_has(closed):
    issued = key(closed, "read", "write", channel="train")
    cookie, morsel, said = signed_in(closed, issued.secret)
    assert morsel.key == cookie_of(issued.key.key_id)
    assert (morsel["httponly"], morsel["samesite"].lower(), morsel["path"]) == (True, "strict", "/")
    assert 0 < int(morsel["max-age"]) <= 12 * 3600
    assert issued.secret not in morsel.value
    mine = {"required": True, "key_id": issued.key.key_id, "scopes": ["read", "write"], "channel": "train"}
    assert said == {**mine, "trajectory_id": None}
    assert closed.send("GET", SESSION, headers=cookie)[2] == said
    assert closed.send("GET", "/api/v1/trajectories?channel=train", headers=cookie)[0] == 200
    # It is bound as the key is, and may no more.
    assert closed.send("GET", "/api/v1/trajectories?channel=val", headers=cookie)[0] == 403
    assert closed.send("GET", "/api/v1/keys", headers=cookie)[0] == 403
    # A key that is shown counts, and not the cookie beside it.
    shown = {**cookie, "Authorization": "Bearer aw-unknown"}
    assert closed.send("GET", "/api/v1/trajectories?channel=train", headers=shown)[0] == 401


def test_without_a_sign_in_nothing_is_told(closed):
    nobody = {"required": True, "key_id": None, "scopes": [], "channel": None, "trajectory_id": None}
    assert closed.send("GET", SESSION)[2] == nobody
    assert closed.send("GET", "/api/v1/stats")[0] == 401
    status, headers, said = closed.send("POST", SESSION, {"key": "aw-nobody-knows"})
    assert (status, headers["set-cookie"], said["error"]["code"]) == (401, None, "unauthorized")
    # A session key of an agent is none to sign in with.
    writer = {"Authorization": f"Bearer {key(closed, 'write').secret}"}
    started = closed.send("POST", "/api/v1/trajectories", {"trajectory_id": "t"}, writer)[2]
    assert closed.send("POST", SESSION, {"key": started["api_key"]})[0] == 403
    assert closed.send("POST", SESSION, {"key": ""})[2]["error"]["code"] == "invalid_request"


def test_a_cookie_ends_with_its_key_and_at_the_sign_out(closed):
    issued = key(closed)
    cookie, morsel, _ = signed_in(closed, issued.secret)
    status, headers, said = closed.send("DELETE", SESSION, headers=cookie)
    assert (status, said["scopes"]) == (200, [])
    assert forgotten(headers) == [morsel.key]
    closed.pool.revoke_key(issued.key.key_id)
    closed.app._access._known.clear()  # What a server knows of keys it knows for two seconds.
    assert closed.send("GET", "/api/v1/stats", headers=cookie)[0] == 401
    assert closed.send("GET", SESSION, headers=cookie)[2]["scopes"] == []


def test_pages_of_other_sites_can_neither_sign_in_nor_use_the_cookie(closed):
    issued = key(closed, "read", "write")
    foreign = {"Origin": "http://elsewhere.test", "Sec-Fetch-Site": "cross-site"}
    assert closed.send("POST", SESSION, {"key": issued.secret}, foreign)[0] == 403
    cookie, _, _ = signed_in(closed, issued.secret)
    assert closed.send("POST", "/api/v1/trajectories", {}, {**cookie, **foreign})[0] == 403
    assert closed.send("POST", "/api/v1/trajectories", {}, cookie)[0] == 201
    # Models are for agents, which have keys.
    assert closed.send("GET", "/v1/models", headers=cookie)[0] == 401


def test_where_no_key_is_asked_for_everything_is_open(server):
    said = server.send("GET", SESSION)[2]
    assert (said["required"], said["scopes"], said["key_id"]) == (False, ["admin"], None)


def test_a_cookie_takes_no_rights_where_no_key_is_asked_for(server, closed):
    # Browsers send it to every port of a host. That of a key of the own pool counts no more.
    own = key(server)
    value = signed_browser_session(own.key.key_id, secret_digest(own.secret), 2_000_000_000)
    for cookie in (signed_in(closed, key(closed).secret)[0], {"Cookie": f"{COOKIE}={value}"}):
        assert server.send("GET", SESSION, headers=cookie)[2] == server.send("GET", SESSION)[2]
        assert server.send("POST", "/api/v1/trajectories", {}, cookie)[0] == 201
        assert server.send("DELETE", SESSION, headers=cookie)[2]["scopes"] == ["admin"]


def test_servers_on_one_host_take_no_cookie_from_each_other(closed):
    issued = key(closed)
    mine, morsel, said = signed_in(closed, issued.secret)
    with Serving(require_keys=True) as other:
        theirs, their_morsel, theirs_said = signed_in(other, key(other).secret)
        # A browser sends both to each, whatever the order in which they were set.
        for both in (f"{mine['Cookie']}; {theirs['Cookie']}", f"{theirs['Cookie']}; {mine['Cookie']}"):
            assert closed.send("GET", SESSION, headers={"Cookie": both})[2] == said
            assert other.send("GET", SESSION, headers={"Cookie": both})[2] == theirs_said
        # A cookie of before names had ids holds on, until a sign-in or a sign-out takes it away.
        old = f"{COOKIE}={morsel.value}"
        assert closed.send("GET", "/api/v1/stats", headers={"Cookie": f"{old}; {theirs['Cookie']}"})[0] == 200
        everything = {"Cookie": f"{old}; {mine['Cookie']}; {theirs['Cookie']}"}
        assert forgotten(closed.send("DELETE", SESSION, headers=everything)[1]) == sorted((COOKIE, morsel.key))
        assert forgotten(other.send("DELETE", SESSION, headers=everything)[1]) == [their_morsel.key]
        assert closed.send("GET", SESSION, headers=theirs)[2]["scopes"] == []
        assert closed.send("GET", "/api/v1/stats", headers=theirs)[0] == 401
    again = key(closed, "read", "write")
    headers = closed.send("POST", SESSION, {"key": again.secret}, everything)[1]
    assert forgotten(headers) == sorted((COOKIE, morsel.key))
    # Of two of this server, one that holds counts.
    now = signed_in(closed, again.secret)[0]["Cookie"]
    closed.pool.revoke_key(again.key.key_id)
    closed.app._access._known.clear()
    assert closed.send("GET", SESSION, headers={"Cookie": f"{mine['Cookie']}; {now}"})[2] == said


def test_only_what_was_signed_counts():
    secret, name = b"s" * 32, "key_" + "0" * 26
    value = signed_browser_session(name, secret, 2_000_000_000)

    def read(said):
        found = read_browser_sessions([(b"cookie", said.encode())])
        return found[0] if found else None

    assert [
        each.cookie
        for each in read_browser_sessions([(b"cookie", f"{COOKIE}={value}; {cookie_of(name)}={value}".encode())])
    ] == [cookie_of(name), COOKIE]
    assert read(f"{cookie_of('key_' + '1' * 26)}={value}") is None
    good = read(f"a=b; {COOKIE}={value}")
    assert isinstance(good, BrowserSession)
    assert (good.key_id, good.expires_at, good.is_signed_with(secret)) == (name, 2_000_000_000, True)
    assert not good.is_signed_with(b"t" * 32)
    for other in (good._replace(expires_at=2_000_000_001), good._replace(key_id="key_" + "1" * 26)):
        assert not other.is_signed_with(secret)
    for said in ("", "x", f"{COOKIE}=", f"{COOKIE}={value[:-1]}", f"{COOKIE}={value}x", f"x{COOKIE}={value}"):
        assert read(said) is None
