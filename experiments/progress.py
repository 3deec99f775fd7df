"""What is done of a run, on disk, so that the same call goes on where it was interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentworld.agents.report import RolloutResult
from agentworld.demo.state import write_atomically
from agentworld.errors import ConflictError
from experiments.cells import Plan


class Progress(msgspec.Struct):
    """`plan`: that the run began with. `curve`: figures of each batch. `cpu_seconds`, `seconds`: of earlier processes.

    `checked`: rewards of the newest batch by trajectory, as the checker gave them.
    """

    plan: Plan
    curve: list[dict[str, Any]] = []
    cpu_seconds: float = 0.0
    seconds: float = 0.0
    checked: dict[str, float] = {}


class ProgressFile:
    """The progress of the run in `folder`, in memory as `now`; `save` writes it.

    ConflictError where the run in the folder began with another plan.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._path = folder / "state.json"
        try:
            self.now = msgspec.json.decode(self._path.read_bytes(), type=Progress)
        except FileNotFoundError:
            self.now = Progress(plan)
        if self.now.plan != plan:
            raise ConflictError(
                f"{folder} holds a run with another plan", hint="Go on with its minutes, or remove the folder"
            )

    def begin_batch(self, iteration: int, steps: int, rollouts: Sequence[RolloutResult]) -> dict[str, Any]:
        """Note a batch that was sampled, before anything is done to it; its entry of the curve, for more figures.

        Where it was noted already its rewards stay: in the pool they may have been turned round since.
        """
        ids = {each.trajectory_id for each in rollouts}
        if ids != self.now.checked.keys():
            self.now.checked = {each.trajectory_id: each.reward or 0.0 for each in rollouts if each.trajectory_id}
        mean = sum(self.now.checked.values()) / max(len(self.now.checked), 1)
        entry: dict[str, Any] = {"reward": mean, "steps": steps}
        self.now.curve = [*self.now.curve[:iteration], entry]
        self.save()
        return entry

    def spend(self, seconds: float, cpu_seconds: float) -> None:
        """Note what was used since, and save."""
        self.now.seconds += seconds
        self.now.cpu_seconds += cpu_seconds
        self.save()

    def save(self) -> None:
        """Write it; a reader sees all of it or nothing."""
        write_atomically(self._path, msgspec.json.encode(self.now))
