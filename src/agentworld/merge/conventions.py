"""What a token that several paths share weighs in a loss. Each is a flat loss with explicit weights.

`per_path`: every path keeps its own term, with its own advantage: exactly the flat loss. `first_path`: the first
sequence that trains the token does, the others do not. `mean`: g of K paths that train it share its weight, each by K.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError
from agentworld.merge.tree import TokenTree

Convention = Literal["per_path", "first_path", "mean"]


def convention_weights(tree: TokenTree, mask: npt.NDArray[np.bool_], convention: Convention) -> npt.NDArray[np.float64]:
    """Factors float64[N] for the terms of a flat loss, 0 where `mask` bool[N] is false.

    In `mean`, K counts the paths whose mask has the token: a path that only passes through it is none of them.
    """
    if convention not in get_args(Convention):
        raise InvalidRequestError(
            f"no convention {convention!r}", path="convention", hint=f"Use {', '.join(get_args(Convention))}"
        )
    if len(mask) != len(tree.index):
        raise InvalidRequestError(f"the mask has {len(mask)} values for {len(tree.index)} tokens", path="mask")
    found = mask.astype(np.float64)
    if convention == "per_path":
        return found
    nodes = tree.index[mask]
    if convention == "mean":
        found[mask] = 1.0 / np.bincount(nodes, minlength=len(tree.tokens))[nodes]
        return found
    _, first = np.unique(nodes, return_index=True)
    places = np.flatnonzero(mask)[first]
    found[:] = 0.0
    found[places] = 1.0
    return found
