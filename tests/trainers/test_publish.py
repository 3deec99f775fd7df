"""Weights into engines: what each is asked, in which order with the gateways' pause, and what failures leave behind."""

import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agentworld.errors import AgentWorldError, ConfigError, EngineError, EngineUnreachableError
from agentworld.pool.results import Drain
from agentworld.records import Policy
from agentworld.trainers.publish import Publisher, PublishTo

POLICY = Policy("policy", "run-1", 7)
ADAPTED = {"message": "The lora adapter 'policy' has already been loaded.", "type": "InvalidUserInput", "code": 400}


class Engine:
    """Answers as vLLM and SGLang do; `answers` changes what a path is answered, `log` is shared with the board."""

    def __init__(self, log, **answers):
        self.answers, self.bodies = answers, []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler):
                data = handler.rfile.read(int(handler.headers.get("content-length") or 0))
                body = json.loads(data) if data else None
                log.append(handler.path)
                self.bodies.append((handler.path, body, handler.headers.get("authorization")))
                handler.reply(*self.answer(handler.path, body))

            def do_GET(handler):
                handler.reply(200, {"data": [{"id": "policy"}]})

            def reply(handler, status, said):
                data = said.encode() if isinstance(said, str) else json.dumps(said).encode()
                handler.send_response(status)
                handler.send_header("content-length", str(len(data)))
                handler.end_headers()
                handler.wfile.write(data)

            def log_message(handler, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, path, body):
        if path in self.answers:
            found = self.answers[path]
            return found.pop(0) if isinstance(found, list) else found
        return {
            "/collective_rpc": (200, {"results": [None]}),
            "/reset_prefix_cache": (200, ""),
            "/v1/load_lora_adapter": (200, "Success: LoRA adapter 'policy' added successfully."),
            "/v1/unload_lora_adapter": (200, "Success: LoRA adapter 'policy' removed successfully."),
            "/pause?mode=abort": (200, {"status": "paused"}),
            "/resume": (200, {"status": "resumed"}),
            "/update_weights_from_disk": (
                200, {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0},
            ),
            "/load_lora_adapter": (200, {"success": True, "loaded_adapters": {"policy": "path"}}),
            "/unload_lora_adapter": (200, {"success": True, "loaded_adapters": {}}),
        }.get(path, (200, "ok"))  # fmt: skip


class Board:
    """The pool's side, with the order of everything."""

    def __init__(self, log, in_flight=0):
        self.log, self.in_flight, self.paused = log, in_flight, False

    def set_policy(self, policy):
        self.log.append(f"policy {policy.version}")
        return policy

    def set_paused(self, paused):
        self.paused = paused
        self.log.append("pause" if paused else "go on")

    def drain(self, timeout=0.0):
        self.log.append("drain")
        return Drain(drained=not self.in_flight, workers=1, in_flight=self.in_flight, unaware=0)


@pytest.fixture
def world():
    """`make(answers)`: one more engine; the board; the order of what happened."""
    log, engines = [], []

    def make(**answers):
        engines.append(Engine(log, **answers))
        return engines[-1]

    yield make, Board(log), log
    for engine in engines:
        engine.server.shutdown()
        engine.server.server_close()


VLLM, SGLANG = ("/collective_rpc", "/reset_prefix_cache"), ("/update_weights_from_disk",)


@pytest.mark.parametrize(("driver", "asked"), [("vllm", VLLM), ("sglang", SGLANG)])
def test_weights_change_while_nothing_is_in_flight_and_the_pool_hears_before_it_goes_on(world, tmp_path, driver, asked):
    make, board, log = world
    one, two = make(), make()
    publisher = Publisher(PublishTo(engine=(one.url, two.url), model="policy", driver=driver), lora=False)
    publisher.check()
    publisher.publish(tmp_path, POLICY, board)
    assert log == ["pause", "drain", *asked, *asked, "policy 7", "go on"]
    body = one.bodies[0][1]
    if driver == "vllm":
        assert body == {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path)}}
    else:
        assert body == {"model_path": str(tmp_path), "flush_cache": True, "weight_version": "run-1:7"}


@pytest.mark.parametrize(
    ("driver", "before", "after"),
    [("vllm", "/pause?mode=abort", "/resume"), ("sglang", "/pause_generation", "/continue_generation")],
)
def test_running_replies_are_cut_where_that_is_asked(world, tmp_path, driver, before, after):
    make, board, log = world
    to = PublishTo(engine=make().url, model="policy", driver=driver, running="cut")
    Publisher(to, lora=False).publish(tmp_path, POLICY, board)
    assert log[:3] == ["pause", before, "drain"]
    assert log[-3:] == ["policy 7", after, "go on"]


def test_vllm_takes_the_adapter_in_place_or_after_taking_the_old_one_out(world, tmp_path):
    make, board, log = world
    engine = make(**{"/v1/load_lora_adapter": [(200, "ok"), (400, ADAPTED), (200, "ok")]})
    publisher = Publisher(PublishTo(engine=engine.url, model="policy", driver="vllm"), lora=True)
    assert publisher.adapter
    publisher.publish(tmp_path, POLICY, board)
    assert engine.bodies[0][1] == {"lora_name": "policy", "lora_path": str(tmp_path), "load_inplace": True}
    log.clear()
    publisher.publish(tmp_path, POLICY, board)
    assert log[2:-2] == [
        "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/load_lora_adapter", "/reset_prefix_cache",
    ]  # fmt: skip


def test_sglang_takes_an_adapter_where_that_is_asked(world, tmp_path):
    make, board, log = world
    said = {"success": False, "error_message": "LoRA adapter policy is already loaded"}
    engine = make(**{"/load_lora_adapter": [(400, said), (200, {"success": True})]})
    assert not Publisher(PublishTo(engine=engine.url, model="policy", driver="sglang"), lora=True).adapter
    to = PublishTo(engine=engine.url, model="policy", driver="sglang", load="adapter")
    Publisher(to, lora=True).publish(tmp_path, POLICY, board)
    assert log[2:-2] == ["/load_lora_adapter", "/unload_lora_adapter", "/load_lora_adapter", "/flush_cache"]


def test_where_only_some_took_the_weights_the_gateways_stay_paused_until_it_is_published_again(world, tmp_path):
    make, board, log = world
    failed = {"success": False, "message": "Failed to get weights iterator: nowhere", "num_paused_requests": 0}
    one, two = make(), make(**{"/update_weights_from_disk": [(400, failed), (200, failed)]})
    publisher = Publisher(PublishTo(engine=(one.url, two.url), model="policy", driver="sglang"), lora=False)
    for _ in range(2):
        with pytest.raises(EngineError, match=r"Failed to get weights iterator: nowhere.*stay paused") as caught:
            publisher.publish(tmp_path, POLICY, board)
        assert "Start the job again" in caught.value.hint
        assert board.paused
        assert "policy 7" not in log
    two.answers.clear()
    publisher.publish(tmp_path, POLICY, board)
    assert not board.paused


def test_a_stop_while_engines_load_says_that_the_gateways_stay_paused(world, tmp_path, monkeypatch, caplog):
    make, board, _ = world

    def stopped(policy):
        raise KeyboardInterrupt

    monkeypatch.setattr(board, "set_policy", stopped)
    to = PublishTo(engine=make().url, model="policy", driver="sglang")
    caplog.set_level(logging.WARNING, logger="agentworld.trainers.publish")
    with pytest.raises(KeyboardInterrupt):
        Publisher(to, lora=False).publish(tmp_path, POLICY, board)
    assert board.paused
    assert "the gateways stay paused" in caplog.text


def test_what_does_not_drain_goes_on_with_the_old_weights(world, tmp_path):
    make, board, log = world
    board.in_flight = 3
    to = PublishTo(engine=make().url, model="policy", driver="vllm", drain_seconds=0.5)
    with pytest.raises(AgentWorldError, match=r"3 calls were in flight 0.5 s after"):
        Publisher(to, lora=False).publish(tmp_path, POLICY, board)
    assert log == ["pause", "drain", "go on"]


@pytest.mark.parametrize(
    ("path", "answer", "says"),
    [
        ("/collective_rpc", (404, {"detail": "Not Found"}), "VLLM_SERVER_DEV_MODE=1"),
        ("/collective_rpc", (500, "TypeError"), "takes no weights_path"),
        ("/reset_prefix_cache", (404, {"detail": "Not Found"}), "VLLM_SERVER_DEV_MODE=1"),
        ("/v1/load_lora_adapter", (404, {"detail": "Not Found"}), "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"),
        ("/v1/load_lora_adapter", (400, {"error": {"message": "rank 64 is over 16"}}), "rank 64 is over 16"),
        ("/v1/load_lora_adapter", (307, ""), "with 307"),
    ],
)
def test_what_an_engine_lacks_is_said_with_what_to_do(world, tmp_path, path, answer, says):
    make, board, _ = world
    to = PublishTo(engine=make(**{path: answer}).url, model="policy", driver="vllm")
    with pytest.raises(EngineError) as caught:
        Publisher(to, lora="lora" in path).publish(tmp_path, POLICY, board)
    assert says in caught.value.one_line()


def test_an_engine_that_is_away_is_told_before_anything_is_trained(monkeypatch):
    to = PublishTo(engine="http://127.0.0.1:9", model="policy", driver="vllm", api_key_env="ENGINE_KEY")
    with pytest.raises(ConfigError, match="ENGINE_KEY is not set"):
        Publisher(to, lora=False)
    monkeypatch.setenv("ENGINE_KEY", "secret")
    with pytest.raises(EngineUnreachableError, match="nothing answers at"):
        Publisher(to, lora=False).check()


@pytest.mark.parametrize(
    "answer", [(401, {"error": "no such key secret-key"}), (200, {"success": False, "message": "secret-key is wrong"})]
)
def test_the_key_is_sent_and_not_told(world, tmp_path, monkeypatch, answer):
    make, board, _ = world
    monkeypatch.setenv("ENGINE_KEY", "secret-key")
    engine = make(**{"/update_weights_from_disk": answer})
    to = PublishTo(engine=engine.url, model="policy", driver="sglang", api_key_env="ENGINE_KEY")
    with pytest.raises(EngineError) as caught:
        Publisher(to, lora=False).publish(tmp_path, POLICY, board)
    assert engine.bodies[0][2] == "Bearer secret-key"
    assert "secret-key" not in caught.value.one_line()


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ({"engine": "nowhere"}, "no HTTP address"),
        ({"engine": "http://host:port"}, "no HTTP address"),
        ({"engine": "http://me:secret@host:1"}, "an engine of publish holds a user"),
        ({"engine": "http://host:1/?key=secret"}, "an engine of publish has a query"),
        ({"engine": ()}, "names no engine"),
        ({"load": "adapter"}, "no adapter to load"),
        ({"running": "cut"}, "without a pause"),
        ({"timeout": 0.0}, "timeout must be over 0"),
    ],
)
def test_publishing_that_cannot_be_is_refused(to, says):
    with pytest.raises(ConfigError, match=says) as caught:
        Publisher(PublishTo(**{"engine": "http://127.0.0.1:9", "model": "policy", **to}), lora=False)
    assert "secret" not in caught.value.one_line()
