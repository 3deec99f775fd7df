import pytest

from agentworld.config import ModelSettings
from agentworld.errors import AgentWorldError
from agentworld.http_server.lifespan import Lifespan
from agentworld.testing import ScriptedEngine
from tests.api.serving import Serving


@pytest.fixture
def engine():
    with ScriptedEngine(lambda request: "four", model="m") as running:
        yield running


def model(engine, **more):
    return ModelSettings(name="m", upstream=engine.url, driver="builtin", tokens="engine", **more)


def test_one_server_takes_llm_calls_and_control_calls(engine):
    with Serving(models=(model(engine),)) as server:
        made = server.post("/api/v1/trajectories", {"trajectory_id": "t1"})[1]
        assert made["base_url"] == f"{server.url}/t/t1/v1"
        chat = {"model": "m", "messages": [{"role": "user", "content": "2+2?"}]}
        status, reply = server.post("/t/t1/v1/chat/completions", chat)
        assert (status, reply["choices"][0]["message"]["content"]) == (200, "four")
        steps = server.get("/api/v1/steps?trajectory_id=t1&include=tokens")[1]["items"]
        assert len(steps) == 1
        assert steps[0]["response_ids"]
        assert server.get("/v1/models")[1]["data"][0]["id"] == "m"
        assert server.get("/readyz")[0] == 200
        # No browser may take stored text for a page, errors and what is not there included.
        calls = ("GET", "/api/v1/stats"), ("GET", "/healthz"), ("GET", "/v1/models"), ("GET", "/metrics")
        faults = ("POST", "/api/v1/steps"), ("GET", "/api/v1/nothing"), ("GET", "/v1/nothing"), ("PUT", "/v1/models")
        for method, path in (*calls, *faults):
            assert server.send(method, path)[1].get_all("x-content-type-options") == ["nosniff"], path


def test_agents_are_sent_to_the_origin_that_is_set(engine):
    with Serving(gateway_url="https://gateway.example/") as server:
        made = server.post("/api/v1/trajectories", {"trajectory_id": "t1"})[1]
        assert made["base_url"] == "https://gateway.example/t/t1/v1"


def test_a_host_header_that_is_none_is_refused_and_not_repeated(engine):
    with Serving(models=(model(engine),)) as server:
        status, _, reply = server.send("POST", "/api/v1/trajectories", b"{}", {"Host": 'evil"><script>'})
        assert (status, reply["error"]["code"]) == (400, "invalid_request")
        assert "script" not in str(reply)


async def test_a_lifespan_that_fails_raises_what_the_application_raised():
    async def app(scope, receive, send):
        await receive()
        raise AgentWorldError("no")

    with pytest.raises(AgentWorldError, match="no"):
        await Lifespan(app).startup()


async def test_a_lifespan_that_reports_a_failure_raises_its_message():
    async def app(scope, receive, send):
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no engine"})

    with pytest.raises(AgentWorldError, match="no engine"):
        await Lifespan(app).startup()


async def test_a_lifespan_runs_from_start_to_end():
    seen = []

    async def app(scope, receive, send):
        for phase in ("startup", "shutdown"):
            seen.append((await receive())["type"])
            await send({"type": f"lifespan.{phase}.complete"})

    lifespan = Lifespan(app)
    await lifespan.startup()
    await lifespan.shutdown()
    assert seen == ["lifespan.startup", "lifespan.shutdown"]
