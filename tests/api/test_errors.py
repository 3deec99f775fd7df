import pytest

from agentworld.errors import PoolFullError
from agentworld.pool.memory import MemoryPool
from tests.api.serving import Serving


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
        ("GET", "/api/v1/rewards", 405, "method_not_allowed"),
        ("GET", "/api/v1/steps?limit=0", 400, "invalid_request"),
        ("GET", "/api/v1/steps?limit=many", 400, "invalid_request"),
        ("GET", "/api/v1/steps?order=sideways", 400, "invalid_request"),
        ("GET", "/api/v1/steps?wher=reward", 400, "invalid_request"),
        ("GET", "/api/v1/steps?cursor=xyz", 400, "invalid_query"),
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
