"""Checks: what is said of trajectories, steps, groups and a whole pool, as labels with evidence.

`run_checks` and `run_group_checks` are pure; checks of a pool are objects with a state (`pool_checks`). Running them
over a pool, and writing the labels, is not here.
"""

from agentworld.curation.checks.evaluation_sets import EvaluationSets, read_evaluation_sets
from agentworld.curation.checks.finding import Finding, Found
from agentworld.curation.checks.passes import PoolCheck, PoolCheckClass, pool_checks, run_checks, run_group_checks
from agentworld.curation.checks.registry import Check, check, chosen, known
from agentworld.curation.checks.settings import CheckContext, CheckSettings

__all__ = [
    "Check",
    "CheckContext",
    "CheckSettings",
    "EvaluationSets",
    "Finding",
    "Found",
    "PoolCheck",
    "PoolCheckClass",
    "check",
    "chosen",
    "known",
    "pool_checks",
    "read_evaluation_sets",
    "run_checks",
    "run_group_checks",
]
