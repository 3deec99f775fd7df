"""An engine without a model: replies come from a function, faults on demand. It speaks the builtin engine's HTTP.

In a test::

    async with ScriptedEngine(lambda request: "four") as engine:
        ...                       # engine.url, engine.requests

`with ScriptedEngine(...)` does the same from a thread. As a process:
`python -m agentworld.testing.scripted_engine --script module:function --tokenizer byte --port 0`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import msgspec

from agentworld.api.processes import die_with_parent
from agentworld.engines.backend import Job, Policy, RawReply, Wire
from agentworld.engines.chat_format import ChatFormat
from agentworld.engines.detokenize import StopStrings, TextStream
from agentworld.engines.http_surface import EngineApp, Server, serve_until_signal
from agentworld.engines.replies import Tokens, Tops
from agentworld.engines.surface import GenerationRequest
from agentworld.engines.tokenizer import TokenizerAdapter, byte_tokenizer, load_tokenizer
from agentworld.errors import ConfigError
from agentworld.testing.wire_faults import FaultyWire, WireFaults


class ScriptedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a script sees of one choice of one call."""

    kind: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    prompt_ids: list[int]
    prompt_text: str
    body: dict[str, Any]
    call: int
    """0 for the engine's first call."""
    choice: int


class ScriptedReply(msgspec.Struct, kw_only=True):
    """A reply with everything that can be set, and what should go wrong with it.

    Without `ids`, `text` is tokenized (control tokens in it are recognised) and, when the reply finishes by
    itself, `<|im_end|>` is added. `logprobs` default to values made from id and position (`default_logprob`).
    """

    text: str = ""
    ids: list[int] | None = None
    logprobs: list[float] | None = None
    finish_reason: str = "stop"
    first_token_delay: float = 0.0
    token_delay: float = 0.0
    """Seconds."""
    status: int | None = None
    """Answer with this HTTP status and `error_body` in place of a reply."""
    error_body: dict[str, Any] | str = ""
    faults: WireFaults = msgspec.field(default_factory=WireFaults)


class RecordedCall(msgspec.Struct, kw_only=True):
    """One call as the engine took it: the body, the prompts' ids and, for each choice, the ids sent."""

    id: str
    kind: str
    body: dict[str, Any]
    prompt_ids: list[list[int]]
    sampled_ids: list[list[int]]
    finished: bool = False
    """False while running and for a call that was cancelled or refused."""


Answer = str | ScriptedReply
Script = Answer | Sequence[Answer] | Callable[[ScriptedRequest], Answer | Awaitable[Answer]]


def default_logprob(token_id: int, position: int) -> float:
    """The log-probability of an id at a position of a reply, where the script gives none."""
    return -(1 + (31 * token_id + position) % 97) / 64


class ScriptedEngine:
    """The fake engine. `script` is a reply for every call, a list used in order, or a function.

    `requests` records every call. `set_policy` changes the version that replies report from then on. With `guided`,
    requests may demand a tool call or JSON; to meet that is up to the script, which finds it in `body`.
    """

    def __init__(
        self,
        script: Script = "ok",
        *,
        model: str = "scripted",
        tokenizer: TokenizerAdapter | None = None,
        max_model_len: int = 1 << 20,
        logprobs_mode: str = "raw_logprobs",
        version: int = 0,
        log_tokens: Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        guided: bool = False,
    ) -> None:
        self.guided = guided
        self.script = script
        self.model = model
        self.root = "scripted"
        self.max_model_len = max_model_len
        self.tokenizer = tokenizer or byte_tokenizer()
        self.vocab_size = self.tokenizer.vocab_size
        self.chat = ChatFormat(self.tokenizer)
        self.requests: list[RecordedCall] = []
        self._policy = Policy(version=version)
        self._mode = logprobs_mode
        self._wires: dict[str, Wire] = {}
        self._log_tokens = log_tokens
        self._address = (host, port)
        self._server: Server | None = None
        self._thread: _LoopThread | None = None

    # -- running it -------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """`http://host:port`, while it runs."""
        if self._server is None:
            raise RuntimeError("the engine is not running; use it as a context manager")
        return self._server.url

    def server(self) -> Server:
        """A server that is not started yet."""
        return Server(EngineApp(self, self._log_tokens, guided=self.guided), *self._address)

    async def __aenter__(self) -> ScriptedEngine:
        self._server = self.server()
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    def __enter__(self) -> ScriptedEngine:
        self._thread = _LoopThread()
        self._thread.run(self.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.run(self.__aexit__())
            thread.stop()

    # -- what the routes ask for ------------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        """The version that replies report."""
        return self._policy

    def set_policy(self, version: int, run: str | None = None) -> None:
        """Report another version from the next token on; replies under way are cut where it is of another run."""
        self._policy = Policy(version=version, run=run)

    def logprobs_mode(self, request: GenerationRequest) -> str:
        """The space asked for, or this engine's."""
        return request.logprobs_mode or self._mode

    def wire(self, job: Job) -> Wire:
        """The wire with the faults that the script asked for."""
        return self._wires.pop(job.id, None) or Wire()

    async def reload(self, path: str, version: int, run: str | None) -> Policy:
        """Take any path."""
        self._policy = Policy(version=version, run=run, path=path)
        return self._policy

    async def generate(self, job: Job) -> AsyncGenerator[list[Tokens], None]:
        """Ask the script once a choice, then hand out the replies token by token, choice after choice."""
        settings = job.request
        count = len(job.prompts) * settings.n
        call = len(self.requests)
        record = RecordedCall(
            id=job.id,
            kind=settings.kind,
            body=job.body,
            prompt_ids=job.prompts,
            sampled_ids=[[] for _ in range(count)],
        )
        self.requests.append(record)
        replies = [await self._ask(job, call, index) for index in range(count)]
        first = replies[0]
        if first.status is not None:
            text = first.error_body
            raise RawReply(first.status, text.encode() if isinstance(text, str) else msgspec.json.encode(text))
        self._wires[job.id] = FaultyWire(first.faults)
        run = self._policy.run
        for index, reply in enumerate(replies):
            async with aclosing(self._play(job, index, reply)) as played:
                async for tokens in played:
                    if tokens.run != run:  # As the builtin engine does.
                        yield [Tokens(index=index, ids=[], finish_reason="abort")]
                        break
                    record.sampled_ids[index].extend(tokens.ids)
                    yield [tokens]
        record.finished = True

    async def _ask(self, job: Job, call: int, index: int) -> ScriptedReply:
        script = self.script
        if callable(script):
            prompt = job.prompts[index // job.request.n]
            answer = script(
                ScriptedRequest(
                    kind=job.request.kind,
                    messages=job.body.get("messages") or [],
                    tools=job.body.get("tools") or [],
                    prompt_ids=prompt,
                    prompt_text=self.tokenizer.decode(prompt),
                    body=job.body,
                    call=call,
                    choice=index,
                )
            )
            given = await answer if inspect.isawaitable(answer) else answer
        elif isinstance(script, str | ScriptedReply):
            given = script
        else:
            if call >= len(script):
                raise RawReply(500, b'{"error": {"message": "the script has no further reply"}}')
            given = script[call]
        return ScriptedReply(text=given) if isinstance(given, str) else given

    def _ids(self, reply: ScriptedReply) -> list[int]:
        if reply.ids is not None:
            return list(reply.ids)
        ids = self.tokenizer.encode(reply.text)
        end = self.tokenizer.eos_token_id
        if reply.finish_reason == "stop" and end is not None and (not ids or ids[-1] != end):
            ids.append(end)
        return ids

    async def _play(self, job: Job, index: int, reply: ScriptedReply) -> AsyncGenerator[Tokens, None]:
        settings, sampling = job.request, job.request.sampling
        ids = self._ids(reply)
        limit = job.max_tokens[index // settings.n]
        stop_ids = set(sampling.stop_token_ids)
        ends = stop_ids | (set() if sampling.ignore_eos else set(self.chat.stop_ids))
        text = TextStream(self.tokenizer, settings.skip_special_tokens)
        stops = StopStrings(sampling.stop, settings.include_stop)
        spans: list[list[int]] = []
        await asyncio.sleep(reply.first_token_delay)
        if not ids:
            policy = self._policy
            yield Tokens(index=index, ids=[], finish_reason=reply.finish_reason, version=policy.version, run=policy.run)
        for position, token_id in enumerate(ids):
            if position:
                await asyncio.sleep(reply.token_delay)
            if not spans or spans[-1][1] != self._policy.version:
                spans.append([position, self._policy.version])
            tokens = Tokens(index=index, ids=[token_id], version=self._policy.version, run=self._policy.run)
            if settings.logprobs is not None:
                given = reply.logprobs
                value = default_logprob(token_id, position) if given is None else given[position]
                tokens.logprobs = [value]
                tokens.tops = [self._tops(token_id, value, settings.logprobs)]
            if token_id in ends:
                tokens.finish_reason = "stop"
                tokens.ends_with_stop_token = True
                tokens.stop_reason = token_id if token_id in stop_ids else None
            elif stops.feed(text.feed([token_id])):
                tokens.finish_reason, tokens.stop_reason = "stop", stops.found
            elif position + 1 == limit:
                tokens.finish_reason = "length"
            elif position + 1 == len(ids):
                tokens.finish_reason = reply.finish_reason
            if tokens.finish_reason is not None:
                tokens.version_spans = spans
            yield tokens
            if tokens.finish_reason is not None:
                return

    def _tops(self, token_id: int, value: float, count: int) -> Tops:
        size = self.tokenizer.vocab_size
        return [((token_id + rank) % size, value - rank) for rank in range(count)]


class _LoopThread:
    """An event loop in a thread, for callers without one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout=30)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=30)
        self._loop.close()


def load_script(reference: str) -> Script:
    """The object that `module:name` names."""
    module, _, name = reference.partition(":")
    if not module or not name:
        raise ConfigError(f"{reference!r} is not module:function", path="--script")
    try:
        return cast(Script, getattr(importlib.import_module(module), name))
    except (ImportError, AttributeError) as fault:
        raise ConfigError(f"cannot load the script {reference}: {fault}", path="--script") from fault


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve a script as a process; prints its URL on one line when ready."""
    parser = argparse.ArgumentParser(prog="agentworld.testing.scripted_engine")
    parser.add_argument("--script", required=True, help="module:function")
    parser.add_argument("--tokenizer", default="byte", help='a directory with tokenizer.json, "pocket" or "byte"')
    parser.add_argument("--model", default="scripted")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--max-model-len", type=int, default=1 << 20)
    parser.add_argument("--log-tokens", type=Path, default=None)
    parser.add_argument("--guided", action="store_true", help="take requests that demand a tool call or JSON")
    parser.add_argument("--die-with-parent", action="store_true")
    options = parser.parse_args(arguments)
    if options.die_with_parent:
        die_with_parent(os.getppid(), signal.SIGTERM)
    sys.path.insert(0, "")
    engine = ScriptedEngine(
        load_script(options.script),
        model=options.model,
        tokenizer=load_tokenizer(options.tokenizer),
        max_model_len=options.max_model_len,
        log_tokens=options.log_tokens,
        host=options.host,
        port=options.port,
        guided=options.guided,
    )
    asyncio.run(serve_until_signal(engine.server(), lambda url: print(url, flush=True)))


if __name__ == "__main__":
    main()
