"""The expert's replies, for the scripted engine: what it says on a question was written down beforehand.

`AGENTWORLD_EXPERT` names a JSON file: {text of the first user message: [reply, reply, ...]}, one reply a turn.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

VARIABLE = "AGENTWORLD_EXPERT"


class Asked(Protocol):
    """What is read of a `ScriptedRequest`."""

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The conversation, in OpenAI chat's shape."""
        ...


def reply(request: Asked) -> str:
    """The expert's next turn; KeyError for a question that is not its."""
    question = next(_text(each.get("content")) for each in request.messages if each.get("role") == "user")
    turn = sum(each.get("role") == "assistant" for each in request.messages)
    said: str = _book(os.environ[VARIABLE])[question][turn]
    return said


@functools.cache
def _book(path: str) -> dict[str, list[str]]:
    book: dict[str, list[str]] = json.loads(Path(path).read_text())
    return book


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or ())
