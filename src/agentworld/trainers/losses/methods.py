"""The loss of a micro-batch by the method's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentworld.errors import ConfigError
from agentworld.trainers.losses.distillation import (
    TOP,
    forward_kl_loss,
    reverse_kl_loss,
    top_forward_kl_loss,
    top_reverse_kl_loss,
)
from agentworld.trainers.losses.imitation import imitation_loss
from agentworld.trainers.losses.policy import (
    PolicyLoss,
    clipped_policy_loss,
    policy_kl,
    reinforce_loss,
    sequence_policy_loss,
)
from agentworld.trainers.losses.preference import preference_loss
from agentworld.trainers.losses.regularisers import entropy_bonus, reference_penalty
from agentworld.trainers.losses.terms import Loss, Terms
from agentworld.trainers.losses.unpaired import unpaired_loss
from agentworld.trainers.losses.values import value_loss

if TYPE_CHECKING:
    import torch

    from agentworld.trainers.settings import TrainSettings


def loss_of(terms: Terms, settings: TrainSettings) -> Loss:
    """The method's loss with what the settings add to it."""
    method = settings.method
    if method == "sft":
        return Loss(imitation_loss(terms.logprobs, terms.weights), {}, {})
    if method == "dpo":
        found = preference_loss(
            terms.logprobs,
            _given(terms.reference, "reference"),
            terms.row,
            terms.unit,
            terms.preferred,
            weight=terms.unit_weight,
            beta=settings.beta,
        )
        won = float((found.margins > 0).sum())
        return Loss(found.loss, {}, {"accuracy": won, "margin": float(found.margins.sum())})
    if method == "kto":
        judged = unpaired_loss(
            terms.logprobs,
            _given(terms.reference, "reference"),
            terms.row,
            terms.unit,
            terms.preferred,
            divergence=terms.divergence,
            weight=terms.unit_weight,
            beta=settings.beta,
            desirable_weight=settings.desirable_weight,
            undesirable_weight=settings.undesirable_weight,
        )
        units = float(len(judged.right))
        return Loss(judged.loss, {}, {"accuracy": float(judged.right.sum()), "kl": terms.divergence * units})
    value, figures = _policy(terms, settings)
    if settings.reference_weight:
        reference = _given(terms.reference, "reference")
        value = value + settings.reference_weight * reference_penalty(terms.logprobs, reference, terms.weights)
    if settings.entropy_weight:
        value = value + settings.entropy_weight * entropy_bonus(_given(terms.entropies, "entropies"), terms.weights)
    if terms.values is not None:
        critic = value_loss(
            terms.values,
            _given(terms.old_values, "old_values"),
            _given(terms.returns, "returns"),
            terms.weights,
            clip=settings.value_clip,
        )
        value = value + settings.value_weight * critic.loss
        figures["value_error"], figures["value_clipped"] = float(critic.errors.sum()), float(critic.clipped.sum())
    if terms.entropies is not None:
        figures["entropy"] = float(terms.entropies.detach().sum())
    return Loss(value, figures, {})


def _policy(terms: Terms, settings: TrainSettings) -> tuple[torch.Tensor, dict[str, float]]:
    if settings.method in ("reinforce", "rloo"):
        value = reinforce_loss(terms.logprobs, terms.advantages, terms.weights)
        return value, {"kl": float(policy_kl(terms.logprobs, terms.old).sum())}
    if settings.method == "distill":
        return _distilled(terms, settings)
    found = _clipped(terms, settings)
    return found.loss, {"clipped": float(found.clipped.sum()), "kl": float(found.kl.sum())}


def _distilled(terms: Terms, settings: TrainSettings) -> tuple[torch.Tensor, dict[str, float]]:
    """The divergence from the teacher on what the student sampled, and imitation of what the teacher said itself."""
    teacher, old, weights = _given(terms.teacher, "teacher"), terms.old, terms.weights
    figures = {"teacher_gap": float((terms.logprobs.detach() - teacher).sum())}
    value = weights.new_zeros(())
    if terms.taught is not None:
        taught = terms.taught.to(weights.dtype)
        value = imitation_loss(terms.logprobs, weights * taught)
        weights = weights * (1.0 - taught)
        # Ratios there would not be of two students, and may overflow, which times a weight of 0 is no number.
        old, teacher = (each.where(taught == 0, terms.logprobs.detach()) for each in (old, teacher))
        figures["taught"] = float(taught.sum())
    figures["kl"] = float(policy_kl(terms.logprobs, old).sum())
    if settings.divergence in TOP:
        compared = top_reverse_kl_loss if settings.divergence == "top_reverse_kl" else top_forward_kl_loss
        own = compared(_given(terms.top, "top"), _given(terms.teacher_top, "teacher_top"), weights)
    else:
        loss = reverse_kl_loss if settings.divergence == "reverse_kl" else forward_kl_loss
        own = loss(terms.logprobs, old, teacher, weights)
    return value + own, figures


def _clipped(terms: Terms, settings: TrainSettings) -> PolicyLoss:
    low, high = settings.clip
    given = (terms.logprobs, terms.old, terms.advantages, terms.weights)
    if settings.method == "gspo":
        return sequence_policy_loss(*given, terms.row, clip_low=low, clip_high=high)
    return clipped_policy_loss(*given, clip_low=low, clip_high=high)


def _given(values: torch.Tensor | None, name: str) -> torch.Tensor:
    if values is None:
        raise ConfigError(f"the loss needs {name} that the terms do not have", path=name)
    return values
