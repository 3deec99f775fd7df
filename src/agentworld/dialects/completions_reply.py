"""OpenAI completions: reply -> response body or stream events."""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.dialects.chat_reply import DONE, error_event, usage_body
from agentworld.dialects.exchange import Delta, Reply, Request, listed
from agentworld.errors import AgentWorldError


def logprobs_body(values: list[float | None], entries: list[dict[str, Any]] | None, begun: int = 0) -> dict[str, Any]:
    """Log-probabilities as this API lists them. `entries`: texts and alternatives of the tokens, where the engine gives
    them; `begun`: how many characters of text went before.
    """
    known = [*(entries or []), *({} for _ in range(len(values) - len(entries or [])))][: len(values)]
    tokens = [entry.get("token") or "" for entry in known]
    offsets = []
    for token in tokens:
        offsets.append(begun)
        begun += len(token)
    return {
        "tokens": tokens,
        "token_logprobs": values,
        "top_logprobs": [entry.get("tops") or {} for entry in known],
        "text_offset": offsets,
    }


def response_body(request: Request, reply: Reply) -> dict[str, Any]:
    """The body of a plain reply; ids and log-probabilities only where the caller asked for them."""
    choices = []
    for choice in reply.choices:
        out: dict[str, Any] = {
            "index": choice.index,
            "text": choice.message.text,
            "logprobs": logprobs_body(listed(choice.logprobs) or [], choice.entries) if request.logprobs else None,
            "finish_reason": choice.finish_reason,
        }
        if request.return_token_ids:
            out |= {"prompt_token_ids": listed(reply.prompt_ids), "token_ids": listed(choice.ids)}
        choices.append(out)
    return {
        "id": reply.reply_id,
        "object": "text_completion",
        "created": reply.created,
        "model": reply.model,
        "choices": choices,
        "usage": usage_body(reply.usage),
    }


class CompletionsStream:
    """Events of one streamed reply. `delta` may be sent at once; `finish` only after the reply is durable."""

    def __init__(self, request: Request, reply_id: str, model: str, created: int) -> None:
        self._request = request
        self._base = {"id": reply_id, "object": "text_completion", "created": created, "model": model}
        self._characters: dict[int, int] = {}
        self._prompt_sent: set[int] = set()

    def _event(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        return b"data: " + msgspec.json.encode({**self._base, "choices": choices, **more}) + b"\n\n"

    def delta(self, delta: Delta) -> bytes:
        """The event for one piece, without its finish reason; b"" where it says nothing to this caller."""
        choice: dict[str, Any] = {"index": delta.index, "text": delta.text, "logprobs": None, "finish_reason": None}
        wanted = bool(delta.text)
        if self._request.logprobs and delta.logprobs:
            begun = self._characters.get(delta.index, 0)
            found = choice["logprobs"] = logprobs_body(delta.logprobs, delta.entries, begun)
            self._characters[delta.index] = begun + sum(map(len, found["tokens"]))
            wanted = True
        if self._request.return_token_ids and delta.ids:
            choice["token_ids"] = delta.ids
            wanted = True
            if delta.prompt_ids is not None and delta.index not in self._prompt_sent:
                self._prompt_sent.add(delta.index)
                choice["prompt_token_ids"] = delta.prompt_ids
        return self._event([choice]) if wanted else b""

    def finish(self, reply: Reply) -> bytes:
        """The finish reasons, the usage where it was asked for, and the end of the stream."""
        out = [
            self._event([{"index": choice.index, "text": "", "logprobs": None, "finish_reason": choice.finish_reason}])
            for choice in reply.choices
        ]
        if self._request.include_usage:
            out.append(self._event([], usage=usage_body(reply.usage)))
        return b"".join(out) + DONE

    def fail(self, error: AgentWorldError) -> bytes:
        """What ends the stream of a call that failed."""
        return error_event(error)
