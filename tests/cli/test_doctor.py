import contextlib
import http.server
import socket
import sqlite3
import threading
from unittest.mock import ANY

import msgspec
import pytest

from agentworld.cli import engine_checks
from agentworld.cli.findings import bad
from agentworld.engines.builtin.pocket_tokenizer import POCKET_TOKENIZER_PATH
from agentworld.engines.tokenizer import byte_tokenizer, load_tokenizer
from agentworld.engines.vllm import VllmEngine
from agentworld.errors import ConfigError, EngineError, PoolError
from agentworld.factory import open_pool
from agentworld.testing import ScriptedEngine, ScriptedReply, WireFaults
from tests.api.serving import Serving


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def lines_of(out, subject):
    return [line for line in out.splitlines() if f" {subject} " in line]


def test_all_is_well(cli, tmp_path, port):
    pool = f"sqlite:///{tmp_path}/pool.db"
    open_pool(pool).close()
    with ScriptedEngine(lambda request: "four", model="m") as engine:
        code, out, err = cli(
            "doctor", "--pool", pool, "--upstream", engine.url, "--model", "m", "--driver", "builtin", "--port", port
        )
    assert (code, err) == (0, ""), out
    assert "Nothing needs mending" in out
    assert "ids and log-probabilities come back" in out
    assert "holds 0 trajectories" in out
    assert f"{port} is free" in out


def test_a_pool_is_looked_at_and_not_made(cli, tmp_path, port):
    code, out, _ = cli("doctor", "--pool", f"sqlite:///{tmp_path}/pool.db", "--port", port)
    assert code == 0
    assert "will be made" in out
    assert not (tmp_path / "pool.db").exists()


def test_faults_come_with_what_to_do(cli, tmp_path, port):
    code, out, _ = cli(
        "doctor", "--pool", f"sqlite:///{tmp_path}/none/pool.db", "--upstream", f"http://127.0.0.1:{port}",
        "--model", "m", "--port", port,
    )  # fmt: skip
    assert code == 1
    assert "mkdir -p" in lines_of(out, "pool")[0]
    assert lines_of(out, "model m")[0].startswith("FIX")
    assert "2 of" in out


def test_a_file_that_is_no_pool(cli, tmp_path, port):
    (tmp_path / "pool.db").write_text("this is no database, but a text that is long enough to be taken for one" * 20)
    code, out, _ = cli("doctor", "--pool", f"sqlite:///{tmp_path}/pool.db", "--port", port)
    assert code == 1
    assert lines_of(out, "pool")[0].startswith("FIX")


def test_a_model_that_the_engine_does_not_serve(cli, port):
    with ScriptedEngine(lambda request: "four", model="m") as engine:
        arguments = ("--upstream", engine.url, "--model", "other", "--driver", "builtin")
        code, out, _ = cli("doctor", "--port", port, *arguments)
    assert code == 1
    assert "the engine serves m" in out


def test_an_engine_without_ids(cli, port):
    with ScriptedEngine(lambda request: ScriptedReply(text="four", faults=WireFaults(without_ids=True))) as engine:
        arguments = ("--upstream", engine.url, "--model", engine.model, "--driver", "builtin", "--tokens", "engine")
        code, out, _ = cli("doctor", "--port", port, *arguments)
    assert code == 1
    assert "no ids" in lines_of(out, "tokens")[0]
    assert "--tokens token-in" in lines_of(out, "tokens")[0]


def doctor_of(cli, engine, port, *more):
    arguments = ("--upstream", engine.url, "--model", engine.model, "--port", port)
    code, out, err = cli("doctor", *arguments, *more)
    assert err == ""
    return code, out


@pytest.mark.parametrize("driver", ["builtin", "vllm"])
def test_a_tokenizer_of_another_model_is_noticed(cli, port, driver):
    with ScriptedEngine("four", tokenizer=byte_tokenizer()) as engine:
        code, out = doctor_of(cli, engine, port, "--driver", driver, "--tokenizer", str(POCKET_TOKENIZER_PATH))
    assert code == 1
    line = lines_of(out, "tokenizer")[0]
    assert line.startswith("FIX")
    assert "is not that of the engine" in line
    assert "give the folder or tokenizer.json" in line


@pytest.mark.parametrize("driver", ["builtin", "vllm"])
def test_the_right_tokenizer_is_fine(cli, port, driver):
    with ScriptedEngine("four", tokenizer=load_tokenizer("pocket")) as engine:
        code, out = doctor_of(cli, engine, port, "--driver", driver, "--tokenizer", str(POCKET_TOKENIZER_PATH))
    assert code == 0, out
    assert "its vocabulary is the engine's" in lines_of(out, "tokenizer")[0]


@pytest.mark.parametrize(
    ("theirs", "state", "said"),
    [("pocket", "ok", "renders the same prompt"), ("byte", "FIX", "cannot read the ids of the engine's prompt")],
)
def test_without_a_digest_the_prompts_are_compared(cli, port, monkeypatch, theirs, state, said):
    told = VllmEngine.models

    async def untold(engine):
        return [msgspec.structs.replace(card, vocabulary=None) for card in await told(engine)]

    monkeypatch.setattr(VllmEngine, "models", untold)
    with ScriptedEngine("four", tokenizer=load_tokenizer(theirs)) as engine:
        code, out = doctor_of(cli, engine, port, "--tokenizer", str(POCKET_TOKENIZER_PATH))
    assert code == (state == "FIX")
    line = lines_of(out, "tokenizer")[0]
    assert line.startswith(state)
    assert said in line


def test_another_rendering_of_the_same_vocabulary_is_no_fault():
    text = f"<sys>Be kind.</sys>{engine_checks.PROBE_TEXT}"
    assert engine_checks.compare_prompts(text, False, "fix").state == "info"
    assert engine_checks.compare_prompts("qwertz", False, "fix") == ("bad", "tokenizer", ANY, "fix")


def test_our_own_engine_is_not_taken_for_another_kind(cli, port):
    with ScriptedEngine("four") as engine:
        code, out = doctor_of(cli, engine, port)
        assert code == 0
        (line,) = lines_of(out, f"model {engine.model}")
        assert line.startswith("-")
        assert "is taken for vllm" in line
        assert line.rstrip().endswith("--driver builtin")
        assert "JSON schemas" not in out
        _, out = doctor_of(cli, engine, port, "--driver", "builtin")
        assert lines_of(out, f"model {engine.model}")[0].startswith("ok")


AUTO_TOOLS = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'


@pytest.mark.parametrize(
    ("driver", "message", "state", "fix"),
    [
        ("vllm", AUTO_TOOLS, "FIX", "--enable-auto-tool-choice --tool-call-parser NAME"),
        ("vllm", "this model's chat template has no place for tools", "-", "serve a model whose template has them"),
        ("builtin", "this model's chat template has no place for tools", "-", "serve a model whose template has them"),
    ],
)
def test_the_advice_on_tools_fits_the_engine(cli, port, driver, message, state, fix):
    def script(request):
        if request.tools:
            return ScriptedReply(status=400, error_body={"error": {"message": message, "code": 400}})
        return "four"

    with ScriptedEngine(script) as engine:
        code, out = doctor_of(cli, engine, port, "--driver", driver)
    assert code == (state == "FIX")
    (line,) = lines_of(out, "tool calls")
    assert line.startswith(state)
    assert line.rstrip().endswith(fix)


@pytest.mark.parametrize("error", [EngineError("out of cheese"), ConfigError("no", path="port"), PoolError("no")])
def test_what_is_to_be_mended_always_says_how(error):
    assert bad("x", error).fix
    assert bad("x", type(error)("no", hint="Do this")).fix == "Do this"


def test_an_engine_that_fails_is_to_be_mended_with_a_place_to_look(cli, port):
    with ScriptedEngine(lambda request: ScriptedReply(status=500, error_body={"error": "broken"})) as engine:
        code, out = doctor_of(cli, engine, port, "--driver", "builtin")
    assert code == 1
    (line,) = lines_of(out, f"model {engine.model}")
    assert line.startswith("FIX")
    assert "log" in line


def test_an_empty_file_and_an_older_schema_are_left_as_they_are(cli, tmp_path, port):
    path = tmp_path / "pool.db"
    path.touch()
    code, out, _ = cli("doctor", "--pool", f"sqlite:///{path}", "--port", port)
    assert code == 0
    assert "is empty" in lines_of(out, "pool")[0]
    assert path.stat().st_size == 0
    path.unlink()
    open_pool(f"sqlite:///{path}").close()
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0000'")
    before = path.read_bytes()
    assert "agentworld pool migrate" in cli("doctor", "--pool", f"sqlite:///{path}", "--port", port)[1]
    assert path.read_bytes() == before


def test_wrong_settings_are_one_of_the_findings(cli):
    code, out, _ = cli("doctor", "--model", "m")
    assert code == 1
    assert "--upstream URL" in out


def test_a_server_that_asks_for_keys_is_ours_too(cli):
    with Serving(require_keys=True) as server:
        code, out, _ = cli("doctor", "--port", server.url.rsplit(":", 1)[1])
        assert (code, "a server answers" in out) == (0, True)


def test_another_that_asks_for_keys_is_not(cli):
    class Closed(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(401)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Closed) as other:
        serving = threading.Thread(target=other.serve_forever)
        serving.start()
        code, out, _ = cli("doctor", "--port", other.server_address[1])
        other.shutdown()
        serving.join()
    assert (code, lines_of(out, "port")[0].startswith("FIX")) == (1, True)


def test_a_port_with_our_server_is_fine_and_another_is_not(cli):
    with Serving() as server:
        code, out, _ = cli("doctor", "--port", server.url.rsplit(":", 1)[1])
        assert code == 0
        assert "a server answers" in out
    with ScriptedEngine("four") as other:
        code, out, _ = cli("doctor", "--port", other.url.rsplit(":", 1)[1])
        assert code == 1
        assert lines_of(out, "port")[0].startswith("FIX")
