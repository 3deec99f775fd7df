"""How a trajectory that a judge made is told from an agent's."""

from __future__ import annotations

from typing import Any

from agentworld.records import Trajectory

JUDGED, BY = "judged", "evaluator"


def judgement_facts(judged: list[str], evaluator: str, version: str) -> dict[str, Any]:
    """The metadata of a judgement: ids of what was judged, and by what."""
    return {JUDGED: judged, BY: evaluator, "evaluator_version": version}


def is_judgement(record: Trajectory) -> bool:
    """Whether a judge of ours made it."""
    return isinstance(record.metadata.get(JUDGED), list) and isinstance(record.metadata.get(BY), str)
