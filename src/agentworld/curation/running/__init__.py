"""Checks over a pool: what is new is read, checked, and labelled; stopped anywhere, a run goes on there."""

from agentworld.curation.running.report import RunReport
from agentworld.curation.running.settings import CurateSettings, Plan, ReviewSettings, plan_of, read_curate_settings
from agentworld.curation.running.worker import follower_name, run_curation

__all__ = [
    "CurateSettings",
    "Plan",
    "ReviewSettings",
    "RunReport",
    "follower_name",
    "plan_of",
    "read_curate_settings",
    "run_curation",
]
