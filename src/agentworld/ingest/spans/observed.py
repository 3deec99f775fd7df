"""A call of a model as observing systems keep it: an input and an output of whatever shape the framework gave them."""

from __future__ import annotations

from typing import Any

from agentworld.ingest.spans.conversation import Conversation
from agentworld.ingest.spans.genai import finish_reason
from agentworld.ingest.spans.loose import bounded, sampling_of, table, text, unpacked, usage_of
from agentworld.ingest.spans.node import Call, CallReply, Say
from agentworld.ingest.spans.tools import read_tools
from agentworld.records import Message

_PROMPTS = ("messages", "contents", "input", "prompt", "prompts", "question", "query", "text")
_CONFIGS = ("config", "invocation_params", "invocationParams", "params", "kwargs")


def read_call(given: Any, said: Any, say: Say) -> Call:
    """The call with this input and output; what is no message of either is left out."""
    conversation = Conversation(say)
    given, said = unpacked(given), unpacked(said)
    call = Call()
    call.prompt = _prompt(given, conversation)
    if isinstance(given, dict):
        config = table(next((given[name] for name in _CONFIGS if isinstance(given.get(name), dict)), None))
        tools = given.get("tools") or given.get("functions") or config.get("tools") or given.get("functionDeclarations")
        call.tools = read_tools(tools, "input.tools", say) if tools else []
        call.requested_model = text(given.get("model")) or text(config.get("model"))
        call.sampling = sampling_of({**config, **given})
    else:
        call.tools = _tools_beside(given, say)
    call.replies = _replies(said, conversation)
    if isinstance(said, dict):
        call.response_id = text(said.get("id"))
        call.model = text(said.get("model")) or text(said.get("model_version"))
        call.usage = _usage(said)
    call.model = call.model or call.requested_model
    call.media = conversation.media
    call.metadata = bounded({"other_parts": conversation.left})
    return call


def as_system(value: Any) -> Any:
    """Instructions, which may be a text, Gemini's content or a list of blocks, as a message of the system."""
    if isinstance(value, dict) and "parts" in value:
        return {"role": "system", "parts": value["parts"]}
    return {"role": "system", "content": value} if isinstance(value, list) else value


def _prompt(given: Any, conversation: Conversation) -> list[Message]:
    if not isinstance(given, dict):
        return conversation.messages(
            [each for each in given if not _is_tool(each)] if isinstance(given, list) else given, "input"
        )
    if "role" in given or "lc" in given:
        return conversation.messages(given, "input")
    found: list[Message] = []
    for name in _PROMPTS:
        if given.get(name) not in (None, "", []):
            found = conversation.messages(given[name], f"input.{name}")
            break
    system = given.get("system") or given.get("instructions") or given.get("system_instruction")
    config = given.get("config")
    if system is None and isinstance(config, dict):
        system = config.get("system_instruction") or config.get("systemInstruction")
    if system is not None and not any(message.role == "system" for message in found):
        found = [*conversation.messages(as_system(system), "input.system", "system"), *found]
    return found


def _replies(said: Any, conversation: Conversation) -> list[CallReply]:
    """The choices of an output: OpenAI's, LangChain's generations, Gemini's candidates, or one message."""
    if isinstance(said, dict):
        for name in ("choices", "candidates"):
            if isinstance(choices := said.get(name), list):
                return _choices(choices, f"output.{name}", conversation)
        if isinstance(batches := said.get("generations"), list):
            flat = [each for batch in batches for each in (batch if isinstance(batch, list) else [batch])]
            return _choices(flat, "output.generations", conversation)
        for name in ("messages", "output", "content", "message", "completion", "text"):
            if "role" not in said and said.get(name) not in (None, "", []):
                inner = said[name]
                if name in ("content", "text", "completion") and not isinstance(inner, dict):
                    inner = {**said, "role": "assistant", "content": inner}
                reason = said.get("finish_reason") or said.get("stop_reason") or said.get("finishReason")
                return _one(inner, f"output.{name}", reason, conversation)
        if said.get("tool_calls") or said.get("toolCalls") or "role" in said or "lc" in said:
            return _one(
                {"role": "assistant", **said},
                "output",
                said.get("finish_reason") or said.get("stop_reason"),
                conversation,
            )
        return []
    if (
        isinstance(said, list)
        and len(said) > 1
        and all(isinstance(each, dict) and "finish_reason" in each for each in said)
    ):
        return _choices(said, "output", conversation)
    return _one(
        [each for each in said if not _is_tool(each)] if isinstance(said, list) else said, "output", None, conversation
    )


def _one(value: Any, place: str, reason: Any, conversation: Conversation) -> list[CallReply]:
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        # Some outputs are the whole conversation; what was said is its last message.
        roles = [each.get("role") for each in value]
        if "user" in roles or "tool" in roles:
            value = value[-1]
    inner = value[-1] if isinstance(value, list) and value else value
    if reason is None and isinstance(inner, dict):
        details = inner.get("json") if isinstance(inner.get("json"), dict) else inner.get("response_metadata")
        reason = inner.get("finish_reason") or (details.get("finish_reason") if isinstance(details, dict) else None)
    reply = conversation.reply(value, place)
    return [] if reply is None else [CallReply(message=reply, finish_reason=finish_reason(reason))]


def _choices(choices: list[Any], place: str, conversation: Conversation) -> list[CallReply]:
    found = []
    for position, choice in enumerate(choices):
        if not isinstance(choice, dict):
            choice = {"message": choice}
        details = choice.get("generation_info") or choice.get("generationInfo")
        reason = choice.get("finish_reason") or choice.get("finishReason")
        if reason is None and isinstance(details, dict):
            reason = details.get("finish_reason")
        inner = choice.get("message") or choice.get("content")
        if reason is None and isinstance(inner, dict):
            reason = table(table(inner.get("kwargs")).get("response_metadata")).get("finish_reason")
        if inner is None:
            inner = choice.get("text") if "text" in choice else choice
        if isinstance(inner, dict) and "lc" not in inner and "kwargs" not in inner:
            inner = {"role": "assistant", **inner}
        reply = conversation.reply(inner, f"{place}[{position}]")
        if reply is not None:
            found.append(CallReply(message=reply, finish_reason=finish_reason(reason)))
    return found


def _usage(said: dict[str, Any]) -> Any:
    for name in ("usage", "usage_metadata", "usageMetadata", "llm_output", "llmOutput"):
        counts = said.get(name)
        if isinstance(counts, dict):
            counts = table(counts.get("token_usage")) or table(counts.get("tokenUsage")) or counts
            read = (
                "prompt_tokens",
                "input_tokens",
                "promptTokens",
                "inputTokens",
                "prompt_token_count",
                "promptTokenCount",
            )
            written = (
                "completion_tokens",
                "output_tokens",
                "completionTokens",
                "outputTokens",
                "candidates_token_count",
                "candidatesTokenCount",
            )
            prompt = next((counts[each] for each in read if counts.get(each) is not None), None)
            completion = next((counts[each] for each in written if counts.get(each) is not None), None)
            if (found := usage_of(prompt, completion)) is not None:
                return found
    return None


def _is_tool(item: Any) -> bool:
    """Whether an entry of a list of messages is the definition of a tool, as some frameworks write them there."""
    if not isinstance(item, dict) or item.get("role") != "tool":
        return False
    content = unpacked(item.get("content"))
    return isinstance(content, dict) and content.get("type") == "function" and isinstance(content.get("function"), dict)


def _tools_beside(given: Any, say: Say) -> list[Any]:
    """Tools that stand among or on the messages."""
    if not isinstance(given, list):
        return []
    found = [unpacked(each["content"]) for each in given if _is_tool(each)]
    if not found:
        found = next(
            (each["tools"] for each in given if isinstance(each, dict) and isinstance(each.get("tools"), list)), []
        )
    return read_tools(found, "input.tools", say) if found else []
