import pytest


def test_rewards_one_or_many(server):
    server.post("/api/v1/steps", {"steps": [{"step_id": "s1", "trajectory_id": "t1"}]})
    assert server.post("/api/v1/rewards", {"trajectory_id": "t1", "value": 1})[1] == {"changed": 1}
    assert server.post("/api/v1/rewards", {"trajectory_id": "t1", "value": 1})[1] == {"changed": 0}
    several = [{"step_id": "s1", "value": 0.5, "name": "format"}, {"trajectory_id": "t1", "value": 0, "name": "style"}]
    assert server.post("/api/v1/rewards", several)[1] == {"changed": 2}
    assert server.post("/api/v1/rewards", {"rewards": several})[1] == {"changed": 0}
    assert server.get("/api/v1/trajectories/t1")[1]["rewards"] == {"reward": 1.0, "style": 0.0}
    assert server.get("/api/v1/steps/s1")[1]["rewards"]["format"] == 0.5


def test_rewards_are_set_all_or_none(server):
    server.post("/api/v1/trajectories", {"trajectory_id": "t1"})
    both = [{"trajectory_id": "t1", "value": 1}, {"trajectory_id": "gone", "value": 1}]
    assert server.post("/api/v1/rewards", both)[0] == 404
    assert server.get("/api/v1/trajectories/t1")[1]["reward"] is None


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"value": 1}', "$"),
        (b'[{"value": 1, "trajectory_id": "t1", "step_id": "s1"}]', "$[0]"),
        (b'{"rewards": [{"value": "much", "trajectory_id": "t1"}]}', "$.rewards[0].value"),
        (b'{"value": 1e999, "trajectory_id": "t1"}', "$"),
        (b'{"valeu": 1, "trajectory_id": "t1"}', "$"),
        (b"[" * 100_000, "$"),
        (b"nonsense", "$"),
    ],
)
def test_bad_rewards_are_refused_where_they_are_bad(server, body, path):
    status, reply = server.post("/api/v1/rewards", body)
    assert status == 400
    assert reply["error"]["code"] == "invalid_request"
    assert reply["error"]["path"].startswith(path)


def test_the_policy_goes_forward_only(server):
    assert server.post("/api/v1/policy", {"model": "m", "run": "r", "version": 2})[0] == 200
    assert server.post("/api/v1/policy", {"model": "m", "run": "r", "version": 1})[0] == 409
    assert server.post("/api/v1/policy", {"model": "m", "run": "r2", "version": 0})[0] == 200
    assert server.get("/api/v1/policy")[1]["policies"]["m"] == {"model": "m", "run": "r2", "version": 0}


def test_pause_and_resume(server):
    assert server.post("/api/v1/gateway/pause")[1]["paused"] is True
    assert server.pool.gateway_state().paused is True
    assert server.post("/api/v1/gateway/resume", {})[1]["paused"] is False
    assert server.post("/api/v1/gateway/pause", {"drane": True})[0] == 400


def test_stats_and_metrics_tell_the_same(server):
    server.post("/api/v1/steps", {"steps": [{"step_id": "s1", "trajectory_id": "t1"}]})
    assert server.get("/api/v1/stats")[1]["steps"] == 1
    status, headers, text = server.send("GET", "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert b"agentworld_pool_steps 1.0" in text
    assert b'agentworld_requests_total{method="POST",status="200",surface="control"}' in text
    assert b'agentworld_request_seconds_count{surface="control"}' in text
    assert b'agentworld_pool_trajectories{status="open"} 1.0' in text


def test_health(server):
    assert server.get("/healthz") == (200, {"status": "ok"})
    assert server.get("/readyz") == (200, {"status": "ready"})


def test_dead_letters_come_page_by_page(server):
    broken = [{"step_id": f"s{n}", "trajectory_id": "t", "choice_index": 2**62} for n in range(3)]
    server.post("/api/v1/steps", {"steps": broken})
    status, first = server.get("/api/v1/dead-letters?limit=2")
    assert status == 200
    assert [letter["step_id"] for letter in first["items"]] == ["s0", "s1"]
    _, rest = server.get(f"/api/v1/dead-letters?after={first['next_cursor']}")
    assert [letter["step_id"] for letter in rest["items"]] == ["s2"]
    assert rest["next_cursor"] is None
