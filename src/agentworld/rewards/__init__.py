"""Evaluators: from a trajectory, a group or its steps to named reward values."""

from agentworld.rewards.answers import extract_answer
from agentworld.rewards.checked import checked, reward_records, rewards_of
from agentworld.rewards.checker import CheckerReward
from agentworld.rewards.expression import ExpressionReward, fields_of
from agentworld.rewards.fingerprint import evaluator_fingerprint, subject_fingerprint
from agentworld.rewards.functions import evaluator
from agentworld.rewards.protocol import (
    EvaluationError,
    Evaluator,
    RolloutGroup,
    Scope,
    Subject,
    Verdict,
    last_answer,
    with_values,
)

__all__ = [
    "CheckerReward",
    "EvaluationError",
    "Evaluator",
    "ExpressionReward",
    "RolloutGroup",
    "Scope",
    "Subject",
    "Verdict",
    "checked",
    "evaluator",
    "evaluator_fingerprint",
    "extract_answer",
    "fields_of",
    "last_answer",
    "reward_records",
    "rewards_of",
    "subject_fingerprint",
    "with_values",
]
