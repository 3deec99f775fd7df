"""From rewards to advantages and loss weights of steps and tokens; pure numpy, formulas with their sources."""

from agentworld.credit.advantages import (
    batch_relative,
    equal_groups,
    greedy_relative,
    group_relative,
    leave_one_out,
)
from agentworld.credit.batches import BatchCredit, apply_credit
from agentworld.credit.importance import VersionWeights, importance_weights, token_versions, weights_by_version
from agentworld.credit.reading import CreditSpec, step_tree
from agentworld.credit.registry import (
    CreditMethod,
    CreditRule,
    TokenCredits,
    credit_by_name,
    credit_method,
    credit_names,
)
from agentworld.credit.returns import (
    discounted_returns,
    discounted_returns_tokens,
    gae,
    gae_tokens,
    progress_differences,
    total_return,
)
from agentworld.credit.rollouts import Rollout
from agentworld.credit.steps import Spread, spread, to_tokens
from agentworld.credit.trees import StepTree, chain
from agentworld.credit.weights import Aggregation, PathTokens, loss_weights, path_tokens

__all__ = [
    "Aggregation",
    "BatchCredit",
    "CreditMethod",
    "CreditRule",
    "CreditSpec",
    "PathTokens",
    "Rollout",
    "Spread",
    "StepTree",
    "TokenCredits",
    "VersionWeights",
    "apply_credit",
    "batch_relative",
    "chain",
    "credit_by_name",
    "credit_method",
    "credit_names",
    "discounted_returns",
    "discounted_returns_tokens",
    "equal_groups",
    "gae",
    "gae_tokens",
    "greedy_relative",
    "group_relative",
    "importance_weights",
    "leave_one_out",
    "loss_weights",
    "path_tokens",
    "progress_differences",
    "spread",
    "step_tree",
    "to_tokens",
    "token_versions",
    "total_return",
    "weights_by_version",
]
