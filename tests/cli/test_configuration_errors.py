"""What is said about a wrong settings file: the field, and the way out."""

import pytest

from agentworld.agents.run_config import RunConfig
from agentworld.config import ServeSettings, convert
from agentworld.errors import ConfigError

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
