"""What all adapters begin with: a batch as rows of ids with exact masks, log-probabilities, versions and credit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.credit import CreditSpec, apply_credit
from agentworld.credit.reading import sampled
from agentworld.credit.trees import Shared
from agentworld.errors import InvalidRequestError
from agentworld.records import Batch, BatchItem, BatchTrajectory, Step
from agentworld.trainers.adapters.paths import Path, Rows, check_ids, lay_paths, prefix_parents, whole_ids
from agentworld.trainers.adapters.spaces import Logprobs, logprobs_of, temperature_of
from agentworld.trainers.recipes import RECIPES

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

CreditChoice = CreditSpec | Literal["method", "none"]


class SampleOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all adapters over rows of ids take.

    `rows`: step, chain or tree. `shared`: of a tree, what becomes of tokens that several paths share: `first_path`
    marks them in the first alone, `mean` gives each its part of the weight, `per_path` the whole in each. `credit`:
    where advantages come from; `method`: as the batch's method has it, nothing for methods without; `none`: no
    advantages. `logprobs`: which log-probabilities: `recomputable`, `raw`, `recorded` or `none`. `statistics`: also
    rows of trajectories that count in their group's statistics alone, without a marked token, for trainers that make
    the advantages themselves. `annotations`: those of steps that rows have too, one number a reply token.
    """

    rows: Rows = "chain"
    shared: Shared = "first_path"
    credit: CreditChoice = "method"
    logprobs: Logprobs = "recomputable"
    statistics: bool = False
    annotations: tuple[str, ...] = ()


@dataclass(slots=True, eq=False, kw_only=True)
class Sample:
    """One row: a prompt of P ids and a response of R, from the first sampled token on.

    `prompt_ids` int64 [P], `response_ids` int64 [R]. `response_mask` bool [R]: sampled by the policy, and trained on
    in this row. `logprobs` float32 [R], 0 outside the mask, None where none are wanted; `temperature`: what the logits
    are divided by to come into their space. `advantages` float32 [R], 0 outside the mask, None without credit. `shares`
    float32 [R]: the part of its weight that a token has here, 0 outside the mask, 1 in it but for `shared` mean.
    `versions` int64 [R]: the weights that sampled the token, -1 outside the mask; None where a step names no policy.
    `annotations`: by name float32 [R], 0 outside the mask. `turns`: of each step where its reply stands in the
    response, as (start, end). `group`: rollouts of one task have the same. `rollout`: index of the trajectory in
    its group; `part`: of the row in its trajectory, `parts` of them.
    `denominator`: tokens that are trained on of the whole trajectory, which its rows share.
    """

    prompt_ids: IntArray
    response_ids: IntArray
    response_mask: BoolArray
    logprobs: FloatArray | None
    advantages: FloatArray | None
    shares: FloatArray
    versions: IntArray | None
    temperature: float
    annotations: dict[str, FloatArray]
    turns: list[tuple[int, int]]
    steps: list[Step]
    item: BatchItem
    member: BatchTrajectory
    group: str
    rollout: int
    part: int = 0
    parts: int = 1
    denominator: int = 0

    @property
    def ids(self) -> IntArray:
        """Prompt and response, int64 [P + R]."""
        return np.concatenate([self.prompt_ids, self.response_ids])

    @property
    def trajectory_id(self) -> str:
        """The trajectory that it is of."""
        return self.member.trajectory.trajectory_id

    @property
    def step_ids(self) -> list[str]:
        """The steps that it is made of, in order."""
        return [step.step_id for step in self.steps]

    @property
    def reward(self) -> float | None:
        """The trajectory's primary reward."""
        return self.member.trajectory.reward

    @property
    def rewards(self) -> dict[str, float]:
        """Every reward of the trajectory, as it was at the lease."""
        return self.item.rewards.get(self.trajectory_id, self.member.trajectory.rewards)

    @property
    def truncated(self) -> bool:
        """Whether the trajectory, or the last reply here, was cut off."""
        return self.member.trajectory.status == "truncated" or self.steps[-1].finish_reason == "length"

    def need_reward(self) -> float:
        """The primary reward; InvalidRequestError where there is none: absent is not zero."""
        if self.reward is None:
            raise InvalidRequestError(
                f"trajectory {self.trajectory_id} has no reward",
                path="reward",
                hint='Lease with require = ["tokens", "reward"]',
            )
        return self.reward

    def need_logprobs(self) -> FloatArray:
        """The log-probabilities; InvalidRequestError where none were wanted."""
        if self.logprobs is None:
            raise InvalidRequestError(
                "this layout needs log-probabilities", path="logprobs", hint="Say recomputable, raw or recorded"
            )
        return self.logprobs

    def need_advantages(self) -> FloatArray:
        """The advantages; InvalidRequestError where there is no credit."""
        if self.advantages is None:
            raise InvalidRequestError(
                "this layout needs advantages",
                path="credit",
                hint='Name a credit, such as {"method": "group_relative"}',
            )
        return self.advantages

    def need_versions(self) -> IntArray:
        """The versions; InvalidRequestError names the step that has none."""
        if self.versions is None:
            step = next(step for step in self.steps if step.policy is None)
            raise InvalidRequestError(
                f"step {step.step_id} does not say which weights sampled it",
                path="policy",
                hint="Publish policies, or submit steps with policy_version",
            )
        return self.versions

    def whole(self, values: npt.NDArray[Any], before: float = 0) -> npt.NDArray[Any]:
        """`values` [R] over prompt and response, [P + R]; `before` at the prompt."""
        return np.concatenate([np.full(len(self.prompt_ids), before, values.dtype), values])


@dataclass(slots=True, eq=False)
class Samples:
    """The rows of a batch, in its order, without the copies that only make shards equally long."""

    rows: list[Sample]
    batch: Batch
    options: SampleOptions = field(default_factory=SampleOptions)

    def __len__(self) -> int:
        return len(self.rows)

    def one_temperature(self, wanted: float | None = None) -> float:
        """The temperature of all rows, for trainers that have one; InvalidRequestError names a step with another."""
        first = wanted
        for row in self.rows:
            first = row.temperature if first is None else first
            if row.temperature != first:
                raise InvalidRequestError(
                    f"step {row.step_ids[0]} is at temperature {row.temperature:g}, and the trainer's is {first:g}",
                    path="temperature",
                    hint="Sample a batch at one temperature, that of the trainer",
                )
        return 1.0 if first is None else first

    def no_parts_of_weights(self) -> None:
        """InvalidRequestError where tokens weigh a part, for layouts that have masks alone."""
        if self.options.rows == "tree" and self.options.shared == "mean":
            raise InvalidRequestError(
                "this layout has masks without weights", path="shared", hint="Use first_path or per_path"
            )


def read_samples(batch: Batch, options: SampleOptions | None = None) -> Samples:
    """The rows of a batch as `options` say.

    InvalidRequestError names the step without ids, without a log-probability of a sampled token, or with ones in
    another space than is wanted, and the trajectory that lacks what its credit is made from.
    """
    options = options or SampleOptions()
    spec = credit_of(batch, options.credit)
    credited = None if spec is None else apply_credit(batch, spec)
    rows: list[Sample] = []
    seen: dict[str, int] = {}
    index = 0
    for item in batch.items:
        if item.padding:
            continue
        for member in item.trajectories:
            advantages = None if credited is None else credited.of_trajectory(index)
            index += 1
            group = _group_of(batch, item, member)
            rollout = seen.get(group, 0)
            seen[group] = rollout + 1
            if member.trained or options.statistics:
                rows += _rows_of(item, member, advantages, options, group, rollout)
    return Samples(rows, batch, options)


def credit_of(batch: Batch, choice: CreditChoice) -> CreditSpec | None:
    """Where advantages come from; None without. The credit of a method is the one that the reference trainer has."""
    if isinstance(choice, CreditSpec):
        return choice
    recipe = RECIPES.get(batch.method) if choice == "method" else None
    if recipe is None or recipe.credit is None:
        return None
    return CreditSpec(method=recipe.credit[0], parameters=recipe.credit[1])


def _group_of(batch: Batch, item: BatchItem, member: BatchTrajectory) -> str:
    if batch.unit in ("group", "pair"):
        return item.key
    return member.trajectory.group_id or member.trajectory.trajectory_id


def _rows_of(
    item: BatchItem,
    member: BatchTrajectory,
    advantages: Sequence[npt.NDArray[np.float64]] | None,
    options: SampleOptions,
    group: str,
    rollout: int,
) -> list[Sample]:
    steps = member.steps
    for step in steps:
        check_ids(step)
    temperatures = [temperature_of(step, options.logprobs) for step in steps]
    keys = [(step.vocabulary, heat) for step, heat in zip(steps, temperatures, strict=True)]
    whole = [whole_ids(step) for step in steps]
    parents = prefix_parents(steps, keys, whole) if options.rows != "step" else [-1] * len(steps)
    pieces = [
        _Piece(step, whole[place], None if advantages is None else advantages[place], member, options)
        for place, step in enumerate(steps)
    ]
    found = []
    for path in lay_paths(parents, options.rows, options.shared):
        columns = _columns(path, pieces, member.trained)
        if not columns["response_mask"].any() and not options.statistics:
            continue
        own = [steps[place] for place, _ in path]
        first = temperatures[path[0][0]]
        found.append(
            Sample(**columns, temperature=first, steps=own, item=item, member=member, group=group, rollout=rollout)
        )
    total = member.loss_denominator or sum(int(piece.mask.sum()) for piece in pieces)
    if options.rows == "tree" and options.shared == "per_path":
        total = sum(int(row.response_mask.sum()) for row in found)  # As often as they are trained on.
    for part, row in enumerate(found):
        row.part, row.parts, row.denominator = part, len(found), total
    return found


class _Piece:
    """The arrays of one step's reply."""

    def __init__(
        self,
        step: Step,
        whole: IntArray,
        advantages: npt.NDArray[np.float64] | None,
        member: BatchTrajectory,
        options: SampleOptions,
    ) -> None:
        self.prompt, self.reply = np.split(whole, [len(step.prompt_ids or ())])
        self.mask = sampled(step)
        self.logprobs = logprobs_of(step, self.mask, options.logprobs)
        self.advantages = None if advantages is None else np.asarray(advantages, np.float32)
        self.versions = _versions(step, self.mask)
        given = member.annotations.get(step.step_id, {})
        self.annotations = {name: _annotation(step, given.get(name), name, self.mask) for name in options.annotations}


def _annotation(step: Step, given: Any, name: str, mask: BoolArray) -> FloatArray:
    """One number a reply token; what was put at the sampled tokens alone is laid at their places."""
    if given is None:
        raise InvalidRequestError(
            f"step {step.step_id} has no annotation {name!r}",
            path="annotations",
            hint=f'Lease with require = ["tokens", "annotation.{name}"]',
        )
    values = np.asarray(given, np.float32).reshape(-1)
    if len(values) == len(mask):
        return np.where(mask, values, np.float32(0))
    if len(values) != int(mask.sum()):
        raise InvalidRequestError(
            f"the annotation {name!r} of step {step.step_id} has {len(values)} values for {len(mask)} ids",
            path="annotations",
            hint="Annotate each reply token, or each sampled one",
        )
    placed = np.zeros(len(mask), np.float32)
    placed[mask] = values
    return placed


def _versions(step: Step, mask: BoolArray) -> IntArray | None:
    if step.policy is None:
        return None
    versions = np.full(len(mask), step.policy.version, np.int64)
    for span in step.version_spans:
        versions[span.start :] = span.version
    versions[~mask] = -1
    return versions


def _columns(path: Path, pieces: Sequence[_Piece], trained: bool) -> dict[str, Any]:
    """The arrays of a row: each reply at its place, and 0 (-1 for versions) at what was put between."""
    first, last = pieces[path[0][0]], pieces[path[-1][0]]
    begin = len(first.prompt)
    length = len(last.prompt) + len(last.reply) - begin
    ids = np.concatenate([last.prompt[begin:], last.reply])
    mask, shares = np.zeros(length, np.bool_), np.zeros(length, np.float32)
    # Of a path all pieces have them or none has: what is wanted is the same, and so is the credit.
    logprobs = None if first.logprobs is None else np.zeros(length, np.float32)
    advantages = None if first.advantages is None else np.zeros(length, np.float32)
    known = all(pieces[place].versions is not None for place, _ in path)
    versions = np.full(length, -1, np.int64) if known else None
    annotations = {name: np.zeros(length, np.float32) for name in first.annotations}
    turns = []
    for place, share in path:
        piece = pieces[place]
        start = len(piece.prompt) - begin
        here = slice(start, start + len(piece.reply))
        turns.append((here.start, here.stop))
        own = piece.mask & (trained and share > 0)
        mask[here] = own
        shares[here] = own * np.float32(share)
        for values, column in ((piece.logprobs, logprobs), (piece.advantages, advantages)):
            if values is not None and column is not None:
                column[here] = np.where(own, values, np.float32(0))
        for name, column in annotations.items():
            column[here] = np.where(own, piece.annotations[name], np.float32(0))
        if versions is not None and piece.versions is not None:
            versions[here] = np.where(own, piece.versions, -1)
    return {
        "prompt_ids": first.prompt,
        "response_ids": ids,
        "response_mask": mask,
        "logprobs": logprobs,
        "advantages": advantages,
        "shares": shares,
        "versions": versions,
        "annotations": annotations,
        "turns": turns,
    }
