"""What single spans say of the whole trace that they are of."""

from __future__ import annotations

from typing import Any

from agentworld.ingest.spans.attributes import first
from agentworld.ingest.spans.conventions import SESSION, USER
from agentworld.ingest.spans.loose import bounded, text
from agentworld.ingest.spans.node import Span, Trace


def tell(trace: Trace, span: Span) -> None:
    """Put what a span says of its whole trace into it."""
    attributes, resource = span.attributes, span.resource
    group = first(attributes, "agentworld.group_id") or resource.get("agentworld.group_id")
    trace.session = trace.session or text(first(attributes, *SESSION))
    trace.user = trace.user or text(first(attributes, *USER))
    trace.group_id = trace.group_id or text(group)
    kept: dict[str, Any] = {
        "service": text(resource.get("service.name")),
        "tags": first(attributes, "langfuse.trace.tags", "tag.tags"),
        "trace_name": first(attributes, "langfuse.trace.name", "langsmith.trace.name"),
    }
    for name, value in bounded(kept).items():
        trace.metadata.setdefault(name, value)
