"""Process rewards: an evaluator of trajectories, asked about each step as if the run had ended there."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

import msgspec

from agentworld.records import BatchTrajectory, Step
from agentworld.rewards.fingerprint import evaluator_fingerprint
from agentworld.rewards.protocol import EvaluationError, Evaluator, EvaluatorKind, Scope, Verdict


class Steps(EvaluatorKind, frozen=True, kw_only=True):
    """Judges every step with the evaluator of `of`, a table like any other without a name.

    It sees the step's own path from the start and nothing that came after; branches are judged apart. `most`: at most
    so many of the trajectory's steps, the last ones. A step without its message is not judged.
    """

    of: dict[str, Any]
    most: Annotated[int, msgspec.Meta(ge=1)] = 1000

    def __post_init__(self) -> None:
        if "where" in self.of:
            raise ValueError("`of` takes no `where`: set it beside `of`")
        if self.inner.scope != "trajectory":
            raise ValueError(f"`of` has to judge trajectories, and {self.of.get('kind')} judges a {self.inner.scope}")

    @property
    def scope(self) -> Scope:
        """Steps."""
        return "step"

    @property
    def needs(self) -> tuple[str, ...]:
        """What the inner evaluator reads."""
        return self.inner.needs

    @property
    def configuration(self) -> Any:
        """With the inner evaluator's own."""
        return {"settings": super().configuration, "of": evaluator_fingerprint(self.inner)}

    @cached_property
    def inner(self) -> Evaluator:
        """The evaluator that is asked."""
        from agentworld.rewards.registry import make_evaluator

        return make_evaluator({"name": self.name, "reward": self.reward, **self.of}, f"{self.name}.of")

    def evaluate(self, subject: BatchTrajectory) -> dict[str, Verdict]:
        """A verdict for each step that has a message; a step whose evaluation fails makes all of it fail."""
        steps = [step for step in subject.steps if step.response_message is not None][-self.most :]
        if not steps:
            raise EvaluationError(f"{self.name}: trajectory {subject.trajectory.trajectory_id} holds no messages")
        by_id = {step.step_id: step for step in subject.steps}
        runs = [msgspec.structs.replace(subject, steps=_path(step, by_id)) for step in steps]
        # A model behind a network takes several conversations a call.
        many = getattr(self.inner, "evaluate_many", None)
        said = many(runs) if many is not None else [self.inner.evaluate(run) for run in runs]
        return {step.step_id: verdict for step, verdict in zip(steps, said, strict=True)}


def _path(step: Step, by_id: dict[str, Step]) -> list[Step]:
    """The step's ancestors and itself; of steps that do not say their parent, itself alone."""
    path = [step]
    seen = {step.step_id}
    while (parent := by_id.get(path[-1].parent_step_id or "")) is not None and parent.step_id not in seen:
        seen.add(parent.step_id)
        path.append(parent)
    return path[::-1]
