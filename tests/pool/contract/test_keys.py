"""API keys: made, found by the digest of their secret, listed without it, expired and revoked."""

import msgspec
import pytest

from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.pool.keys import SCOPES, NewKey, secret_digest
from agentworld.records import NewTrajectory


def made(pool, **more):
    return pool.create_key(NewKey(**{"name": "k", "scopes": ("write",), **more}))


def test_a_key_is_found_by_its_secret(pool, clock):
    issued = made(pool, name="trainer", scopes=("lease", "write", "lease"), channel="val", expires_in=60)
    key = issued.key
    assert (key.name, key.scopes, key.channel, key.trajectory_id) == ("trainer", ("write", "lease"), "val", None)
    assert (key.created_at, key.expires_at, key.revoked_at) == (clock.now, clock.now + 60, None)
    found = pool.find_key(secret_digest(issued.secret))
    assert (found.key, found.digest) == (key, secret_digest(issued.secret))
    assert pool.get_key(key.key_id) == found
    assert pool.find_key(secret_digest(issued.secret + "x")) is None
    assert pool.get_key("key_none") is None
    # Of any channel that records can be in.
    pool.create_trajectory(NewTrajectory(trajectory_id="spaced", channel="math / hard"))
    assert made(pool, channel="math / hard").key.channel == pool.get_trajectory("spaced").channel
    # A bound one of a trajectory that is still to come.
    assert made(pool, trajectory_id="t1").key.trajectory_id == "t1"


def test_keys_are_listed_in_order_without_anything_secret(pool):
    issued = [made(pool, name=name) for name in ("a", "b", "c")]
    assert len({each.secret for each in issued}) == 3
    assert pool.list_keys() == [each.key for each in issued]
    text = msgspec.json.encode(pool.list_keys()).decode()
    for each in issued:
        assert len(each.secret) > 43
        assert each.secret not in text
        assert secret_digest(each.secret).hex() not in text


def test_a_key_ends_when_it_expires_or_is_revoked(pool, clock):
    expiring, lasting = made(pool, expires_in=1.5).key, made(pool).key
    assert expiring.lives(clock.now + 1.4)
    assert not expiring.lives(clock.now + 1.5)
    assert lasting.lives(clock.now + 1e9)
    clock.now += 5
    revoked = pool.revoke_key(lasting.key_id)
    assert revoked.revoked_at == clock.now
    clock.now += 5
    assert pool.revoke_key(lasting.key_id) == revoked
    assert not revoked.lives(clock.now)
    assert pool.list_keys() == [expiring, revoked]
    assert pool.get_key(lasting.key_id).key == revoked
    with pytest.raises(NotFoundError, match="key_none"):
        pool.revoke_key("key_none")


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"name": " "}, "name"),
        ({"name": "a\0"}, "name"),
        ({"name": 3}, "name"),
        ({"scopes": ()}, "scopes"),
        ({"scopes": "write"}, "scopes"),
        ({"scopes": ("read", "root")}, r"scopes\[1\]"),
        ({"channel": ""}, "channel"),
        ({"channel": "a\0"}, "channel"),
        ({"channel": "a" * 257}, "channel"),
        ({"channel": 3}, "channel"),
        ({"trajectory_id": "/"}, "trajectory_id"),
        ({"expires_in": 0}, "expires_in"),
        ({"expires_in": float("nan")}, "expires_in"),
        ({"expires_in": "1"}, "expires_in"),
        ({"scopes": ("admin",), "channel": "val"}, "scopes"),
        ({"scopes": ("admin",), "trajectory_id": "t"}, "scopes"),
        ({"scopes": ("lease",), "trajectory_id": "t"}, "scopes"),
    ],
)
def test_what_is_no_key_is_refused(pool, wrong, path):
    with pytest.raises(InvalidRequestError) as caught:
        made(pool, **wrong)
    assert caught.value.path == path.replace("\\", "")
    assert pool.list_keys() == []


def test_every_scope_can_be_given(pool):
    assert made(pool, scopes=SCOPES).key.scopes == SCOPES == ("write", "feedback", "read", "lease", "admin")


def test_it_is_tried_whether_a_pool_can_be_written(pool):
    before = pool.stats()
    pool.check_writable()
    assert pool.stats() == before
    assert pool.check() == []
