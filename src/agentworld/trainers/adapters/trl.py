"""Rows for TRL's trainers: ids where they take ids, messages where they render themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from agentworld.errors import InvalidRequestError
from agentworld.records import AdapterNeeds, Batch
from agentworld.trainers.adapters.messages import judged_rows, preferred_rows, stepwise_rows
from agentworld.trainers.adapters.padding import Array
from agentworld.trainers.adapters.samples import Sample, SampleOptions, Samples, read_samples

Trainer = Literal["grpo", "sft", "dpo", "reward", "kto", "prm"]
_IGNORED = -100  # What cross entropy leaves out.


class TrlOptions(SampleOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the adapter `trl`. `trainer`: whose rows, by default that of the batch's method. `temperature`: that of
    GRPOConfig, which rows have to be of. `threshold`: of a reward that makes a reply good, for kto and prm.
    `step_reward`: the reward on steps that prm reads, by default the primary one, as leases do.
    """

    trainer: Trainer | None = None
    temperature: float | None = None
    threshold: float = 0.5
    step_reward: str = "reward"


class Trl:
    """The adapter `trl`."""

    name = "trl"
    says = "TRL's rollouts for GRPO, and rows for SFT, DPO, reward models, KTO and PRM"
    needs = AdapterNeeds(require=("tokens", "logprobs"), logprob_spaces=("raw", "temperature", "processed"))
    options = TrlOptions

    def convert(self, batch: Batch, options: TrlOptions) -> Any:
        """grpo: the dictionary that a `rollout_func` returns. Of the others a list of rows, for Dataset.from_list."""
        trainer = options.trainer or ("grpo" if batch.unit == "group" else batch.method)
        if trainer == "grpo":
            return rollouts(read_samples(batch, options), options)
        if trainer == "sft":
            return [_supervised(row) for row in read_samples(batch, _without_policy(options)).rows]
        if trainer in ("dpo", "reward"):
            return preferred_rows(batch)
        if trainer == "kto":
            return judged_rows(batch, options.threshold)
        if trainer == "prm":
            return stepwise_rows(batch, options.step_reward, options.threshold)
        raise InvalidRequestError(
            f"no trainer of TRL is called {trainer!r}", path="trainer", hint="Use grpo, sft, dpo, reward, kto or prm"
        )


def rollouts(samples: Samples, options: TrlOptions) -> dict[str, list[Any]]:
    """Lists [B]: `prompt_ids`, `completion_ids`, `logprobs` (0 at what was put between) and `env_mask` (1 where the
    policy sampled), each a list; and for reward functions `reward`, `group`, `trajectory_id`, `step_ids`.

    GRPOTrainer makes advantages of rows and takes as many of each group: trajectories of several rows are refused, as
    their reward would count more than once.
    """
    samples.no_parts_of_weights()
    samples.one_temperature(options.temperature)
    for row in samples.rows:
        if row.parts > 1:
            raise InvalidRequestError(
                f"trajectory {row.trajectory_id} is {row.parts} rows, and GRPOTrainer takes one a rollout",
                path="rows",
                hint="Leave out trajectories whose context was rewritten, or use a trainer that takes advantages",
            )
    return {
        "prompt_ids": [row.prompt_ids.tolist() for row in samples.rows],
        "completion_ids": [row.response_ids.tolist() for row in samples.rows],
        "logprobs": [row.need_logprobs().tolist() for row in samples.rows],
        "env_mask": [row.response_mask.astype("int64").tolist() for row in samples.rows],
        "reward": [row.need_reward() for row in samples.rows],
        "group": [row.group for row in samples.rows],
        "trajectory_id": [row.trajectory_id for row in samples.rows],
        "step_ids": [row.step_ids for row in samples.rows],
    }


def rollout_func(next_batch: Callable[[], Any], **options: Any) -> Callable[[list[Any], Any], dict[str, list[Any]]]:
    """A `rollout_func` for GRPOTrainer that takes its rollouts from `next_batch()`: a batch of as many rollouts as the
    trainer names prompts, in groups of `num_generations`.

    The trainer's prompts only say how many are wanted; what was asked is in the rows. Their rewards are read by
    `pool_reward`.
    """

    def roll(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = next_batch().to("trl", trainer="grpo", **options)
        each = trainer.num_generations if trainer.model.training else trainer.num_generations_eval
        sizes = [found["group"].count(group) for group in dict.fromkeys(found["group"])]
        if len(found["group"]) != len(prompts) or set(sizes) != {each}:
            raise InvalidRequestError(
                f"a batch with groups of {sizes} where GRPOTrainer takes {len(prompts)} rollouts in groups of {each}",
                path="groups",
                hint=f"Lease groups = {len(prompts) // max(each, 1)}, rollouts = {each}, and let groups have that size",
            )
        return found

    return roll


def pool_reward(completions: list[Any], reward: list[float], **_: Any) -> list[float]:
    """A reward function for GRPOTrainer: the rewards that the pool has of the rollouts."""
    return list(reward)


def _without_policy(options: TrlOptions) -> SampleOptions:
    return SampleOptions(rows=options.rows, shared=options.shared, credit="none", logprobs="none")


def _supervised(row: Sample) -> dict[str, Any]:
    """`input_ids` and `labels`, which are -100 but for the sampled tokens: taken as they are, nothing is rendered."""
    ids: Array = row.ids
    mask = row.whole(row.response_mask)
    labels = ids.copy()
    labels[~mask] = _IGNORED
    return {"input_ids": ids.tolist(), "labels": labels.tolist()}


ADAPTER = Trl()
