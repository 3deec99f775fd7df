"""The arrays of a step: lists or numpy arrays taken in, and put back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError
from agentworld.forest import TokenArray, token_array
from agentworld.records import Step

_ARRAYS = ("prompt_ids", "response_ids", "response_mask", "response_logprobs")
_FLOAT32 = np.dtype("<f4")
_FLOAT64 = np.dtype("f8")
# The highest byte of each float64 that is under 2**113, which float32 can hold: the sign and most of the exponent.
_SMALL = bytes(byte for byte in range(256) if byte & 0x7F <= 0x46)
_NOT_NUMBERS = "response_logprobs must hold numbers and null only"


def restore_arrays(
    step: Step,
    prompt: TokenArray | None,
    response: TokenArray | None,
    mask: npt.NDArray[np.uint8] | None,
    logprobs: npt.NDArray[np.float32] | None,
    include: Sequence[str],
) -> None:
    """Put stored arrays back on `step` as `include` (tokens, logprobs) asks; a mask that is absent is all ones."""
    if "tokens" in include:
        step.prompt_ids = prompt.tolist() if prompt is not None else None
        step.response_ids = response.tolist() if response is not None else None
        if mask is not None:
            step.response_mask = mask.tolist()
        elif response is not None:
            step.response_mask = [1] * len(response)
    if "logprobs" in include and logprobs is not None:
        values: list[float | None] = logprobs.tolist()
        # Most have a number for each token.
        step.response_logprobs = values if _are_finite(logprobs) else [None if x != x else x for x in values]


def with_lists(step: Step) -> Step:
    """The step with lists in the place of arrays, which JSON has not."""
    arrays = {name: getattr(step, name) for name in _ARRAYS}
    lists = {name: array.tolist() for name, array in arrays.items() if isinstance(array, np.ndarray)}
    if "response_logprobs" in lists:
        lists["response_logprobs"] = [value if math.isfinite(value) else None for value in lists["response_logprobs"]]
    return msgspec.structs.replace(step, **lists) if lists else step


def ids_taken(ids: Sequence[int] | TokenArray | None, name: str) -> TokenArray | None:
    """Token ids as uint32; InvalidRequestError names the field."""
    if ids is None:
        return None
    try:
        return token_array(ids)
    except InvalidRequestError as error:
        raise InvalidRequestError(error.message, path=name) from None


def mask_taken(mask: Sequence[int] | npt.NDArray[Any] | None) -> npt.NDArray[np.uint8] | None:
    """The mask as 0 and 1."""
    if mask is None:
        return None
    try:
        array = np.asarray(mask)
        if array.size == 0:
            return np.zeros(0, dtype=np.uint8)
        if array.ndim != 1 or array.dtype.kind not in "iub" or int(array.min()) < 0 or int(array.max()) > 1:
            raise ValueError
    except (ValueError, OverflowError):
        raise InvalidRequestError("response_mask must hold 0 and 1 only", path="response_mask") from None
    return array.astype(np.uint8, copy=False)


def logprobs_taken(logprobs: Sequence[float | None] | npt.NDArray[Any] | None) -> npt.NDArray[np.float32] | None:
    """float32 with NaN for null; what is not finite becomes null."""
    if logprobs is None:
        return None
    try:
        if isinstance(logprobs, np.ndarray) and logprobs.dtype.kind != "O":
            if logprobs.dtype == _FLOAT32 and logprobs.ndim == 1 and _are_finite(logprobs):
                return logprobs
            if logprobs.dtype == _FLOAT64 and logprobs.ndim == 1 and _are_small(logprobs):
                return logprobs.astype(_FLOAT32)
            numbers = logprobs.dtype.kind in "fiu"
        else:
            # numpy would read texts as numbers, and true as 1.
            numbers = all(map(_is_number_or_null, set(map(type, logprobs))))
        if not numbers:
            raise TypeError
        array = np.asarray(logprobs, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidRequestError(_NOT_NUMBERS, path="response_logprobs") from None
    if array.size == 0:
        return np.zeros(0, dtype=np.float32)
    if array.ndim != 1:
        raise InvalidRequestError("response_logprobs must be a list of numbers", path="response_logprobs")
    # A double beyond float32 would turn infinite in the cast.
    return np.where(np.abs(array) <= np.finfo(np.float32).max, array, np.nan).astype(np.float32)


def _are_finite(numbers: npt.NDArray[np.float32]) -> bool:
    return b"\0" not in np.isfinite(numbers).tobytes()  # Twice as fast as `all` for so few.


def _are_small(numbers: npt.NDArray[np.float64]) -> bool:
    """Whether float32 can hold all of them; not whether it cannot, as of none at all and of the largest."""
    # Bytes keep the interpreter's lock, for which a search of numpy's would wait afterwards.
    return bool(numbers.size) and not numbers.astype("<f8", copy=False).tobytes()[7::8].translate(None, _SMALL)


def _is_number_or_null(kind: type) -> bool:
    return kind in (float, int, type(None)) or issubclass(kind, (np.floating, np.integer))
