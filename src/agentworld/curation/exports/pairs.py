"""Pairs of a better and a worse answer to one prompt: of comparisons, of corrections, and of rewards that differ."""

from __future__ import annotations

import heapq
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TypeVar

import msgspec

from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.curation.exports.conversations import conversations, has_messages, is_cut_off
from agentworld.curation.exports.registry import Source
from agentworld.curation.exports.signals import Value, number
from agentworld.feedback.comparisons import prompt_key
from agentworld.feedback.content import reply_digest
from agentworld.feedback.corrections import corrected_reply
from agentworld.forest.messages import says_the_same
from agentworld.pool.signal_rules import standing_comparisons
from agentworld.records import Feedback, Message, Step, Tool

T = TypeVar("T")


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """`chosen` and `rejected` go on from `prompt`. `steps`: the better one's, then the worse one's, where sampled.

    `margin`: by how much, null where nobody said. `is_cut_off`: whether the limit of tokens ended a reply of either.
    """

    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]
    tools: list[Tool]
    trajectory_id: str
    steps: list[str]
    margin: float | None = None
    is_cut_off: bool = False


class Pairing:
    """Makes the pairs of trajectories one after another. `whole`: of conversations from where they part to the end."""

    def __init__(self, source: Source, left_out: Counter[str], *, whole: bool) -> None:
        self._source = source
        self._left_out = left_out
        self._whole = whole

    def corrected(self, frozen: FrozenTrajectory) -> Iterator[Pair]:
        """What should have been said over what was said; of one person on one reply the last."""
        latest: dict[tuple[str, str], tuple[Feedback, Step | None]] = {}
        for place, one in enumerate(frozen.row.feedback):
            if one.kind == "correction":
                step = _seen_step(frozen, one)
                latest[one.source, f"missing {place}" if step is None else f"step {step.step_id}"] = (one, step)
        for one, step in latest.values():
            if step is None or step.response_message is None or step.prompt_messages is None:
                self._left_out["correction_of_no_step"] += 1
            elif one.content is not None and reply_digest(step.response_message) != one.content:
                self._left_out["correction_outdated"] += 1
            elif says_the_same(chosen := corrected_reply(one), step.response_message):
                self._left_out["correction_unchanged"] += 1
            else:
                yield Pair(
                    prompt=step.prompt_messages,
                    chosen=[chosen],
                    rejected=[step.response_message],
                    tools=step.tools or [],
                    trajectory_id=step.trajectory_id,
                    steps=[step.step_id],
                    is_cut_off=is_cut_off(step),
                )

    def compared(self, frozen: FrozenTrajectory) -> Iterator[Pair]:
        """What people preferred, and to what; of one person on the same two the last, unless it takes that back."""
        own = {step.step_id: step for step in frozen.steps}
        latest: dict[tuple[str | None, str | None, str], Feedback] = {}
        for one in standing_comparisons(frozen.row.feedback):
            latest[one.step_id, one.other_id, one.source] = one
        for one in latest.values():
            margin = number(one.value)
            if one.step_id is not None:
                yield from self._with_step(frozen, own, one, margin)
                continue
            other = self._other(frozen, one.other_id or "", "comparison_of_no_trajectory")
            if other is not None:
                yield from self.of_trajectories(frozen.steps, other.steps, margin)

    def contrasted_steps(self, frozen: FrozenTrajectory, value: Value, margin: float, most: int) -> Iterator[Pair]:
        """Steps of one trajectory that answer one prompt, such as several choices, with values that are apart."""
        valued = [
            (own, step)
            for step in frozen.steps
            if has_messages(step) and (own := value.of_step(frozen, step)) is not None
        ]
        found: dict[bytes, list[tuple[float, Step]]] = {}
        if len(valued) > 1:
            for each in valued:
                found.setdefault(prompt_key(each[1]), []).append(each)
        for members in found.values():
            for better, worse, by in widest(members, margin, most):
                yield from self._of_steps(better, worse, by, "")

    def of_trajectories(self, better: Sequence[Step], worse: Sequence[Step], margin: float | None) -> Iterator[Pair]:
        """The first prompt that both answer, differently."""
        answers: dict[bytes, Step] = {}
        for step in worse:
            if has_messages(step):
                answers.setdefault(prompt_key(step), step)
        for step in better:
            other = answers.get(prompt_key(step)) if has_messages(step) else None
            if other is None or step.response_message is None or other.response_message is None:
                continue
            if says_the_same(step.response_message, other.response_message):
                continue
            chosen, rejected = [step.response_message], [other.response_message]
            steps = [step, other]
            if self._whole:
                chosen, own = _rest(better, step)
                rejected, others = _rest(worse, other)
                steps = own + others
            yield Pair(
                prompt=step.prompt_messages or [],
                chosen=chosen,
                rejected=rejected,
                tools=step.tools or [],
                trajectory_id=step.trajectory_id,
                steps=[one.step_id for one in steps],
                margin=margin,
                is_cut_off=any(map(is_cut_off, steps)),
            )
            return
        self._left_out["no_common_prompt"] += 1

    def _with_step(
        self, frozen: FrozenTrajectory, own: Mapping[str, Step], one: Feedback, margin: float | None
    ) -> Iterator[Pair]:
        better, worse = own.get(one.step_id or ""), own.get(one.other_id or "")
        if better is not None and worse is None:
            trajectory_id = self._source.trajectory_of(one.other_id or "")
            if trajectory_id is not None:
                other = self._other(frozen, trajectory_id, "comparison_of_no_step")
                if other is None:
                    return
                worse = next((step for step in other.steps if step.step_id == one.other_id), None)
                if worse is None:
                    self._left_out["comparison_outside_version"] += 1
                    return
        yield from self._of_steps(better, worse, margin, "comparison_of_no_step")

    def _other(self, frozen: FrozenTrajectory, trajectory_id: str, gone: str) -> FrozenTrajectory | None:
        """The other trajectory of a comparison as it was frozen: a version's pairs are of its own rows, and those of
        one split of that split.
        """
        row = self._source.find(trajectory_id)
        if row is None:
            self._left_out["comparison_outside_version"] += 1
        elif row.split != frozen.row.split:
            self._left_out["comparison_of_other_split"] += 1
        elif (found := self._source.at(row.position)) is None:
            self._left_out[gone] += 1
        else:
            return found
        return None

    def _of_steps(self, better: Step | None, worse: Step | None, margin: float | None, missing: str) -> Iterator[Pair]:
        if better is None or worse is None or better.response_message is None or worse.response_message is None:
            self._left_out[missing] += 1
        elif better.prompt_messages is None or worse.prompt_messages is None:
            self._left_out["without_messages"] += 1
        elif prompt_key(better) != prompt_key(worse):
            self._left_out["no_common_prompt"] += 1
        elif says_the_same(better.response_message, worse.response_message):
            self._left_out["same_reply"] += 1
        else:
            yield Pair(
                prompt=better.prompt_messages,
                chosen=[better.response_message],
                rejected=[worse.response_message],
                tools=better.tools or [],
                trajectory_id=better.trajectory_id,
                steps=[better.step_id, worse.step_id],
                margin=margin,
                is_cut_off=is_cut_off(better) or is_cut_off(worse),
            )


def widest(members: Sequence[tuple[float, T]], margin: float, most: int) -> list[tuple[T, T, float]]:
    """Of members with their values the pairs (better, worse, by) that are `margin` or more apart, the widest first."""

    def apart() -> Iterator[tuple[T, T, float]]:
        for (one, first), (other, second) in combinations(members, 2):
            by = min(abs(one - other), sys.float_info.max)
            if by >= margin:
                yield (first, second, by) if one > other else (second, first, by)

    return heapq.nlargest(most, apart(), key=lambda pair: pair[2])


def _seen_step(frozen: FrozenTrajectory, one: Feedback) -> Step | None:
    """The step that a correction is of: its own, or the last one, of those with the reply that was seen."""
    if one.step_id is not None:
        return next((step for step in frozen.steps if step.step_id == one.step_id), None)
    said = [step for step in frozen.steps if step.response_message is not None]
    seen = [
        step
        for step in said
        if one.content is not None
        and step.response_message is not None
        and reply_digest(step.response_message) == one.content
    ]
    found = seen or said
    return found[-1] if found else None


def _rest(steps: Sequence[Step], first: Step) -> tuple[list[Message], list[Step]]:
    """The conversation from the reply of `first` on, and the steps whose replies are in it."""
    for each in conversations(steps):
        for place, step in enumerate(each.steps):
            if step.step_id == first.step_id:
                return each.messages[each.replies[place] :], each.steps[place:]
    raise AssertionError(f"step {first.step_id} has messages and is on no branch")
