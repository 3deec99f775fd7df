import json

import pytest

from agentworld.api.app import create_app
from agentworld.config import ModelSettings, ServeSettings
from agentworld.errors import PoolFullError
from agentworld.pool.memory import MemoryPool
from tests.api.serving import Serving


@pytest.fixture(scope="module")
def server():
    """One for all that is refused."""
    with Serving() as running:
        yield running


def is_an_error(body):
    return set(body) == {"error"} and set(body["error"]) == {"code", "message", "path", "hint"}


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/api/v1/nowhere", 404, "not_found"),
        ("GET", "/api/v1/trajectories/none", 404, "not_found"),
        ("GET", "/api/v1/steps/none", 404, "not_found"),
        ("DELETE", "/api/v1/steps", 405, "method_not_allowed"),
        ("GET", "/api/v1/pool/retain", 405, "method_not_allowed"),
        ("GET", "/api/v1/steps?limit=0", 400, "invalid_request"),
        ("GET", "/api/v1/steps?limit=many", 400, "invalid_request"),
        ("GET", "/api/v1/steps?order=sideways", 400, "invalid_request"),
        ("GET", "/api/v1/steps?wher=reward", 400, "invalid_request"),
        ("GET", "/api/v1/steps?cursor=xyz", 400, "invalid_query"),
        ("GET", "/api/v1/steps?limit=1e2", 400, "invalid_request"),
        ("GET", "/api/v1/steps?limit=%D9%A3", 400, "invalid_request"),
        ("GET", "/api/v1/steps?limit=1&limit=2", 400, "invalid_request"),
        ("GET", f"/api/v1/events?after={2**63}", 400, "invalid_request"),
        ("GET", f"/api/v1/dead-letters?after={2**63}", 400, "invalid_request"),
        ("GET", f"/api/v1/dead-letters?after={'9' * 5000}", 400, "invalid_request"),
        ("GET", "/api/v1/dead-letters?limit=-4", 400, "invalid_request"),
        ("POST", "/api/v1/trajectories", 400, "invalid_request"),
        ("POST", "/api/v1/policy", 400, "invalid_request"),
    ],
)
def test_every_error_has_one_shape(server, method, path, status, code):
    body = b"{not json" if method == "POST" else None
    got, _, reply = server.send(method, path, body)
    assert got == status
    assert is_an_error(reply)
    assert reply["error"]["code"] == code


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("trajectories", {"rollout_index": 2**63}, "$.rollout_index"),
        ("trajectories", {"group_size": 2**64}, "$.group_size"),
        ("trajectories", {"attempt": 2**70}, "$.attempt"),
        ("policy", {"model": "m", "version": 2**63}, "$.version"),
        ("policy", {"model": "m", "version": -(2**63) - 1}, "$.version"),
        ("batches/b/ack", {"epoch": 2**63}, "$.epoch"),
        ("batches/lease", {"seed": 2**64}, "$.seed"),
    ],
)
def test_whole_numbers_over_64_bits_are_refused_where_they_are(server, path, body, where):
    status, reply = server.post(f"/api/v1/{path}", body)
    assert (status, reply["error"]["path"]) == (400, where)


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [200, 900])
def test_free_json_that_nests_too_deeply_is_refused_where_it_is(server, depth):
    server.post("/api/v1/trajectories", {"trajectory_id": "t1"})
    deep = {"a": nested(depth)}
    for path, body, where in (
        ("trajectories", {"metadata": deep}, "$.metadata"),
        ("trajectories", {"task": deep}, "$.task"),
        ("rewards", {"trajectory_id": "t1", "value": 1, "details": deep}, "$.details"),
        ("rewards", [{"trajectory_id": "t1", "value": 1, "details": deep}], "$[0].details"),
    ):
        status, reply = server.post(f"/api/v1/{path}", body)
        assert (status, reply["error"]["path"]) == (400, where)


@pytest.mark.parametrize("path", ["trajectories", "rewards", "policy", "steps", "batches/lease"])
def test_what_no_parser_can_follow_is_refused(server, path):
    for body in (b"[" * 100_000, b'{"a":' * 100_000, b'{"rewards": ' + b"[" * 5000 + b"]" * 5000 + b"}"):
        status, _, reply = server.send("POST", f"/api/v1/{path}", body)
        assert status == 400
        assert is_an_error(reply)


@pytest.mark.parametrize(
    "path",
    ["/api/v1/steps", "/v1/chat/completions", "/t/one/v1/messages", "/v1/responses", "/v1/messages/count_tokens"],
)
async def test_a_body_that_breaks_off_is_the_callers_fault(path):
    """A server that gets a wrong chunk says to the app that the client is gone, and passes its answer on."""
    pool = MemoryPool()
    sent, messages = [], [{"type": "http.request", "body": b'{"steps', "more_body": True}, {"type": "http.disconnect"}]

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "path": path, "raw_path": path.encode(),
        "query_string": b"", "root_path": "", "scheme": "http", "server": ("127.0.0.1", 1), "client": ("127.0.0.1", 2),
        "headers": [(b"host", b"127.0.0.1"), (b"content-length", b"100"),
                    (b"content-type", b"application/json")],
    }  # fmt: skip
    model = ModelSettings(name="m", upstream="http://127.0.0.1:9", driver="builtin", tokens="engine")
    await create_app(ServeSettings(models=(model,)), pool)(scope, receive, send)
    assert sent[0]["status"] == 400
    said = json.loads(sent[1]["body"])
    assert said["error"]["message"].endswith("The body broke off before its end")
    assert said.get("type") == ("error" if "messages" in path else None)
    pool.close()


def test_wrong_query_parameters_are_named(server):
    assert server.get("/api/v1/steps?limit=0")[1]["error"]["path"] == "?limit"
    error = server.get("/api/v1/steps?wher=1")[1]["error"]
    assert error["path"] == "?wher"
    assert "where" in error["hint"]


def test_a_body_over_the_limit_is_refused():
    with Serving(max_body_bytes=1000) as server:
        status, _, reply = server.send("POST", "/api/v1/rewards", b"[" + b" " * 2000 + b"]")
        assert status == 413
        assert is_an_error(reply)
        assert reply["error"]["code"] == "too_large"


def test_faults_of_the_pool_keep_their_code():
    class FullPool(MemoryPool):
        def create_trajectory(self, new):
            raise PoolFullError("the disk is full", hint="make room")

    with Serving(FullPool()) as server:
        status, reply = server.post("/api/v1/trajectories", {})
        assert (status, reply["error"]["code"], reply["error"]["hint"]) == (507, "pool_full", "make room")


def test_a_fault_of_ours_says_nothing_of_what_was_stored(caplog):
    class BrokenPool(MemoryPool):
        def create_trajectory(self, new):
            raise RuntimeError("secret")

    with Serving(BrokenPool()) as server:
        status, reply = server.post("/api/v1/trajectories", {})
        assert (status, reply["error"]["code"]) == (500, "internal_error")
        assert "secret" not in str(reply)


def test_llm_routes_without_models_say_what_is_missing(server):
    for method, path in (("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("POST", "/t/x/v1/messages")):
        status, _, reply = server.send(method, path)
        assert status == 404
        assert "no models" in reply["error"]["message"]
        assert "--upstream" in reply["error"]["hint"]
