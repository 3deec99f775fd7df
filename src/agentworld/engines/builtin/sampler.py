"""Draws the next token of every row at once, each row with its own settings and its own random numbers.

The distribution of a row is made in vLLM's order: logit bias, minimum length, penalties, temperature, min-p,
top-k, top-p. One uniform number a token picks from its cumulative sum, so that a row's draw depends on its own
logits and seed only, never on what else is in the batch.

Log-probabilities are float32. `raw_logprobs` is the log-softmax of the model's logits; `processed_logprobs` that of
the distribution drawn from. At temperature 0 nothing is drawn, and both are the raw one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

import torch

from agentworld.engines.replies import Tops
from agentworld.engines.surface import Sampling


class RowSampler:
    """Settings and random numbers of one sequence."""

    def __init__(
        self, sampling: Sampling, *, seed: int | None, stop_ids: Iterable[int], tops: int | None, raw: bool
    ) -> None:
        self.sampling = sampling
        self.tops = tops
        self.raw = raw or sampling.temperature == 0
        self.greedy = sampling.temperature == 0
        self.temperature = 1.0 if self.greedy else sampling.temperature
        self.stop_ids = tuple(stop_ids)
        self._random = random.Random() if seed is None else random.Random(seed)
        self.edits = bool(
            sampling.logit_bias
            or sampling.min_tokens
            or sampling.presence_penalty
            or sampling.frequency_penalty
            or sampling.repetition_penalty != 1.0
        )
        self.cuts = not self.greedy and bool(sampling.top_k or sampling.top_p < 1.0 or sampling.min_p > 0.0)

    def uniform(self) -> float:
        """The next number in [0, 1)."""
        return self._random.random()

    def edit(self, logits: torch.Tensor, prompt: Sequence[int], reply: Sequence[int]) -> None:
        """Apply bias, minimum length and penalties to one row of logits `[vocabulary]`, in place."""
        given = self.sampling
        for token_id, bias in given.logit_bias:
            logits[token_id] += bias
        if len(reply) < given.min_tokens and self.stop_ids:
            logits[list(self.stop_ids)] = -torch.inf
        if given.repetition_penalty != 1.0:
            seen = torch.tensor(sorted({*prompt, *reply}), device=logits.device)
            values = logits[seen]
            logits[seen] = torch.where(values > 0, values / given.repetition_penalty, values * given.repetition_penalty)
        if reply and (given.presence_penalty or given.frequency_penalty):
            counts = Counter(reply)
            ids = torch.tensor(list(counts), device=logits.device)
            times = torch.tensor(list(counts.values()), dtype=logits.dtype, device=logits.device)
            logits[ids] -= given.frequency_penalty * times + given.presence_penalty


class Drawn:
    """What one draw gave, row by row."""

    __slots__ = ("ids", "logprobs", "tops")

    def __init__(self, ids: list[int], logprobs: list[float], tops: list[Tops]) -> None:
        self.ids = ids
        self.logprobs = logprobs
        """Empty when no row asked for any."""
        self.tops = tops


def process(logits: torch.Tensor, rows: Sequence[RowSampler]) -> torch.Tensor:
    """Log-probabilities `[rows, vocabulary]` of the distributions that are drawn from, given edited logits."""
    temperatures = [row.temperature for row in rows]
    if any(temperature != 1.0 for temperature in temperatures):
        scale = torch.tensor(temperatures, dtype=logits.dtype, device=logits.device)
        logits = logits / scale[:, None]
    cut = [index for index, row in enumerate(rows) if row.cuts]
    if len(cut) == len(rows):
        logits = _cut(logits, [row.sampling for row in rows])
    elif cut:
        places = torch.tensor(cut, device=logits.device)
        kept = _cut(logits[places], [rows[index].sampling for index in cut])
        logits = logits.index_copy(0, places, kept)
    return torch.log_softmax(logits, dim=-1)


def _cut(logits: torch.Tensor, given: Sequence[Sampling]) -> torch.Tensor:
    """Remove what min-p, top-k and top-p leave out of each row of `[rows, vocabulary]`."""

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=logits.dtype, device=logits.device)[:, None]

    size = logits.shape[-1]
    if any(row.min_p > 0.0 for row in given):
        probabilities = torch.softmax(logits, dim=-1)
        least = column([row.min_p for row in given]) * probabilities.amax(dim=-1, keepdim=True)
        logits = logits.masked_fill(probabilities < least, -torch.inf)
    counts = [min(row.top_k, size) or size for row in given]
    if any(row.top_p < 1.0 for row in given):
        ordered, order = torch.sort(logits, dim=-1, descending=True, stable=True)
    elif min(counts) < size:
        ordered = torch.topk(logits, max(count for count in counts if count < size), dim=-1).values
    if min(counts) < size:
        last = torch.tensor([min(count, ordered.shape[-1]) - 1 for count in counts], device=logits.device)
        lowest = ordered.gather(1, last[:, None])
        lowest = lowest.masked_fill(column([float(count == size) for count in counts]) > 0, -torch.inf)
        logits = logits.masked_fill(logits < lowest, -torch.inf)
    if any(row.top_p < 1.0 for row in given):
        probabilities = torch.softmax(logits.gather(1, order), dim=-1)
        before = probabilities.cumsum(dim=-1) - probabilities
        share = column([row.top_p for row in given])
        gone = (before >= share) & (share < 1.0)
        gone[:, 0] = False
        logits = logits.masked_fill(torch.zeros_like(gone).scatter(1, order, gone), -torch.inf)
    return logits


def draw(
    logits: torch.Tensor,
    rows: Sequence[RowSampler],
    histories: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> Drawn:
    """Draw one id for each row of float32 `logits` `[rows, vocabulary]`; `histories` are (prompt, reply) ids."""
    edited = logits
    if any(row.edits for row in rows):
        edited = logits.clone()
        for index, row in enumerate(rows):
            if row.edits:
                row.edit(edited[index], *histories[index])
    processed = process(edited, rows)
    greedy = [row.greedy for row in rows]
    if all(greedy):
        chosen = edited.argmax(dim=-1)
    else:
        cumulative = processed.exp().to(torch.float64).cumsum(dim=-1)
        numbers = [0.0 if row.greedy else row.uniform() for row in rows]
        uniform = torch.tensor(numbers, dtype=torch.float64, device=logits.device)[:, None]
        total = cumulative[:, -1:]
        # Rounding must not push the target onto the total, where nothing with a probability lies.
        target = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
        chosen = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
        if any(greedy):
            best = edited.argmax(dim=-1)
            chosen = torch.where(torch.tensor(greedy, device=logits.device), best, chosen)
    wanted = [row.tops for row in rows if row.tops is not None]
    if not wanted:
        return Drawn(chosen.tolist(), [], [[] for _ in rows])
    reported = processed
    raw = [row.raw for row in rows]
    if any(raw):
        plain = torch.log_softmax(logits, dim=-1)
        reported = torch.where(torch.tensor(raw, device=logits.device)[:, None], plain, processed)
    values = reported.gather(1, chosen[:, None]).squeeze(1)
    tops: list[Tops] = [[] for _ in rows]
    if max(wanted):
        best_values, best_ids = torch.topk(reported, min(max(wanted), reported.shape[-1]), dim=-1)
        for index, (ids, scores) in enumerate(zip(best_ids.tolist(), best_values.tolist(), strict=True)):
            tops[index] = list(zip(ids, scores, strict=True))[: rows[index].tops or 0]
    return Drawn(chosen.tolist(), values.tolist(), tops)
