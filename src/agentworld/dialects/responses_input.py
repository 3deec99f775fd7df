"""OpenAI Responses: a stored step -> the input items of its call, page by page.

They are what the model was shown, without the call's own instructions: the conversation before `previous_response_id`
too, and what item references stood for. Their ids name the response and their place, and refer to nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentworld.dialects.media import as_data_url
from agentworld.dialects.responses import NOTES
from agentworld.dialects.responses_output import output_items
from agentworld.dialects.responses_tools import Named
from agentworld.errors import InvalidRequestError
from agentworld.records import MediaPart, Message, Step, TextPart

MAX_PAGE = 100
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "function_call_output": "fco",
    "custom_tool_call_output": "ctco",
}


def input_messages(step: Step) -> list[Message]:
    """The messages of the call's input."""
    notes: dict[str, Any] = step.metadata.get(NOTES) or {}
    return list(step.prompt_messages or [])[int(notes.get("instructions") or 0) :]


def input_items(step: Step, media: Mapping[str, bytes] | None = None) -> list[dict[str, Any]]:
    """All items in the order in which the model saw them. `media`: bytes of images, where they are to be shown."""
    notes: dict[str, Any] = step.metadata.get(NOTES) or {}
    named: Named = notes.get("named") or {}
    items: list[dict[str, Any]] = []
    kinds: dict[str, str] = {}
    for message in input_messages(step):
        if message.role == "assistant":
            found = output_items(message, step.exchange_id or "", named, sealed=False)
            kinds |= {item["call_id"]: item["type"] for item in found if "call_id" in item}
        elif message.role == "tool":
            kind = kinds.get(message.tool_call_id or "", "function_call")
            found = [{"type": f"{kind}_output", "call_id": message.tool_call_id, "output": _parts(message, media)}]
        else:
            found = [{"type": "message", "role": message.role, "content": _parts(message, media, always=True)}]
        items.extend(found)
    return [
        {"status": "completed", **item, "id": f"{_PREFIXES[item['type']]}_{step.exchange_id}_in{place}"}
        for place, item in enumerate(items)
    ]


def page_of(items: list[dict[str, Any]], *, order: str, after: str | None, limit: int) -> dict[str, Any]:
    """The list object with the items behind `after`, at most `limit`; InvalidRequestError where it is no item."""
    found = items if order == "asc" else items[::-1]
    if after is not None:
        place = next((at for at, item in enumerate(found) if item["id"] == after), None)
        if place is None:
            raise InvalidRequestError(
                f"there is no input item {after[:100]!r}", path="after", hint="Send the last_id of the page before"
            )
        found = found[place + 1 :]
    page = found[:limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(found) > limit,
    }


def _parts(message: Message, media: Mapping[str, bytes] | None, *, always: bool = False) -> Any:
    """The content as parts; a text alone stays one, unless `always`."""
    content = message.content
    if not isinstance(content, tuple):
        return [{"type": "input_text", "text": content or ""}] if always else content or ""
    return [_part(part, media) for part in content]


def _part(part: TextPart | MediaPart, media: Mapping[str, bytes] | None) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    shown = {} if media is None else {"image_url": as_data_url(part, media)}
    return {"type": "input_image", "detail": part.detail or "auto", **shown}
