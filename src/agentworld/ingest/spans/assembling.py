"""Spans of one trace come in several lines and files, and out of order; here they are put together."""

from __future__ import annotations

from collections.abc import Iterator

from agentworld.ingest.spans.collecting import MAX_CHARACTERS, Collection
from agentworld.ingest.spans.conventions import node_of, scores_of
from agentworld.ingest.spans.joining import tell
from agentworld.ingest.spans.node import Say, Span, Trace


class Assembly:
    """Traces that are not complete yet."""

    def __init__(self, say: Say, most: int = MAX_CHARACTERS) -> None:
        self._say = say
        self._traces = Collection(say, most)
        self._told: dict[tuple[str, str], Span] = {}  # events whose span has not come
        self._bare: dict[str, dict[str, Span]] = {}  # of each trace, calls whose messages have not come

    def add(self, span: Span) -> Iterator[Trace]:
        """Put a span to its trace; gives traces that had to make room."""
        if not span.name and not span.attributes and span.events and span.span_id:
            self._join_events(span)
            return
        if told := self._told.pop((span.trace_id, span.span_id), None):
            span.events = [*span.events, *told.events]
        self._put(self._traces.trace(span.trace_id, span.place), span)
        for trace in self._traces.over():
            self._bare.pop(trace.trace_id, None)
            yield trace

    def rest(self) -> Iterator[Trace]:
        """What is there, at the end."""
        for span in self._told.values():
            self._put(self._traces.trace(span.trace_id, span.place), span)
        self._told = {}
        yield from self._traces.rest()

    def _put(self, trace: Trace, span: Span) -> None:
        node = node_of(span, self._say)
        if not node.id:
            node.id = f"#{len(trace.nodes)}"
        elif node.id in trace.nodes:
            self._say(span.place, f"the span {node.id} is there twice; the later one is taken", lost=False)
        if node.kind == "llm" and node.call is None and span.span_id:
            self._bare.setdefault(span.trace_id, {})[span.span_id] = span
        trace.add(node)
        trace.scores += scores_of(span)
        tell(trace, span)

    def _join_events(self, span: Span) -> None:
        """Events that came as log records, put to their span, or kept until it comes."""
        bare = self._bare.get(span.trace_id, {}).get(span.span_id)
        if bare is not None:
            bare.events = [*bare.events, *span.events]
            self._traces.trace(bare.trace_id, span.place).add(node_of(bare, self._say))
        elif (known := self._told.get((span.trace_id, span.span_id))) is not None:
            known.events.extend(span.events)
        else:
            self._told[span.trace_id, span.span_id] = span
