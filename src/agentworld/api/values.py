"""What a body may hold beyond its types: whole numbers that a pool can store, free JSON that it can read back."""

from __future__ import annotations

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.records import check_depth

# Long lists of numbers that the pool checks itself, all at once.
_CHECKED_BY_POOL = frozenset({"prompt_ids", "response_ids", "response_mask", "response_logprobs", "values"})


def check_values(record: msgspec.Struct, path: str) -> None:
    """InvalidRequestError where a field of `record`, or of a record within, holds a whole number over 64 bits or free
    JSON that nests too deeply; `path` is the record's own.
    """
    for name in record.__struct_fields__:
        if name not in _CHECKED_BY_POOL:
            _check(getattr(record, name), f"{path}.{name}")


def _check(value: object, path: str) -> None:
    if isinstance(value, msgspec.Struct):
        check_values(value, path)
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise InvalidRequestError("This is no whole number of 64 bits", path=path)
    elif isinstance(value, (list, tuple)) and value and isinstance(value[0], msgspec.Struct):
        for index, each in enumerate(value):
            _check(each, f"{path}[{index}]")
    else:
        check_depth(value, path)
