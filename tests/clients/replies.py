"""Replies of the scripted engine, written as Qwen3 samples them."""

from __future__ import annotations

import json
from typing import Any


def call(name: str, **arguments: Any) -> str:
    """A tool call."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


def turn(*parts: str, think: str | None = None) -> str:
    """A reply: thinking, text and calls, one after the other."""
    thought = "" if think is None else f"<think>\n{think}\n</think>\n\n"
    return thought + "\n".join(parts)
