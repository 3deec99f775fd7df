"""An engine that answers with prepared bytes of vLLM's shape, so that a gateway before it is what is measured.

    python -m agentworld.bench.replay_engine --tokenizer pocket --port 0

It prints its address. Replies have ids and a log-probability for each token, with alternatives left empty, as vLLM
sends them for `logprobs: true, return_token_ids: true`, whether asked to or not. The replies differ, so that a pool
cannot store them as one. In chat the number behind `Task ` in the body chooses the prompt's ids, and each reply before
the question makes them longer by the ids that were sent for it. In completions they are the ids that came. A stream has
one event a token, and each turn of the loop sends one event of every open stream, as a batching engine does.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import signal
from collections.abc import Sequence
from typing import Any

import msgspec

from agentworld.engines.tokenizer import TokenizerAdapter, load_tokenizer

REPLY_TOKENS = 128
REPLIES = 256
"""So many different ones."""
TURN_TOKENS = 24
"""By which a prompt grows for each turn, beside the reply."""
_TASK = re.compile(rb"Task (\d+) of (\d+) tokens")
_PROMPT = re.compile(rb'"prompt":\s*(\[[0-9,\s]*\])')
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_encode = msgspec.json.encode


class Prepared:
    """One reply in all its shapes; `{prompt}` and `{count}` stand where those of the request go."""

    def __init__(self, tokenizer: TokenizerAdapter, number: int) -> None:
        chance = random.Random(number)
        words = tokenizer.encode(" ".join(chance.choice(WORDS) for _ in range(REPLY_TOKENS)))
        self.ids = [*words[: REPLY_TOKENS - 1], tokenizer.eos_token_id or 0]
        shown = [tokenizer.token_bytes(token) for token in self.ids[:-1]]
        logprobs = [round(-chance.expovariate(2.0), 6) for _ in self.ids]
        texts = [data.decode("utf-8", "replace") for data in shown] + [""]
        text = b"".join(shown).decode("utf-8", "replace")
        entries = [
            {"token": said, "logprob": value, "bytes": list(said.encode()), "top_logprobs": []}
            for said, value in zip(texts, logprobs, strict=True)
        ]
        frame = {"id": f"chatcmpl-replay-{number}", "created": 1_700_000_000, "model": "replay"}
        message: dict[str, Any] = {"role": "assistant", "content": text, "reasoning": None, "tool_calls": []}
        ended = {"finish_reason": "stop", "stop_reason": None, "token_ids": self.ids}
        listed: dict[str, list[Any]] = {
            "text_offset": [0] * len(texts),
            "token_logprobs": logprobs,
            "tokens": texts,
            "top_logprobs": [{said: value} for said, value in zip(texts, logprobs, strict=True)],
        }
        chat = {"index": 0, "message": message, "logprobs": {"content": entries}, **ended}
        plain: dict[str, Any] = {"index": 0, "text": text, "logprobs": listed, **ended, "prompt_token_ids": "{prompt}"}
        self.chat = _pieces(frame | {"object": "chat.completion", "choices": [chat], **_TAIL})
        self.completion = _pieces(frame | {"object": "text_completion", "choices": [plain], "usage": _TAIL["usage"]})
        chunk = frame | {"object": "chat.completion.chunk"}
        opening = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        events = [_pieces(chunk | {"choices": [opening], "prompt_token_ids": "{prompt}"})]
        completions = []
        for position, token in enumerate(self.ids):
            last = position == len(self.ids) - 1
            end = {"finish_reason": "stop", "stop_reason": None} if last else {"finish_reason": None}
            said: dict[str, Any] = {"content": texts[position]} if not last else {}
            piece = {"index": 0, "delta": said, "logprobs": {"content": [entries[position]]}, "token_ids": [token]}
            events.append(_pieces(chunk | {"choices": [piece | end]}))
            one = {name: values[position : position + 1] for name, values in listed.items()}
            text_piece: dict[str, Any] = {"index": 0, "text": texts[position], "logprobs": one, "token_ids": [token]}
            text_piece["prompt_token_ids"] = "{prompt}" if position == 0 else None
            completions.append(_pieces(frame | {"object": "text_completion", "choices": [text_piece | end]}))
        self.chat_events = [*events, _pieces(chunk | {"choices": [], "usage": _TAIL["usage"]})]
        used = frame | {"object": "text_completion", "choices": [], "usage": _TAIL["usage"]}
        self.completion_events = [*completions, _pieces(used)]


_TAIL: dict[str, Any] = {
    "usage": {"prompt_tokens": "{count}", "total_tokens": "{total}", "completion_tokens": REPLY_TOKENS},
    "prompt_logprobs": None,
    "prompt_token_ids": "{prompt}",
}
WORDS = re.findall(
    r"\w+",
    "the agent reads a file and writes what it found in short words then it looks at the next line of the log to see "
    "whether a test failed because of that change or for another reason",
)


def _pieces(body: object) -> list[bytes]:
    """The JSON, cut where the prompt's ids and counts go: text, name, text, name, ..., text."""
    return re.split(rb'"\{(prompt|count|total)\}"', _encode(body))


def _filled(pieces: Sequence[bytes], values: dict[bytes, bytes]) -> bytes:
    if len(pieces) == 1:
        return pieces[0]
    return b"".join(piece if place % 2 == 0 else values[piece] for place, piece in enumerate(pieces))


def task_text(number: int, tokens: int, tokenizer: TokenizerAdapter | None = None) -> str:
    """The question of a task whose prompt has so many tokens, another text for each number.

    By the tokenizer, or else four characters for each, as is usual for large vocabularies.
    """
    chance = random.Random(number)
    head = f"Task {number} of {tokens} tokens: "
    words = " ".join(chance.choices(WORDS, k=tokens))
    if tokenizer is None:
        return (head + words)[: 4 * tokens]
    room = max(tokens - len(tokenizer.encode(head)), 1)
    return head + tokenizer.decode(tokenizer.encode(words)[:room])


class Replay:
    """The prepared replies, and which is next."""

    def __init__(self, tokenizer: TokenizerAdapter) -> None:
        self._vocabulary = max(tokenizer.vocab_size, 300)
        self._replies = [Prepared(tokenizer, number) for number in range(REPLIES)]
        self._next = 0
        self._sent: dict[int, list[int]] = {}
        self._prompts: dict[tuple[int, int], list[int]] = {}
        self.models = _encode({"object": "list", "data": [{"id": "replay", "max_model_len": 262_144}]})
        self.streams: list[tuple[asyncio.Transport, list[bytes], int]] = []
        self._loop = asyncio.get_running_loop()

    def answer(self, transport: asyncio.Transport, path: bytes, body: bytes) -> None:
        """Answer a call."""
        if b"completions" not in path:
            transport.write(_head(b"application/json", self.models))
            return
        reply = self._replies[self._next % REPLIES]
        self._next += 1
        chat = b"/chat/" in path
        ids = self._chat_prompt(body, reply) if chat else None
        if ids is None:
            found = _PROMPT.search(body)
            listed = found[1] if found is not None else b"[1]"
            count = listed.count(b",") + 1
        else:
            listed, count = _encode(ids), len(ids)
        values = {b"prompt": listed, b"count": b"%d" % count, b"total": b"%d" % (count + REPLY_TOKENS)}
        if b'"stream":true' in body or b'"stream": true' in body:
            events = reply.chat_events if chat else reply.completion_events
            data = [b"data: " + _filled(pieces, values) + b"\n\n" for pieces in events]
            transport.write(_STREAM_HEAD)
            self.streams.append((transport, [*data, b"data: [DONE]\n\n"], 0))
            if len(self.streams) == 1:
                self._loop.call_soon(self._step)
        else:
            transport.write(_head(b"application/json", _filled(reply.chat if chat else reply.completion, values)))

    def _chat_prompt(self, body: bytes, reply: Prepared) -> list[int]:
        found = _TASK.search(body)
        number, tokens = (int(found[1]), int(found[2])) if found is not None else (0, 16)
        base = self._prompts.get((number % 64, tokens))
        if base is None:
            chance = random.Random(number % 64)
            base = [chance.randrange(self._vocabulary) for _ in range(tokens)]
            self._prompts[number % 64, tokens] = base
        sent = self._sent.setdefault(number, [])
        if body.count(b'"role":"assistant"') == 0 and body.count(b'"role": "assistant"') == 0:
            sent = self._sent[number] = []
        prompt = [number % self._vocabulary, *base[1:], *sent]
        self._sent[number] = [*sent, *reply.ids, *range(TURN_TOKENS)]
        return prompt

    def _step(self) -> None:
        """One event of each open stream."""
        going = []
        for transport, events, at in self.streams:
            if transport.is_closing():
                continue
            data = events[at]
            frame = b"%x\r\n%b\r\n" % (len(data), data)
            if at + 1 == len(events):
                transport.write(frame + b"0\r\n\r\n")
            else:
                transport.write(frame)
                going.append((transport, events, at + 1))
        self.streams = going
        if going:
            self._loop.call_soon(self._step)


_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)


def _head(kind: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (kind, len(body), body)


class Peer(asyncio.Protocol):
    """One connection."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._buffer = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self._buffer += data
        while True:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._buffer[:end])
            found = _LENGTH.search(head)
            if found is None and b"transfer-encoding" in head.lower():
                stop = self._buffer.find(b"\r\n0\r\n\r\n", end)
                if stop < 0:
                    return
                body, stop = _dechunked(bytes(self._buffer[end + 4 : stop + 2])), stop + 7
            else:
                stop = end + 4 + (int(found[1]) if found is not None else 0)
                if len(self._buffer) < stop:
                    return
                body = bytes(self._buffer[end + 4 : stop])
            del self._buffer[:stop]
            self._replay.answer(self._transport, head.split(b" ", 2)[1], body)


def _dechunked(data: bytes) -> bytes:
    out, at = [], 0
    while at < len(data):
        line = data.index(b"\r\n", at)
        size = int(data[at:line].split(b";")[0], 16)
        out.append(data[line + 2 : line + 2 + size])
        at = line + 4 + size
    return b"".join(out)


async def _serve(port: int, tokenizer: str) -> None:
    loop = asyncio.get_running_loop()
    replay = Replay(load_tokenizer(tokenizer))
    server = await loop.create_server(lambda: Peer(replay), "127.0.0.1", port, backlog=1024)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await ended.wait()


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(prog="agentworld.bench.replay_engine")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokenizer", default="pocket")
    options = parser.parse_args()
    asyncio.run(_serve(options.port, options.tokenizer))


if __name__ == "__main__":
    main()
