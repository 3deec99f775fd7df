"""Arguments of a call against the tool's JSON schema: the part of it that tools use."""

from __future__ import annotations

from typing import Any

_DEEPEST = 24
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
}


def fault(value: Any, schema: Any, path: str = "", depth: int = 0) -> str | None:
    """What is wrong with `value`, with its path, or None.

    Looks at type, enum, const, required, properties, additionalProperties, items, and the lengths and bounds; other
    keywords, among them $ref and anyOf, allow everything. Deeper than 24 levels nothing is looked at.
    """
    if not isinstance(schema, dict) or depth > _DEEPEST or "$ref" in schema:
        return None
    where = path or "the arguments"
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if names and not any(_is(value, name) for name in names):
        return f"{where}: not of type {' or '.join(map(str, names))}"
    choices = schema.get("enum")
    if isinstance(choices, list) and not any(_equal(value, choice) for choice in choices):
        return f"{where}: not one of its {len(choices)} values"
    if "const" in schema and not _equal(value, schema["const"]):
        return f"{where}: not its one value"
    if isinstance(value, dict):
        return _object_fault(value, schema, path, depth)
    if isinstance(value, list):
        for at, item in enumerate(value):
            found = fault(item, schema.get("items"), f"{path}[{at}]", depth + 1)
            if found is not None:
                return found
        return _bounds(len(value), schema, "minItems", "maxItems", f"{where}: so many items")
    if isinstance(value, str):
        return _bounds(len(value), schema, "minLength", "maxLength", f"{where}: so many characters")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _bounds(value, schema, "minimum", "maximum", f"{where}: the value")
    return None


def _object_fault(value: dict[str, Any], schema: dict[str, Any], path: str, depth: int) -> str | None:
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in value:
            return f"{_join(path, name)}: missing"
    known = schema.get("properties")
    properties = known if isinstance(known, dict) else {}
    rest = schema.get("additionalProperties")
    for name, item in value.items():
        if name in properties:
            found = fault(item, properties[name], _join(path, name), depth + 1)
        elif rest is False and "patternProperties" not in schema:
            found = f"{_join(path, name)}: not a parameter"
        else:
            found = fault(item, rest, _join(path, name), depth + 1)
        if found is not None:
            return found
    return None


def _join(path: str, name: str) -> str:
    # Whoever is told masks what is private in it, which takes whole names.
    return f"{path}.{name}" if path else name


def _is(value: Any, kind: Any) -> bool:
    if kind in ("number", "integer"):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return kind == "number" or isinstance(value, int) or value.is_integer()
    return isinstance(value, _TYPES[kind]) if isinstance(kind, str) and kind in _TYPES else True


def _equal(value: Any, other: Any) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _bounds(size: float, schema: dict[str, Any], least: str, most: str, what: str) -> str | None:
    low, high = schema.get(least), schema.get(most)
    if isinstance(low, int | float) and size < low:
        return f"{what} under {least} {low}"
    if isinstance(high, int | float) and size > high:
        return f"{what} over {most} {high}"
    return None
