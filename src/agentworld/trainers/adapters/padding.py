"""Rows of different lengths as one array, and numpy as torch. What is added are fill values, which masks leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from agentworld.errors import ConfigError, InvalidRequestError

Array = npt.NDArray[Any]
Arrays = Literal["torch", "numpy"]


def padded(
    rows: Sequence[Array],
    fill: float,
    dtype: npt.DTypeLike,
    *,
    length: int | None = None,
    left: bool = False,
    option: str = "length",
) -> Array:
    """The rows as [B, L], right-padded, or left-padded with `left`. L is the longest row's length, or `length`, which
    no row may exceed: nothing is cut off. `option`: what it is called where it is set.
    """
    longest = max((len(row) for row in rows), default=0)
    width = longest if length is None else length
    if longest > width:
        raise InvalidRequestError(
            f"a row has {longest} ids where {width} fit",
            path=option,
            hint=f"Raise {option}, or leave long trajectories out with where",
        )
    found = np.full((len(rows), width), fill, dtype)
    for place, row in enumerate(rows):
        if left:
            found[place, width - len(row) :] = row
        else:
            found[place, : len(row)] = row
    return found


def positions(attention_mask: Array) -> Array:
    """Position ids of padded rows, int64 [B, L]: 0 at the first real token, and 0 before it."""
    return np.asarray(np.maximum(np.cumsum(attention_mask, axis=1) - 1, 0), np.int64)


def tensors(columns: Mapping[str, Array], arrays: Arrays = "torch", device: str = "cpu") -> dict[str, Any]:
    """The columns as torch tensors on `device`, or as they are; the memory is shared where it can be."""
    if arrays == "numpy":
        return dict(columns)
    try:
        import torch
    except ImportError:
        raise ConfigError(
            "tensors need torch", path="arrays", hint='pip install torch, or say arrays = "numpy"'
        ) from None
    return {name: torch.from_numpy(np.ascontiguousarray(column)).to(device) for name, column in columns.items()}
