"""Anthropic's Messages API as its service sends it: named events, pings between them, padding behind the JSON."""

from __future__ import annotations

import json
from typing import Any

from tests.engines.fakes import Answer, FakeEngine, Faults, Refusal, Said, Stream

SIGNATURE = "c2lnbmF0dXJl" * 4
_STOPS = {"stop": "end_turn", "length": "max_tokens"}


def named(kind: str, pad: int = 0, **fields: Any) -> bytes:
    """An event with its name, and blanks behind the object's last field."""
    data = json.dumps({"type": kind, **fields}, ensure_ascii=False)
    return f"event: {kind}\ndata: {data[:-1]}{' ' * pad}}}\n\n".encode()


class AnthropicFake(FakeEngine):
    """Says thinking (with a signature), thinking that is redacted, text and tool calls, in this order."""

    def __init__(self, said: Said | None = None, faults: Faults | None = None, *, redacted: str = "") -> None:
        super().__init__(said, faults)
        self.redacted = redacted

    def answer(self, path: str, body: Any) -> Answer:
        if path == "/v1/models/model":
            return {
                "type": "model",
                "id": "model-20250101",
                "display_name": "Model",
                "created_at": "2025-01-01T00:00:00Z",
            }
        if path.startswith("/v1/models/"):
            raise Refusal(404, self.error("not_found_error", "model: other"))
        if path == "/v1/models":
            cards = [{"type": "model", "id": name} for name in ("model-20250101", "small-20250101")]
            return {"data": cards, "has_more": False, "first_id": cards[0]["id"], "last_id": cards[1]["id"]}
        if path == "/v1/messages/count_tokens":
            return {"input_tokens": len(self.said.prompt_ids)}
        if path == "/v1/messages":
            return self._stream() if body.get("stream") else self._message()
        raise Refusal(404, self.error("not_found_error", "Not found"))

    @staticmethod
    def error(kind: str, message: str) -> dict[str, Any]:
        """As the service words a failure."""
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}

    def _usage(self, output: int) -> dict[str, Any]:
        """Of the prompt, one token was written to the cache and one read from it."""
        return {
            "input_tokens": len(self.said.prompt_ids) - 2,
            "cache_creation_input_tokens": 1,
            "cache_read_input_tokens": 1,
            "cache_creation": {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 0},
            "output_tokens": output,
            "service_tier": "standard",
        }

    def blocks(self) -> list[dict[str, Any]]:
        """The content of the whole reply."""
        said = self.said
        out: list[dict[str, Any]] = []
        if said.reasoning:
            out.append({"type": "thinking", "thinking": said.reasoning, "signature": SIGNATURE})
        if self.redacted:
            out.append({"type": "redacted_thinking", "data": self.redacted})
        if said.text:
            out.append({"type": "text", "text": said.text})
        for place, (name, arguments) in enumerate(said.calls):
            out.append({"type": "tool_use", "id": f"toolu_{place}", "name": name, "input": json.loads(arguments)})
        return out

    @property
    def _stop(self) -> str:
        return "tool_use" if self.said.calls else _STOPS[self.said.finish]

    def _message(self) -> Answer:
        out = {
            "model": "model-20250101",
            "id": "msg_01",
            "type": "message",
            "role": "assistant",
            "content": self.blocks(),
            "stop_reason": self._stop,
            "stop_sequence": None,
            "usage": self._usage(len(self.said.sampled)),
        }
        if self.faults.without_usage:
            del out["usage"]
        return out

    def _stream(self) -> Answer:
        start = {
            "model": "model-20250101",
            "id": "msg_01",
            "type": "message",
            "role": "assistant",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {} if self.faults.without_usage else self._usage(1),
        }
        events = [named("message_start", 4, message=start)]
        for index, block in enumerate(self.blocks()):
            events += [*self._block(index, block), named("ping")]
        delta = {"stop_reason": self._stop, "stop_sequence": None}
        usage = {} if self.faults.without_usage else {"usage": {"output_tokens": len(self.said.sampled)}}
        events += [named("message_delta", 9, delta=delta, **usage), named("message_stop", 7)]
        return Stream(events)

    def _block(self, index: int, block: dict[str, Any]) -> list[bytes]:
        kind = block["type"]
        empty = {
            "thinking": {"type": kind, "thinking": "", "signature": ""},
            "text": {"type": kind, "text": ""},
            "tool_use": {**block, "input": {}},
        }.get(kind, block)
        pieces: list[dict[str, Any]] = []
        if kind == "thinking":
            half = len(block["thinking"]) // 2
            pieces = [{"type": "thinking_delta", "thinking": part} for part in _halves(block["thinking"], half)]
            pieces.append({"type": "signature_delta", "signature": SIGNATURE})
        elif kind == "text":
            pieces = [{"type": "text_delta", "text": text} for text, _ in self.said.pieces() if text]
        elif kind == "tool_use" and block["input"]:
            text = json.dumps(block["input"])
            pieces = [{"type": "input_json_delta", "partial_json": part} for part in ("", *_halves(text, 3))]
        return [
            named("content_block_start", 2, index=index, content_block=empty),
            *(named("content_block_delta", index, index=index, delta=piece) for piece in pieces),
            named("content_block_stop", 3, index=index),
        ]


def _halves(text: str, at: int) -> tuple[str, str]:
    return text[:at], text[at:]
