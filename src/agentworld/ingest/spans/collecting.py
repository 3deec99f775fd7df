"""Traces of which not all has come: what is known of them waits for the rest, until too much does."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from agentworld.ingest.spans.loose import written
from agentworld.ingest.spans.node import Say, Trace
from agentworld.ingest.spans.places import MARK

MAX_CHARACTERS = 128 * 1024 * 1024
"""So much waits at once; then the traces that were silent longest are taken as they are."""


class Collection:
    """Traces that may not be complete yet."""

    def __init__(self, say: Say, most: int = MAX_CHARACTERS) -> None:
        self._say = say
        self._most = most
        self._size = 0
        self._sizes: dict[str, int] = {}
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        self._bodies: dict[str, dict[str, dict[str, Any]]] = {}
        self._given: dict[str, int] = {}
        self._nameless = 0

    def trace(self, trace_id: str, place: str) -> Trace:
        """The trace of that id; one that has none is a trace of its own."""
        key = trace_id
        if not key:
            # Nothing says what belongs together.
            key = f"{MARK}{self._nameless}"
            self._nameless += 1
        if key not in self._traces:
            part = self._given.get(key, 0) + 1
            if part > 1:
                why = f"more of the trace {key[:100]!r} comes after {self._most} characters of others"
                self._say(place, f"{why}; it becomes a run of its own")
            self._traces[key] = Trace(trace_id=trace_id, part=part)
        self._traces.move_to_end(key)
        return self._traces[key]

    def merged(self, trace: Trace, body: dict[str, Any]) -> dict[str, Any]:
        """A record with what earlier ones of the same id said; the later one wins."""
        bodies = self._bodies.setdefault(trace.trace_id, {})
        name = str(body.get("id"))
        found = {**bodies.get(name, {}), **{key: value for key, value in body.items() if value not in (None, {}, [])}}
        bodies[name] = found
        trace.size += len(written(body))
        return found

    def waiting(self) -> list[Trace]:
        """The traces that may not be complete, the one that was silent longest first."""
        return list(self._traces.values())

    def over(self) -> Iterator[Trace]:
        """The traces that have to make room. Call it after each record."""
        if not self._traces:
            return
        latest = next(reversed(self._traces))
        self._size += self._traces[latest].size - self._sizes.get(latest, 0)
        self._sizes[latest] = self._traces[latest].size
        while self._size > self._most and len(self._traces) > 1:
            yield self._leave(next(iter(self._traces)))

    def rest(self) -> Iterator[Trace]:
        """What is there, at the end."""
        for key in list(self._traces):
            yield self._leave(key)

    def _leave(self, key: str) -> Trace:
        trace = self._traces.pop(key)
        self._bodies.pop(trace.trace_id, None)
        self._size -= self._sizes.pop(key, 0)
        if trace.trace_id:
            self._given[key] = trace.part
        return trace
