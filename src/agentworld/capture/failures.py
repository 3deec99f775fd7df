"""Calls of one trajectory that failed or were left, so that the retry of one takes up what was left half done."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

_KEPT = 64
"""So many bodies are remembered, and so many failures of each."""
_PER_BODY = 384
_PER_CALL = 128
_PER_CHOICE = 128


class Failures:
    """By the digest of the body. `bytes`: about what is kept alive."""

    def __init__(self) -> None:
        self.bytes = 0
        self._calls: OrderedDict[str, list[dict[int, str]]] = OrderedDict()
        """For each call that was not asked again: choice -> its half-done step."""

    def add(self, body_digest: str, half_done: Mapping[int, str] | None = None) -> None:
        """Remember that a call with this body failed or was left; its client may ask again."""
        calls = self._calls.get(body_digest)
        if calls is None:
            calls = self._calls[body_digest] = []
            self.bytes += _PER_BODY
        calls.append(dict(half_done or {}))
        self.bytes += _call_bytes(calls[-1])
        self._calls.move_to_end(body_digest)
        if len(calls) > _KEPT:
            self.bytes -= _call_bytes(calls.pop(0))
        if len(self._calls) > _KEPT:
            _, dropped = self._calls.popitem(last=False)
            self.bytes -= _PER_BODY + sum(map(_call_bytes, dropped))

    def take(self, body_digest: str) -> dict[int, str] | None:
        """The latest failed call of this body that no retry has taken up; None where there is none.

        A client asks again because its own call failed. Equal calls that were answered, or still run, are samples of
        their own, which the retry must not replace.
        """
        calls = self._calls.get(body_digest)
        if not calls:
            return None
        taken = calls.pop()
        self.bytes -= _call_bytes(taken)
        return taken

    def __contains__(self, body_digest: object) -> bool:
        """Whether a call with this body failed here, be it that a retry has taken it up."""
        return body_digest in self._calls


def _call_bytes(half_done: Mapping[int, str]) -> int:
    return _PER_CALL + _PER_CHOICE * len(half_done)
