"""What is said about a wrong settings file: the field, and the way out."""

import ast
from pathlib import Path

import pytest

import agentworld
from agentworld.agents.run_config import RunConfig
from agentworld.cli.serve import settings_from
from agentworld.config import ServeSettings, convert
from agentworld.dialects import chat_reply, messages_reply
from agentworld.engines.surface import openai_error
from agentworld.errors import ConfigError, InvalidRequestError

SOURCES = Path(agentworld.__file__).parent

MODEL = {"name": "m", "upstream": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (ServeSettings, {"pol": "x"}, "unknown field `pol`. Did you mean pool?"),
        (ServeSettings, {"zzz": 1}, "Known fields: pool, models, host,"),
        (ServeSettings, {"models": [{**MODEL, "drivr": "vllm"}]}, "(at $.models[0]). Did you mean driver?"),
        (
            ServeSettings,
            {"models": [{**MODEL, "driver": "vlm"}]},
            "Use anthropic, builtin, llamacpp, openai, sglang, vllm",
        ),
        (
            RunConfig,
            {"model": "m", "task_sets": [], "agents": [], "sampling": {"temprature": 1}},
            "(at $.sampling). Did you mean temperature?",
        ),
        (
            ServeSettings,
            {"channels": {"val": {}, "judge": {"samplin": {}}}},
            "(at $.channels.judge). Did you mean sampling?",
        ),
        (
            ServeSettings,
            {"channels": {"val": {}, "my judge": {"sampling": {"seed": "x"}}}},
            "(at $.channels['my judge'].sampling.seed)",
        ),
        (
            ServeSettings,
            {"mix": [{"name": "x", "base": "m", "shares": {"good": [[0, 0.5]], "bad": [[0, 0.5], [1, 7]]}}]},
            "(at $.mix[0].shares.bad[1][1])",
        ),
    ],
)
def test_an_unknown_field_or_value_comes_with_the_known_ones(kind, data, said):
    with pytest.raises(ConfigError) as caught:
        convert(data, kind, "my.toml")
    assert said in caught.value.one_line()
    assert caught.value.one_line().startswith("my.toml: ")


def test_the_text_of_an_error_says_what_to_do_once():
    error = ConfigError("it is so", path="port", hint="Do this")
    assert str(error) == error.one_line() == "it is so (at port). Do this"
    assert str(ConfigError("bare")) == "bare"


@pytest.mark.parametrize("message", ["no completion.", "no completion"])
def test_message_and_hint_are_sentences_with_one_stop_between_them(message):
    error = InvalidRequestError(message, hint="Shorten it")
    assert error.one_line() == error.advice() == "no completion. Shorten it"
    placed = InvalidRequestError(message, path="messages", hint="Shorten it")
    assert placed.one_line() == "no completion (at messages). Shorten it"
    said = [chat_reply.error_body(placed), messages_reply.error_body(placed), openai_error(placed)]
    assert all("no completion. Shorten it" in body["error"]["message"] for body in said)


def test_hints_begin_like_sentences_or_are_commands():
    wrong = []
    for file in SOURCES.rglob("*.py"):
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if "hint" in text else ():
            if isinstance(node, ast.keyword) and node.arg == "hint":
                value = node.value.values[0] if isinstance(node.value, ast.JoinedStr) else node.value
                hint = value.value if isinstance(value, ast.Constant) else None
                if isinstance(hint, str) and hint[:1].islower() and not hint.startswith("pip install"):
                    wrong.append(f"{file.name}: {hint}")
    assert not wrong


SERVED = """
[[models]]
name = "m"
upstream = "http://127.0.0.1:1"
[[models]]
name = "other"
upstream = "http://127.0.0.1:2"
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("http://127.0.0.1:2", "127.0.0.1:2", "'127.0.0.1:2' of model other is not the address of an engine"),
        ('"other"', '"m"', "two models are named 'm'"),
        (':2"', ":2\"\ntokenizer = 'none'", "tokenizer none of model other does not exist"),
    ],
)
def test_what_is_wrong_in_a_server_s_file_names_the_file_and_the_model(tmp_path, old, new, said):
    file = tmp_path / "serve.toml"
    file.write_text(SERVED.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        settings_from(file, {}, {}, None)
    assert caught.value.one_line().startswith(f"{file}: {said}")
