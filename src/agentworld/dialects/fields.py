"""A strict reader of JSON objects: each field is taken once with its type, and what nobody took is refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.records.depth import check_depth

_ARTICLES: dict[type, str] = {str: "a string", dict: "an object", list: "a list", bool: "true or false"}

MAX_WHOLE = 2**63 - 1
MAX_ID = 0xFFFFFFFF
"""The largest token id; a pool holds 32 bits of each."""

Word = TypeVar("Word", bound=str)
T = TypeVar("T", str, bool, dict[str, Any], list[Any])


def decode_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object; InvalidRequestError says why it is not one, or which field nests too deep."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(
            f"the body is not valid JSON: {error}",
            hint="Send a JSON object as UTF-8 with content-type application/json",
        ) from None
    if not isinstance(value, dict):
        raise InvalidRequestError("the body must be a JSON object")
    for name, item in value.items():
        check_depth(item, name)
    return value


class Fields:
    """Takes fields out of an object; null means absent. Errors name the JSON path."""

    def __init__(self, value: Any, path: str = "") -> None:
        if not isinstance(value, Mapping):
            raise InvalidRequestError(f"{path or 'the body'} must be an object", path=path or None)
        self._left = {str(key): item for key, item in value.items() if item is not None}
        self.path = path

    def where(self, name: str) -> str:
        """The JSON path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def refuse(self, name: str, wanted: str) -> InvalidRequestError:
        """The error for a field that is not what it should be."""
        return InvalidRequestError(f"{self.where(name)} must be {wanted}", path=self.where(name))

    def raw(self, name: str) -> Any:
        """The value, whatever its type, or None."""
        return self._left.pop(name, None)

    def has(self, name: str) -> bool:
        """Whether the field is there and not taken yet."""
        return name in self._left

    def take(self, name: str, kind: type[T]) -> T | None:
        """The value if it is there; refused unless it is a `kind`."""
        value = self._left.pop(name, None)
        if value is None or isinstance(value, kind):
            return value
        raise self.refuse(name, _ARTICLES.get(kind, kind.__name__))

    def need(self, name: str, kind: type[T]) -> T:
        """The value; refused where it is missing."""
        value = self.take(name, kind)
        if value is None:
            raise InvalidRequestError(f"{self.where(name)} is missing", path=self.where(name))
        return value

    def one_of(self, name: str, known: Sequence[Word]) -> Word:
        """The word, one of those that are known; refused where it is missing."""
        value = self.need(name, str)
        for word in known:
            if word == value:
                return word
        raise InvalidRequestError(f"{name} {value[:40]!r} is not one of {', '.join(known)}", path=self.where(name))

    def word(self, name: str, known: Sequence[Word]) -> Word | None:
        """The word, one of those that are known, or None."""
        value = self.take(name, str)
        if value is None:
            return None
        for each in known:
            if each == value:
                return each
        raise self.refuse(name, ", ".join(known))

    def integer(self, name: str, low: int, high: int | None = None) -> int | None:
        """A whole number within the bounds, or None. What no pool can hold is out of any bounds."""
        value = self._left.pop(name, None)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int or not low <= value <= (MAX_WHOLE if high is None else high):
            raise self.refuse(name, f"a whole number from {low}" + (f" to {high}" if high is not None else ""))
        return value

    def number(self, name: str, low: float, high: float, *, above: bool = False) -> float | None:
        """A finite number within the bounds (`above`: not the lower bound itself), or None."""
        value = self._left.pop(name, None)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refuse(name, "a number")
        # Not math.isfinite: a whole number can be too long for a float. NaN is within no bounds.
        if not low <= value <= high or (above and value == low):
            raise self.refuse(name, f"a number {'above' if above else 'from'} {low:g} to {high:g}")
        return float(value)

    def neutral(self, name: str, *values: Any) -> None:
        """Take a field that is supported only where it asks for nothing."""
        value = self._left.pop(name, None)
        if value is not None and not any(value == item and type(value) is type(item) for item in values):
            raise InvalidRequestError(
                f"{self.where(name)} is not supported with this value",
                path=self.where(name),
                hint="Leave the field out",
            )

    def neutrals(self, known: Mapping[str, Sequence[Any]]) -> None:
        """`neutral` for each name with its values."""
        for name in [name for name in known if name in self._left]:
            self.neutral(name, *known[name])

    def finish(self, harmless: Collection[str] = ()) -> None:
        """Refuse what is left, apart from fields that change nothing in the reply."""
        for name in self._left:
            if name not in harmless:
                raise InvalidRequestError(
                    f"{self.where(name)} is not a field that is known here",
                    path=self.where(name),
                    hint="Leave it out; fields that could change the reply are refused, never ignored",
                )
