"""What the reference trainer can be told, for one method."""

from __future__ import annotations

from typing import Literal

import msgspec

from agentworld.credit import Aggregation, CreditSpec
from agentworld.errors import ConfigError

Method = Literal["sft", "grpo"]
Schedule = Literal["constant", "cosine"]


class TrainSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the optimizer and the loss.

    `epochs`: passes over each batch. `rows_per_update`: sequences in one optimizer update. `micro_tokens`: padded
    tokens in one forward pass. `schedule`: the learning rate over the updates of one batch; cosine falls to a
    twentieth. `warmup`: updates of the trainer's life over which the learning rate rises from 0. `clip_low`,
    `clip_high`: bounds of the ratio around 1 (grpo). `credit`: how rewards become advantages (grpo). `threads`:
    of torch on the CPU.
    """

    method: Method = "sft"
    learning_rate: float = 1e-3
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    gradient_norm: float = 1.0
    epochs: int = 1
    rows_per_update: int = 16
    micro_tokens: int = 4096
    schedule: Schedule = "constant"
    warmup: int = 0
    aggregation: Aggregation = "token_mean"
    clip_low: float = 0.2
    clip_high: float = 0.28
    credit: CreditSpec = CreditSpec()
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        positive = ("learning_rate", "gradient_norm", "epochs", "rows_per_update", "micro_tokens")
        for name in positive:
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be over 0, not {getattr(self, name)}", path=name)
        if not 0 < self.clip_low < 1:
            raise ConfigError(f"clip_low must be between 0 and 1, not {self.clip_low}", path="clip_low")
        if self.clip_high <= 0:
            raise ConfigError(f"clip_high must be over 0, not {self.clip_high}", path="clip_high")
        self.credit.rule()
