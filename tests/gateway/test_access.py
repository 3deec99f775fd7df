"""Keys of requests: what they grant, and that nothing else is granted."""

import asyncio
import threading

import pytest

from agentworld.errors import ForbiddenError, PoolError, UnauthorizedError
from agentworld.gateway import access as access_module
from agentworld.gateway.access import (
    CACHE_SECONDS,
    EVERYTHING,
    GRANT,
    LOOKS,
    NOTHING,
    Access,
    check_granted,
    check_scopes,
    grant_of,
    presented_key,
)
from agentworld.gateway.keys import read_session_key, session_key, signed_page_key, signed_session_key, trajectory_of
from agentworld.pool.keys import NewKey, secret_digest
from agentworld.pool.memory import MemoryPool


class Ticks:
    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now


class Counted(MemoryPool):
    looks = 0

    def find_key(self, digest):
        self.looks += 1
        return super().find_key(digest)


@pytest.fixture
def clock():
    return Ticks()


@pytest.fixture
def pool(clock):
    pool = Counted(clock=clock)
    yield pool
    pool.close()


def access(pool, clock, *, required=True):
    return Access(pool, required=required, clock=clock, ticks=clock)


def bearer(key):
    return [(b"authorization", b"Bearer " + key.encode())]


def make(pool, **more):
    return pool.create_key(NewKey(**{"name": "k", "scopes": ("write",), **more}))


async def refusal(checked, headers):
    with pytest.raises(UnauthorizedError) as caught:
        await checked.grant(headers)
    return caught.value.message


async def test_a_key_grants_what_it_says(pool, clock):
    issued = make(pool, scopes=("write", "read"), channel="val")
    for headers in (
        bearer(issued.secret),
        [(b"Authorization", b"bearer  " + issued.secret.encode())],
        [(b"x-api-key", issued.secret.encode())],
        # Clients send a key of another service beside it.
        [(b"authorization", b"Bearer sk-other"), (b"x-api-key", issued.secret.encode())],
    ):
        grant = await access(pool, clock).grant(headers)
        assert (grant.scopes, grant.channel, grant.trajectory_id) == ({"write", "read"}, "val", None)
        assert grant.key_id == issued.key.key_id
    check_scopes(grant, ("read",), "this")
    check_scopes(grant, ("lease", "write"), "this")
    with pytest.raises(ForbiddenError, match="lacks the scope lease"):
        check_scopes(grant, ("lease",), "this")


async def test_nothing_goes_without_a_key_that_holds(pool, clock):
    checked, good = access(pool, clock), make(pool, expires_in=60).secret
    assert "needs an API key" in await refusal(checked, [])
    basic = [(b"authorization", b"Basic " + good.encode())]
    assert "needs an API key" in await refusal(checked, basic)
    for wrong in ("sk-1", "aw-k-", good[:-1], good + "x", good.upper(), session_key("t"), "aw-t-" + good, "\xff"):
        assert "not known" in await refusal(checked, bearer(wrong)), wrong
    assert (await checked.grant(bearer(good))).scopes == {"write"}
    clock.now += 60
    assert "expired" in await refusal(checked, bearer(good))


async def test_where_keys_are_optional_one_of_ours_is_still_held_to_what_it_says(pool, clock):
    checked = access(pool, clock, required=False)
    for headers in ([], bearer("EMPTY"), bearer("sk-1"), bearer(session_key("t1"))):
        assert await checked.grant(headers) == EVERYTHING
    bound = make(pool, channel="val")
    assert (await checked.grant(bearer(bound.secret))).channel == "val"
    assert "not known" in await refusal(checked, bearer(bound.secret + "x"))


async def test_a_revoked_key_ends_within_seconds_and_is_not_looked_up_each_time(pool, clock):
    checked, issued = access(pool, clock), make(pool)
    await asyncio.gather(*(checked.grant(bearer(issued.secret)) for _ in range(5)))
    assert pool.looks == 1
    pool.revoke_key(issued.key.key_id)
    clock.now += CACHE_SECONDS
    assert "revoked" in await refusal(checked, bearer(issued.secret))
    # Nor is one that is not there; but one that comes is seen soon.
    looks = pool.looks
    for _ in range(5):
        await refusal(checked, bearer("aw-k-unknown"))
    assert pool.looks == looks + 1


async def test_a_pool_that_cannot_be_read_is_asked_again(pool, clock, monkeypatch):
    checked, issued = access(pool, clock), make(pool)

    def fails(digest):
        raise PoolError("the disk is gone")

    monkeypatch.setattr(pool, "find_key", fails)
    with pytest.raises(PoolError):
        await checked.grant(bearer(issued.secret))
    monkeypatch.undo()
    assert (await checked.grant(bearer(issued.secret))).scopes == {"write"}


async def test_keys_that_are_none_drive_out_none_that_hold(pool, clock, monkeypatch):
    monkeypatch.setattr(access_module, "CACHED", 10)
    checked, issued = access(pool, clock), make(pool)
    await checked.grant(bearer(issued.secret))
    for number in range(50):
        await refusal(checked, bearer(f"aw-k-{number}"))
    assert pool.looks == 51
    assert (await checked.grant(bearer(issued.secret))).scopes == {"write"}
    await refusal(checked, bearer("aw-k-49"))
    assert pool.looks == 51
    assert (len(checked._known), len(checked._unknown), len(checked._looking)) == (1, 10, 0)
    await refusal(checked, bearer("aw-k-0"))  # Forgotten, as so many came since.
    assert pool.looks == 52


async def test_a_key_that_is_made_works_at_once_here_and_soon_elsewhere(pool, clock, monkeypatch):
    here, elsewhere = access(pool, clock), access(pool, clock)
    monkeypatch.setattr("agentworld.pool.keys.secrets.token_urlsafe", lambda size: "known")
    for checked in (here, elsewhere):
        assert "not known" in await refusal(checked, bearer("aw-k-known"))
    make(pool)
    here.forget_unknown()
    assert (await here.grant(bearer("aw-k-known"))).scopes == {"write"}
    assert "not known" in await refusal(elsewhere, bearer("aw-k-known"))
    clock.now += CACHE_SECONDS
    assert (await elsewhere.grant(bearer("aw-k-known"))).scopes == {"write"}


async def test_a_key_that_is_made_while_it_is_looked_up_is_not_held_for_none(pool, clock, monkeypatch):
    checked = access(pool, clock)
    monkeypatch.setattr("agentworld.pool.keys.secrets.token_urlsafe", lambda size: "known")
    find = pool.find_key

    def made_meanwhile(digest):
        found = find(digest)
        if pool.looks == 1:
            make(pool)
            checked.forget_unknown()
        return found

    monkeypatch.setattr(pool, "find_key", made_meanwhile)
    assert "not known" in await refusal(checked, bearer("aw-k-known"))
    assert (await checked.grant(bearer("aw-k-known"))).scopes == {"write"}


async def test_keys_that_nobody_knows_wait_for_each_other_and_hold_up_none_that_is_known(pool, clock, monkeypatch):
    checked, issued = access(pool, clock), make(pool)
    await checked.grant(bearer(issued.secret))
    clock.now += CACHE_SECONDS
    wanted, go_on, reached = secret_digest(issued.secret), threading.Event(), []
    find = pool.find_key

    def held(digest):
        if digest != wanted:
            reached.append(digest)
            go_on.wait()
        return find(digest)

    monkeypatch.setattr(pool, "find_key", held)
    strangers = [asyncio.create_task(refusal(checked, bearer(f"aw-k-{number}"))) for number in range(2 * LOOKS)]
    async with asyncio.timeout(20):
        while len(reached) < LOOKS:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert (await checked.grant(bearer(issued.secret))).scopes == {"write"}
    assert len(reached) == LOOKS
    go_on.set()
    assert len(await asyncio.gather(*strangers)) == 2 * LOOKS
    assert len(reached) == 2 * LOOKS


def signed(issued, trajectory="t1", until=2000):
    return signed_session_key(trajectory, issued.key.key_id, secret_digest(issued.secret), until)


async def test_a_session_key_writes_to_its_trajectory_and_ends(pool, clock):
    checked, issued = access(pool, clock), make(pool, scopes=("write", "read"), channel="val")
    grant = await checked.grant(bearer(signed(issued, "a.b.c~1")))
    assert (grant.scopes, grant.channel, grant.trajectory_id) == ({"write"}, "val", "a.b.c~1")
    assert grant.secret is None  # So that it makes no further keys.
    grant.check_trajectory("a.b.c~1")
    for other in ("t2", None):
        with pytest.raises(ForbiddenError):
            grant.check_trajectory(other)
    clock.now = 2000
    assert "expired" in await refusal(checked, bearer(signed(issued)))
    longer = bearer(signed(issued, until=3000))
    assert (await checked.grant(longer)).trajectory_id == "t1"
    pool.revoke_key(issued.key.key_id)
    clock.now += CACHE_SECONDS
    assert "revoked" in await refusal(checked, longer)


async def test_no_session_key_can_be_made_up(pool, clock):
    checked, issued, other = access(pool, clock), make(pool), make(pool, name="b")
    good = signed(issued)
    assert (await checked.grant(bearer(good))).trajectory_id == "t1"
    trajectory, key_id, expiry, mac = good.removeprefix("aw-t-").rsplit(".", 3)
    for parts in (
        ("t2", key_id, expiry, mac),
        (trajectory, other.key.key_id, expiry, mac),
        (trajectory, "key_" + "0" * 26, expiry, mac),
        (trajectory, key_id, "ffffffff", mac),
        (trajectory, key_id, expiry, "A" * 43),
        (trajectory, key_id, expiry, mac[:-1]),
        (trajectory, key_id, expiry, ""),
    ):
        assert "not known" in await refusal(checked, bearer("aw-t-" + ".".join(parts))), parts
    # A key without the scope write, and one for another trajectory, can hand on no more than they have.
    for weak in (make(pool, scopes=("read",)), make(pool, trajectory_id="t9")):
        assert "not known" in await refusal(checked, bearer(signed(weak)))
    assert (await checked.grant(bearer(signed(make(pool, scopes=("admin",)))))).scopes == {"write"}


@pytest.mark.parametrize("trajectory", ["t1", "a.b", "a.b.c.d", "key_x.1.2.3", "a:b@c~d-e_f"])
def test_session_keys_name_their_trajectory(trajectory):
    plain = session_key(trajectory)
    assert (read_session_key(plain), trajectory_of(plain)) == ((trajectory, None, 0, b"", False), trajectory)
    full = signed_session_key(trajectory, "key_" + "0" * 26, b"x" * 32, 255)
    found = read_session_key(full)
    assert found[:3] == (trajectory, "key_" + "0" * 26, 255)
    assert found.is_signed_with(b"x" * 32)
    assert not found.is_signed_with(b"y" * 32)
    page = read_session_key(signed_page_key(trajectory, "key_" + "0" * 26, b"x" * 32, 255))
    assert page[:3] == found[:3]
    assert page.is_signed_with(b"x" * 32)
    assert not page._replace(page=False).is_signed_with(b"x" * 32)


@pytest.mark.parametrize("other", ["", "sk-1", "aw-t-", "aw-t-/", "aw-t-" + "x" * 200, "AW-T-x"])
def test_other_keys_name_none(other):
    assert trajectory_of(other) is None


def test_of_two_keys_the_one_that_is_ours_counts():
    ours, theirs = (b"authorization", b"Bearer aw-k-1"), (b"x-api-key", b"sk-1")
    assert presented_key([ours, theirs]) == presented_key([theirs, ours]) == "aw-k-1"
    assert presented_key([(b"authorization", b"Bearer a"), (b"x-api-key", b"b")]) == "a"
    assert presented_key([(b"x-api-key", b" b ")]) == "b"
    assert presented_key([(b"cookie", b"x")]) == ""


def test_an_application_that_nothing_checks_keys_before_is_closed():
    assert grant_of({}) == NOTHING
    with pytest.raises(ForbiddenError, match="no check of keys"):
        check_granted(grant_of({"type": "http"}))
    check_granted(grant_of({GRANT: EVERYTHING}))
