"""Evaluators over a pool: which subjects, how many at once, what is known already, and what is written."""

from agentworld.rewards.running.following import follower_name, read_saved
from agentworld.rewards.running.plan import Plan, plan_of
from agentworld.rewards.running.report import RunReport, Tally
from agentworld.rewards.running.settings import RunSettings
from agentworld.rewards.running.worker import run_rewards

__all__ = ["Plan", "RunReport", "RunSettings", "Tally", "follower_name", "plan_of", "read_saved", "run_rewards"]
