import socket

import pytest

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


def test_wrong_settings_are_one_of_the_findings(cli):
    code, out, _ = cli("doctor", "--model", "m")
    assert code == 1
    assert "--upstream URL" in out


def test_a_port_with_our_server_is_fine_and_another_is_not(cli):
    with Serving() as server:
        code, out, _ = cli("doctor", "--port", server.url.rsplit(":", 1)[1])
        assert code == 0
        assert "a server answers" in out
    with ScriptedEngine("four") as other:
        code, out, _ = cli("doctor", "--port", other.url.rsplit(":", 1)[1])
        assert code == 1
        assert lines_of(out, "port")[0].startswith("FIX")
