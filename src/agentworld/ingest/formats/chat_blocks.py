"""Messages of strangers in the shape that is read as chat: blocks of Anthropic's become calls, results and pictures,
thoughts that stand alone go to the reply that they are of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

THINKERS = frozenset(("thought", "thoughts", "thinking", "think", "reasoning", "reasoner", "cot", "scratchpad"))
"""Roles of what a model thinks before it says something."""
_DETAILS = {"reasoning.text": "text", "reasoning.summary": "summary"}


def prepared(given: list[Any], role_of: Callable[[Mapping[str, Any]], Any]) -> Iterator[tuple[int, Any]]:
    """Messages with their places. `role_of`: the role of one as it is read here, of whatever name its key has."""
    thoughts: list[str] = []
    at = 0
    for number, each in enumerate(given):
        role = role_of(each) if isinstance(each, dict) else None
        if isinstance(role, str) and role.lower() in THINKERS:
            thought = next((each[key] for key in ("content", "value", "text") if key in each), "")
            if isinstance(thought, str):
                thoughts.append(thought)
                at = number
                continue
        if thoughts:
            if role == "assistant":
                first = each.get("reasoning_content")
                thoughts = [*thoughts, first] if isinstance(first, str) else thoughts
                each = {**each, "reasoning_content": "\n".join(thoughts)}
            else:
                yield at, {"role": "assistant", "reasoning_content": "\n".join(thoughts)}
            thoughts = []
        for made in expanded(each):
            yield number, made
    if thoughts:
        yield at, {"role": "assistant", "reasoning_content": "\n".join(thoughts)}


def expanded(message: Any) -> list[Any]:
    """The messages that one with blocks of Anthropic's stands for: results first, as these came before its text."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or not any(_is_call(part) or _is_result(part) for part in content):
        return [message]
    results: list[Any] = []
    calls: list[Any] = []
    rest: list[Any] = []
    for part in content:
        if _is_call(part):
            function = {"name": part["name"], "arguments": part["input"]}
            calls.append({"id": part.get("id"), "type": "function", "function": function})
        elif _is_result(part):
            results.append(_result(part))
        else:
            rest.append(part)
    own = {**message, "content": rest or None}
    if calls:
        before = message.get("tool_calls")
        own["tool_calls"] = [*(before if isinstance(before, list) else ()), *calls]
    return [*results, own] if rest or calls or not results else results


def detailed(details: Any) -> tuple[list[str], bool]:
    """The texts of `reasoning_details`, and whether these are all that it says."""
    texts: list[str] = []
    whole = isinstance(details, list)
    for each in details if isinstance(details, list) else ():
        key = _DETAILS.get(str(each.get("type"))) if isinstance(each, dict) else None
        if key is not None and isinstance(each.get(key), str):
            texts.append(each[key])
            whole = whole and not each.get("signature")
        else:
            whole = False
    return texts, whole


def picture_of(part: Mapping[str, Any]) -> str | None:
    """The address of a picture of Anthropic's, bytes as a data URL; None for any other part."""
    source = part.get("source")
    if not isinstance(source, dict):
        return None
    if isinstance(source.get("data"), str) and source.get("type", "base64") == "base64":
        return f"data:{source.get('media_type') or 'application/octet-stream'};base64,{source['data']}"
    return source["url"] if isinstance(source.get("url"), str) else None


def _is_call(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and part.get("type") == "tool_use"
        and "input" in part
        and isinstance(part.get("name"), str)
    )


def _is_result(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_result" and ("content" in part or "tool_use_id" in part)


def _result(part: Mapping[str, Any]) -> dict[str, Any]:
    failed, content = part.get("is_error"), part.get("content")
    if content in (None, "", []):
        content = "error" if failed is True else ""  # As the API is read: only its text says that a result failed.
    made = {"role": "tool", "content": content, "tool_call_id": part.get("tool_use_id")}
    return {**made, "is_error": True} if failed is True else made
