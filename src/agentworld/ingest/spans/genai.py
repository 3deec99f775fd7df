"""OpenTelemetry's GenAI conventions: messages as attributes of their own, as events, and, in older instrumentations, as
numbered attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentworld.ingest.spans.attributes import first, under
from agentworld.ingest.spans.conversation import Conversation
from agentworld.ingest.spans.loose import bounded, sampling_of, text, unpacked, usage_of
from agentworld.ingest.spans.node import Call, CallReply, Say, Span
from agentworld.ingest.spans.tools import read_tools
from agentworld.records import Message, Role, Tool

DETAILS = "gen_ai.client.inference.operation.details"
_EVENT_ROLES: dict[str, Role] = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_INPUTS = ("gen_ai.input.messages", "gen_ai.input_messages")
_OUTPUTS = ("gen_ai.output.messages", "gen_ai.output_messages")


def structured(span: Span, say: Say) -> Call | None:
    """`gen_ai.input.messages`, `gen_ai.output.messages`, on the span or on its event with the details."""
    attributes: Mapping[str, Any] = span.attributes
    for event in span.events:
        if event.name == DETAILS:
            told = event.body if isinstance(event.body, dict) else {}
            attributes = {**attributes, **told, **event.attributes}
    given, said = first(attributes, *_INPUTS), first(attributes, *_OUTPUTS)
    if given is None and said is None:
        return None
    conversation = Conversation(say)
    prompt = conversation.messages(given, "gen_ai.input.messages") if given is not None else []
    system = unpacked(first(attributes, "gen_ai.system_instructions", "gen_ai.system.instructions"))
    if system is not None and not any(message.role == "system" for message in prompt):
        shown = {"role": "system", "parts": system} if isinstance(system, list) else system
        prompt = [*conversation.messages(shown, "gen_ai.system_instructions", "system"), *prompt]
    call = finished(attributes, conversation, prompt)
    listed = unpacked(said)
    for position, item in enumerate(listed if isinstance(listed, list) else [] if listed is None else [listed]):
        reply = conversation.reply(item, f"gen_ai.output.messages[{position}]")
        if reply is not None:
            reason = item.get("finish_reason") if isinstance(item, dict) else None
            call.replies.append(CallReply(message=reply, finish_reason=_reason(reason)))
    call.tools = read_tools(attributes.get("gen_ai.tool.definitions"), "gen_ai.tool.definitions", say)
    return _with_reasons(call, attributes)


def numbered(span: Span, say: Say) -> Call | None:
    """`gen_ai.prompt.N.role`, `gen_ai.completion.N.content`, `llm.request.functions.N.name`, and older spellings."""
    attributes = span.attributes
    prompts = next(
        (found for name in ("gen_ai.prompt", "llm.prompts") if isinstance(found := under(attributes, name), list)), None
    )
    said = next(
        (
            found
            for name in ("gen_ai.completion", "llm.completions")
            if isinstance(found := under(attributes, name), list)
        ),
        None,
    )
    if prompts is None and said is None:
        return None
    conversation = Conversation(say)
    prompt = conversation.messages([_blocks(each) for each in prompts or []], "gen_ai.prompt")
    call = finished(attributes, conversation, prompt)
    for position, item in enumerate(said or []):
        item = _blocks(item)
        if isinstance(item, dict):
            item.setdefault("role", "assistant")
        reply = conversation.reply(item, f"gen_ai.completion.{position}")
        if reply is not None:
            reason = item.get("finish_reason") if isinstance(item, dict) else None
            call.replies.append(CallReply(message=reply, finish_reason=_reason(reason)))
    call.tools = _numbered_tools(attributes, say)
    return _with_reasons(call, attributes)


def from_events(span: Span, say: Say) -> Call | None:
    """Events of a span, or the list of them that some instrumentations write into an attribute."""
    attributes = span.attributes
    told: list[tuple[str, Any]] = []
    for event in span.events:
        body = event.body if event.body is not None else event.attributes
        if isinstance(event.attributes.get("gen_ai.event.content"), str):
            body = unpacked(event.attributes["gen_ai.event.content"])
        if event.name in _EVENT_ROLES or event.name == "gen_ai.choice":
            told.append((event.name, body))
        elif event.name == "gen_ai.content.prompt":
            told.append(("prompt", first(event.attributes, "gen_ai.prompt", "prompt")))
        elif event.name == "gen_ai.content.completion":
            told.append(("completion", first(event.attributes, "gen_ai.completion", "completion")))
    listed = unpacked(attributes.get("events"))
    for item in listed if isinstance(listed, list) else []:
        if isinstance(item, dict) and isinstance(name := item.get("event.name"), str):
            told.append((name, item))
    if not told:
        return None
    conversation = Conversation(say)
    prompt: list[Message] = []
    replies: list[CallReply] = []
    for name, body in told:
        if name == "prompt":
            prompt += conversation.messages(body, name)
        elif name == "completion" or name == "gen_ai.choice":
            reply, reason = _choice(body, conversation)
            if reply is not None:
                replies.append(CallReply(message=reply, finish_reason=reason))
        elif (role := _EVENT_ROLES.get(name)) is not None:
            prompt += conversation.messages(_event_message(body, role), name, role)
    call = finished(attributes, conversation, prompt)
    call.replies = replies
    call.tools = read_tools(
        attributes.get("gen_ai.tool.definitions"), "gen_ai.tool.definitions", say
    ) or _numbered_tools(attributes, say)
    return _with_reasons(call, attributes)


def finished(attributes: Mapping[str, Any], conversation: Conversation, prompt: list[Message]) -> Call:
    """The call with what the conventions say of model, parameters and usage."""
    parameters = {
        key.removeprefix("gen_ai.request."): value
        for key, value in attributes.items()
        if key.startswith("gen_ai.request.")
    }
    asked = text(attributes.get("gen_ai.request.model"))
    notes = {
        "provider": first(attributes, "gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system"),
        "other_parts": conversation.left,
    }
    return Call(
        prompt=prompt,
        model=text(attributes.get("gen_ai.response.model")) or asked,
        requested_model=asked,
        usage=usage_of(
            first(attributes, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens"),
            first(
                attributes,
                "gen_ai.usage.output_tokens",
                "gen_ai.usage.completion_tokens",
                "llm.usage.completion_tokens",
            ),
        ),
        sampling=sampling_of(parameters),
        response_id=text(attributes.get("gen_ai.response.id")),
        media=conversation.media,
        metadata=bounded(notes),
    )


def _with_reasons(call: Call, attributes: Mapping[str, Any]) -> Call:
    """The call with the reasons that stand on the span, where those of the replies are not known."""
    reasons = unpacked(attributes.get("gen_ai.response.finish_reasons"))
    for position, reply in enumerate(call.replies):
        if reply.finish_reason is None and isinstance(reasons, list) and position < len(reasons):
            reply.finish_reason = _reason(reasons[position])
    return call


def _reason(value: Any) -> str | None:
    return finish_reason(value)


def finish_reason(value: Any) -> str | None:
    """Why a reply ended, in OpenAI's words where it is one of theirs in others' spelling."""
    if isinstance(value, dict):
        value = value.get("finish_reason")
    said = text(value)
    if said is None:
        return None
    said = said.rsplit(".", 1)[-1]
    known = {
        "STOP": "stop",
        "end_turn": "stop",
        "stop_sequence": "stop",
        "MAX_TOKENS": "length",
        "max_tokens": "length",
        "tool_call": "tool_calls",
        "tool-calls": "tool_calls",
        "tool_use": "tool_calls",
        "function_call": "tool_calls",
        "content-filter": "content_filter",
        "SAFETY": "content_filter",
    }
    return known.get(said, said)[:100]


def _numbered_tools(attributes: Mapping[str, Any], say: Say) -> list[Tool]:
    for name in ("llm.request.functions", "gen_ai.request.functions", "gen_ai.tool.definitions"):
        if (found := under(attributes, name)) is not None:
            return read_tools(found, name, say)
    return []


_BLOCKS = frozenset(("text", "toolUse", "toolResult", "reasoningContent", "image"))


def _blocks(item: Any) -> Any:
    """A message whose content is the JSON of its blocks, with the blocks."""
    if isinstance(item, dict) and isinstance(content := item.get("content"), str) and content.startswith('[{"'):
        blocks = unpacked(content)
        if isinstance(blocks, list) and all(_is_block(each) for each in blocks):
            return {**item, "content": blocks}
    return item


def _is_block(block: Any) -> bool:
    return isinstance(block, dict) and (isinstance(block.get("type"), str) or bool(block.keys() & _BLOCKS))


def _event_message(body: Any, role: Role) -> Any:
    if isinstance(body, dict):
        body = {str(key).removeprefix("gen_ai.message."): value for key, value in body.items() if key != "event.name"}
        body = _blocks(body)
        body.setdefault("role", role)
        if role == "tool" and text(body.get("id")):
            body.setdefault("tool_call_id", body["id"])
    return body


def _choice(body: Any, conversation: Conversation) -> tuple[Message | None, str | None]:
    body = unpacked(body)
    if isinstance(body, list) and len(body) == 1:
        body = body[0]
    if not isinstance(body, dict):
        return conversation.reply(body, "gen_ai.choice"), None
    message = unpacked(body.get("message"))
    shown = message if message is not None else body
    if isinstance(shown, list) and not any(isinstance(each, dict) and "role" in each for each in shown):
        shown = {"content": shown}
    if isinstance(shown, dict):
        shown = {"role": "assistant", **shown}
        if body.get("tool_calls") and not shown.get("tool_calls"):
            shown["tool_calls"] = body["tool_calls"]
    return conversation.reply(shown, "gen_ai.choice"), _reason(body.get("finish_reason"))
