"""What the reference trainer can be told, for one method."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from agentworld.credit import CreditSpec
from agentworld.errors import ConfigError
from agentworld.merge import Convention
from agentworld.records.methods import METHODS, required_by
from agentworld.trainers.losses import TOP, Divergence
from agentworld.trainers.recipes import RECIPES, LossAggregation, Method

Schedule = Literal["constant", "cosine"]
Merging = Literal["auto", "on", "off"]
Critic = Literal["head", "annotation"]
_CLIPPED = tuple(name for name, recipe in RECIPES.items() if recipe.clip is not None)
_COMPARED: tuple[Method, ...] = ("dpo", "kto")
_NO_POLICY: tuple[Method, ...] = ("sft", *_COMPARED, "prm")
_OF_SOME: dict[str, tuple[Method, ...]] = {
    "beta": _COMPARED, "desirable_weight": ("kto",), "undesirable_weight": ("kto",), "threshold": ("kto", "prm"),
    "divergence": ("distill",), "teacher": ("distill",), "teacher_model": ("distill",),
}  # fmt: skip
_OF_CRITICS = ("value_weight", "value_clip")


class TrainSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the optimizer and the loss. What is None is the method's own (see recipes.py).

    `epochs`: passes over each batch. `rows_per_update`: sequences (pairs for dpo, trajectories for kto) in one
    optimizer update. `micro_tokens`: tokens in one forward pass, padded, or of the tree where it is merged;
    `micro_pairs`: likewise, pairs of a token and one that it attends to. `merging`: shared beginnings of an update's
    sequences are computed once; auto does so where that costs less, and leaves models that it does not know as they
    are. `shared`: what a token weighs that several sequences train. `verify_merging`: compare merged with flat on a
    part of the first update. `schedule`: the learning rate over the updates of one batch; cosine falls to a twentieth.
    `warmup`: updates of the trainer's life over which the learning rate rises from 0. `horizon`: what the sum over a
    trajectory's tokens is divided by, with the aggregation constant. `clip_low`, `clip_high`: bounds of the ratio
    around 1. `credit`: how rewards become advantages. `critic`: where the values of ppo come from: a head on the model
    that is trained with it, or stored annotations; `value_weight`: of its loss beside the policy's, `value_clip`: how
    far a value may move from the one that advantages were made from, in that loss. `head_learning_rate`: of such a
    head, or that of prm. `beta`: of dpo and kto; `desirable_weight`, `undesirable_weight`: of kto. `threshold`: of the
    reward that makes a trajectory (kto) or step (prm) good, the primary one. `divergence`: of distill.
    `teacher`: name of the annotation with the teacher's log-probabilities; `teacher_model`: the model whose own turns
    are imitated. `reference`: as `teacher`, of the reference's; without it those of the weights that the trainer began
    with. `reference_weight`, `entropy_weight`: of what is added to a policy's loss. `token_weights`: name of an
    annotation with factors of the loss, one a reply token or one a step. `threads`: of torch on the CPU.
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
    micro_pairs: int | None = None
    merging: Merging = "auto"
    shared: Convention = "per_path"
    verify_merging: bool = True
    schedule: Schedule = "constant"
    warmup: int = 0
    aggregation: LossAggregation | None = None
    horizon: int = 1024
    clip_low: float | None = None
    clip_high: float | None = None
    credit: CreditSpec | None = None
    critic: Critic = "head"
    value_weight: float = 0.1
    value_clip: float = 0.2
    head_learning_rate: float = 1e-3
    beta: float = 0.1
    desirable_weight: float = 1.0
    undesirable_weight: float = 1.0
    threshold: float = 0.5
    divergence: Divergence = "reverse_kl"
    teacher: str = "teacher_logprobs"
    teacher_model: str | None = None
    reference: str | None = None
    reference_weight: float = 0.0
    entropy_weight: float = 0.0
    token_weights: str | None = None
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        positive = (
            "learning_rate", "head_learning_rate", "gradient_norm", "epochs", "rows_per_update", "micro_tokens",
            "horizon", "beta", "desirable_weight", "undesirable_weight", "value_weight", "value_clip",
        )  # fmt: skip
        for name in positive:
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be over 0, not {getattr(self, name)}", path=name)
        for name in ("reference_weight", "entropy_weight", "weight_decay", "warmup", "seed"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be 0 or more, not {getattr(self, name)}", path=name)
        for name in ("micro_pairs", "threads"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be over 0, not {getattr(self, name)}", path=name)
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} must be from 0 to below 1, not {getattr(self, name)}", path=name)
        if not math.isfinite(self.threshold):
            raise ConfigError(f"threshold must be a number, not {self.threshold}", path="threshold")
        self._check_method()

    def _check_method(self) -> None:
        """Whether what is set goes with the method: a setting without effect would be believed in."""
        for name in ("clip_low", "clip_high"):
            if getattr(self, name) is not None and self.method not in _CLIPPED:
                raise ConfigError(f"{name} does not go with {self.method}", path=name, hint=_listed(_CLIPPED))
        if self.method in _CLIPPED:
            low, high = self.clip
            if not 0 < low < 1:
                raise ConfigError(f"clip_low must be between 0 and 1, not {low}", path="clip_low")
            if not high > 0:
                raise ConfigError(f"clip_high must be over 0, not {high}", path="clip_high")
        if self.method in _NO_POLICY:
            for name in ("reference_weight", "entropy_weight"):
                if getattr(self, name):
                    raise ConfigError(f"{name} does not go with {self.method}", path=name, hint="It is for policies")
        if self.method in _COMPARED:
            if self.shared != "per_path":
                raise ConfigError(
                    f"shared {self.shared} does not go with {self.method}",
                    path="shared",
                    hint="What is compared needs all of its tokens: use per_path",
                )
            if self.aggregation is not None:
                raise ConfigError(
                    f"aggregation does not go with {self.method}",
                    path="aggregation",
                    hint="What is compared is the sum of its tokens",
                )
        if self.token_weights is not None and self.method in (*_COMPARED, "prm"):
            raise ConfigError(
                f"token_weights does not go with {self.method}",
                path="token_weights",
                hint="What is compared, or judged, counts as a whole",
            )
        if self.reference is not None and self.method == "kto":
            raise ConfigError(
                "reference does not go with kto",
                path="reference",
                hint="Its estimate of the divergence is of replies to other questions, which no annotation is of",
            )
        if self.reference is not None and not self.uses_reference:
            raise ConfigError(
                "reference has no effect without reference_weight", path="reference", hint="Set reference_weight"
            )
        plain = {each.name: each.default for each in msgspec.structs.fields(self)}
        for name, methods in _OF_SOME.items():
            if getattr(self, name) != plain[name] and self.method not in methods:
                raise ConfigError(f"{name} does not go with {self.method}", path=name, hint=_listed(methods))
        for name in ("critic", *_OF_CRITICS, "head_learning_rate"):
            if getattr(self, name) != plain[name] and not self._has_effect(name):
                raise ConfigError(
                    f"{name} has no effect here",
                    path=name,
                    hint='It is for ppo with credit that needs values and critic = "head"'
                    + (", and for prm" if name == "head_learning_rate" else ""),
                )
        if self.horizon != plain["horizon"] and self.loss_aggregation != "constant":
            raise ConfigError(
                f"horizon does not go with {self.loss_aggregation}",
                path="horizon",
                hint='It is of aggregation "constant"',
            )
        if self.uses_top and self.entropy_weight:
            raise ConfigError(
                f"entropy_weight does not go with {self.divergence}", path="entropy_weight", hint="Use reverse_kl"
            )
        credit = self.credit_spec
        if self.credit is not None and credit is None:
            raise ConfigError(f"credit does not go with {self.method}", path="credit", hint="It uses no rewards")
        if credit is not None:
            credit.rule()

    def _has_effect(self, name: str) -> bool:
        """Whether one of the settings of heads has."""
        if name == "critic":
            return self._needs_values
        return self.uses_critic or (name == "head_learning_rate" and self.uses_head)

    @property
    def _needs_values(self) -> bool:
        """Whether advantages are made from values."""
        credit = self.credit_spec
        return self.method == "ppo" and credit is not None and "values" in credit.rule().needs

    @property
    def uses_critic(self) -> bool:
        """Whether the trainer has a critic of its own: a head whose numbers are values."""
        return self.critic == "head" and self._needs_values

    @property
    def uses_head(self) -> bool:
        """Whether there is a layer that makes one number of a hidden state, and is trained and kept with the model."""
        return self.uses_critic or self.method == "prm"

    @property
    def credit_spec(self) -> CreditSpec | None:
        """How rewards become advantages; None where the method uses none."""
        default = RECIPES[self.method].credit
        if default is None:
            return None
        return self.credit or CreditSpec(method=default[0], parameters=default[1])

    @property
    def loss_aggregation(self) -> LossAggregation:
        """What a token weighs."""
        return self.aggregation or RECIPES[self.method].aggregation

    @property
    def clip(self) -> tuple[float, float]:
        """How far the ratio may fall below 1 and rise above it."""
        low, high = RECIPES[self.method].clip or (0.0, 0.0)
        return low if self.clip_low is None else self.clip_low, high if self.clip_high is None else self.clip_high

    @property
    def annotations(self) -> tuple[str, ...]:
        """Names of the annotations that the loss reads from each step."""
        named = (
            self.teacher if self.method == "distill" else None,
            *(self.top_names if self.uses_top else ()),
            self.reference if self.uses_reference else None,
            self.token_weights,
        )
        return tuple(dict.fromkeys(name for name in named if name is not None))

    @property
    def uses_top(self) -> bool:
        """Whether the loss compares more than the sampled token with the teacher."""
        return self.method == "distill" and self.divergence in TOP

    @property
    def top_names(self) -> tuple[str, str]:
        """Names of the annotations with the teacher's likeliest ids in each place, and their log-probabilities."""
        stem = self.teacher.removesuffix("_logprobs")
        return f"{stem}_top_ids", f"{stem}_top_logprobs"

    @property
    def uses_reference(self) -> bool:
        """Whether the loss has a reference model in it."""
        return self.method in _COMPARED or self.reference_weight > 0

    @property
    def requires(self) -> tuple[str, ...]:
        """What each step of a batch must have, in the words of `BatchSpec.require`."""
        credit = self.credit_spec
        stored = credit is not None and "values" in credit.rule().needs and not self.uses_critic
        values = (f"annotation.{credit.values}",) if credit is not None and stored else ()
        named = (*values, *(f"annotation.{name}" for name in self.annotations))
        return required_by(self.method, ("tokens", *named))

    @property
    def needs_logprobs(self) -> bool:
        """Whether steps must have the log-probabilities that they were sampled with; else they count where they are."""
        return "logprobs" in METHODS[self.method].needs


def _listed(names: tuple[str, ...]) -> str:
    return f"It is for {', '.join(names)}"
