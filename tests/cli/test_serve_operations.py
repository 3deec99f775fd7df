"""`agentworld serve` in operation: keys, several workers, and what it keeps to itself."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from agentworld.factory import connect, open_pool
from agentworld.pool.keys import NewKey
from agentworld.testing import ScriptedEngine
from agentworld.testing.scripted_engine import ScriptedReply
from tests.cli.test_serve import alive, pool, pytestmark, serve, until

__all__ = ["pool", "pytestmark"]

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def ask(url, path, body=None, **headers):
    """Status, body and headers, whatever the status."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url + path, data, {"Content-Type": "application/json", **headers})
    try:
        with urlopen(request, timeout=150) as response:
            return response.status, response.read().decode()
    except OSError as error:
        if not hasattr(error, "code"):
            raise
        return error.code, error.read().decode()


def settings(tmp_path, engine, **more):
    lines = {"workers": 1, **more}
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items())
    model = f'[[models]]\nname = "m"\nupstream = "{engine.url}"\ndriver = "builtin"\ntokens = "engine"\nretries = 0\n'
    path = tmp_path / "serve.toml"
    path.write_text(text + model + f'api_key = "{UPSTREAM}"\n')
    return str(path)


UPSTREAM = "sk-upstream-0123456789abcdef"
FOREIGN = "sk-foreign-0123456789abcdef"


def test_no_secret_reaches_pool_logs_or_errors(tmp_path, pool):
    """Keys of every kind go through every route, well and badly, and the server dies in the middle."""
    told = {"error": {"message": f"Incorrect API key provided: {UPSTREAM}. Authorization: Bearer {UPSTREAM}"}}
    failing = threading.Event()

    def script(request):
        return ScriptedReply(status=401, error_body=told) if failing.is_set() else "four"

    with open_pool(pool) as opened:
        admin = opened.create_key(NewKey(name="admin", scopes=("admin",))).secret
        revoked = opened.create_key(NewKey(name="revoked", scopes=("admin",)))
        opened.revoke_key(revoked.key.key_id)
        weak = opened.create_key(NewKey(name="weak", scopes=("read",), channel="val")).secret
    replies = []
    with ScriptedEngine(script, model="m") as engine:
        config = settings(tmp_path, engine, require_keys=True)
        with serve("--pool", pool, "--config", config, "--log-level", "debug") as server:
            server.ready()
            with connect(server.url, api_key=admin) as factory:
                session = factory.trajectory(trajectory_id="t1").api_key
            secrets = [admin, revoked.secret, weak, session, session.rpartition(".")[2], UPSTREAM, FOREIGN]
            paths = [
                ("/v1/chat/completions", CHAT),
                ("/t/t1/v1/messages", {**CHAT, "max_tokens": 5}),
                ("/v1/responses", {"model": "m", "input": "hi"}),
                ("/v1/completions", {"model": "m", "prompt": "hi"}),
                ("/v1/messages/count_tokens", CHAT),
                ("/v1/models", None),
                ("/v1/chat/completions", {**CHAT, "stream": True}),
                ("/v1/chat/completions", {"messages": 3}),
                ("/nowhere", None),
                ("/api/v1/steps", {"steps": [{"step_id": 3}]}),
                ("/api/v1/trajectories", {"trajectory_id": "/"}),
                ("/api/v1/stats", None),
                ("/api/v1/keys", None),
                ("/readyz", None),
                ("/metrics", None),
            ]
            for _ in range(2):
                for path, body in paths:
                    for key in (admin, revoked.secret, weak, session, FOREIGN, session[:-1] + "x", admin[:-1]):
                        replies.append(ask(server.url, path, body, Authorization=f"Bearer {key}")[1])
                        if path.startswith(("/v1/chat", "/api/v1/stats")):
                            replies.append(ask(server.url, path, body, **{"x-api-key": key})[1])
                failing.set()
            status, said = ask(server.url, "/t/t1/v1/chat/completions", CHAT, Authorization=f"Bearer {admin}")
            assert status >= 400
            assert "Incorrect API key provided" in said
            replies.append(said)
            for worker in server.workers():
                os.kill(worker, signal.SIGKILL)
            os.killpg(server.process.pid, signal.SIGKILL)
            server.ended()
            text = server.text
    places = {"log": text.encode(), "replies": "".join(replies).encode()}
    places |= {file.name: file.read_bytes() for file in Path(tmp_path).glob("pool.db*")}
    assert len(places["replies"]) > 10_000
    assert b"key_refused" in places["log"]
    assert len(places["pool.db"]) > 0
    found = [
        (name, secret[:12]) for name, content in places.items() for secret in secrets if secret.encode() in content
    ]
    assert found == []


@pytest.mark.parametrize("grace", [30.0, 0.2])
def test_at_the_signal_calls_finish_or_are_recorded_as_broken_off(tmp_path, pool, grace):
    begun, release = threading.Event(), threading.Event()

    def script(request):
        begun.set()
        if not release.wait(100):
            raise TimeoutError
        return "four"

    with ScriptedEngine(script, model="m") as engine:
        config = settings(tmp_path, engine, grace=grace)
        with serve("--pool", pool, "--config", config) as server:
            server.ready()
            answers = []
            call = threading.Thread(
                target=lambda: answers.append(ask(server.url, "/t/t1/v1/chat/completions", CHAT)), daemon=True
            )
            call.start()
            assert begun.wait(100)
            os.kill(server.process.pid, signal.SIGTERM)
            if grace > 1:
                release.set()
            call.join(60)
            release.set()
            code = server.ended()
    ((status, said),) = answers
    with open_pool(pool) as opened:
        (exchange,) = opened.list_exchanges("t1")
        if grace > 1:
            assert (status, exchange.error, code) == (200, None, 0)
            assert [step.finish_reason for step in opened.list_steps(trajectory_id="t1").items] == ["stop"]
        else:
            assert (status, json.loads(said)["error"]["code"]) == (503, "shutting_down")
            assert exchange.error["code"] == "client_closed_request"


def test_what_a_dead_worker_said_of_now_goes_and_what_it_counted_stays(tmp_path, pool):
    release = threading.Event()

    def script(request):
        release.wait(100)
        return "four"

    def figure(url, name):
        lines = [line for line in ask(url, "/metrics")[1].splitlines() if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    name = 'agentworld_requests_in_flight{surface="llm"}'
    with ScriptedEngine(script, model="m") as engine:
        config = settings(tmp_path, engine, workers=2)
        with serve("--pool", pool, "--config", config) as server:
            server.ready()
            refused = {"Content-Type": "text/plain"}
            for _ in range(8):
                assert ask(server.url, "/v1/chat/completions", CHAT, **refused)[0] == 415
            counted = 8
            # What another worker counts is there after half a second.
            until(lambda: figure(server.url, 'agentworld_requests_total{method="POST"') == counted)
            before = server.workers()

            def hang():
                try:
                    ask(server.url, "/v1/chat/completions", CHAT)
                except OSError:
                    pass

            calls = [threading.Thread(target=hang, daemon=True) for _ in range(3)]
            for call in calls:
                call.start()
            until(lambda: figure(server.url, name) == 3)
            for worker in before:
                os.kill(worker, signal.SIGKILL)
            until(lambda: not any(map(alive, before)) and len(server.workers()) == 2)
            deadline = time.monotonic() + 100
            while True:
                try:
                    assert figure(server.url, name) == 0
                    break
                except OSError:
                    assert time.monotonic() < deadline
            assert figure(server.url, 'agentworld_requests_total{method="POST"') == counted
            release.set()
            for call in calls:
                call.join(100)
