"""What each method means where the settings say nothing else: credit, aggregation and clip, as its paper has them."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Method = Literal[
    "sft",
    "reinforce",
    "reinforce_pp",
    "rloo",
    "grpo",
    "dr_grpo",
    "dapo",
    "gspo",
    "gigpo",
    "ppo",
    "dpo",
    "kto",
    "prm",
    "distill",
]
# token_mean: every token of an update counts the same. trajectory_mean: every trajectory does, and its tokens share its
# weight. trajectory_sum: a trajectory counts as the sum of its tokens. constant: that sum divided by `horizon`.
LossAggregation = Literal["token_mean", "trajectory_mean", "trajectory_sum", "constant"]


class Recipe(NamedTuple):
    """`credit`: method and parameters of agentworld.credit; None where rewards play no part. `clip`: how far the ratio
    may fall below and rise above 1; None for losses without one.
    """

    aggregation: LossAggregation
    credit: tuple[str, dict[str, Any]] | None = None
    clip: tuple[float, float] | None = None


RECIPES: dict[str, Recipe] = {
    "sft": Recipe("token_mean"),
    "reinforce": Recipe("trajectory_sum", ("discounted", {})),
    "reinforce_pp": Recipe("token_mean", ("reinforce_plus_plus", {}), (0.2, 0.2)),
    "rloo": Recipe("trajectory_sum", ("leave_one_out", {})),
    "grpo": Recipe("trajectory_mean", ("group_relative", {}), (0.2, 0.2)),
    "dr_grpo": Recipe("constant", ("group_relative", {"divide_by_std": False}), (0.2, 0.2)),
    "dapo": Recipe("token_mean", ("group_relative", {}), (0.2, 0.28)),
    "gspo": Recipe("trajectory_mean", ("group_relative", {}), (3e-4, 4e-4)),
    "gigpo": Recipe("token_mean", ("gigpo", {}), (0.2, 0.2)),
    "ppo": Recipe("token_mean", ("gae", {"per": "token"}), (0.2, 0.2)),
    "dpo": Recipe("trajectory_sum"),
    "kto": Recipe("trajectory_sum"),
    "prm": Recipe("token_mean"),
    "distill": Recipe("token_mean"),
}
