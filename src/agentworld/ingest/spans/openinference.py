"""OpenInference's conventions: `llm.input_messages.N.message...`, and the JSON of the request and the response."""

from __future__ import annotations

from typing import Any

from agentworld.ingest.spans.attributes import first, under
from agentworld.ingest.spans.conversation import Conversation
from agentworld.ingest.spans.genai import finish_reason
from agentworld.ingest.spans.loose import bounded, sampling_of, text, unpacked, usage_of
from agentworld.ingest.spans.node import Call, CallReply, Say, Span
from agentworld.ingest.spans.tools import read_tools


def call(span: Span, say: Say) -> Call | None:
    """The call of a span of kind LLM."""
    attributes = span.attributes
    given, said = under(attributes, "llm.input_messages"), under(attributes, "llm.output_messages")
    kind = str(attributes.get("openinference.span.kind", "")).upper()
    if given is None and said is None and kind != "LLM":
        return None
    request = unpacked(attributes.get("input.value"))
    response = unpacked(attributes.get("output.value"))
    request = request if isinstance(request, dict) else {}
    choices = response.get("choices") if isinstance(response, dict) else None
    conversation = Conversation(say)
    if isinstance(listed := unpacked(given), list):
        prompt = conversation.messages([_message(each) for each in listed], "llm.input_messages")
    elif prompts := _texts(under(attributes, "llm.prompts")):
        prompt = conversation.messages(prompts, "llm.prompts")
    elif request:
        prompt = conversation.messages(
            request.get("messages") or request.get("input") or request.get("prompt"), "input.value"
        )
    else:
        prompt = conversation.messages(attributes.get("input.value"), "input.value")
    reasons = (
        [each.get("finish_reason") if isinstance(each, dict) else None for each in choices]
        if isinstance(choices, list)
        else []
    )
    replies = []
    if isinstance(listed := unpacked(said), list):
        items = [_message(each) for each in listed]
    elif texts := _texts(under(attributes, "llm.choices")):
        items = list(texts)
    elif isinstance(choices, list):
        items = [each.get("message", each.get("text")) for each in choices if isinstance(each, dict)]
    else:
        items = [] if (plain := attributes.get("output.value")) in (None, "") else [plain]
    for position, item in enumerate(items):
        reply = conversation.reply(
            {"role": "assistant", **item} if isinstance(item, dict) else item, f"llm.output_messages.{position}"
        )
        if reply is not None:
            reason = reasons[position] if position < len(reasons) else first(attributes, "llm.finish_reason")
            replies.append(CallReply(message=reply, finish_reason=finish_reason(reason)))
    parameters = unpacked(attributes.get("llm.invocation_parameters"))
    tools = under(attributes, "llm.tools")
    if tools is None and isinstance(parameters, dict):
        tools = parameters.get("tools") or parameters.get("functions")
    asked = text(parameters.get("model")) if isinstance(parameters, dict) else None
    return Call(
        prompt=prompt,
        replies=replies,
        tools=read_tools(tools, "llm.tools", say),
        model=text(attributes.get("llm.model_name")) or asked,
        requested_model=asked,
        usage=usage_of(attributes.get("llm.token_count.prompt"), attributes.get("llm.token_count.completion")),
        sampling=sampling_of(parameters),
        response_id=text(response.get("id")) if isinstance(response, dict) else None,
        media=conversation.media,
        metadata=bounded(
            {
                "provider": first(attributes, "llm.provider", "llm.system"),
                "prompt_template": under(attributes, "llm.prompt_template"),
                "other_parts": conversation.left,
            }
        ),
    )


def _texts(found: Any) -> list[str]:
    """Texts of `llm.prompts` and of `llm.choices`."""
    texts = []
    for each in found if isinstance(found, list) else []:
        inner = each.get("prompt", each.get("completion")) if isinstance(each, dict) else each
        inner = inner.get("text") if isinstance(inner, dict) else inner
        if isinstance(inner, str):
            texts.append(inner)
    return texts


def _message(item: Any) -> Any:
    """A message with its contents and tool calls as chat has them."""
    inner = item.get("message", item) if isinstance(item, dict) else item
    if not isinstance(inner, dict):
        return inner
    inner = {str(key).removeprefix("message."): value for key, value in inner.items()}
    calls = inner.get("tool_calls")
    if isinstance(calls, list):
        inner["tool_calls"] = [_plain(each, "tool_call") for each in calls]
    legacy = inner.pop("function_call_name", None)
    if isinstance(legacy, str) and legacy:
        inner["function_call"] = {"name": legacy, "arguments": inner.pop("function_call_arguments_json", "{}")}
    contents = inner.pop("contents", None)
    if isinstance(contents, list) and contents:
        inner["content"] = [_part(_plain(each, "message_content")) for each in contents]
    return inner


def _plain(item: Any, name: str) -> Any:
    """An object without the name that stands around it, or before each of its keys."""
    if not isinstance(item, dict):
        return item
    if isinstance(item.get(name), dict):
        return item[name]
    found: dict[str, Any] = {}
    for key, value in item.items():
        key = str(key).removeprefix(f"{name}.")
        if key.startswith("function."):
            found.setdefault("function", {})[key.removeprefix("function.")] = value
        else:
            found[key] = value
    return found


def _part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    image = part.get("image")
    if isinstance(image, dict):
        inner = image.get("image", image)
        return {"type": "image_url", "image_url": inner if isinstance(inner, dict) else {"url": inner}}
    if isinstance(address := part.get("image.image.url"), str):
        return {"type": "image_url", "image_url": {"url": address}}
    return part
