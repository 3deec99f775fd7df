"""Attributes of single systems: Google's ADK, Vercel's AI SDK, LangSmith's and Langfuse's own."""

from __future__ import annotations

from typing import Any

from agentworld.ingest.spans.attributes import first
from agentworld.ingest.spans.conversation import Conversation
from agentworld.ingest.spans.genai import finish_reason, finished
from agentworld.ingest.spans.loose import sampling_of, table, text, unpacked, usage_of
from agentworld.ingest.spans.node import Call, CallReply, Say, Span
from agentworld.ingest.spans.observed import as_system, read_call
from agentworld.ingest.spans.tools import read_tools

_ADK = "gcp.vertex.agent"


def adk(span: Span, say: Say) -> Call | None:
    """`gcp.vertex.agent.llm_request` and `llm_response`: Gemini's contents, whatever model answered."""
    attributes = span.attributes
    request = unpacked(attributes.get(f"{_ADK}.llm_request"))
    response = unpacked(attributes.get(f"{_ADK}.llm_response"))
    if not isinstance(request, dict) or not request:
        return None
    conversation = Conversation(say)
    config = table(request.get("config"))
    prompt = conversation.messages(request.get("contents") or [], "llm_request.contents")
    if (system := config.get("system_instruction")) is not None:
        place = "llm_request.config.system_instruction"
        prompt = [*conversation.messages(as_system(system), place, "system"), *prompt]
    call = finished(attributes, conversation, prompt)
    call.tools = read_tools(config.get("tools"), "llm_request.config.tools", say)
    call.requested_model = text(request.get("model")) or call.requested_model
    call.model = call.model or call.requested_model
    call.sampling = sampling_of(config)
    if isinstance(response, dict):
        content = response.get("content")
        shown = {"role": "model", **content} if isinstance(content, dict) else content
        reply = conversation.reply(shown, "llm_response.content") if shown is not None else None
        if reply is not None:
            call.replies = [CallReply(message=reply, finish_reason=_reason(response, reply.tool_calls))]
        counts = response.get("usage_metadata")
        if call.usage is None and isinstance(counts, dict):
            call.usage = usage_of(counts.get("prompt_token_count"), counts.get("candidates_token_count"))
    return call


def _reason(response: dict[str, Any], calls: Any) -> str | None:
    said = finish_reason(response.get("finish_reason"))
    return "tool_calls" if said == "stop" and calls else said


def vercel(span: Span, say: Say) -> Call | None:
    """`ai.prompt.messages`, `ai.response.text`, `ai.response.toolCalls`, in their older spellings too."""
    attributes = span.attributes
    given = first(attributes, "ai.prompt.messages", "ai.prompt")
    said = first(attributes, "ai.response.text", "ai.result.text", "ai.response.object", "ai.result.object")
    calls = unpacked(first(attributes, "ai.response.toolCalls", "ai.result.toolCalls"))
    if given is None or not (said or calls):
        return None
    conversation = Conversation(say)
    shown = unpacked(given)
    prompt = conversation.messages(shown, "ai.prompt.messages")
    if isinstance(shown, dict) and isinstance(system := shown.get("system"), str):
        prompt = [*conversation.messages(system, "ai.prompt.system", "system"), *prompt]
    call = finished(attributes, conversation, prompt)
    item = {"role": "assistant", "tool_calls": calls, "reasoning": attributes.get("ai.response.reasoning")}
    item |= {"content": said} if isinstance(said, str) else {}
    reply = conversation.reply(item, "ai.response")
    if reply is not None:
        reason = finish_reason(first(attributes, "ai.response.finishReason", "ai.finishReason"))
        call.replies = [CallReply(message=reply, finish_reason=reason)]
    tools = unpacked(attributes.get("ai.prompt.tools"))
    call.tools = read_tools(tools, "ai.prompt.tools", say)
    call.model = text(first(attributes, "ai.response.model", "gen_ai.response.model", "ai.model.id"))
    call.requested_model = text(attributes.get("ai.model.id"))
    call.usage = call.usage or usage_of(
        attributes.get("ai.usage.promptTokens"), attributes.get("ai.usage.completionTokens")
    )
    if call.sampling is None:
        settings = {
            key.removeprefix("ai.settings."): value
            for key, value in attributes.items()
            if key.startswith("ai.settings.")
        }
        call.sampling = sampling_of(settings)
    call.response_id = call.response_id or text(attributes.get("ai.response.id"))
    return call


def observed(span: Span, say: Say) -> Call | None:
    """Input and output as Langfuse and LangSmith take them over OTLP: one JSON text each, of a call of a model."""
    attributes = span.attributes
    kinds = ("langfuse.observation.type", "langsmith.span.kind", "gen_ai.operation.name", "traceloop.span.kind")
    kind = str(first(attributes, *kinds) or "").lower()
    if kind not in ("generation", "llm", "chat", "completion", "text_completion", "generate_content"):
        return None
    given = first(
        attributes, "langfuse.observation.input", "gen_ai.prompt", "input.value", "input", "traceloop.entity.input"
    )
    said = first(
        attributes,
        "langfuse.observation.output",
        "gen_ai.completion",
        "output.value",
        "output",
        "traceloop.entity.output",
    )
    if given is None and said is None:
        return None
    call = read_call(given, said, say)
    known = finished(attributes, Conversation(say), [])
    parameters = unpacked(attributes.get("langfuse.observation.model.parameters"))
    usage = unpacked(attributes.get("langfuse.observation.usage_details"))
    counts = usage if isinstance(usage, dict) else {}
    model = text(attributes.get("langfuse.observation.model.name"))
    call.model = known.model or model or call.model
    call.requested_model = known.requested_model or call.requested_model
    call.usage = known.usage or usage_of(counts.get("input"), counts.get("output")) or call.usage
    call.sampling = known.sampling or sampling_of(parameters) or call.sampling
    call.response_id = known.response_id or call.response_id
    call.metadata = {**known.metadata, **call.metadata}
    return call
