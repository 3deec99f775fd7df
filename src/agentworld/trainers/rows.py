"""From a batch to training rows: one sequence for each chain of steps that extend one another. Pure numpy.

The steps of a run whose prompt is the whole sequence before it, id for id, become one row with the sampled tokens
marked, so that shared context is computed once. Where a prompt breaks the chain a new row begins, whose prompt is not
trained on again: every sampled token of a batch is trained on exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from agentworld.capture.media import shows_media
from agentworld.credit import CreditSpec, apply_credit
from agentworld.credit.reading import sampled
from agentworld.errors import InvalidRequestError
from agentworld.records import Batch, BatchItem, BatchTrajectory, Sampling, Step

# A step's credit: one number, or an array over its reply tokens.
Credit = float | npt.NDArray[np.float64]
# The array of a row that says what the teacher sampled itself; no annotation is called so.
TAUGHT = "/taught"
# Whether the log-probabilities at sampling are needed, or count where they were recorded.
Behaviour = bool | Literal["where_recorded"]


@dataclass(slots=True)
class Row:
    """One sequence of L tokens.

    `ids` int64 [L]. `mask` bool [L]: sampled by the policy and trained on. `logprobs` float32 [L]: the log-probability
    under the policy that sampled the token, 0 outside the mask, NaN where it may be and is unknown. `advantages`
    float32 [L], 0 outside the mask. `temperature`: what the logits are divided by to come into the space of `logprobs`.
    `trajectory_tokens`: the trajectory's loss denominator, which is the sampled tokens of all its steps in the batch.
    `arrays` float32 [L] or [L, k]: annotations by name, 0 outside the mask. `preferred`: whether it is of a pair's
    preferred side.
    """

    trajectory_id: str
    ids: npt.NDArray[np.int64]
    mask: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]
    advantages: npt.NDArray[np.float32]
    temperature: float = 1.0
    trajectory_tokens: int = 0
    step_ids: list[str] = field(default_factory=list)
    arrays: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    preferred: bool = True

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def trained(self) -> int:
        """Tokens that are trained on."""
        return int(self.mask.sum())


def imitation_rows(batch: Batch, names: Sequence[str] = ()) -> list[Row]:
    """Rows for supervised fine-tuning: the sampled tokens of every trajectory, advantages of 1, any space."""
    return [row for member in _members(batch) for row in plain_rows(member, behaviour=False, names=names)]


def distillation_rows(batch: Batch, names: Sequence[str], teacher: str | None = None) -> list[Row]:
    """Rows with the log-probabilities at sampling, where there are some, and the annotations `names`. With the name of
    a `teacher`, the array TAUGHT is 1 where that model sampled and 0 elsewhere.
    """
    rows = []
    for member in _members(batch):
        ones = [1.0] * len(member.steps)
        rows += chain_rows(member, ones, behaviour="where_recorded", names=names, teacher=teacher)
    return rows


def preference_rows(batch: Batch, names: Sequence[str] = ()) -> list[list[Row]]:
    """The rows of each pair, those of its preferred side first.

    Raises InvalidRequestError where the batch is not of pairs, or a side has nothing that was sampled.
    """
    pairs = []
    for item in real_items(batch):
        if len(item.trajectories) != 2:
            raise InvalidRequestError(
                f"unit {item.key} has {len(item.trajectories)} trajectories, a pair has 2",
                path="unit",
                hint='Lease with unit = "pair"',
            )
        sides = [plain_rows(member, behaviour=False, names=names) for member in item.trajectories]
        if not all(sides):
            raise InvalidRequestError(f"a side of pair {item.key} has no token that was sampled", path="unit")
        for row in sides[1]:
            row.preferred = False
        pairs.append([*sides[0], *sides[1]])
    return pairs


def policy_gradient_rows(
    batch: Batch, credit: CreditSpec | None = None, names: Sequence[str] = (), *, behaviour: Behaviour = True
) -> tuple[list[Row], npt.NDArray[np.float64]]:
    """Rows with the advantages that `credit` gives (group-relative ones), and the trajectories' primary rewards, of
    those that have one.

    Trajectories that are not to be trained on count in their group's statistics alone.
    Raises InvalidRequestError where a trajectory lacks what its credit is made from, or a step lacks ids or, where
    they are needed, log-probabilities of a space that the trainer can recompute.
    """
    members = _members(batch)
    credited = apply_credit(batch, credit)
    rows: list[Row] = []
    for index, member in enumerate(members):
        rows.extend(chain_rows(member, credited.of_trajectory(index), behaviour=behaviour, names=names))
    rewards = [member.trajectory.reward for member in members if member.trajectory.reward is not None]
    return rows, np.asarray(rewards, dtype=np.float64)


def _members(batch: Batch) -> list[BatchTrajectory]:
    return [member for item in real_items(batch) for member in item.trajectories]


def plain_rows(member: BatchTrajectory, *, behaviour: Behaviour, names: Sequence[str] = ()) -> list[Row]:
    """The rows of one trajectory whose tokens count alike, with advantages of 1."""
    return chain_rows(member, [1.0] * len(member.steps), behaviour=behaviour, names=names)


def real_items(batch: Batch) -> list[BatchItem]:
    """The items without the copies that make shards equally long."""
    return [item for item in batch.items if not item.padding]


def chain_rows(
    member: BatchTrajectory,
    credits: Sequence[Credit],
    *,
    behaviour: Behaviour,
    names: Sequence[str] = (),
    teacher: str | None = None,
) -> list[Row]:
    """The rows of one trajectory; `credits` of each step. `behaviour`: whether log-probabilities are needed, or taken
    where they were recorded. `names`: of annotations that rows carry, one number a reply token or one a step, or
    several a token. `teacher`: see distillation_rows.

    None where the trajectory is not to be trained on. All rows carry its loss denominator, so that a trajectory with
    forks does not weigh more than one without.
    """
    if not member.trained:
        return []
    rows: list[Row] = []
    for step, credit in zip(member.steps, credits, strict=True):
        given = member.annotations.get(step.step_id, {})
        arrays = {name: _annotated(step, given, name) for name in names}
        if teacher is not None:
            arrays[TAUGHT] = np.full(len(step.response_ids or ()), step.model == teacher, dtype=np.float32)
        rows_step(rows, step, credit, behaviour, arrays)
    total = sum(row.trained for row in rows)
    for row in rows:
        row.trajectory_tokens = member.loss_denominator or total
    return [row for row in rows if row.trained]


def rows_step(
    rows: list[Row],
    step: Step,
    credit: Credit,
    behaviour: Behaviour,
    arrays: Mapping[str, npt.NDArray[np.float32]] | None = None,
) -> None:
    """Add one step, with `arrays` over its reply: to the row that its prompt extends, else as a new row."""
    if not step.prompt_ids or not step.response_ids:
        raise InvalidRequestError(f"step {step.step_id} has no token ids", hint="Train on steps with ids only")
    if has_images(step):
        raise InvalidRequestError(
            f"step {step.step_id} has images, which ids alone do not show to a model",
            path="messages",
            hint="Leave such trajectories out with where",
        )
    prompt = np.asarray(step.prompt_ids, dtype=np.int64)
    reply = np.asarray(step.response_ids, dtype=np.int64)
    mask = np.ones(len(reply), dtype=np.bool_) if step.response_mask is None else np.asarray(step.response_mask) > 0
    temperature, logprobs = sampled_with(step, mask, behaviour)
    row = longest_prefix(rows, prompt, temperature)
    if row is None:
        row = Row(step.trajectory_id, *(np.zeros(0, kind) for kind in ("int64", "bool", "float32", "float32")))  # type: ignore[arg-type]
        row.temperature = temperature
        rows.append(row)
    before, between = len(row), len(prompt) - len(row)
    row.ids = np.concatenate([row.ids, prompt[before:], reply])
    row.mask = np.concatenate([row.mask, np.zeros(between, np.bool_), mask])
    row.logprobs = np.concatenate([row.logprobs, np.zeros(between, np.float32), logprobs])
    advantages = np.where(mask, np.asarray(credit, dtype=np.float32), np.float32(0.0))
    row.advantages = np.concatenate([row.advantages, np.zeros(between, np.float32), advantages])
    for name, values in (arrays or {}).items():
        row.arrays[name] = _lengthened(row.arrays.get(name), before, between, mask, values, name)
    row.step_ids.append(step.step_id)


def has_images(step: Step) -> bool:
    """Whether the prompt has something that its ids only hold the place of, as far as the step says."""
    marked = step.metadata.get("prompt") == "media" or shows_media(step.vocabulary)
    return marked or any(message.media for message in step.prompt_messages or ())


def _lengthened(
    own: npt.NDArray[np.float32] | None,
    before: int,
    between: int,
    mask: npt.NDArray[np.bool_],
    values: npt.NDArray[np.float32],
    name: str,
) -> npt.NDArray[np.float32]:
    """A row's array with that of one more reply behind it, 0 where nothing is trained."""
    width = values.shape[1:]
    first = np.zeros((before, *width), np.float32) if own is None else own
    if first.shape[1:] != width:
        raise InvalidRequestError(
            f"annotation {name!r} is of shape {first.shape[1:]} on one step and {width} on the next of its run",
            path=name,
            hint="Score the steps again with one top_k",
        )
    chosen = mask.reshape(-1, *(1 for _ in width))
    return np.concatenate([first, np.zeros((between, *width), np.float32), np.where(chosen, values, np.float32(0.0))])


def sampled_with(
    step: Step, mask: npt.NDArray[np.bool_], behaviour: Behaviour
) -> tuple[float, npt.NDArray[np.float32]]:
    """What the logits are divided by, and the log-probabilities at sampling, 0 outside the mask.

    Where they need not be recorded, and are not in a space that can be recomputed, they are NaN, and the temperature is
    the one that was sampled at.
    """
    if not behaviour:
        return 1.0, np.zeros(len(mask), dtype=np.float32)
    try:
        return recomputable_temperature(step), behaviour_logprobs(step, mask)
    except InvalidRequestError:
        if behaviour is True:
            raise
    heat = step.sampling.temperature if step.sampling is not None else None
    return heat or 1.0, np.where(mask, np.float32(np.nan), np.float32(0.0))


def longest_prefix(rows: Sequence[Row], prompt: npt.NDArray[np.int64], temperature: float) -> Row | None:
    """The longest row that the prompt begins with."""
    found: Row | None = None
    for row in rows:
        if (
            row.temperature == temperature
            and len(row) <= len(prompt)
            and (found is None or len(row) > len(found))
            and np.array_equal(prompt[: len(row)], row.ids)
        ):
            found = row
    return found


def check_logprobs(step: Step) -> list[float | None]:
    """The log-probabilities of a step; InvalidRequestError where it has none at all."""
    if step.response_logprobs is None:
        raise InvalidRequestError(
            f"step {step.step_id} has no log-probabilities",
            path="logprobs",
            hint='Lease with require = ["tokens", "logprobs"], or where none are needed say to(..., logprobs="none")',
        )
    return step.response_logprobs


def behaviour_logprobs(step: Step, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.float32]:
    """The recorded log-probabilities, 0 outside the mask; refused where a trained token has none."""
    given = check_logprobs(step)
    values = np.asarray([np.nan if value is None else value for value in given], dtype=np.float32)
    missing = int((np.isnan(values) & mask).sum())
    if missing:
        tokens = "a sampled token" if missing == 1 else f"{missing} sampled tokens"
        raise InvalidRequestError(f"step {step.step_id} lacks the log-probability of {tokens}")
    return np.where(mask, values, np.float32(0.0))


def _annotated(step: Step, given: Mapping[str, Any], name: str) -> npt.NDArray[np.float32]:
    """The annotation over the step's reply; refused where it is not there, or no number for a trained token."""
    count = len(step.response_ids or ())
    if name not in given:
        raise InvalidRequestError(
            f"step {step.step_id} has no annotation {name!r}",
            path=name,
            hint=f'Annotate the steps first, and lease with require = ["tokens", "annotation.{name}"]',
        )
    values = np.atleast_1d(np.asarray(given[name], dtype=np.float32))  # None is NaN there.
    if values.ndim == 2 and len(values) == count:
        return values  # Several a token, of which some may be missing.
    if values.shape not in ((1,), (count,)):
        raise InvalidRequestError(
            f"annotation {name!r} of step {step.step_id} has {values.size} numbers for {count} reply tokens", path=name
        )
    values = np.broadcast_to(values, (count,))
    missing = int(np.count_nonzero(sampled(step) & ~np.isfinite(values)))
    if missing:
        raise InvalidRequestError(
            f"annotation {name!r} of step {step.step_id} has no number for {missing} sampled tokens", path=name
        )
    return np.where(np.isfinite(values), values, np.float32(0.0))


def recomputable_temperature(step: Step) -> float:
    """What to divide the logits by to compute in the step's log-probability space: 1 for raw, else its temperature.

    A space after truncation or penalties cannot be recomputed from logits alone, and mixing spaces would give ratios
    that mean nothing, so it is refused. So is a step that has none.
    """
    check_logprobs(step)
    if step.logprob_space == "raw":
        return 1.0
    if step.logprob_space not in ("temperature", "processed"):
        raise InvalidRequestError(
            f"step {step.step_id} does not say in which space its log-probabilities are",
            path="logprob_space",
            hint='Send logprob_space with steps and lease with require = ["logprob_space.raw"], or where no '
            'log-probabilities are needed say to(..., logprobs="none")',
        )
    sampling = step.sampling or Sampling()
    temperature = 1.0 if sampling.temperature is None else sampling.temperature
    changed = [
        name
        for name, neutral in (
            ("top_p", (None, 1, 1.0)),
            ("top_k", (None, 0, -1)),
            ("min_p", (None, 0, 0.0)),
            ("presence_penalty", (None, 0, 0.0)),
            ("frequency_penalty", (None, 0, 0.0)),
            ("repetition_penalty", (None, 1, 1.0)),
            ("logit_bias", (None, {})),
        )
        if getattr(sampling, name) not in neutral
    ]
    if step.logprob_space == "processed" and (changed or temperature <= 0):
        why = ", ".join(changed) or "temperature 0"
        raise InvalidRequestError(
            f"step {step.step_id} has log-probabilities after {why}, which the trainer cannot recompute",
            hint="Sample with temperature alone, or have the engine report raw log-probabilities",
        )
    return temperature
