"""Ids that tie the results of tools to their calls, where a trace has none."""

from __future__ import annotations

import msgspec

from agentworld.records import Message


def with_ids(messages: list[Message]) -> list[Message]:
    """The messages with an id for each tool call that has none, by its place among the calls, and each result tied to
    the call that it answers: by its id, else the first unanswered call of the tool that it names, else the first.
    """
    if all(
        m.tool_call_id != "" and m.name is None and all(c.id for c in m.tool_calls)
        for m in messages
        if m.role in ("tool", "assistant")
    ):
        return messages
    found: list[Message] = []
    waiting: dict[str, str] = {}
    made = 0
    for message in messages:
        if message.role == "tool":
            call_id = message.tool_call_id
            if not call_id:
                call_id = next(
                    (each for each, name in waiting.items() if name == message.name), next(iter(waiting), "")
                )
            if not call_id:
                call_id, made = f"call_{made}", made + 1
            waiting.pop(call_id, None)
            message = msgspec.structs.replace(message, tool_call_id=call_id, name=None)
        elif message.tool_calls:
            calls = []
            for call in message.tool_calls:
                if not call.id:
                    call = msgspec.structs.replace(call, id=f"call_{made}")
                made += 1
                calls.append(call)
                waiting[call.id] = call.function.name
            message = msgspec.structs.replace(message, tool_calls=tuple(calls))
        found.append(message)
    return found
