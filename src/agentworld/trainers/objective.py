"""The gradient of one update: its rows in micro-batches, forwarded merged or flat, and the method's loss on them."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.merge import check_model
from agentworld.merge.costs import ModelShape, shape_of
from agentworld.merge.heads import check_head
from agentworld.merge.verify import verify_merging
from agentworld.trainers.critic import RETURNS, VALUES
from agentworld.trainers.forward import part_scores, states_at, states_before, token_scores
from agentworld.trainers.heads import head_scores
from agentworld.trainers.judged_rows import GOOD
from agentworld.trainers.losses import Loss, Terms, loss_of, stepwise_loss
from agentworld.trainers.minibatches import Unit, flat_weights, trained
from agentworld.trainers.mismatched import mismatched_rows
from agentworld.trainers.parts import Part, chosen_parts
from agentworld.trainers.rows import TAUGHT, Row
from agentworld.trainers.settings import TrainSettings

if TYPE_CHECKING:
    import torch

_LOG = logging.getLogger(__name__)
# What is compared before the first merged update: of a few rows this many tokens around a fork.
VERIFIED_TOKENS = 256


class UpdateFigures(NamedTuple):
    """`loss` of the update; `means` by name, over its trained tokens or its units; `sequence_tokens` of all its rows,
    `computed_tokens` in its forwards, padding included; `merged`: how many of those are of trees.
    """

    loss: float
    means: dict[str, float]
    sequence_tokens: int
    computed_tokens: int
    merged: int


class Objective:
    """Gradients of `model` for updates by `settings`; a reference model is the weights as they are now. `head`: the
    layer that is trained beside the model, for methods that have one (see `heads`).

    `comparison`: what the comparison of merged with flat came to, in a line; None before there was one.
    """

    def __init__(self, model: Any, settings: TrainSettings, head: Any = None) -> None:
        self.model = model
        self.head = head
        self.settings = settings
        self.comparison: str | None = None
        self._verified = not settings.verify_merging
        self._head_checked = False
        self._shape: ModelShape | None = None
        self._looked = settings.merging == "off"
        self._reference: Any = None
        if settings.uses_reference and settings.reference is None:
            self._reference = copy.deepcopy(model).requires_grad_(False).eval()

    def gradient(self, units: Sequence[Unit]) -> UpdateFigures:
        """Add the update's gradient to the model's.

        MergeDiffersError where merging is verified and does not compute what the model does; ConfigError where merging
        is "on" for a model that it does not know, or where a model's logits are not made as the trainer makes them.
        """
        settings = self.settings
        if not self._head_checked:
            check_head(self.model)
            self._head_checked = True
        rows = [row for unit in units for row in unit]
        weights = flat_weights(
            rows,
            settings.loss_aggregation,
            horizon=settings.horizon,
            shared=settings.shared,
            factors=settings.token_weights,
        )
        begins = np.cumsum([0, *map(len, units)])
        divergence = self._divergence(units) if settings.method == "kto" else 0.0
        parts = self._parts(units)
        tokens = sum(int(trained(row).sum()) for row in rows)
        loss, means, merged = 0.0, dict[str, float](), 0
        for part in parts:
            if part.tree is not None and not self._verified:
                ids = [row.ids for row in rows]
                self.comparison = verify_merging(self.model, ids, window=VERIFIED_TOKENS).line()
                _LOG.info("%s", self.comparison)
                self._verified = True
            own = [weights[place] for unit in part.units for place in range(begins[unit], begins[unit + 1])]
            if settings.method == "prm":
                found = self._stepwise(part, own)
            else:
                found = loss_of(self.terms(part, own, len(units), divergence), settings)
            found.value.backward()
            loss += float(found.value.detach())
            for figures, count in ((found.figures, max(tokens, 1)), (found.of_units, len(units))):
                for name, value in figures.items():
                    means[name] = means.get(name, 0.0) + value / count
            merged += part.tokens if part.tree is not None else 0
        return UpdateFigures(loss, means, sum(map(len, rows)), sum(part.tokens for part in parts), merged)

    def terms(
        self, part: Part, weights: Sequence[npt.NDArray[np.float64]], units: int, divergence: float = 0.0
    ) -> Terms:
        """What the loss of a micro-batch of an update of so many units is computed from; `weights` [L] of each row."""
        import torch

        settings = self.settings
        masks = [trained(row) for row in part.rows]
        ids = teacher_top = None
        if settings.uses_top:
            named, values = (wide(part.rows, masks, name) for name in settings.top_names)
            # Tables of larger models have rows that smaller ones lack: what the student cannot say is of the rest, as
            # is what fills up a place of which less was named (an id below 0, a log-probability of -inf).
            there = (named >= 0) & (named < self.model.get_input_embeddings().num_embeddings) & np.isfinite(values)
            ids = np.where(there, named, 0.0).astype(np.int64)
            teacher_top = torch.from_numpy(np.where(there, values, np.float32(np.nan)))
        states = states_before(self.model, part)
        scores = token_scores(self.model, part, states, entropies=settings.entropy_weight > 0, also=ids)
        device, dtype = scores.logprobs.device, scores.logprobs.dtype

        def flat(values: Sequence[npt.NDArray[Any]]) -> torch.Tensor:
            return _flat(values, masks, scores.logprobs)

        def annotated(name: str | None) -> torch.Tensor | None:
            if name is None:
                return None
            if any(row.arrays[name].ndim != 1 for row in part.rows):
                raise InvalidRequestError(f"annotation {name!r} has several numbers a token, not one", path=name)
            return flat([row.arrays[name] for row in part.rows])

        reference = annotated(settings.reference if settings.uses_reference else None)
        if self._reference is not None:
            with torch.no_grad():
                reference = part_scores(self._reference, part).logprobs
        counts = [int(mask.sum()) for mask in masks]
        old = flat([row.logprobs for row in part.rows])
        return Terms(
            logprobs=scores.logprobs,
            weights=flat(weights),
            # What nobody recorded is taken as sampled by the weights as they are.
            old=torch.where(torch.isnan(old), scores.logprobs.detach(), old),
            advantages=flat([row.advantages for row in part.rows]),
            row=torch.from_numpy(np.repeat(np.arange(len(counts)), counts)).to(device),
            unit=torch.from_numpy(np.repeat(np.arange(len(part.units)), part.sizes)).to(device),
            preferred=torch.tensor([row.preferred for row in part.rows], device=device),
            unit_weight=1.0 / units,
            reference=reference,
            teacher=annotated(settings.teacher if settings.method == "distill" else None),
            top=scores.top,
            teacher_top=None if teacher_top is None else teacher_top.to(device=device, dtype=dtype),
            taught=annotated(TAUGHT if settings.teacher_model is not None else None),
            entropies=scores.entropies,
            divergence=divergence,
            values=None if self.head is None else head_scores(self.head, states).to(dtype),
            old_values=annotated(None if self.head is None else VALUES),
            returns=annotated(None if self.head is None else RETURNS),
        )

    def values_of(self, rows: Sequence[Row]) -> list[npt.NDArray[np.float32]]:
        """The head's number after each token of each row, [L], without gradient; shared beginnings computed once."""
        import torch

        self.model.eval()  # Nothing drops out.
        found: list[npt.NDArray[np.float32]] = [np.zeros(0, np.float32)] * len(rows)
        with torch.no_grad():
            for part in self._parts([[row] for row in rows]):
                states = states_at(self.model, part, [np.ones(len(row), np.bool_) for row in part.rows])
                numbers = head_scores(self.head, states).float().cpu().numpy()
                ends = np.cumsum([len(row) for row in part.rows])[:-1]
                for place, own in zip(part.units, np.split(numbers, ends), strict=True):
                    found[place] = own
        return found

    def _stepwise(self, part: Part, weights: Sequence[npt.NDArray[np.float64]]) -> Loss:
        """The loss of a process reward model on a micro-batch: from the states after the marked tokens."""
        masks = [trained(row) for row in part.rows]
        logits = head_scores(self.head, states_at(self.model, part, masks))
        good = _flat([row.arrays[GOOD] for row in part.rows], masks, logits)
        found = stepwise_loss(logits, good, _flat(weights, masks, logits))
        return Loss(found.loss, {"accuracy": float(found.right.sum()), "good": float(good.sum())}, {})

    def _divergence(self, units: Sequence[Unit]) -> float:
        """The estimate of KL(policy || reference) that KTO goes by, of the update's units; at least 0."""
        import torch

        total = 0.0
        with torch.no_grad():
            for part in self._parts([[row] for row in mismatched_rows(units)]):
                own, other = (part_scores(model, part).logprobs for model in (self.model, self._reference))
                total += float((own - other).sum())
        return max(0.0, total / len(units))

    def _parts(self, units: Sequence[Unit]) -> list[Part]:
        settings = self.settings
        return chosen_parts(units, settings.merging, settings.micro_tokens, settings.micro_pairs, self._known_shape())

    def _known_shape(self) -> ModelShape | None:
        """The model's shape, None where its rows are not to be merged; looked at once, as it is trained."""
        if not self._looked:
            self._looked = True
            try:
                check_model(self.model)
                self._shape = shape_of(self.model.config)
            except ConfigError as error:
                if self.settings.merging == "on":
                    raise
                _LOG.warning("training unmerged: %s", error.message)
        return self._shape


def _flat(
    values: Sequence[npt.NDArray[Any]], masks: Sequence[npt.NDArray[np.bool_]], like: torch.Tensor
) -> torch.Tensor:
    """What the masks choose of each row's values, one after the other, [N]; of the type and device of `like`."""
    import torch

    chosen = np.concatenate([own[mask] for own, mask in zip(values, masks, strict=True)])
    return torch.from_numpy(chosen).to(device=like.device, dtype=like.dtype)


def wide(rows: Sequence[Row], masks: Sequence[npt.NDArray[np.bool_]], name: str) -> npt.NDArray[np.float32]:
    """An annotation of several numbers a token at the trained tokens of rows, [N, k]; NaN behind those of rows that
    have fewer. InvalidRequestError where it has one a token.
    """
    parts = [row.arrays[name][mask] for row, mask in zip(rows, masks, strict=True)]
    if any(part.ndim != 2 for part in parts):
        raise InvalidRequestError(
            f"annotation {name!r} has one number a token, not several", path=name, hint="Score the steps with top_k"
        )
    width = max(part.shape[1] for part in parts)
    filled = [np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=np.nan) for part in parts]
    return np.concatenate(filled)


__all__ = ["Objective", "UpdateFigures"]
