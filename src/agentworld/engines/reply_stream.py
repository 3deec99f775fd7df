"""Stream chunks of one choice, for chat and completions.

Text goes out as soon as it is certain: an unfinished character, a possible stop string and, in chat, everything
from the first reasoning or tool-call token on wait. Ids and log-probabilities of held text wait with it, so that
the ids of a chunk never run behind its text.
"""

from __future__ import annotations

from typing import Any

from agentworld.engines.replies import (
    Choice,
    Tokens,
    chat_logprobs,
    completion_logprobs,
    finish_with,
    tool_call_id,
)


class ChoiceStream:
    """Turns the tokens of one choice into the `choices` entries of its chunks."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self._shown = 0
        self._reported = 0
        self._told = 1
        self._plain = True
        self._first = True

    def opening(self) -> list[dict[str, Any]]:
        """Chunks before the first token: in chat, the role."""
        if self.choice.request.kind != "chat":
            return []
        delta = {"role": "assistant", "content": ""}
        return [{"index": self.choice.index, "delta": delta, "logprobs": None, "finish_reason": None}]

    def feed(self, tokens: Tokens) -> list[dict[str, Any]]:
        """Chunks that these tokens allow."""
        choice = self.choice
        choice.feed(tokens)
        if choice.request.kind != "chat":
            return self._completion()
        if self._plain and not choice.chat.markup_ids.isdisjoint(tokens.ids):
            self._plain = False
        if choice.finish_reason is not None:
            return self._chat_end()
        if not self._plain:
            return []
        text = self._new_text(choice.text[: choice.safe_length])
        # Space before a tool call or a think block is not content, and neither is known to follow yet.
        kept = text.rstrip() if choice.chat.markup_ids else text
        return [self._chat_chunk({"content": kept})] if kept else []

    def _new_text(self, text: str) -> str:
        return text[self._shown :]

    def _take(self) -> tuple[list[int], list[float], list[Any]]:
        start, self._reported = self._reported, len(self.choice.ids)
        return self.choice.ids[start:], self.choice.logprobs[start:], self.choice.tops[start:]

    def _chat_chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        self._shown += len(delta.get("content") or "")
        ids, logprobs, tops = self._take()
        out: dict[str, Any] = {
            "index": self.choice.index,
            "delta": delta,
            "logprobs": chat_logprobs(self.choice, ids, logprobs, tops),
            "finish_reason": finish,
        }
        if finish is not None:
            out["stop_reason"] = self.choice.stop_reason
        if self.choice.request.return_token_ids:
            out["token_ids"] = ids
        return out | self._news()

    def _news(self) -> dict[str, Any]:
        """`version_spans` of what was sent, where the weights changed since the last chunk: whoever leaves before the
        end knows who sampled what.
        """
        spans = [span for span in self.choice.version_spans if span[0] < self._reported]
        if len(spans) <= self._told:
            return {}
        self._told = len(spans)
        return {"version_spans": spans}

    def _chat_end(self) -> list[dict[str, Any]]:
        parsed = self.choice.parse()
        chunks = []
        if parsed.reasoning:
            chunks.append(self._chat_chunk({"reasoning": parsed.reasoning}))
        rest = self._new_text(parsed.content)
        finish = finish_with(self.choice, parsed)
        if parsed.tool_calls:
            if rest:
                chunks.append(self._chat_chunk({"content": rest}))
            calls = [
                {
                    "index": position,
                    "id": tool_call_id(),
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                for position, (name, arguments) in enumerate(parsed.tool_calls)
            ]
            chunks.extend(self._chat_chunk({"tool_calls": [call]}) for call in calls)
            chunks.append(self._chat_chunk({}, finish))
        else:
            chunks.append(self._chat_chunk({"content": rest} if rest else {}, finish))
        chunks[-1] |= self.choice.policy()
        return chunks

    def _completion(self) -> list[dict[str, Any]]:
        choice = self.choice
        text = self._new_text(choice.text[: choice.safe_length])
        if not text and choice.finish_reason is None:
            return []
        ids, logprobs, tops = self._take()
        out: dict[str, Any] = {
            "index": choice.index,
            "text": text,
            "logprobs": completion_logprobs(choice, ids, logprobs, tops, self._shown),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
        }
        self._shown += len(text)
        if choice.request.return_token_ids:
            out["prompt_token_ids"] = choice.prompt_ids if self._first else None
            out["token_ids"] = ids
        self._first = False
        return [out | (choice.policy() if choice.finish_reason is not None else self._news())]
