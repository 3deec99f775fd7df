"""Spans of one trace come in several lines and files, and out of order; here they wait for each other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from agentworld.ingest.spans.conventions import node_of, scores_of
from agentworld.ingest.spans.joining import tell
from agentworld.ingest.spans.node import Node, Say, Span, Trace

MAX_NODES = 100_000
"""So many spans wait at once; then the traces that were silent longest are taken as they are."""


class Assembly:
    """Traces that are not complete yet."""

    def __init__(self, say: Say, most: int = MAX_NODES) -> None:
        self._say = say
        self._most = most
        self._count = 0
        self._traces: OrderedDict[str, Trace] = OrderedDict()
        self._told: dict[tuple[str, str], Span] = {}  # events whose span has not come
        self._bare: dict[tuple[str, str], Span] = {}  # calls whose messages have not come
        self._given: set[str] = set()
        self._nameless = 0

    def add(self, span: Span) -> Iterator[Trace]:
        """Put a span to its trace; gives traces that had to make room."""
        if not span.name and not span.attributes and span.events and span.span_id:
            self._join_events(span)
            return
        if told := self._told.pop((span.trace_id, span.span_id), None):
            span.events = [*span.events, *told.events]
        trace = self._trace_of(span)
        node = node_of(span, self._say)
        if not node.id or node.id in trace.nodes:
            if node.id:
                self._say(span.place, f"the span {node.id} is there twice; the later one is taken", lost=False)
            node.id = node.id or f"#{len(trace.nodes)}"
        if node.kind == "llm" and node.call is None and span.span_id:
            self._bare[span.trace_id, span.span_id] = span
        self.put(trace, node, span)
        while self._count > self._most and len(self._traces) > 1:
            yield self._leave(next(iter(self._traces)))

    def put(self, trace: Trace, node: Node, span: Span) -> None:
        """Put a node to its trace with what its span says of the whole."""
        self._count += node.id not in trace.nodes
        trace.add(node)
        trace.scores += scores_of(span)
        tell(trace, span)

    def rest(self) -> Iterator[Trace]:
        """What is there, at the end."""
        for key in list(self._told):
            span = self._told.pop(key)
            trace = self._trace_of(span)
            node = node_of(span, self._say)
            node.id = node.id or f"#{len(trace.nodes)}"
            self.put(trace, node, span)
        for trace_id in list(self._traces):
            yield self._leave(trace_id)

    def _trace_of(self, span: Span) -> Trace:
        key = span.trace_id
        if not key:
            # Without an id nothing says which spans belong together.
            key = f"\0{self._nameless}"
            self._nameless += 1
        if key in self._given:
            self._say(
                span.place, f"spans of the trace {key} come after {self._most} others; they become a run of their own"
            )
            self._given.discard(key)
        if key not in self._traces:
            self._traces[key] = Trace(trace_id=span.trace_id)
        self._traces.move_to_end(key)
        return self._traces[key]

    def _leave(self, key: str) -> Trace:
        trace = self._traces.pop(key)
        for node_id in trace.nodes:
            self._bare.pop((trace.trace_id, node_id), None)
        self._count -= len(trace.nodes)
        if trace.trace_id and len(self._given) < self._most:
            self._given.add(trace.trace_id)
        return trace

    def _join_events(self, span: Span) -> None:
        """Events that came as log records, to wait for their span."""
        key = (span.trace_id, span.span_id)
        bare, known = self._bare.get(key), self._told.get(key)
        if bare is not None and bare.trace_id in self._traces:
            bare.events.extend(span.events)
            self._traces[bare.trace_id].add(node_of(bare, self._say))
            return
        if known is None:
            self._told[key] = span
        else:
            known.events.extend(span.events)
