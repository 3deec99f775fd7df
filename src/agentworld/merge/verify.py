"""Merged against flat, on a small batch of the user's own model and data, before anything is trained on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agentworld.errors import AgentWorldError, InvalidRequestError
from agentworld.merge.attention import Way
from agentworld.merge.gradients import gradients_of, relative_gap
from agentworld.merge.models import check_model
from agentworld.merge.scores import tree_scores
from agentworld.merge.tree import Ids, build_tree

if TYPE_CHECKING:
    import torch

# By bits of the model's type: how far log-probabilities may differ, and all gradients together relative to their norm.
# Sums in another order differ by some units of the last place of the largest term: on a model of 135 million weights
# by 3e-5 and 6e-5 in 32 bits, 0.3 and 0.02 in 16, while a token of the prompt that is not seen makes 0.8 and 0.16.
TOLERANCES = {64: (1e-6, 1e-5), 32: (1e-3, 3e-3), 16: (2.0, 0.1)}
ONE_PARAMETER = 3.0
"""So many times as far may the gradient of one parameter differ, relative to its own norm."""
MOST_TOKENS = 8_192
"""Flat tokens that are compared, at most: sequences behind them are left out."""
WINDOWS, WINDOW_TOKENS = 8, 1024
"""Where no sequence is under that: so many windows of so many tokens."""


class MergeDiffersError(AgentWorldError):
    """Merging computes something else than the model does on these sequences."""

    code = "merge_differs"
    status = 500


class Verification(NamedTuple):
    """`sequences`, `tokens`: how much was compared, flat; `unique`: computed merged. `left_out`: sequences of two
    tokens and more that were not compared; `window`: tokens that were compared of each of the others at most, None for
    all of them. `logprobs`: the largest difference, and `where` it is as (sequence, place). `gradients`: that of all
    together, relative; `parameter`: the one that differs most, relative to its own norm by `of_parameter`. Held against
    `tolerances` of log-probabilities and gradients.
    """

    sequences: int
    tokens: int
    unique: int
    left_out: int
    window: int | None
    logprobs: float
    where: tuple[int, int]
    gradients: float
    parameter: str | None
    of_parameter: float
    tolerances: tuple[float, float]

    @property
    def holds(self) -> bool:
        """Whether all are within the tolerances."""
        return self.logprobs <= self.tolerances[0] and self._gradients_hold

    @property
    def _gradients_hold(self) -> bool:
        most = self.tolerances[1]
        return self.gradients <= most and self.of_parameter <= ONE_PARAMETER * most

    def line(self) -> str:
        """What was found, in a line, and what was left out."""
        what = f"{self.sequences} sequences"
        if self.left_out:
            what = f"{self.sequences} of {self.sequences + self.left_out} sequences"
        if self.window is not None:
            what += f", around a fork {self.window:,} tokens of each at most,"
        parameter = "" if self.parameter is None else f" ({self.of_parameter:.1e} of {self.parameter})"
        return (
            f"merged against flat on {what} of {self.tokens:,} tokens, {self.unique:,} merged: "
            f"log-probabilities differ by {self.logprobs:.1e}, gradients by {self.gradients:.1e}{parameter}"
        )

    def check(self) -> None:
        """MergeDiffersError with what differs, where it does by more than the tolerances."""
        if self.holds:
            return
        place = f"sequences[{self.where[0]}][{self.where[1]}]"
        raise MergeDiffersError(
            f"{self.line()}; allowed are {self.tolerances[0]:g} and {self.tolerances[1]:g}",
            path=str(self.parameter) if self.logprobs <= self.tolerances[0] else place,
            hint="Train this model unmerged: something in it looks at more than a token's own path",
        )


def verify_merging(
    model: Any,
    sequences: Sequence[Ids] | Sequence[Sequence[int]],
    *,
    way: Way = "auto",
    tolerances: tuple[float, float] | None = None,
    window: int | None = None,
) -> Verification:
    """Compare log-probabilities, and gradients of their mean, of the merged and of the flat forward.

    Sequences are taken as they come as long as all are within 8,192 tokens, and `left_out` says how many were not.
    Where none is, and where `window` is given, windows of so many tokens around a fork are compared, of a few.

    Backward passes are made and the model's gradients are as before afterwards. MergeDiffersError names what differs by
    more than `tolerances` (absolute, relative), which depend on the model's type by default.
    """
    import torch

    check_model(model)
    known = [np.asarray(each, dtype=np.int64) for each in sequences]
    usable = [place for place, each in enumerate(known) if len(each) > 1]
    if not usable:
        raise InvalidRequestError("no sequence has two tokens, so there is nothing to compare", path="sequences")
    cuts = [] if window is not None else _whole([len(each) for each in known])
    if not cuts:
        window = WINDOW_TOKENS if window is None else window
        cuts = [(usable[place], begin) for place, begin in windows([known[each] for each in usable], window)]
    chosen = [known[place][begin:][:window] for place, begin in cuts]
    tree = build_tree(chosen)
    own = np.concatenate([np.arange(len(each)) > 0 for each in chosen])
    nodes = tree.index[own]
    needed = np.zeros(len(tree.tokens), dtype=bool)
    needed[nodes] = True
    parameters = {name: each for name, each in model.named_parameters() if each.requires_grad}
    with torch.enable_grad():
        merged: list[torch.Tensor] = []
        flat: list[torch.Tensor] = []
        one = gradients_of(
            parameters, _means([tree_scores(model, tree, needed, way=way).on_paths(nodes)], nodes, merged)
        )
        two = gradients_of(parameters, _means(_flat(model, chosen), nodes, flat))
    differences = (torch.cat(merged) - torch.cat(flat)).abs()
    farthest = int(differences.argmax())
    whole, parameter, of_parameter = relative_gap(one, two)
    place = int(np.flatnonzero(own)[farthest])
    sequence = int(np.searchsorted(tree.offsets, place, side="right")) - 1
    found = Verification(
        sequences=len(chosen),
        tokens=len(tree.index),
        unique=len(tree.tokens),
        left_out=len(usable) - len(chosen),
        window=window,
        logprobs=float(differences[farthest]),
        where=(cuts[sequence][0], cuts[sequence][1] + place - int(tree.offsets[sequence])),
        gradients=whole,
        parameter=parameter,
        of_parameter=of_parameter,
        tolerances=TOLERANCES[_bits(model)] if tolerances is None else tolerances,
    )
    found.check()
    return found


def windows(sequences: Sequence[npt.NDArray[np.int64]], tokens: int) -> list[tuple[int, int]]:
    """Of up to 8 sequences that are next to each other in their tree: (sequence, from which token on), so that so many
    tokens from there share some and fork.
    """
    tree = build_tree(sequences)
    shared = tree.shared
    best = int(np.argmax(shared)) if len(shared) else 0
    first = max(0, best - 1)
    while first > 0 and best - first < WINDOWS - 1 and shared[first]:
        first -= 1
    last = best + 1
    while last < len(shared) and last - first < WINDOWS and shared[last]:
        last += 1
    places = tree.order[first:last].tolist()
    common = int(shared[first + 1 : last].min()) if last - first > 1 else 0
    begin = max(0, min(common - tokens // 2, min(len(sequences[place]) for place in places) - 2))
    return [(place, begin) for place in places]


def _whole(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Those that fit into what is compared, from their beginning on."""
    chosen, tokens = [], 0
    for place, length in enumerate(lengths):
        if length > 1 and tokens + length <= MOST_TOKENS:
            chosen.append((place, 0))
            tokens += length
    return chosen


def _bits(model: Any) -> int:
    """Of the narrowest numbers that the model computes with: 64, 32 or 16."""
    import torch

    sizes = [8 * each.element_size() for each in model.parameters() if each.is_floating_point()]
    if torch.is_autocast_enabled(next(model.parameters()).device.type):
        sizes.append(16)
    return max(16, min(sizes, default=16))


def _flat(model: Any, sequences: Sequence[npt.NDArray[np.int64]]) -> Iterator[torch.Tensor]:
    """Log-probabilities of every token but the first of each sequence, a forward a sequence, as the model is."""
    import torch

    device = next(model.parameters()).device
    for each in sequences:
        ids = torch.from_numpy(each).to(device)
        logits = model(input_ids=ids[None], use_cache=False).logits[0, :-1]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        yield torch.log_softmax(logits, dim=-1).gather(1, ids[1:, None])[:, 0]


def _means(
    parts: Iterable[torch.Tensor], nodes: npt.NDArray[np.integer], found: list[torch.Tensor]
) -> Iterator[torch.Tensor]:
    """Of each part what it adds to the mean over all tokens; `found` gets its numbers."""
    for part in parts:
        found.append(part.detach())
        yield part.sum() / len(nodes)
