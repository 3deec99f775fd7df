"""What becomes of each field that the typed params of a client's package know: it is varied alone, in a body that is
good otherwise, and the request that comes of it is compared with the one without it.
"""

from __future__ import annotations

import base64
import collections.abc
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
import typing_extensions

from agentworld.dialects import Request
from agentworld.errors import InvalidRequestError

PNG, OTHER = (base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(size)).decode() for size in (8, 9))
ADDRESSES = (f"data:image/png;base64,{PNG}", f"data:image/png;base64,{OTHER}")
SPECIAL: dict[str, tuple[Any, ...]] = {
    "image_url": ADDRESSES,
    "url": ADDRESSES,
    "data": (PNG, OTHER),
    "media_type": ("image/png",),
    "parameters": ({"type": "object"}, {"type": "object", "x": 1}),
    "input_schema": ({"type": "object"}, {"type": "object", "x": 1}),
    "schema": ({"type": "object"}, {"type": "object", "x": 1}),
    "logit_bias": ({"1": 1}, {"2": 1}),
    "max_tokens": (30, 40),
}
"""Values for fields whose type does not say what is good in them."""
_SAMPLES: dict[Any, tuple[Any, ...]] = {
    str: ("x", "y"),
    int: (3, 1),
    float: (0.5, 0.25),
    bool: (True, False),
    object: ("x", {"x": 1}),
    Any: ("x", {"x": 1}),
}
_WRAPPERS = (typing.Required, typing.NotRequired, typing_extensions.Required, typing_extensions.NotRequired)
_LISTS = (list, collections.abc.Iterable, collections.abc.Sequence)
_MAPS = (dict, collections.abc.Mapping)


class Variant(NamedTuple):
    """A value of some type. `field`: the innermost field that is varied in it, as `Class.field`; "" for none."""

    field: str
    value: Any


class Outcomes(NamedTuple):
    """What came of one field: the requests, and whether a value was refused. `bare`: of the body without it."""

    bare: list[Any]
    read: list[Any]
    refused: list[str]


def is_typed_dict(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "__required_keys__")


def fields_of(kind: Any) -> dict[str, Any]:
    """The fields of a class with their types, in one order."""
    return dict(sorted(get_type_hints(kind, include_extras=True).items()))


def is_required(kind: Any, hint: Any) -> bool:
    """Whether a field has to be there; the class itself does not know where its module postpones annotations."""
    while get_origin(hint) is typing.Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in _WRAPPERS:
        return get_origin(hint) in (typing.Required, typing_extensions.Required)
    return bool(kind.__total__)


def plain(kind: Any) -> Any:
    """The type without what says only whether it is required."""
    while get_origin(kind) in (*_WRAPPERS, typing.Annotated):
        kind = get_args(kind)[0]
    return kind


def alternatives(kind: Any) -> list[Any]:
    """The types of a union that JSON has a value for."""
    kind = plain(kind)
    if get_origin(kind) in (typing.Union, types.UnionType):
        return [each for part in get_args(kind) for each in alternatives(part)]
    known = is_typed_dict(kind) or kind in _SAMPLES or get_origin(kind) in (Literal, *_LISTS, *_MAPS)
    return [kind] if known else []


def least(kind: Any, name: str = "") -> Any:
    """A value with nothing in it that could be left out."""
    if name in SPECIAL and not any(map(is_typed_dict, alternatives(kind))):
        return SPECIAL[name][0]
    for each in alternatives(kind):
        if is_typed_dict(each):
            return {field: least(hint, field) for field, hint in fields_of(each).items() if is_required(each, hint)}
        if get_origin(each) is Literal:
            return get_args(each)[0]
        if get_origin(each) in _LISTS:
            return [least(get_args(each)[0])]
        if get_origin(each) in _MAPS:
            return {"x": least(get_args(each)[1])}
        return _SAMPLES[each][0]
    return None


def is_container(kind: Any) -> bool:
    """Whether the type is a class with fields of its own, or a list of them: those are looked at instead."""
    found = alternatives(kind)
    return bool(found) and all(
        is_typed_dict(each) or (get_origin(each) in _LISTS and is_container(get_args(each)[0])) for each in found
    )


def variants(kind: Any, name: str = "", within: tuple[Any, ...] = ()) -> Iterator[Variant]:
    """Values of a type: each field of each class in it is varied alone, and its other values are the least."""
    if name in SPECIAL and not any(map(is_typed_dict, alternatives(kind))):
        yield from (Variant("", value) for value in SPECIAL[name])
        return
    for each in alternatives(kind):
        if is_typed_dict(each):
            if each not in within:
                yield from _fields(each, within)
        elif get_origin(each) is Literal:
            yield from (Variant("", value) for value in get_args(each))
        elif get_origin(each) in _LISTS:
            yield from (Variant(field, [value]) for field, value in variants(get_args(each)[0], "", within))
        elif get_origin(each) in _MAPS:
            yield from (Variant(field, {"x": value}) for field, value in variants(get_args(each)[1], "", within))
        else:
            yield from (Variant("", value) for value in _SAMPLES[each])


def _fields(kind: Any, within: tuple[Any, ...]) -> Iterator[Variant]:
    bare = least(kind)
    yield Variant("", bare)
    for field, hint in fields_of(kind).items():
        if get_origin(plain(hint)) is Literal and len(get_args(plain(hint))) == 1 and field in bare:
            continue  # It says which class of a union this is.
        label = f"{kind.__name__}.{field}"
        if not is_container(hint):
            yield Variant(f"{label}=", bare)
        for inner, value in variants(hint, field, (*within, kind)):
            if inner or not is_container(hint):
                yield Variant(inner or label, {**bare, field: value})


def outcomes(
    kind: Any, parse: Callable[[dict[str, Any]], Request], base: dict[str, Any], without: tuple[str, ...] = ()
) -> dict[str, Outcomes]:
    """What becomes of each field of a body's class, and of the classes within it. `base`: a body that is good."""
    found: dict[str, Outcomes] = {}
    for name, hint in fields_of(kind).items():
        if name in without:
            continue
        label = f"{kind.__name__}.{name}"
        rest = {field: value for field, value in base.items() if field != name}
        _try(found, f"{label}=", parse, rest)
        for field, value in variants(hint, name):
            _try(found, field or label, parse, {**base, name: value})
        if is_container(hint) and found[label].read:
            del found[label]  # It is taken; what is in it has names of its own.
    return found


def _try(found: dict[str, Outcomes], field: str, parse: Callable[[dict[str, Any]], Request], body: Any) -> None:
    label = field.removesuffix("=")
    there = found.setdefault(label, Outcomes([], [], []))
    try:
        # What a reply only repeats has no effect.
        said = msgspec.to_builtins(msgspec.structs.replace(parse(body), echo={}, raw=None))
    except InvalidRequestError as error:
        if field == label:
            there.refused.append(str(error.path))
        return
    (there.bare if field != label else there.read).append(said)


def ignored(found: dict[str, Outcomes]) -> set[str]:
    """The fields of which no value is refused and none changes the request."""
    out = set()
    for field, (bare, read, refused) in found.items():
        distinct: list[Any] = []
        for said in (*bare, *read):
            if said not in distinct:
                distinct.append(said)
        if read and not refused and len(distinct) < 2:
            out.add(field)
    return out
