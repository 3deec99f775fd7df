"""OpenAI Responses: a reply's message -> output items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentworld.dialects.exchange import Run
from agentworld.dialects.responses_items import item_id, seal
from agentworld.dialects.responses_tools import Named, read_input
from agentworld.records import Message, ToolCall


def output_items(
    message: Message,
    exchange_id: str,
    named: Named,
    *,
    sealed: bool,
    summarized: bool = False,
    entries: list[dict[str, Any]] | None = None,
    whole: bool = True,
    runs: Sequence[Run] = (),
) -> list[dict[str, Any]]:
    """Reasoning, text and calls, in this order, or in that of `runs`: an item for each, as their stream had them.

    `whole`: the reply was not cut, else its last item is incomplete.
    `sealed`: reasoning comes as `encrypted_content` too; `summarized`: its text is the summary that was asked for, else
    the content. `entries`: log-probabilities, where the caller asked.
    """
    items: list[dict[str, Any]] = []
    calls = message.tool_calls
    pieces = _pieces(message, runs, entries or [])
    for place, (kind, text, shown) in enumerate(pieces, 1):
        if kind == "reasoning":
            items.append(reasoning_item(exchange_id, len(items), text, sealed, summarized))
        else:
            status = "completed" if whole or calls or place < len(pieces) else "incomplete"
            items.append(message_item(exchange_id, len(items), text, status, shown))
    for place, call in enumerate(calls):
        status = "completed" if whole or place + 1 < len(calls) else "incomplete"
        items.append(call_item(exchange_id, len(items), call, named, status))
    return items


def _pieces(
    message: Message, runs: Sequence[Run], entries: list[dict[str, Any]]
) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Kind, text and log-probabilities of what the reply says; text has those of the thinking before it too."""
    text, reasoning = message.text, message.reasoning or ""
    if not runs:
        out = [("reasoning", reasoning, entries[:0])] if reasoning else []
        return [*out, ("text", text, entries)] if text or not (message.tool_calls or reasoning) else out
    out, shown = [], 0
    rest = {"text": text, "reasoning": reasoning}
    for place, run in enumerate(runs, 1):
        said, rest[run.kind] = rest[run.kind][: run.length], rest[run.kind][run.length :]
        end = run.logprobs if place < len(runs) else len(entries)
        out.append((run.kind, said, entries[shown:end] if run.kind == "text" else []))
        shown = end if run.kind == "text" else shown
    return out


def reasoning_item(exchange_id: str, index: int, text: str, sealed: bool, summarized: bool) -> dict[str, Any]:
    """The item of the model's thinking."""
    item: dict[str, Any] = {"id": item_id("rs", exchange_id, index), "type": "reasoning"}
    if summarized:
        item["summary"] = [{"type": "summary_text", "text": text}]
    else:
        item |= {"summary": [], "content": [{"type": "reasoning_text", "text": text}]}
    return {**item, "encrypted_content": seal(text)} if sealed else item


def text_part(text: str, entries: list[dict[str, Any]] | None) -> dict[str, Any]:
    """The content of a message item."""
    return {"type": "output_text", "annotations": [], "logprobs": entries or [], "text": text}


def message_item(
    exchange_id: str, index: int, text: str, status: str, entries: list[dict[str, Any]] | None
) -> dict[str, Any]:
    """The item of what the model says."""
    return {
        "id": item_id("msg", exchange_id, index),
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [text_part(text, entries)],
    }


def call_item(exchange_id: str, index: int, call: ToolCall, named: Named, status: str) -> dict[str, Any]:
    """The item of one call, under the name that the caller knows the tool by."""
    kind, namespace, name = named.get(call.function.name, ["function", "", call.function.name])
    if kind == "custom":
        text = read_input(call.function.arguments)
        item: dict[str, Any] = {
            # Arguments that hold no input go out as they are, and come back so by this mark.
            "id": item_id("raw" if text is None else "ctc", exchange_id, index),
            "type": "custom_tool_call",
            "status": status,
            "call_id": call.id,
            "input": call.function.arguments if text is None else text,
            "name": name,
        }
    else:
        item = {
            "id": item_id("fc", exchange_id, index),
            "type": "function_call",
            "status": status,
            "arguments": call.function.arguments,
            "call_id": call.id,
            "name": name,
        }
    return {**item, "namespace": namespace} if namespace else item
