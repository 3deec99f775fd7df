"""OpenAI Responses: log-probabilities as they are kept with a step whose caller asked for them.

A step has the log-probabilities of its ids anyway. What callers see beside them, the texts of tokens and alternatives,
is kept where it was asked for: as `[token, logprob, bytes, alternatives]`, without the names of the fields.
"""

from __future__ import annotations

from typing import Any

ENTRIES = "logprobs"
"""The name among the notes of a step."""


def packed(entries: list[dict[str, Any]]) -> list[list[Any]]:
    """Log-probability objects as they are kept; fields that the API does not have are left out."""
    return [[*_numbers(entry), [_numbers(top) for top in entry.get("top_logprobs") or []]] for entry in entries]


def unpacked(kept: list[list[Any]]) -> list[dict[str, Any]]:
    """The objects of `packed`."""
    return [{**_object(token), "top_logprobs": [_object(top) for top in token[3]]} for token in kept]


def _numbers(entry: dict[str, Any]) -> list[Any]:
    data = entry.get("bytes")
    if not isinstance(data, list) or not all(type(byte) is int and 0 <= byte < 256 for byte in data):
        data = None  # An engine may send anything here, and not all of it could be stored.
    return [entry["token"], entry["logprob"], data]


def _object(kept: list[Any]) -> dict[str, Any]:
    token, logprob, data = kept[:3]
    return {"token": token, "logprob": logprob, "bytes": data}
