"""OpenAI's chat completions and completions, as clouds answer them and, with ids, as vLLM does.

vLLM puts the prompt's ids at the root of a chat reply and on the choice of a completion, in streams on the first chunk
alone; the ids of chunks are deltas. A proxy may move both into `provider_specific_fields` (`moved`).
"""

from __future__ import annotations

from typing import Any

from tests.engines.fakes import DONE, Answer, FakeEngine, Faults, Refusal, Said, Stream, Token, event


class OpenAIFake(FakeEngine):
    """`ids`: whether it is vLLM."""

    def __init__(
        self, said: Said | None = None, faults: Faults | None = None, *, ids: bool = False, moved: bool = False
    ) -> None:
        super().__init__(said, faults)
        self.ids = ids
        self.moved = moved

    def answer(self, path: str, body: Any) -> Answer:
        if path == "/v1/models":
            return {"object": "list", "data": [{"id": "model", "object": "model", "created": 1, "owned_by": "x"}]}
        if path == "/v1/chat/completions":
            return self._chat_stream(body) if body.get("stream") else self._chat(body)
        if path == "/v1/completions":
            return self._text_stream(body) if body.get("stream") else self._text(body)
        raise Refusal(404, {"error": {"message": "no such route", "type": "invalid_request_error", "code": None}})

    def _tells_ids(self, body: dict[str, Any]) -> bool:
        return self.ids and bool(body.get("return_token_ids")) and not self.faults.without_ids

    def _with_ids(self, place: dict[str, Any], **ids: Any) -> dict[str, Any]:
        return place | ({"provider_specific_fields": ids} if self.moved else ids)

    def _usage(self) -> dict[str, Any]:
        prompt, reply = len(self.said.prompt_ids), len(self.said.sampled)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": reply,
            "total_tokens": prompt + reply,
            "prompt_tokens_details": {"cached_tokens": 0},
        }

    def _entries(self, tokens: tuple[Token, ...]) -> dict[str, Any]:
        return {
            "content": [
                {
                    "token": token.data.decode("utf-8", "replace"),
                    "bytes": list(token.data),
                    "logprob": token.logprob,
                    "top_logprobs": [],
                }
                for token in self.spoil(tokens)
            ],
            "refusal": None,
        }

    def _whole(self, kind: str, choice: dict[str, Any], **more: Any) -> dict[str, Any]:
        out = {"id": "x-1", "object": kind, "created": 1, "model": "model-0125", "choices": [choice], **more}
        if not self.faults.without_usage:
            out["usage"] = self._usage()
        return out

    def _chat(self, body: dict[str, Any]) -> Answer:
        said = self.said
        calls = [
            {"id": f"call_{place}", "type": "function", "function": {"name": name, "arguments": text}}
            for place, (name, text) in enumerate(said.calls)
        ]
        message: dict[str, Any] = {"role": "assistant", "content": said.text, "refusal": None}
        if said.reasoning:
            message["reasoning"] = said.reasoning
        if calls:
            message["tool_calls"] = calls
        choice: dict[str, Any] = {
            "index": 0,
            "message": message,
            "logprobs": self._entries(said.sampled) if body.get("logprobs") else None,
            "finish_reason": "tool_calls" if calls else said.finish,
        }
        more: dict[str, Any] = {}
        if self._tells_ids(body):
            choice = self._with_ids(choice, token_ids=[token.id for token in self.spoil(said.sampled)])
            more = self._with_ids(more, prompt_token_ids=list(said.prompt_ids))
        return self._whole("chat.completion", choice, **more)

    def _chat_stream(self, body: dict[str, Any]) -> Answer:
        base = {"id": "x-1", "object": "chat.completion.chunk", "created": 1, "model": "model-0125"}
        tells = self._tells_ids(body)

        def chunk(delta: dict[str, Any], tokens: tuple[Token, ...] = (), finish: str | None = None) -> bytes:
            choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            if body.get("logprobs") and tokens:
                choice["logprobs"] = self._entries(tokens)
            if tells and tokens:
                choice = self._with_ids(choice, token_ids=[token.id for token in self.spoil(tokens)])
            return event({**base, "choices": [choice]})

        first: dict[str, Any] = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        opening = {**base, "choices": [first]}
        if tells:
            opening = self._with_ids(opening, prompt_token_ids=list(self.said.prompt_ids))
        events = [event(opening)]
        pieces = self.said.pieces()
        for place, (text, tokens) in enumerate(pieces):
            events.append(chunk({"content": text}, tokens, self.said.finish if place + 1 == len(pieces) else None))
        if (body.get("stream_options") or {}).get("include_usage") and not self.faults.without_usage:
            events.append(event({**base, "choices": [], "usage": self._usage()}))
        return Stream([*events, DONE])

    def _text_choice(self, body: dict[str, Any], text: str, tokens: tuple[Token, ...], first: bool) -> dict[str, Any]:
        spoilt = self.spoil(tokens)
        choice: dict[str, Any] = {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": None,
            "stop_reason": None,
        }
        if body.get("logprobs") is not None:
            choice["logprobs"] = {
                "text_offset": [0] * len(tokens),
                "token_logprobs": [token.logprob for token in spoilt],
                "tokens": [token.data.decode("utf-8", "replace") for token in tokens],
                "top_logprobs": [None] * len(tokens),
            }
        if self._tells_ids(body):
            prompt = list(self.said.prompt_ids) if first else None
            choice = self._with_ids(choice, token_ids=[token.id for token in spoilt], prompt_token_ids=prompt)
        return choice

    def _text(self, body: dict[str, Any]) -> Answer:
        choice = self._text_choice(body, self.said.text, self.said.sampled, True)
        return self._whole("text_completion", choice | {"finish_reason": self.said.finish})

    def _text_stream(self, body: dict[str, Any]) -> Answer:
        base = {"id": "x-1", "object": "text_completion", "created": 1, "model": "model-0125"}
        events = []
        pieces = self.said.pieces()
        for place, (text, tokens) in enumerate(pieces):
            choice = self._text_choice(body, text, tokens, place == 0)
            if place + 1 == len(pieces):
                choice["finish_reason"] = self.said.finish
            events.append(event({**base, "choices": [choice]}))
        if not self.faults.without_usage:
            events.append(event({**base, "choices": [], "usage": self._usage()}))
        return Stream([*events, DONE])
