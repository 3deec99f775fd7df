"""Tool calls that a client rewrote in its history are taken for what was sampled, where the client is known for it.

Claude Code writes calls down as its tools read them: defaults added, numbers in place of texts, spaces at the ends of
lines gone. It gives them back under their own ids, so the reply is known all the same, and the sampled call stands in
the prompt. Of other clients a changed call is a changed history: someone may have corrected it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentworld.forest import Tip
from agentworld.records import Message


def knows_all(tips: Sequence[Tip], messages: Sequence[Message]) -> bool:
    """Whether each reply with calls in a request is one of the tips', by the ids of its calls."""
    known = {_ids(tip.messages[-1]) for tip in tips}
    return all(_ids(message) in known for message in messages if message.tool_calls)


def restored(tips: Sequence[Tip], messages: Sequence[Message]) -> tuple[list[Message], int]:
    """The messages with calls as they were sampled, and how many messages that changed.

    A reply is known by the ids of its calls, in their order, under the same names. Ids that several replies have say
    nothing.
    """
    sampled: dict[tuple[str, ...], Message | None] = {}
    for tip in tips:
        last = tip.messages[-1]
        if last.tool_calls:
            there = sampled.setdefault(_ids(last), last)
            if there is not None and there.tool_calls != last.tool_calls:
                sampled[_ids(last)] = None
    found, changed = [], 0
    for message in messages:
        reply = sampled.get(_ids(message)) if message.tool_calls else None
        if reply is not None and reply.tool_calls != message.tool_calls and _names(reply) == _names(message):
            message = msgspec.structs.replace(message, tool_calls=reply.tool_calls)
            changed += 1
        found.append(message)
    return found, changed


def _ids(message: Message) -> tuple[str, ...]:
    return tuple(call.id for call in message.tool_calls)


def _names(message: Message) -> list[str]:
    return [call.function.name for call in message.tool_calls]
