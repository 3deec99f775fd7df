"""The losses, each a formula with its source, over flat tensors of the trained tokens of a micro-batch."""

from agentworld.trainers.losses.distillation import (
    TOP,
    Divergence,
    forward_kl_loss,
    reverse_kl_loss,
    top_forward_kl_loss,
    top_reverse_kl_loss,
)
from agentworld.trainers.losses.imitation import imitation_loss
from agentworld.trainers.losses.methods import loss_of
from agentworld.trainers.losses.policy import (
    PolicyLoss,
    clipped_policy_loss,
    policy_kl,
    reinforce_loss,
    sequence_policy_loss,
)
from agentworld.trainers.losses.preference import PreferenceLoss, preference_loss
from agentworld.trainers.losses.regularisers import entropy_bonus, reference_penalty
from agentworld.trainers.losses.stepwise import StepwiseLoss, stepwise_loss
from agentworld.trainers.losses.terms import Loss, Terms
from agentworld.trainers.losses.unpaired import UnpairedLoss, unpaired_loss
from agentworld.trainers.losses.values import ValueLoss, value_loss

__all__ = [
    "TOP",
    "Divergence",
    "Loss",
    "PolicyLoss",
    "PreferenceLoss",
    "StepwiseLoss",
    "Terms",
    "UnpairedLoss",
    "ValueLoss",
    "clipped_policy_loss",
    "entropy_bonus",
    "forward_kl_loss",
    "imitation_loss",
    "loss_of",
    "policy_kl",
    "preference_loss",
    "reference_penalty",
    "reinforce_loss",
    "reverse_kl_loss",
    "sequence_policy_loss",
    "stepwise_loss",
    "top_forward_kl_loss",
    "top_reverse_kl_loss",
    "unpaired_loss",
    "value_loss",
]
