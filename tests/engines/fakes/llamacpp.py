"""llama.cpp's server: `/completion` with all ids and some log-probabilities, a chat route, templates and tokens.

Log-probabilities, and in streams and on the chat route ids too, are there for tokens that end a character only.
`older`: as releases of 2024 answer.
"""

from __future__ import annotations

import math
from typing import Any

from tests.engines.fakes import DONE, Answer, FakeEngine, Faults, Refusal, Said, Stream, Token, event


class LlamaCppFake(FakeEngine):
    """`rendered`: what the template makes of any conversation. `/tokenize` gives the prompt's ids of any text."""

    def __init__(
        self,
        said: Said | None = None,
        faults: Faults | None = None,
        *,
        older: bool = False,
        rendered: str = "<s>hi</s>",
    ) -> None:
        super().__init__(said, faults)
        self.older = older
        self.rendered = rendered

    def answer(self, path: str, body: Any) -> Answer:
        if path == "/v1/models":
            card = {"id": "/models/m.gguf", "object": "model", "owned_by": "llamacpp", "meta": {"n_ctx_train": 8192}}
            return {"models": [], "object": "list", "data": [card]}
        if path == "/props":
            return {"default_generation_settings": {"n_ctx": 2048, "params": {}}, "total_slots": 1}
        if path == "/apply-template":
            return {"prompt": self.rendered}
        if path == "/tokenize":
            return {"tokens": list(self.said.prompt_ids)}
        if path == "/completion":
            return self._completion(body)
        if path == "/v1/chat/completions":
            return self._stream(body) if body.get("stream") else self._chat(body)
        raise Refusal(404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}})

    def _entries(self, tokens: list[tuple[str, tuple[Token, ...]]]) -> list[dict[str, Any]]:
        """Of each piece the last token, as the others end inside a character."""
        out = []
        for text, piece in tokens:
            (token,) = self.spoil(piece[-1:])
            if self.older:
                prob = math.exp(token.logprob)
                out.append(
                    {"content": text, "probs": [{"tok_str": text, "prob": prob}, {"tok_str": "z", "prob": 0.01}]}
                )
                continue
            top = {"id": token.id, "token": text, "bytes": list(text.encode()), "logprob": token.logprob}
            other = {"id": 9, "token": "z", "bytes": [122], "logprob": -4.0}
            out.append({**top, "top_logprobs": [top, other]})
        return out

    def _completion(self, body: dict[str, Any]) -> Answer:
        said = self.said
        if body["stream"]:
            raise AssertionError("streams of /completion leave ids out")
        out: dict[str, Any] = {
            "index": 0,
            "content": said.text,
            "tokens": [token.id for token in self.spoil(said.sampled)],
            "id_slot": 0,
            "stop": True,
            "model": "m",
            "tokens_predicted": len(said.sampled),
            "tokens_evaluated": len(body["prompt"]),
            "prompt": self.rendered,
            "truncated": False,
            "tokens_cached": 9,
            "completion_probabilities": self._entries(said.pieces()),
        }
        if self.older:
            out |= {
                "stopped_eos": said.finish == "stop",
                "stopped_word": False,
                "stopped_limit": said.finish == "length",
            }
        else:
            out |= {"stop_type": "limit" if said.finish == "length" else "eos", "stopping_word": ""}
        if self.faults.without_usage:
            del out["tokens_predicted"], out["tokens_evaluated"]
        if self.faults.without_ids:
            del out["tokens"]
        count = body.get("n", 1)
        return out if count == 1 else [{**out, "index": index} for index in range(count)]

    def _usage(self) -> dict[str, Any]:
        prompt, reply = len(self.said.prompt_ids), len(self.said.sampled)
        return {"completion_tokens": reply, "prompt_tokens": prompt, "total_tokens": prompt + reply}

    def _chat(self, body: dict[str, Any]) -> Answer:
        said = self.said
        calls = [
            {"type": "function", "function": {"name": name, "arguments": text}, "id": f"id{place}"}
            for place, (name, text) in enumerate(said.calls)
        ]
        message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
        if said.reasoning:
            message["reasoning_content"] = said.reasoning
        if calls:
            message["tool_calls"] = calls
        out: dict[str, Any] = {
            "choices": [
                {
                    "finish_reason": "tool_calls" if calls else said.finish,
                    "index": 0,
                    "message": message,
                    "logprobs": {"content": self._entries(said.pieces())} if body.get("logprobs") else None,
                }
            ],
            "created": 1,
            "model": "m",
            "system_fingerprint": "b1",
            "object": "chat.completion",
            "usage": self._usage(),
            "id": "chatcmpl-x",
        }
        if self.faults.without_usage:
            del out["usage"]
        return out

    def _stream(self, body: dict[str, Any]) -> Answer:
        def chunk(delta: dict[str, Any], entries: Any = None, finish: str | None = None) -> bytes:
            choice: dict[str, Any] = {"finish_reason": finish, "index": 0, "delta": delta}
            if entries is not None:
                choice["logprobs"] = {"content": entries}
            return event(
                {"choices": [choice], "created": 1, "id": "c", "model": "m", "object": "chat.completion.chunk"}
            )

        events = [chunk({"role": "assistant", "content": None})]
        for text, tokens in self.said.pieces():
            events.append(chunk({"content": text}, self._entries([(text, tokens)])))
        events.append(chunk({}, finish=self.said.finish))
        if not self.faults.without_usage:
            events.append(event({"choices": [], "id": "c", "object": "chat.completion.chunk", "usage": self._usage()}))
        return Stream([*events, DONE])
