"""What a check says: a value on a trajectory or step, and the evidence for it."""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.curation.checks.private_rules import masked
from agentworld.records import Feedback, exact_json

PREFIX = "check."
"""Labels of checks begin with this."""

MOST_EVIDENCE = 2_000
"""Characters that the evidence of one finding takes as JSON, at most."""


class Found(msgspec.Struct, frozen=True):
    """What a check's function yields. `step_id` None: it is said of the trajectory.

    `trajectory_id` is needed only of functions that see several trajectories.
    """

    value: Any = True
    evidence: dict[str, Any] = {}
    step_id: str | None = None
    trajectory_id: str | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a check found on a trajectory or, where `step_id` is set, on one of its steps.

    `value` is true, a number or a short text. `evidence` says where: `step` (an id), `message` (index in the step's
    prompt, or "reply"), `excerpt` (at most 120 characters, with private data masked), and what the check adds. Secrets
    in texts of either are masked here, whatever check they are of: labels are stored and exported.
    """

    check: str
    version: str
    trajectory_id: str
    step_id: str | None = None
    value: Any = True
    evidence: dict[str, Any] = {}

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "value", _without_secrets(self.value))
        msgspec.structs.force_setattr(self, "evidence", _without_secrets(self.evidence))

    @property
    def label(self) -> str:
        """The name of the label that says it."""
        return PREFIX + self.check

    @property
    def comment(self) -> str:
        """The evidence as JSON of at most 2,000 characters: what is longer keeps its first entries."""
        kept = dict(self.evidence)
        text = _json(kept)
        while len(text) > MOST_EVIDENCE and kept:
            kept.popitem()
            text = _json({**kept, "cut": True})
        return text

    def feedback(self) -> Feedback:
        """The label as a signal for `Pool.add_signals`."""
        return Feedback(
            kind="label",
            name=self.label,
            value=self.value,
            comment=self.comment,
            trajectory_id=self.trajectory_id,
            step_id=self.step_id,
            source=f"check:{self.check}@{self.version}",
        )


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {_without_secrets(name): _without_secrets(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(item) for item in value]
    return value


def _json(evidence: dict[str, Any]) -> str:
    return exact_json.encode(evidence).decode()
