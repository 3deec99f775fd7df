"""Whether what a tool returned is an error: by structure where there is one, else by how errors are printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from agentworld.curation.checks.finding import Found
from agentworld.curation.checks.private_rules import excerpt
from agentworld.curation.checks.reading import Run, Turn
from agentworld.curation.checks.registry import check
from agentworld.curation.checks.settings import CheckContext

_LONGEST_JSON = 200_000  # characters of a result that are read as JSON
_HEAD, _TAIL = 400, 2_000  # characters of a printed result in which an error shows
_FLAGS = ("is_error", "isError")
_GOOD = ("success", "ok", "succeeded")
_CODES = ("exit_code", "exitCode", "returncode", "return_code", "exit_status")
_CODE = re.compile(r"\s*-?[1-9]\d{0,9}\s*")
_INSIDE = ("metadata", "meta", "result")
_BEGINS = re.compile(
    r"\s*(?:<tool_use_error>|<error>|\[?(?:error|fatal|fatal error|panic|exception|usage error)\]?\s*(?:[:!]|\Z)|"
    r"error (?:executing|running|calling|occurred|while)\b|"
    r"[A-Za-z_.]{0,60}(?:Error|Exception): )",
    re.IGNORECASE,
)
_TRACE = "Traceback (most recent call last)"
_EXIT = re.compile(
    r"(?:exit(?:ed)?(?: with)?(?: (?:code|status))|return(?:ed)? code|non-zero exit status)"
    r"\s*[:=]?\s*(-?[1-9]\d{0,4})\b",
    re.IGNORECASE,
)
_EXIT_WORDS = ("exit", "return code", "returned code")
_SAYS = (
    "command not found",
    "No such file or directory",
    "Permission denied",
    "ModuleNotFoundError",
    "segmentation fault",
    "Segmentation fault",
)


@check(
    "tool_error",
    scope="step",
    values="`flag`, `exit_code`, `traceback` or `printed`: by what it was known",
    says="A result of a call that this step made says that it failed. It is said of the step that made the call.",
    fails="Takes results that only quote an error (a log that was read, a test that expects one) for failures where "
    "they begin with it. Overlooks errors told in prose, in other languages, or in the middle of long results.",
)
def tool_error(turn: Turn, run: Run, context: CheckContext) -> Iterator[Found]:
    caller = turn.parent
    for at, message in turn.new:
        if message.role != "tool":
            continue
        said = how_it_failed(message.text)
        if said is None:
            continue
        value, start = said
        evidence = {"step": turn.step.step_id, "message": at, "excerpt": excerpt(message.text, start)}
        yield Found(value, evidence, (caller or turn).step.step_id)


def how_it_failed(text: str) -> tuple[str, int] | None:
    """By what a tool's result is known as an error, and where in the text; None where it is none."""
    head = text[:_HEAD]
    begin = head.lstrip()[:1]
    if begin in ("{", "[") and len(text) <= _LONGEST_JSON:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
        else:
            blocks = _blocks(value)
            if blocks is not None:
                said = how_it_failed(blocks)
                return None if said is None else (said[0], 0)
            by = _by_fields(value) if isinstance(value, dict) else None
            return None if by is None else (by, 0)
    if head.strip().lower() == "error" or _BEGINS.match(head):
        return "printed", 0
    found = text.find(_TRACE, 0, _HEAD)
    if found < 0 and len(text) > _HEAD:
        found = text.find(_TRACE, max(_HEAD - len(_TRACE), len(text) - _TAIL))
    if found >= 0:
        return "traceback", found
    for low, high in ((0, _HEAD), (max(_HEAD, len(text) - _HEAD), len(text))):
        part = text[low:high]
        lower = part.lower()
        match = _EXIT.search(part) if any(word in lower for word in _EXIT_WORDS) else None
        if match is not None:
            return "exit_code", low + match.start()
    if len(text) <= _HEAD:
        for words in _SAYS:
            found = text.find(words)
            if found >= 0:
                return "printed", found
    return None


def _blocks(value: Any) -> str | None:
    """The text of blocks as protocols of tools send them, `[{"type": "text", "text": ...}]`; None where it is none."""
    if not isinstance(value, list) or not value:
        return None
    texts = [item.get("text") for item in value if isinstance(item, dict) and item.get("type") == "text"]
    joined = "\n".join(text for text in texts if isinstance(text, str))
    return joined if len(texts) == len(value) else None


def _by_fields(value: dict[str, Any], inner: bool = True) -> str | None:
    if any(value.get(name) is True for name in _FLAGS) or any(value.get(name) is False for name in _GOOD):
        return "flag"
    if value.get("error") not in (None, False, "", 0, [], {}):
        return "flag"
    status = value.get("status")
    if isinstance(status, str) and status.lower() in ("error", "failed", "failure"):
        return "flag"
    for name in _CODES:
        code = value.get(name)
        if isinstance(code, int) and not isinstance(code, bool) and code != 0:
            return "exit_code"
        if isinstance(code, str) and _CODE.fullmatch(code):
            return "exit_code"
    for name in _INSIDE if inner else ():
        there = value.get(name)
        by = _by_fields(there, inner=False) if isinstance(there, dict) else None
        if by is not None:
            return by
    return None
