"""A leased trajectory as rows of verl's AgentLoopOutput. Pure: plain lists, no verl."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentworld.errors import InvalidRequestError
from agentworld.records import Batch
from agentworld.trainers.adapters.samples import Sample, SampleOptions, read_samples
from agentworld.trainers.adapters.tasks import version_range
from agentworld.verl_loop.settings import Several


@dataclass(frozen=True, slots=True)
class LoopRow:
    """One chain of steps. `prompt_ids` [P]; `response_ids`, `response_mask`, `response_logprobs` [R], from the first
    sampled token on: 1 in the mask where the policy sampled, and 0 as log-probability elsewhere; None without
    log-probabilities. `versions`: the oldest and the newest weights that sampled it. `cut`: ids left out at its end,
    as more than `response_length` of verl's configuration.
    """

    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    response_logprobs: list[float] | None
    num_turns: int
    versions: tuple[int | None, int | None]
    step_ids: list[str]
    cut: int


def loop_rows(
    batch: Batch, *, prompt_length: int, response_length: int, logprobs: bool, several: Several, temperature: float
) -> list[LoopRow]:
    """The rows of a batch of one trajectory, in order.

    What is longer than `response_length` is cut there, as verl's own loops do. InvalidRequestError names the
    trajectory without a sampled token, with a prompt over `prompt_length`, with several rows where `several` is
    refuse, or a row that was sampled at another temperature than verl computes at.
    """
    samples = read_samples(batch, SampleOptions(credit="none", logprobs="recorded" if logprobs else "none"))
    name = batch.items[0].trajectories[0].trajectory.trajectory_id
    if not samples.rows:
        raise InvalidRequestError(f"trajectory {name} has no token that the policy sampled", path="mask")
    if logprobs:
        samples.one_temperature(temperature)
    if len(samples.rows) > 1 and several == "refuse":
        raise InvalidRequestError(
            f"trajectory {name} is {len(samples.rows)} rows, as {_broken(samples.rows)}",
            path="several",
            hint='Use verl\'s V1 trainer, which takes all rows, or several = "last" to train on the last one alone',
        )
    chosen = samples.rows[-1:] if several == "last" else samples.rows
    found = [_row(row, prompt_length, response_length) for row in chosen]
    left = [row for row in found if any(row.response_mask)]
    if not left:
        raise InvalidRequestError(
            f"trajectory {name} has no sampled token within {response_length} ids of its response",
            path="response_length",
            hint="Raise data.max_response_length",
        )
    return left


def _row(sample: Sample, prompt_length: int, response_length: int) -> LoopRow:
    if len(sample.prompt_ids) > prompt_length:
        raise InvalidRequestError(
            f"trajectory {sample.trajectory_id} has a prompt of {len(sample.prompt_ids)} ids where {prompt_length} fit",
            path="prompt_length",
            hint="Raise data.max_prompt_length",
        )
    keep = slice(0, response_length)
    low, high = version_range(sample)
    return LoopRow(
        prompt_ids=sample.prompt_ids.tolist(),
        response_ids=sample.response_ids[keep].tolist(),
        response_mask=sample.response_mask[keep].astype(int).tolist(),
        response_logprobs=None if sample.logprobs is None else sample.logprobs[keep].tolist(),
        num_turns=2 * len(sample.turns),
        versions=(low, high),
        step_ids=sample.step_ids,
        cut=max(0, len(sample.response_ids) - response_length),
    )


def _broken(rows: Sequence[Sample]) -> str:
    """What the steps that begin later rows say of why."""
    reasons = {row.steps[0].fork_reason or "its prompt does not extend what was before" for row in rows[1:]}
    return " and ".join(sorted(reasons))


def origin(batch: Batch, row: LoopRow, part: int, parts: int) -> dict[str, Any]:
    """What goes with a row, so that its use can be acknowledged: `batch_id`, `epoch` (None where nothing was leased),
    `trajectory_id`, `step_ids`, `part` of `parts`, `cut`.
    """
    return {
        "batch_id": batch.batch_id or None,
        "epoch": batch.epoch if batch.batch_id else None,
        "trajectory_id": batch.items[0].trajectories[0].trajectory.trajectory_id,
        "step_ids": row.step_ids,
        "part": part,
        "parts": parts,
        "cut": row.cut,
    }
