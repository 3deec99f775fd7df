"""Reading many steps at once, and how a query is answered, in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from agentworld.errors import NotFoundError
from agentworld.pool.arrays import StepArrays, check_selection, frozen
from agentworld.pool.memory.state import StoredStep
from agentworld.pool.memory.store_base import MemoryStore
from agentworld.query import Explanation, Subject, explain, parse


class ReadMethods(MemoryStore):
    """Sequences as arrays, explanations."""

    def sequences(
        self,
        *,
        trajectory_id: str | None = None,
        step_ids: Sequence[str] | None = None,
        where: str | None = None,
        channel: str | None = None,
    ) -> Iterator[StepArrays]:
        """See Pool."""
        check_selection(step_ids, (trajectory_id, where, channel))
        expression = self._state.query(where, "steps")
        with self._open():
            if step_ids is not None:
                chosen = [self._known(step_id) for step_id in dict.fromkeys(step_ids)]
            else:
                chosen = [
                    found
                    for found in self._state.steps.values()
                    if trajectory_id in (None, found.step.trajectory_id)
                    and channel in (None, found.step.channel)
                    and self._state.step_matches(expression, found)
                ]
            chosen.sort(key=lambda found: (self._state.ordinals[found.step.trajectory_id], found.ordinal))
        return itertools.chain.from_iterable(map(_arrays, chosen))

    def explain(self, where: str, subject: Subject = "trajectories") -> Explanation:
        """See Pool."""
        with self._open():
            found = explain(parse(where, subject), subject)
        return msgspec.structs.replace(found, plan=["every record in memory is looked at"])

    def _known(self, step_id: str) -> StoredStep:
        found = self._state.steps.get(step_id)
        if found is None:
            raise NotFoundError(f"no step {step_id!r}", path="step_ids")
        return found


def _arrays(found: StoredStep) -> Iterator[StepArrays]:
    """The step's arrays; nothing where it has no ids."""
    kept = found.prepared
    parts = [part for part in (kept.prompt, kept.response) if part is not None and len(part)]
    if parts:
        yield StepArrays(
            step_id=found.step.step_id,
            trajectory_id=found.step.trajectory_id,
            prompt_length=0 if kept.prompt is None else len(kept.prompt),
            ids=frozen(np.concatenate(parts)),
            mask=kept.mask,
            logprobs=kept.logprobs,
        )
