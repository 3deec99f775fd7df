"""Deletion and retention over HTTP; who may is a matter of test_keys."""

import pytest

from agentworld.pool.sqlite import SqlitePool
from tests.api.serving import Serving
from tests.pool.samples import finished


@pytest.fixture(params=["memory", "sqlite"])
def filled(request, tmp_path):
    """A server on a pool with three trajectories of two users."""
    pool = SqlitePool(tmp_path / "pool.db") if request.param == "sqlite" else None
    with Serving(pool) as server:
        for name, user in (("a", "alice"), ("b", "alice"), ("c", "bob")):
            finished(server.pool, name, reward=1.0, user=user)
        yield server


def left(server):
    return [one.trajectory_id for one in server.pool.list_trajectories().items]


def test_one_trajectory_is_deleted(filled):
    status, _, reply = filled.send("DELETE", "/api/v1/trajectories/a?reason=asked")
    assert (status, reply["trajectories"], reply["steps"], reply["unknown"]) == (200, 1, 1, [])
    assert left(filled) == ["b", "c"]
    stone = filled.pool.tombstones()[0]
    assert (stone.kind, stone.target_id, stone.reason) == ("trajectory", "a", "asked")
    status, _, reply = filled.send("DELETE", "/api/v1/trajectories/a")
    assert (status, reply["trajectories"], reply["unknown"]) == (200, 0, ["a"])
    assert filled.post("/api/v1/rewards", {"trajectory_id": "a", "value": 1})[0] == 410


def test_everything_of_a_user_is_deleted_and_purged(filled):
    purged = []
    filled.pool.purge = lambda **_: purged.append(True)
    assert filled.post("/api/v1/pool/delete", {"user": "alice", "purge": True})[1]["trajectories"] == 2
    assert (left(filled), purged) == (["c"], [True])
    for wrong in ({}, {"user": ""}, {"users": "alice"}, {"user": "bob", "trajectory_id": "c"}):
        assert filled.post("/api/v1/pool/delete", wrong)[0] == 400
    assert left(filled) == ["c"]


def test_what_retention_names_is_collected(filled):
    limits = {"max_steps": 1, "include_waiting": True}
    status, would = filled.post("/api/v1/pool/retain", {**limits, "dry_run": True})
    assert (status, would["trajectories"], would["dry_run"]) == (200, 2, True)
    assert left(filled) == ["a", "b", "c"]
    filled.pool.pin("dataset", "d", ["a"])
    done = filled.post("/api/v1/pool/retain", limits)[1]
    assert (done["trajectories"], done["kept_pinned"]) == (2, 1)
    assert left(filled) == ["a"]
    assert filled.post("/api/v1/pool/retain", {})[1]["trajectories"] == 0
    for wrong, path in (({"max_age": -1}, "max_age"), ({"max_ages": 1}, "$"), ({"channels": []}, "channels")):
        status, reply = filled.post("/api/v1/pool/retain", wrong)
        assert (status, reply["error"]["path"]) == (400, path)


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_a_page_of_another_site_deletes_nothing(filled, headers):
    assert filled.send("DELETE", "/api/v1/trajectories/a", headers=headers)[0] == 403
    assert left(filled) == ["a", "b", "c"]
