"""What stands within texts of ShareGPT's family: calls and results between tags, places of images, whole dialogues."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from agentworld.records import exact_json

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_RESULT = re.compile(r"\s*<tool_response>\n?(.*?)\n?</tool_response>\s*", re.DOTALL)
_TAG = re.compile(r"^(SYSTEM|USER|HUMAN|ASSISTANT|GPT|TOOL|FUNCTION)[ ]?:[ ]?", re.MULTILINE)
_SPEAKER = re.compile(r"(?:\A\s*|\n\n)(Human|Assistant):")
PLACES = {"image": "<image>", "video": "<video>", "audio": "<audio>"}
_PLACE = re.compile("|".join(PLACES.values()))


def calls_in(text: str) -> tuple[str, list[tuple[str, Any]]] | None:
    """The text around calls that stand between tags, and each call's name and arguments; None where there are none, or
    one of them is no call, so that the text is all that is known.
    """
    found = [_named(each) for each in _CALL.findall(text)]
    calls = [each for each in found if each is not None]
    if not calls or len(calls) < len(found) or text.count("<tool_call>") != len(calls):
        return None
    return _CALL.sub("", text).strip(), calls


def call_in(text: str) -> list[tuple[str, Any]] | None:
    """The calls that a text is, as JSON: one, or a list of them; None where it is none."""
    value = _json(text)
    calls = [_as_call(each) for each in (value if isinstance(value, list) else [value])]
    known = [each for each in calls if each is not None]
    return known if known and len(known) == len(calls) else None


def results_in(text: str) -> list[str] | None:
    """The results that stand between tags, where a text has nothing else; None where it has."""
    found = _RESULT.findall(text)
    return found if found and not _RESULT.sub("", text).strip() else None


def dialogue_in(text: str) -> list[tuple[str, str]] | None:
    """The turns of a dialogue whose lines begin with SYSTEM:, USER: and so on: roles and texts. None for any other."""
    body = text.strip().removeprefix("```").removesuffix("```").strip()
    tags = list(_TAG.finditer(body))
    if not tags or tags[0].start() != 0:
        return None
    ends = [tag.start() for tag in tags[1:]] + [len(body)]
    return [(tag[1].lower(), body[tag.end() : end].strip("\n ")) for tag, end in zip(tags, ends, strict=True)]


def turns_in(text: Any) -> list[dict[str, str]] | None:
    """The messages of a dialogue in which `Human:` and `Assistant:` begin the paragraphs, as preferences on help and
    harm write it; None for any other. One that ends where the assistant is to speak ends there.
    """
    if not isinstance(text, str) or not text.lstrip().startswith("Human:"):
        return None
    tags = list(_SPEAKER.finditer(text))
    ends = [tag.start() for tag in tags[1:]] + [len(text)]
    said = [(tag[1], text[tag.end() : end].strip()) for tag, end in zip(tags, ends, strict=True)]
    if said and said[-1] == ("Assistant", ""):
        said.pop()
    return [{"role": "user" if who == "Human" else "assistant", "content": each} for who, each in said]


def around_places(text: str) -> list[str]:
    """A text cut at the places of images, videos and audio, these included."""
    parts: list[str] = []
    at = 0
    for found in _PLACE.finditer(text):
        parts += [text[at : found.start()], found[0]]
        at = found.end()
    return [part for part in [*parts, text[at:]] if part]


def _named(text: str) -> tuple[str, Any] | None:
    return _as_call(_json(text))


def _as_call(value: Any) -> tuple[str, Any] | None:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    return value["name"], value.get("arguments", value.get("parameters", {}))


def _json(text: str) -> Any:
    try:
        return exact_json.decode(text.strip().encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        return None
