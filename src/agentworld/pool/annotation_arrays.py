"""Arrays of annotations: from nested lists or numpy to bytes and back."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.errors import InvalidRequestError

DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)
MAX_BYTES = 8 * 1024 * 1024  # one row, which is written while others wait for the lock of the pool
MAX_DIMENSIONS = 4
AnyArray = npt.NDArray[Any]


class PackedArray(msgspec.Struct, frozen=True):
    """`data`: the values in little-endian order, row by row."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def pack_values(values: Any, dtype: str | None, path: str) -> PackedArray:
    """Nested lists (null for what is not finite) or an array, as `dtype`; without one, an array's own, or float32.

    InvalidRequestError where the nesting is uneven, a value is no number or does not fit the dtype (precision may be
    lost, the size of a value not), or the array has over 4 dimensions or 8 MiB.
    """
    array = _array_of(values, path)
    if dtype is None:
        dtype = array.dtype.newbyteorder("=").name if isinstance(values, (np.ndarray, np.generic)) else "float32"
    if dtype not in DTYPES:
        raise InvalidRequestError(f"{dtype!r} is no dtype", path=path, hint=f"Known: {', '.join(DTYPES)}")
    if array.ndim > MAX_DIMENSIONS:
        raise InvalidRequestError(f"{array.ndim} dimensions are over {MAX_DIMENSIONS}", path=path)
    kind = np.dtype(dtype).newbyteorder("<")
    if array.size * kind.itemsize > MAX_BYTES:
        raise InvalidRequestError(
            f"{array.size * kind.itemsize} bytes are over {MAX_BYTES}", path=path, hint="Split it into several arrays"
        )
    _check_fit(array, kind, path)
    with np.errstate(over="ignore"):
        packed = np.ascontiguousarray(array.astype(kind)).tobytes()
    return PackedArray(dtype, tuple(array.shape), packed)


def unpack_values(dtype: str, shape: tuple[int, ...], data: bytes) -> AnyArray:
    """The array, in this machine's byte order, the caller's to change."""
    stored = np.frombuffer(data, dtype=np.dtype(dtype).newbyteorder("<"))
    return stored.astype(dtype).reshape(shape)


def plain_values(array: AnyArray) -> Any:
    """Nested lists for JSON, in which null stands for what is not finite."""
    listed = array.tolist()
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return listed
    return _without_nonfinite(listed)


def _without_nonfinite(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nonfinite(each) for each in value]
    return value if math.isfinite(value) else None


def _array_of(values: Any, path: str) -> AnyArray:
    if hasattr(values, "detach"):  # A torch tensor.
        values = values.detach().cpu().numpy()
    try:
        if values is None:
            raise ValueError("there are none")
        array = np.asarray(values)
        if array.size == 0 and array.dtype.kind == "f":
            return array
        if array.dtype.kind == "O":
            kinds = {type(value) for value in array.flat}
            if kinds <= {int}:  # Whole numbers beyond 64 bits; they fit nothing.
                raise ValueError("a number is beyond 64 bits")
            if not kinds <= {int, float, bool, type(None)}:
                raise ValueError("a value is no number")
            array = np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidRequestError(f"values are no array of numbers: {error}", path=path) from None
    if array.dtype.kind not in "biuf":
        raise InvalidRequestError("values are no array of numbers", path=path)
    return array


def _check_fit(array: AnyArray, kind: np.dtype[Any], path: str) -> None:
    if array.size == 0:
        return
    if kind.kind == "f":
        if array.dtype.kind == "f":
            finite = array[np.isfinite(array)]
            if finite.size and float(np.abs(finite).max()) > float(np.finfo(kind).max):
                raise _unfit(kind, path)
        elif float(max(abs(int(array.max())), abs(int(array.min())))) > float(np.finfo(kind).max):
            raise _unfit(kind, path)
        return
    if array.dtype.kind == "f":
        raise _unfit(kind, path)
    low, high = (0, 1) if kind.kind == "b" else (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    if int(array.min()) < low or int(array.max()) > high:
        raise _unfit(kind, path)


def _unfit(kind: np.dtype[Any], path: str) -> InvalidRequestError:
    return InvalidRequestError(f"a value does not fit {kind.name}", path=path, hint="Use a wider dtype")
