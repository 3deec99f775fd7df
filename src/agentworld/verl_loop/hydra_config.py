"""What of verl's configuration the plug-in goes by, read from anything that has its attributes or keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentworld.config import ChannelSettings, SamplingOverrides
from agentworld.errors import ConfigError
from agentworld.records import Sampling
from agentworld.verl_loop.settings import LoopSettings, read_settings
from agentworld.verl_loop.station import Engines

LOOP = "agentworld"
"""The name of the agent loop."""
TARGET = "agentworld.verl_loop.agent_loop.AgentWorldLoop"


def overrides(loop_config: str | Path, *, v1: bool = True, asynchronous: bool = False) -> list[str]:
    """The hydra overrides that put the plug-in into verl; `loop_config`: what `write_loop_config` wrote.

    The sampler and the callback acknowledge with checkpoints; verl's former trainer (`v1` false) has no place for
    them. `asynchronous`: for the trainer modes other than sync.
    """
    agent = "actor_rollout_ref.rollout.agent"
    found = [
        f"{agent}.default_agent_loop={LOOP}",
        f"{agent}.agent_loop_config_path={Path(loop_config).resolve()}",
        "actor_rollout_ref.rollout.calculate_log_probs=True",
    ]
    if not v1:
        return [*found, "trainer.use_v1=False"]
    name = "RecordingReplayBufferAsync" if asynchronous else "RecordingReplayBuffer"
    return [
        *found,
        "trainer.use_v1=True",
        "trainer.v1.sampler.custom_sampler.path=pkg://agentworld.verl_loop.trainer",
        f"trainer.v1.sampler.custom_sampler.name={name}",
        "trainer.checkpoint_callback_class=agentworld.verl_loop.trainer.SettlingCallback",
    ]


def write_loop_config(settings_path: str | Path, path: str | Path) -> Path:
    """Write the file that `agent_loop_config_path` names, for a settings file; returns its path."""
    read_settings(settings_path)
    target = Path(path)
    target.write_text(f'- name: {LOOP}\n  _target_: {TARGET}\n  settings: "{Path(settings_path).resolve()}"\n')
    return target


def settings_of(config: Any) -> LoopSettings:
    """The settings that the agent loop of a run has; ConfigError where it has none of ours."""
    from omegaconf import OmegaConf

    path = config.actor_rollout_ref.rollout.agent.agent_loop_config_path
    for entry in OmegaConf.load(path) if path else ():
        if entry.get("_target_") == TARGET:
            return read_settings(entry.settings)
    raise ConfigError(
        "verl's configuration names no agent loop of AgentWorld",
        path="actor_rollout_ref.rollout.agent.agent_loop_config_path",
        hint="Use what agentworld.verl_loop.hydra_config.overrides gives",
    )


def engines_of(config: Any, settings: LoopSettings) -> Engines:
    """What the configuration says of the trainer's engines; ConfigError for those of which it is not known where in
    sampling they take log-probabilities.
    """
    rollout, model = config.actor_rollout_ref.rollout, config.actor_rollout_ref.model
    if rollout.name not in ("vllm", "sglang"):
        raise ConfigError(
            f"it is not known where in sampling {rollout.name} takes log-probabilities",
            path="actor_rollout_ref.rollout.name",
            hint="Use vllm or sglang",
        )
    tokenizer = settings.tokenizer or model.get("tokenizer_path") or model.path
    mode = str(rollout.get("logprobs_mode") or "raw_logprobs") if rollout.name == "vllm" else ""
    held = rollout.val_kwargs
    return Engines(
        tokenizer=str(tokenizer),
        context=int(rollout.get("max_model_len") or rollout.prompt_length + rollout.response_length),
        mode=mode,
        channels=(
            ("train", _fixed(rollout.temperature, rollout.top_p, rollout.top_k)),
            ("val", _fixed(held.temperature, held.top_p, held.top_k)),
        ),
    )


def _fixed(temperature: float, top_p: float, top_k: int) -> ChannelSettings:
    sampling = SamplingOverrides(temperature=float(temperature), top_p=float(top_p), top_k=max(0, int(top_k)))
    return ChannelSettings(sampling=sampling)


def sampling_of(given: Mapping[str, Any]) -> Sampling:
    """verl's sampling parameters of one rollout as ours."""
    return Sampling(
        temperature=float(given["temperature"]),
        top_p=float(given.get("top_p", 1.0)),
        top_k=max(0, int(given.get("top_k", 0))),
    )
