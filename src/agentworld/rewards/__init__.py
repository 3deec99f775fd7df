"""Evaluators: from a trajectory to named reward values."""

from agentworld.rewards.answers import extract_answer
from agentworld.rewards.checker import CheckerReward
from agentworld.rewards.evaluator import Evaluator, last_answer, rewards_of
from agentworld.rewards.expression import ExpressionReward, fields_of

__all__ = ["CheckerReward", "Evaluator", "ExpressionReward", "extract_answer", "fields_of", "last_answer", "rewards_of"]
