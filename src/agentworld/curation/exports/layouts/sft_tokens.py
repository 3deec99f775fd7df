"""Supervised fine-tuning on the ids themselves: no template stands between what was sampled and what is trained on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.curation.datasets.provenance import PROVENANCE
from agentworld.curation.datasets.reading import ARRAYS
from agentworld.curation.exports.columns import Kind
from agentworld.curation.exports.components import Components
from agentworld.curation.exports.imitation import imitated
from agentworld.curation.exports.options import ExportOptions
from agentworld.curation.exports.registry import Row, Work, layout, origin_of
from agentworld.curation.exports.sequences import Chosen, each_sequence, has_ids, sampled, sequences
from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.records import Step

IGNORED = -100
"""The label of tokens that give no loss."""


def columns(options: ExportOptions) -> Mapping[str, Kind]:
    """The same whatever is asked for."""
    return {"input_ids": "ids", "labels": "labels", "completion_mask": "bits"}


@layout(
    "sft-tokens",
    says="Token ids with labels, exactly as sampled: TRL's SFTTrainer and any loop.",
    columns=columns,
    takes=("expand", "train", "tokenizer"),
    reads=(ARRAYS,),
)
class SftTokens:
    """One row a sequence: steps whose prompts extend one another in one, or one a step."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._chosen = _chosen(work.options)

    def rows(self, frozen: FrozenTrajectory) -> Iterator[Row]:
        """See LayoutRows."""
        options, left_out = self._work.options, self._work.left_out
        steps = imitated(frozen, left_out)
        left_out["without_ids"] += sum(not has_ids(frozen.arrays.get(step.step_id)) for step in steps)
        made = each_sequence if options.expand == "each-step" else sequences
        for each in made(steps, frozen.arrays, self._chosen):
            if not each.mask.any():
                left_out["nothing_to_train"] += 1
                continue
            self._check_vocabulary(each.steps)
            ids = each.ids.astype(np.int64)
            yield {
                "input_ids": ids,
                "labels": np.where(each.mask, ids, IGNORED),
                "completion_mask": each.mask.astype(np.int8),
                PROVENANCE: origin_of(each.steps),
            }

    def rest(self) -> Iterator[Row]:
        """Nothing."""
        return iter(())

    def _check_vocabulary(self, steps: Sequence[Step]) -> None:
        """Ids of two vocabularies mean different texts. Where nobody said which one, ids are taken as they are."""
        for step in steps:
            own = (step.vocabulary or "").partition("+")[0]
            if not own:
                continue
            known, first, model = self._work.shared.setdefault("vocabulary", (own, step.step_id, _model(step)))
            if own == known:
                continue
            wanted = f"trajectory_id != {json.dumps(step.trajectory_id)}"
            if model and model != _model(step):
                wanted = f"policy.model == {json.dumps(model)}"
            raise InvalidRequestError(
                f"the ids of steps {first} and {step.step_id} are of two vocabularies, {known[:12]} and {own[:12]}",
                path="format",
                hint=f"Freeze a version of one of them, such as with where {wanted!r}, and export that",
            )


def _model(step: Step) -> str | None:
    return step.policy.model if step.policy is not None else None


def _chosen(options: ExportOptions) -> Chosen:
    if not options.train:
        return sampled
    if options.tokenizer is None:
        raise ConfigError(
            "train needs the tokenizer of the model, to tell the components of replies apart in their ids",
            path="tokenizer",
            hint="Give tokenizer, such as qwen3 or a folder with tokenizer.json",
        )
    from agentworld.engines.tokenizer import load_tokenizer

    return Components(load_tokenizer(options.tokenizer)).chosen(options.train)
