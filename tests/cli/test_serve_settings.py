import asyncio
import socket
from typing import get_args

import pytest

from agentworld.cli import serve as serving
from agentworld.config import TOKENIZERS, DriverName, ModelSettings
from agentworld.engines import qwen3_vocabulary
from agentworld.engines.base import open_engine
from agentworld.engines.builtin import models
from agentworld.engines.builtin.pocket_tokenizer import POCKET_TOKENIZER_PATH
from agentworld.engines.tokenizer import load_tokenizer

ENGINE = "http://127.0.0.1:8000"


@pytest.fixture
def settings(cli, monkeypatch):
    """Runs `agentworld serve` up to the point where it would serve; returns its settings."""
    seen = []
    monkeypatch.setattr(serving, "run", lambda settings, **options: seen.append(settings))

    def run(*arguments):
        code, _, err = cli("serve", *arguments)
        assert code == 0, err
        return seen.pop()

    return run


def config(tmp_path, text):
    path = tmp_path / "factory.toml"
    path.write_text(text)
    return path


FILE = """
pool = "sqlite:///file.db"
port = 1111
workers = 3
[[models]]
name = "a"
upstream = "http://127.0.0.1:1"
api_key = "from-file"
"""


def test_defaults_serve_the_control_api_alone(settings):
    found = settings()
    assert (found.pool, found.host, found.port, found.workers, found.models) == (
        "sqlite:///agentworld.db", "127.0.0.1", 8400, 1, (),
    )  # fmt: skip


def test_options_describe_one_model(settings):
    found = settings("--upstream", ENGINE, "--model", "m", "--driver", "builtin", "--tokens", "engine")
    assert found.models == (ModelSettings(name="m", upstream=ENGINE, driver="builtin", tokens="engine"),)


def test_several_upstreams_are_engines_of_the_one_model(settings, tmp_path, monkeypatch):
    more = ("http://127.0.0.1:8001", "http://127.0.0.1:8002")
    (model,) = settings("--upstream", ENGINE, "--upstream", more[0], "--upstream", more[1], "--model", "m").models
    assert (model.upstream, model.upstreams) == (ENGINE, more)
    monkeypatch.setenv("AGENTWORLD_UPSTREAM", f"{ENGINE} {more[0]}")
    assert settings("--model", "m").models[0].addresses == (ENGINE, more[0])
    # They take the place of those in the file.
    text = '[[models]]\nname = "m"\nupstream = "http://127.0.0.1:1"\nupstreams = ["http://127.0.0.1:2"]\n'
    path = config(tmp_path, text)
    (model,) = settings("--config", path, "--upstream", ENGINE).models
    assert model.addresses == (ENGINE,)
    monkeypatch.delenv("AGENTWORLD_UPSTREAM")
    assert settings("--config", path).models[0].addresses == ("http://127.0.0.1:1", "http://127.0.0.1:2")


def test_command_line_before_environment_before_file(settings, tmp_path, monkeypatch):
    path = config(tmp_path, FILE)
    monkeypatch.setenv("AGENTWORLD_PORT", "2222")
    monkeypatch.setenv("AGENTWORLD_WORKERS", "2")
    found = settings("--config", path, "--port", "3333")
    assert (found.pool, found.port, found.workers) == ("sqlite:///file.db", 3333, 2)
    assert found.models[0].api_key == "from-file"


def test_options_change_the_model_of_the_file(settings, tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTWORLD_UPSTREAM_API_KEY", "from-environment")
    (model,) = settings("--config", config(tmp_path, FILE), "--upstream", ENGINE).models
    assert (model.name, model.upstream, model.api_key) == ("a", ENGINE, "from-environment")
    (model,) = settings("--config", config(tmp_path, FILE)).models
    assert (model.upstream, model.api_key) == ("http://127.0.0.1:1", "from-environment")
    assert settings().models == ()
    both = settings("--config", config(tmp_path, FILE), "--model", "b", "--upstream", ENGINE).models
    assert [model.name for model in both] == ["a", "b"]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_tokenizer_can_be_named(settings, monkeypatch, name):
    (model,) = settings("--upstream", ENGINE, "--model", "m", "--tokenizer", name).models
    assert model.tokenizer == name
    monkeypatch.setattr(models, "smollm2_directory", lambda: POCKET_TOKENIZER_PATH)
    monkeypatch.setattr(qwen3_vocabulary, "qwen3_directory", lambda: POCKET_TOKENIZER_PATH)
    assert load_tokenizer(name).vocab_size > 256


def test_a_tokenizer_of_the_home_folder_is_found(settings, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    assert settings("--upstream", ENGINE, "--model", "m", "--tokenizer", "~/tokenizer.json").models


def test_every_driver_that_is_offered_can_be_opened():
    for driver in get_args(DriverName):
        asyncio.run(open_engine(ModelSettings(name="m", upstream=ENGINE, driver=driver), 1.0).close())


def test_agents_can_be_sent_elsewhere(settings):
    assert settings("--gateway-url", "https://gateway.example/x").gateway_url == "https://gateway.example/x"


def test_localhost_is_an_address(settings):
    assert settings("--host", "localhost").host == "127.0.0.1"
    assert settings("--host", "::1").host == "::1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--upstream", ENGINE], "Add --model NAME"),
        (["--model", "m"], "Add --upstream URL"),
        (["--model", "m", "--upstream", "127.0.0.1:8000"], "not the address of an engine"),
        (["--model", "m", "--upstream", ENGINE, "--driver", "vlm"], "Use vllm, sglang, llamacpp"),
        (["--model", "m", "--upstream", ENGINE, "--tokens", "some"], "Use auto, engine"),
        (["--model", "m", "--upstream", ENGINE, "--tokenizer", "/none"], "tokenizer /none of model m does not exist"),
        (["--host", "0.0.0.0", "--pool", "memory://"], "memory has no keys"),
        (["--require-keys", "--pool", "memory://"], "memory has no keys"),
        (["--host", "nonsense"], "not an IP address"),
        (["--gateway-url", "gateway.example:443"], "no address that agents can call"),
        (["--gateway-url", "https://[x"], "no address that agents can call"),
        (["--gateway-url", "https://gateway.example:99999"], "no address that agents can call"),
        (["--port", "70000"], "65535"),
        (["--workers", "0"], "workers"),
        (["--pool", "memory://", "--workers", "2"], "do not share a pool in memory"),
        (["--log-level", "loud"], "no log level"),
    ],
)
def test_a_wrong_command_line_is_refused_with_what_to_do(refused, arguments, said):
    assert said in refused("serve", *arguments, code=2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "no key with the scope admin"),
        (["--require-keys"], "no key with the scope admin"),
        (["--pool", "mysql://x", "--port", "0"], "no pool at"),
        (["--pool", "sqlite:////none/x.db", "--port", "0"], "does not exist"),
        (["--config", "none.toml"], "none.toml does not exist"),
    ],
)
def test_what_cannot_be_served_is_refused_with_what_to_do(refused, arguments, said):
    assert said in refused("serve", *arguments)


def test_an_option_that_is_wrong_beside_a_file_is_still_one_of_the_command_line(refused, tmp_path):
    path = config(tmp_path, "workers = 1\nport = 70000")
    assert "workers 0" in refused("serve", "--config", path, "--port", "1", "--workers", "0", code=2)
    assert "port 70000" in refused("serve", "--config", path, "--workers", "1", code=1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port = ", "not valid TOML"),
        ("prot = 1", "unknown field `prot`"),
        ('port = "many"', "$.port"),
        ("models = 1", "$.models"),
        ('[[models]]\nname = "m"', "upstream"),
        ('[[models]]\nname = "m"\nupstream = "http://x"\ncolour = 1', "$.models[0]"),
    ],
)
def test_a_wrong_file_is_refused_where_it_is_wrong(refused, tmp_path, text, said):
    line = refused("serve", "--config", config(tmp_path, text))
    assert said in line
    assert "factory.toml" in line


def test_a_file_that_is_no_text_is_refused(refused, tmp_path):
    path = tmp_path / "factory.toml"
    path.write_bytes(b"\xff\xfe")
    assert "cannot be read" in refused("serve", "--config", path)


def test_a_port_that_answers_is_refused(refused):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        line = refused("serve", "--pool", "memory://", "--port", taken.getsockname()[1])
    assert "Address already in use" in line
    assert "--port 0" in line


def test_a_free_port_is_found():
    port = serving.reserve_port("127.0.0.1", 0)
    assert port > 0
    assert serving.reserve_port("127.0.0.1", port) == port
