"""Traces that exports give record by record, until all of each is there."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from agentworld.ingest.run import Run
from agentworld.ingest.spans.node import Say, Trace
from agentworld.ingest.spans.places import MARK
from agentworld.ingest.spans.runs import run_of

MAX_NODES = 100_000
"""So many records wait at once; then the traces that were silent longest are taken as they are."""


class Collection:
    """Traces that may not be complete yet."""

    def __init__(self, say: Say, most: int = MAX_NODES) -> None:
        self._say = say
        self._most = most
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        self._bodies: dict[str, dict[str, Any]] = {}
        self._given: set[str] = set()
        self._nameless = 0
        self._came = 0  # records, so that the traces are counted over only where they can be too many

    def trace(self, trace_id: str, place: str) -> Trace:
        """The trace of that id; one that has none is a trace of its own."""
        key = trace_id
        if not key:
            key = f"{MARK}{self._nameless}"
            self._nameless += 1
        if key in self._given:
            self._say(
                place, f"the trace {key[:100]!r} goes on after {self._most} other records; the rest is a run of its own"
            )
            self._given.discard(key)
        if key not in self._traces:
            self._traces[key] = Trace(trace_id=trace_id)
        self._traces.move_to_end(key)
        self._came += 1
        return self._traces[key]

    def merged(self, trace: Trace, body: dict[str, Any]) -> dict[str, Any]:
        """A record with what earlier ones of the same id said; the later one wins."""
        key = f"{trace.trace_id}{MARK}{body.get('id')}"
        known = self._bodies.get(key, {})
        found = {**known, **{name: value for name, value in body.items() if value not in (None, {}, [])}}
        if len(self._bodies) >= self._most:
            self._bodies.pop(next(iter(self._bodies)))
        self._bodies[key] = found
        return found

    def waiting(self) -> list[Trace]:
        """The traces that may not be complete, the one that was silent longest first."""
        return list(self._traces.values())

    def over(self) -> Iterator[Run]:
        """The runs that have to make room."""
        if len(self._traces) < 2 or self._came < self._most:
            return
        while sum(len(trace.nodes) for trace in self._traces.values()) > self._most and len(self._traces) > 1:
            yield from self._leave(next(iter(self._traces)))
        self._came = sum(len(trace.nodes) for trace in self._traces.values())

    def rest(self) -> Iterator[Run]:
        """The runs of what is there, at the end."""
        for key in list(self._traces):
            yield from self._leave(key)

    def _leave(self, key: str) -> Iterator[Run]:
        trace = self._traces.pop(key)
        if trace.trace_id:
            self._given.add(key)
        if (run := run_of(trace, self._say)) is not None:
            yield run
