"""SGLang: `/v1/chat/completions` without ids in streams, and `/generate`, whose streams repeat themselves."""

from __future__ import annotations

from typing import Any

from tests.engines.fakes import DONE, END, Answer, Faults, Refusal, Said, Stream, Token, event
from tests.engines.fakes import FakeEngine as Base


class SglangFake(Base):
    """`incremental`: as with `--incremental-streaming-output`. `version`: of the weights, any text."""

    def __init__(
        self,
        said: Said | None = None,
        faults: Faults | None = None,
        *,
        incremental: bool = False,
        version: str = "default",
    ) -> None:
        super().__init__(said, faults)
        self.incremental = incremental
        self.version = version
        self._prompt = len(self.said.prompt_ids)
        self._tells_prompt = False

    def answer(self, path: str, body: Any) -> Answer:
        if path == "/v1/models":
            card = {"id": "model", "object": "model", "owned_by": "sglang", "root": "model", "max_model_len": 4096}
            return {"object": "list", "data": [card]}
        if path == "/generate":
            return self._generate(body)
        if path == "/v1/chat/completions":
            return self._stream(body) if body.get("stream") else self._chat(body)
        raise Refusal(404, {"detail": "Not Found"})

    def _meta(self, tokens: tuple[Token, ...], count: int, *, ended: bool) -> dict[str, Any]:
        stop: dict[str, Any] = {"type": self.said.finish}
        if self.said.finish == "stop":
            stop["matched"] = END
        else:
            stop["length"] = count
        meta: dict[str, Any] = {
            "id": "a1b2",
            "finish_reason": stop if ended else None,
            "prompt_tokens": self._prompt,
            "weight_version": self.version,
            "total_retractions": 0,
            "output_token_logprobs": [[token.logprob, token.id, None] for token in self.spoil(tokens)],
            "completion_tokens": count,
            "cached_tokens": 1,
            "e2e_latency": 0.1,
        }
        if self.faults.without_usage:
            del meta["completion_tokens"], meta["prompt_tokens"]
        if self.faults.without_ids:
            del meta["output_token_logprobs"]
        return meta

    def _generate(self, body: dict[str, Any]) -> Answer:
        count = body["sampling_params"]["n"]
        self._tells_prompt = body.get("return_prompt_token_ids", False)
        self._prompt = len(body["input_ids"]) if "input_ids" in body else self._prompt
        if not body["stream"]:
            items = [self._item(len(self.said.sampled)) for _ in range(count)]
            return items[0] if count == 1 else items  # type: ignore[return-value]
        events = []
        for length in range(1, len(self.said.sampled) + 1):
            for index in range(count):
                events.append(event(self._item(length) | ({"index": index} if count > 1 else {})))
        return Stream([*events, DONE])

    def _item(self, length: int) -> dict[str, Any]:
        said, ended = self.said, length == len(self.said.sampled)
        begin = length - 1 if self.incremental else 0
        tokens = said.sampled[begin:length]
        text = b"".join(token.data for token in said.sampled[:length]).decode("utf-8", "ignore")
        before = b"".join(token.data for token in said.sampled[:begin]).decode("utf-8", "ignore")
        out = {
            "text": text[len(before) :] if self.incremental else text,
            "output_ids": [token.id for token in self.spoil(tokens)],
            "meta_info": self._meta(tokens, length, ended=ended),
        }
        if self._tells_prompt:
            out["prompt_token_ids"] = list(self.said.prompt_ids)
        if self.faults.without_ids:
            del out["output_ids"]
        return out

    def _chat(self, body: dict[str, Any]) -> Answer:
        said, tokens = self.said, self.spoil(self.said.sampled)
        entries = [
            {"token": token.data.decode("utf-8", "replace"), "bytes": list(token.data), "logprob": token.logprob}
            | {"top_logprobs": []}
            for token in tokens
        ]
        calls = [
            {"id": f"call_{place}", "index": place, "type": "function", "function": {"name": name, "arguments": text}}
            for place, (name, text) in enumerate(said.calls)
        ]
        message = {
            "role": "assistant",
            "content": said.text,
            "reasoning_content": said.reasoning or None,
            "tool_calls": calls or None,
        }
        choice: dict[str, Any] = {
            "message": message,
            "logprobs": {"content": entries} if body.get("logprobs") else None,
            "finish_reason": "tool_calls" if calls else said.finish,
            "matched_stop": None if calls or said.finish == "length" else END,
        }
        if body.get("return_prompt_token_ids") and not self.faults.without_ids:
            choice["prompt_token_ids"] = list(said.prompt_ids)
        if body.get("return_token_ids") and not self.faults.without_ids:
            choice["response_token_ids"] = [token.id for token in tokens]
        if body.get("return_meta_info"):
            choice["meta_info"] = self._meta(said.sampled, len(tokens), ended=True)
        out = {
            "id": "a1b2",
            "object": "chat.completion",
            "created": 1,
            "model": "model",
            "choices": [{"index": index, **choice} for index in range(body.get("n", 1))],
            "usage": self._usage(body.get("n", 1)),
            "metadata": {"weight_version": self.version},
        }
        if self.faults.without_usage:
            del out["usage"]
        return out

    def _usage(self, count: int) -> dict[str, Any]:
        prompt, reply = len(self.said.prompt_ids), len(self.said.sampled) * count
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + reply,
            "completion_tokens": reply,
            "prompt_tokens_details": None,
            "reasoning_tokens": 0,
        }

    def _stream(self, body: dict[str, Any]) -> Answer:
        for name in ("return_prompt_token_ids", "return_token_ids", "return_meta_info"):
            if body.get(name):
                message = f"{name} is not supported with streaming."
                raise Refusal(400, {"object": "error", "message": message, "type": "BadRequestError", "code": 400})

        def chunk(delta: dict[str, Any], **more: Any) -> bytes:
            whole = {"role": None, "content": None, "reasoning_content": None, "tool_calls": None, **delta}
            choice = {"index": 0, "delta": whole, "logprobs": None, "finish_reason": None, "matched_stop": None, **more}
            return event({"id": "a1b2", "object": "chat.completion.chunk", "choices": [choice], "usage": None})

        events = [chunk({"role": "assistant", "content": ""})]
        for text, tokens in self.said.pieces():
            entries = [
                {"token": token.data.decode("utf-8", "replace"), "bytes": [], "logprob": token.logprob}
                | {"top_logprobs": []}
                for token in self.spoil(tokens)
            ]
            events.append(chunk({"content": text}, logprobs={"content": entries}))
        events.append(chunk({}, finish_reason=self.said.finish, matched_stop=END))
        if not self.faults.without_usage:
            events.append(
                event({"id": "a1b2", "object": "chat.completion.chunk", "choices": [], "usage": self._usage(1)})
            )
        return Stream([*events, DONE])
