"""Gradients of two ways to compute one loss, held against each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from agentworld.errors import InvalidRequestError

if TYPE_CHECKING:
    import torch

Gradients = dict[str, "torch.Tensor | None"]
_SMALL = 1e-3  # of the norm of all gradients: a parameter's is taken for no less, as rounding alone may leave that


def gradients_of(parameters: Mapping[str, torch.Tensor], losses: Iterable[torch.Tensor]) -> Gradients:
    """Of the sum of `losses`, by name. Each goes backward as it comes, so that one graph is held at a time; what
    parameters had as their gradient they have again afterwards.

    InvalidRequestError where a parameter has a hook that would take them for gradients to train on.
    """
    for name, each in parameters.items():
        if getattr(each, "_post_accumulate_grad_hooks", None):
            raise InvalidRequestError(
                f"{name} has a hook that is called with each gradient, such as that of an optimizer",
                path=name,
                hint="Verify merging before the hook is registered",
            )
    before = {name: each.grad for name, each in parameters.items()}
    try:
        for each in parameters.values():
            each.grad = None
        for loss in losses:
            if parameters:
                loss.backward()
        return {name: each.grad for name, each in parameters.items()}
    finally:
        for name, each in parameters.items():
            each.grad = before[name]


def relative_gap(one: Gradients, other: Gradients) -> tuple[float, str | None, float]:
    """How far gradients differ: all together relative to their norm; then the parameter that differs most relative to
    its own, and by how much. Infinite where one is no number or is there on one side only.
    """
    gaps: dict[str, tuple[float, float]] = {}
    for name, own in one.items():
        theirs = other[name]
        if own is None and theirs is None:
            continue
        if own is None or theirs is None:
            return math.inf, name, math.inf
        own, theirs = own.detach().float() if own.element_size() < 4 else own, theirs.to(own.dtype)
        gap, norm = float((own - theirs).norm()), max(float(own.norm()), float(theirs.norm()))
        if not math.isfinite(gap):
            return math.inf, name, math.inf
        gaps[name] = gap, norm
    total = math.hypot(*(norm for _, norm in gaps.values()))
    if not total:
        return 0.0, None, 0.0
    relative = {name: gap / max(norm, _SMALL * total) for name, (gap, norm) in gaps.items()}
    worst = max(relative, key=relative.__getitem__)
    whole = math.hypot(*(gap for gap, _ in gaps.values())) / total
    return whole, worst if relative[worst] else None, relative[worst]
