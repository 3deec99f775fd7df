"""What the attributes of a span say: a call of a model, an execution of a tool, the run of an agent, or something else.

Each convention is tried in the order of how much it says: Google's ADK, the GenAI conventions of OpenTelemetry in their
structured form, OpenInference, the numbered attributes of older GenAI instrumentations, events, Vercel's AI SDK, and
the attributes of LangSmith and Langfuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentworld.ingest.spans import genai, openinference, vendors
from agentworld.ingest.spans.attributes import first
from agentworld.ingest.spans.loose import text, written
from agentworld.ingest.spans.node import Call, Node, NodeKind, Say, Score, Span, ToolRun
from agentworld.ingest.spans.places import within

_READERS = (
    vendors.adk,
    genai.structured,
    openinference.call,
    genai.numbered,
    genai.from_events,
    vendors.vercel,
    vendors.observed,
)
_KINDS: dict[str, NodeKind] = {
    "llm": "llm",
    "chat": "llm",
    "text_completion": "llm",
    "completion": "llm",
    "generate_content": "llm",
    "generation": "llm",
    "execute_tool": "tool",
    "tool": "tool",
    "agent": "agent",
    "invoke_agent": "agent",
    "create_agent": "other",
    "invoke_workflow": "other",
    "workflow": "other",
    "chain": "other",
    "task": "other",
    "embeddings": "other",
    "embedding": "other",
    "retrieval": "other",
    "retriever": "other",
    "reranker": "other",
    "guardrail": "other",
    "evaluator": "other",
    "span": "other",
    "event": "other",
    "prompt": "other",
    "parser": "other",
}
_KIND_NAMES = (
    "gen_ai.operation.name",
    "openinference.span.kind",
    "traceloop.span.kind",
    "langfuse.observation.type",
    "langsmith.span.kind",
    "llm.request.type",
)
SESSION = (
    "session.id",
    "gen_ai.conversation.id",
    "langfuse.session.id",
    "langsmith.trace.session_id",
    "gcp.vertex.agent.session_id",
    "traceloop.association.properties.session_id",
)
USER = ("user.id", "enduser.id", "langfuse.user.id", "traceloop.association.properties.user_id")


def node_of(span: Span, say: Say) -> Node:
    """The span as a node; what is wrong with it is said."""
    attributes, say = span.attributes, within(say, span.place)
    kind = _kind(attributes)
    node = Node(
        id=span.span_id,
        parent=span.parent_id,
        kind=kind or "other",
        name=span.name,
        start=span.start,
        end=span.end,
        error=span.error,
        place=span.place,
    )
    # Calls of models and of tools may name their agent too.
    node.agent = text(attributes.get("gen_ai.agent.name"))
    if kind == "agent" and node.agent is None:
        node.agent = text(first(attributes, "agent.name", "graph.node.id", "gen_ai.agent.id")) or span.name
    if kind == "tool":
        node.tool = _tool(span)
    elif kind in ("llm", None):
        node.call = _call(span, say)
        if node.call is not None:
            node.kind = "llm"
    return node


def scores_of(span: Span) -> list[Score]:
    """Evaluations that a span tells of: results of OpenTelemetry's, and annotations of OpenInference's."""
    found = []
    told = [event.attributes for event in span.events if event.name == "gen_ai.evaluation.result"]
    for attributes in [*told, *([span.attributes] if "gen_ai.evaluation.name" in span.attributes else [])]:
        name = text(attributes.get("gen_ai.evaluation.name"))
        value = first(attributes, "gen_ai.evaluation.score.value", "gen_ai.evaluation.score.label")
        if name is not None and (value is not None or attributes.get("gen_ai.evaluation.score.value") == 0):
            value = attributes.get("gen_ai.evaluation.score.value", value)
            comment = text(attributes.get("gen_ai.evaluation.explanation"))
            found.append(Score(name=name, value=value, node=span.span_id, comment=comment))
    names = {key.split(".")[1] for key in span.attributes if key.startswith("eval.") and key.count(".") >= 2}
    for name in sorted(names):
        value = first(span.attributes, f"eval.{name}.score", f"eval.{name}.label")
        if span.attributes.get(f"eval.{name}.score") == 0:
            value = 0
        if value is not None:
            comment = text(span.attributes.get(f"eval.{name}.explanation"))
            found.append(Score(name=name, value=value, node=span.span_id, comment=comment))
    return found


def _kind(attributes: Mapping[str, Any]) -> NodeKind | None:
    """What the attributes say that it is; None where they say nothing that is known."""
    for name in _KIND_NAMES:
        said = attributes.get(name)
        if isinstance(said, str) and (kind := _KINDS.get(said.lower())) is not None:
            return kind
    operation = attributes.get("ai.operationId")
    if isinstance(operation, str):
        if operation == "ai.toolCall":
            return "tool"
        return "llm" if operation.endswith((".doGenerate", ".doStream")) else "other"
    if any(name in attributes for name in ("gen_ai.tool.call.id", "tool.name", "gcp.vertex.agent.tool_call_args")):
        return "tool"
    return None


def _call(span: Span, say: Say) -> Call | None:
    for read in _READERS:
        call = read(span, say)
        if call is not None and (call.prompt or call.replies):
            return call
    return None


def _tool(span: Span) -> ToolRun:
    attributes = span.attributes
    name = (
        text(first(attributes, "gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name"))
        or span.name
    )
    call_id = text(first(attributes, "gen_ai.tool.call.id", "tool_call.id", "tool.id", "ai.toolCall.id"))
    arguments = first(
        attributes,
        "gen_ai.tool.call.arguments",
        "gcp.vertex.agent.tool_call_args",
        "ai.toolCall.args",
        "tool.parameters",
        "traceloop.entity.input",
        "langfuse.observation.input",
        "input.value",
        "input",
        "tool_arguments",
    )
    result = first(
        attributes,
        "gen_ai.tool.call.result",
        "gcp.vertex.agent.tool_response",
        "ai.toolCall.result",
        "traceloop.entity.output",
        "langfuse.observation.output",
        "output.value",
        "output",
        "tool_response",
    )
    return ToolRun(
        name=name,
        call_id=call_id,
        arguments=None if arguments is None else written(arguments),
        result=None if result is None else written(result),
    )
