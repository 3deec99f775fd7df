import http.client
import threading
import time
from urllib.parse import urlsplit

import pytest

from agentworld.pool import draining
from agentworld.pool.memory import MemoryPool
from tests.api.serving import Serving


def done(changed, set_, waiting=()):
    return {"changed": changed, "set": set_, "waiting": list(waiting)}


def test_rewards_one_or_many(server):
    server.post("/api/v1/steps", {"steps": [{"step_id": "s1", "trajectory_id": "t1"}]})
    assert server.post("/api/v1/rewards", {"trajectory_id": "t1", "value": 1})[1] == done(1, 1)
    assert server.post("/api/v1/rewards", {"trajectory_id": "t1", "value": 1})[1] == done(0, 1)
    several = [{"step_id": "s1", "value": 0.5, "name": "format"}, {"trajectory_id": "t1", "value": 0, "name": "style"}]
    assert server.post("/api/v1/rewards", several)[1] == done(2, 2)
    assert server.post("/api/v1/rewards", {"rewards": several})[1] == done(0, 2)
    assert server.get("/api/v1/trajectories/t1")[1]["rewards"] == {"reward": 1.0, "style": 0.0}
    assert server.get("/api/v1/steps/s1")[1]["rewards"]["format"] == 0.5


def test_rewards_wait_for_what_is_not_there(server):
    server.post("/api/v1/trajectories", {"trajectory_id": "t1"})
    both = [{"trajectory_id": "t1", "value": 1}, {"trajectory_id": "later", "value": 1}, {"step_id": "s1", "value": 2}]
    assert server.post("/api/v1/rewards", both) == (200, done(3, 1, ["later", "s1"]))
    status, page = server.get("/api/v1/awaited")
    assert status == 200
    assert [(one["kind"], one["id"]) for one in page["items"]] == [("step", "s1"), ("trajectory", "later")]
    assert server.get("/api/v1/trajectories/later")[0] == 404
    assert server.post("/api/v1/trajectories", {"trajectory_id": "later"})[1]["trajectory"]["reward"] == 1.0


def test_rewards_are_set_all_or_none(server):
    server.post("/api/v1/steps", {"steps": [{"step_id": "s1", "trajectory_id": "t1"}]})
    both = [{"trajectory_id": "t1", "value": 1}, {"step_id": "s1", "trajectory_id": "t2", "value": 1}]
    status, reply = server.post("/api/v1/rewards", both)
    assert (status, reply["error"]["path"]) == (400, "rewards[1]")
    assert server.get("/api/v1/trajectories/t1")[1]["reward"] is None


def test_feedback_one_or_many(server):
    server.post("/api/v1/steps", {"steps": [{"step_id": "s1", "trajectory_id": "t1"}]})
    label = {"kind": "label", "name": "quality", "value": "good", "step_id": "s1", "feedback_id": "f1"}
    assert server.post("/api/v1/feedback", label)[1] == done(1, 1)
    assert server.post("/api/v1/feedback", [label])[1] == done(0, 1)
    assert server.post("/api/v1/feedback", {**label, "value": "bad"})[0] == 409
    rating = {"kind": "rating", "value": 4, "trajectory_id": "t1", "source": "anna"}
    assert server.post("/api/v1/feedback", {"feedback": [rating]})[1] == done(1, 1)
    assert server.get("/api/v1/steps/s1")[1]["labels"] == {"quality": "good"}
    status, page = server.get("/api/v1/feedback?kind=rating&trajectory_id=t1")
    assert status == 200
    assert [(one["value"], one["source"]) for one in page["items"]] == [(4, "anna")]
    assert len(server.get("/api/v1/feedback")[1]["items"]) == 2


def test_annotations_one_or_many(server):
    server.post("/api/v1/steps", {"steps": [{"step_id": "s1", "trajectory_id": "t1"}]})
    sent = {"name": "values", "values": [[1.5, None]], "dtype": "float64", "trajectory_id": "t1"}
    assert server.post("/api/v1/annotations", sent)[1] == done(1, 1)
    more = [{"name": "score", "values": 2, "dtype": "int8", "step_id": "s1"}]
    assert server.post("/api/v1/annotations", {"annotations": more})[1] == done(1, 1)
    status, page = server.get("/api/v1/annotations?trajectory_id=t1")
    assert status == 200
    found = {one["name"]: (one["dtype"], one["shape"], one["values"]) for one in page["items"]}
    assert found == {"values": ("float64", [1, 2], [[1.5, None]]), "score": ("int8", [], 2)}
    _, page = server.get("/api/v1/annotations?step_ids=s1,s2&names=%5B%22score%22%5D")
    assert [one["step_id"] for one in page["items"]] == ["s1"]
    assert server.get("/api/v1/annotations")[0] == 400
    assert server.get("/api/v1/annotations?step_ids=s1&names=score")[0] == 400


def test_groups(server):
    for name in ("a", "b"):
        server.post("/api/v1/trajectories", {"trajectory_id": name, "group_id": name, "group_size": 1, "user": "anna"})
    server.post("/api/v1/trajectories/a/complete", {"status": "finished", "reward": 1})
    assert server.get("/api/v1/groups/a")[1]["closed_by"] == "size"
    assert server.get("/api/v1/groups/none")[0] == 404
    assert [one["group_id"] for one in server.get("/api/v1/groups")[1]["items"]] == ["a", "b"]
    assert [one["group_id"] for one in server.get("/api/v1/groups?closed=false")[1]["items"]] == ["b"]
    other = {"trajectory_id": "c", "group_id": "b", "group_size": 2}
    status, reply = server.post("/api/v1/trajectories", other)
    assert (status, reply["error"]["path"]) == (409, "group_size")


@pytest.mark.parametrize(
    ("route", "body", "path"),
    [
        ("feedback", b'{"kind": "rating", "value": "good", "step_id": "s"}', "feedback[0].value"),
        ("feedback", b'[{"kind": "praise", "step_id": "s"}]', "$[0].kind"),
        ("feedback", b'{"feedback": [{"kind": "comment", "comment": "x"}]}', "$.feedback[0]"),
        ("feedback", b'{"kind": "comment", "coment": "x", "step_id": "s"}', "$"),
        ("annotations", b'{"name": "a", "values": [[1], [1, 2]], "step_id": "s"}', "annotations[0].values"),
        ("annotations", b'{"name": "a", "values": ["x"], "step_id": "s"}', "annotations[0].values"),
        ("annotations", b'{"name": "a", "values": ' + b"[" * 500 + b"]" * 500 + b', "step_id": "s"}', "annotations[0]"),
        ("annotations", b'{"annotations": [{"name": 1, "values": [1], "step_id": "s"}]}', "$.annotations[0].name"),
    ],
)
def test_bad_signals_are_refused_where_they_are_bad(server, route, body, path):
    status, reply = server.post(f"/api/v1/{route}", body)
    assert status == 400
    assert reply["error"]["path"].startswith(path)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"value": 1}', "$"),
        (b'[{"value": 1}]', "$[0]"),
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
    assert server.post("/api/v1/gateway/resume", {"drain": True})[0] == 400


def test_a_pause_that_waits_until_all_have_drained(server):
    server.pool.report_worker("w1", 1, 0)
    none = {"drained": False, "workers": 1, "in_flight": 1, "unaware": 0}
    assert server.get("/api/v1/gateway")[1]["drain"] == none
    status, reply = server.post("/api/v1/gateway/pause", {"drain": True, "timeout": 0})
    assert status == 200
    assert (reply["paused"], reply["pauses"], reply["drain"]) == (True, 1, {**none, "unaware": 1})
    assert server.post("/api/v1/gateway/pause", {"drain": True, "timeout": 1e9})[0] == 400
    ending = threading.Timer(0.2, lambda: server.pool.report_worker("w1", 0, 1))
    ending.start()
    status, reply = server.post("/api/v1/gateway/pause", {"drain": True, "timeout": 30})
    ending.join()
    assert reply["drain"] == {"drained": True, "workers": 1, "in_flight": 0, "unaware": 0}
    status, reply = server.get("/api/v1/gateway")
    assert [(each["worker"], each["in_flight"], each["pauses"]) for each in reply["workers"]] == [("w1", 0, 1)]
    assert server.post("/api/v1/gateway/pause")[1]["drain"] is None


def test_a_pause_whose_client_has_left_is_waited_for_no_longer():
    class Watched(MemoryPool):
        looks = 0

        def drain(self, timeout=0.0):
            self.looks += 1
            return super().drain(timeout)

    with Serving(Watched()) as server:
        pool = server.pool
        pool.report_worker("w1", 1, 0)
        address = urlsplit(server.url)
        client = http.client.HTTPConnection(address.hostname, address.port, timeout=100)
        body = b'{"drain": true, "timeout": 3600}'
        client.request("POST", "/api/v1/gateway/pause", body, {"Content-Type": "application/json"})
        until(lambda: pool.looks > 1)
        client.close()
        # Others that ask meanwhile are answered, and the one who left is asked for no more.
        until(lambda: settled(pool))
        assert pool.gateway_state().paused is True


def settled(pool):
    """Whether nobody has looked for ten times the pause between two looks."""
    before = pool.looks
    time.sleep(10 * draining.LOOK_SECONDS)
    return pool.looks == before


def until(condition):
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_stats_and_metrics_tell_the_same(server):
    server.post("/api/v1/steps", {"steps": [{"step_id": "s1", "trajectory_id": "t1"}]})
    assert server.get("/api/v1/stats")[1]["steps"] == 1
    status, headers, text = server.send("GET", "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert b"agentworld_pool_steps 1.0" in text
    assert b'agentworld_requests_total{method="POST",route="/api/v1/steps",status="200",surface="control"}' in text
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
