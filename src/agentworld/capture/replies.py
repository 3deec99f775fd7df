"""What stored replies mean to the calls that come after them."""

from __future__ import annotations

from agentworld.capture.call import Call
from agentworld.forest import match_key
from agentworld.records import Message, Step


def joined_reply(begun: Message, rest: Message) -> Message:
    """A reply of which the caller's request had the beginning, as one message."""
    reasoning = (begun.reasoning or "") + (rest.reasoning or "")
    text = begun.text + rest.text
    return Message(
        role="assistant",
        content=None if rest.tool_calls and not text else text,
        reasoning=reasoning or None,
        tool_calls=rest.tool_calls,
    )


def reply_keys(call: Call, reply: Message) -> list[bytes]:
    """Match keys of the conversation with the reply, in each way that its client may send it back."""
    keys = [match_key(call.keys[-1], reply)]
    if call.request.continue_final and len(call.keys) > 1:
        keys.append(match_key(call.keys[-2], joined_reply(call.request.messages[-1], reply)))
    return keys


def is_sound(step: Step) -> bool:
    """Whether the step's counts agree, as the pool compares them, so that its ids are those of the engine."""
    prompt, response = (0 if ids is None else len(ids) for ids in (step.prompt_ids, step.response_ids))
    usage, logprobs = step.usage, step.response_logprobs
    return (
        step.excluded_reason is None
        and (usage is None or (usage.prompt_tokens, usage.completion_tokens) == (prompt, response))
        and (logprobs is None or len(logprobs) == response)
    )
