"""Ways in which an engine's bytes can be wrong, for tests of whoever reads them."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from agentworld.engines.backend import DropConnection, Wire


class WireFaults(msgspec.Struct, frozen=True, kw_only=True):
    """What to do to the bytes of a reply. Nothing by default."""

    drop_after: int | None = None
    """Close the connection once this many ids were streamed; 0 or more on a plain reply closes without a body."""
    id_count: int = 0
    """Leave out that many ids at the end of `token_ids` (negative) or repeat the last (positive)."""
    without_ids: bool = False
    """Leave out `token_ids` and `prompt_token_ids`, though asked for."""
    without_usage: bool = False
    nan_logprobs: bool = False
    """Write log-probabilities as NaN, which is not JSON."""
    malformed: bool = False
    """Send one line that is not JSON before the second chunk, or cut a plain body in half."""
    without_done: bool = False
    """End a stream without `[DONE]`."""
    split: int | None = None
    """Send a stream in pieces of this many bytes, through characters and `data:` lines."""
    empty_choices: bool = False
    """Send a chunk with `choices: []` before each real one."""
    keep_alive: bool = False
    """Send the comment `: ping` before each chunk."""


class FaultyWire(Wire):
    """A wire that breaks what it is told to break."""

    def __init__(self, faults: WireFaults) -> None:
        self._faults = faults
        self._sent_ids = 0
        self._chunks = 0

    def body(self, body: dict[str, Any]) -> bytes:
        """A plain reply."""
        if self._faults.drop_after is not None:
            raise DropConnection
        self._spoil(body, last=True)
        data = json.dumps(body, ensure_ascii=False).encode()
        return data[: len(data) // 2] if self._faults.malformed else data

    def chunk(self, chunk: dict[str, Any]) -> list[bytes]:
        """One chunk, with what was asked for around it."""
        faults = self._faults
        count = sum(len(choice.get("token_ids") or []) for choice in chunk.get("choices", []))
        limit = faults.drop_after
        if limit is not None and self._sent_ids + count > limit:
            raise DropConnection
        self._sent_ids += count
        finished = any(choice.get("finish_reason") for choice in chunk.get("choices", []))
        self._spoil(chunk, last=finished)
        self._chunks += 1
        parts = []
        if faults.keep_alive:
            parts.append(b": ping\n")
        if faults.empty_choices:
            parts.append(_event(chunk | {"choices": []}))
        if faults.malformed and self._chunks == 2:
            parts.append(b'data: {"choices": [\n\n')
        parts.append(_event(chunk))
        return self._pieces(b"".join(parts))

    def end(self) -> list[bytes]:
        """The end of the stream."""
        return [] if self._faults.without_done else self._pieces(b"data: [DONE]\n\n")

    def _pieces(self, data: bytes) -> list[bytes]:
        size = self._faults.split
        if size is None:
            return [data]
        return [data[start : start + size] for start in range(0, len(data), size)]

    def _spoil(self, body: dict[str, Any], last: bool) -> None:
        faults = self._faults
        if faults.without_usage:
            body.pop("usage", None)
        if faults.without_ids:
            body.pop("prompt_token_ids", None)
        for choice in body.get("choices", []):
            ids = choice.get("token_ids")
            if faults.without_ids:
                choice.pop("token_ids", None)
                choice.pop("prompt_token_ids", None)
            elif ids and last and faults.id_count:
                extra = ids[-1:] * faults.id_count
                choice["token_ids"] = ids[: faults.id_count] if faults.id_count < 0 else [*ids, *extra]
            if faults.nan_logprobs and choice.get("logprobs"):
                _nan(choice["logprobs"])


def _nan(logprobs: dict[str, Any]) -> None:
    if "token_logprobs" in logprobs:
        logprobs["token_logprobs"] = [math.nan for _ in logprobs["token_logprobs"]]
    for entry in logprobs.get("content") or []:
        entry["logprob"] = math.nan


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"
