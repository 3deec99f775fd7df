"""From a trajectory to named reward values.

Left out on purpose: evaluators that are models, and a worker that follows the pool's events.
"""

from __future__ import annotations

from typing import Protocol

from agentworld.records import BatchTrajectory, Reward


class Evaluator(Protocol):
    """Judges one trajectory. `name` is the source that its rewards carry."""

    @property
    def name(self) -> str:
        """The source."""
        ...

    def evaluate(self, run: BatchTrajectory) -> dict[str, float]:
        """Named values; the name `reward` is the primary one. A name that is absent is not judged, which is not 0."""
        ...


def rewards_of(evaluator: Evaluator, run: BatchTrajectory) -> list[Reward]:
    """What the evaluator says, as records for the pool; said again, they replace the earlier ones."""
    trajectory_id = run.trajectory.trajectory_id
    return [
        Reward(value=value, trajectory_id=trajectory_id, name=name, source=evaluator.name)
        for name, value in evaluator.evaluate(run).items()
    ]


def last_answer(run: BatchTrajectory) -> str | None:
    """The text of the trajectory's last reply, None where no step holds its message."""
    for step in reversed(run.steps):
        if step.response_message is not None:
            return step.response_message.text
    return None
