"""What the plug-in reads of verl's configuration."""

from types import SimpleNamespace

import pytest

from agentworld.errors import ConfigError
from agentworld.verl_loop.hydra_config import engines_of
from agentworld.verl_loop.settings import LoopSettings, read_settings


class Section(SimpleNamespace):
    """Attributes that can be asked for by name, as those of OmegaConf."""

    def get(self, name, default=None):
        return getattr(self, name, default)


def configuration(**rollout):
    held = Section(temperature=0, top_p=1.0, top_k=-1)
    fields = {"prompt_length": 100, "response_length": 28, "temperature": 0.7, "top_p": 0.9, "top_k": -1, "n": 2}
    made = Section(**{**fields, "val_kwargs": held, "name": "vllm", "logprobs_mode": "processed_logprobs", **rollout})
    return Section(actor_rollout_ref=Section(rollout=made, model=Section(path="/models/m")))


def test_engines_are_as_the_rollouts_say():
    settings = LoopSettings(pool="memory://")
    engines = engines_of(configuration(), settings)
    assert (engines.tokenizer, engines.context, engines.mode) == ("/models/m", 128, "processed_logprobs")
    channels = dict(engines.channels)
    train, val = channels["train"].sampling, channels["val"].sampling
    assert (train.temperature, train.top_p, train.top_k, val.temperature) == (0.7, 0.9, 0, 0.0)
    assert engines_of(configuration(name="sglang"), settings).mode == ""
    assert engines_of(configuration(max_model_len=64), settings).context == 64
    with pytest.raises(ConfigError, match=r"where in sampling trtllm takes log-probabilities .*Use vllm or sglang"):
        engines_of(configuration(name="trtllm"), settings)


@pytest.mark.parametrize(
    ("text", "said_so"),
    [
        ("consumer = 'verl'", "pool"),
        ("pool = 'memory://'\nattempts = 0", r"loop\.toml: .*attempts"),
        ("pool = 'memory://'\nconsmer = 'c'", "Did you mean consumer"),
        ("pool = 'memory://'\n[agent]\nkind = 'command'\ncommand = ['a']\nlines = true", "takes lines"),
    ],
)
def test_settings_that_cannot_be_are_named(tmp_path, text, said_so):
    (tmp_path / "loop.toml").write_text(text)
    with pytest.raises(ConfigError, match=said_so):
        read_settings(tmp_path / "loop.toml")
