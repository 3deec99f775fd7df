"""vLLM's HTTP surface over any backend that yields tokens: one aiohttp application, no model in sight.

Routes: POST /v1/chat/completions, /v1/completions, /reload; GET /v1/models, /version, /health.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import IO, Any, Literal

import msgspec
from aiohttp import web

from agentworld.engines.backend import Backend, DropConnection, Job, RawReply, ScoringBackend, Wire
from agentworld.engines.replies import Choice, Envelope, Tokens, reply_body, usage
from agentworld.engines.reply_stream import ChoiceStream
from agentworld.engines.surface import GenerationRequest, openai_error, parse_request, resolve_max_tokens
from agentworld.errors import AgentWorldError, ForbiddenError, InvalidRequestError, NotFoundError
from agentworld.loopback import is_loopback, origin_host

MAX_BODY_BYTES = 64 * 1024 * 1024

_encode = msgspec.json.Encoder().encode
_log = logging.getLogger(__name__)


class TokenLog:
    """Appends one JSON line a finished choice: `{"request_id", "index", "prompt_token_ids", "token_ids", ...}`."""

    def __init__(self, path: Path | None) -> None:
        self._file: IO[bytes] | None = path.open("ab", buffering=0) if path is not None else None

    def write(self, job: Job, choices: Sequence[Choice]) -> None:
        """Record what was received and sampled; an unfinished choice has finish reason `abort`."""
        if self._file is None:
            return
        lines = [
            _encode(
                {
                    "request_id": job.id,
                    "index": choice.index,
                    "prompt_token_ids": choice.prompt_ids,
                    "token_ids": choice.ids,
                    "finish_reason": choice.finish_reason or "abort",
                }
            )
            for choice in choices
        ]
        self._file.write(b"\n".join(lines) + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class EngineApp:
    """The routes. `token_log` is where every request's ids are appended, if anywhere; `guided`: the backend holds
    replies to demanded tool calls and JSON, else requests that demand them are refused.
    """

    def __init__(self, backend: Backend, token_log: Path | None = None, *, guided: bool = False) -> None:
        self.backend = backend
        self.guided = guided
        self.log = TokenLog(token_log)

    def application(self) -> web.Application:
        """The aiohttp application. Run it with `handler_cancellation=True`, or clients that left go unnoticed."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_post("/v1/chat/completions", self._guard(self._chat))
        app.router.add_post("/v1/completions", self._guard(self._completions))
        app.router.add_get("/v1/models", self._guard(self._models))
        app.router.add_get("/version", self._guard(self._version))
        app.router.add_get("/health", self._guard(self._health))
        app.router.add_post("/reload", self._guard(self._reload))
        app.router.add_route("*", "/{rest:.*}", self._guard(self._nothing))
        return app

    def _guard(
        self, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def guarded(request: web.Request) -> web.StreamResponse:
            try:
                self._check_origin(request)
                return await handler(request)
            except RawReply as raw:
                return web.Response(status=raw.status, body=raw.body, headers=raw.headers)
            except DropConnection:
                if request.transport is not None:
                    request.transport.abort()
                return web.Response(status=500)
            except AgentWorldError as error:
                return _json(openai_error(error), error.status)
            except Exception as fault:
                if isinstance(fault, ConnectionError | web.HTTPException):
                    raise
                _log.exception("%s %s failed", request.method, request.path)
                return _json(openai_error(AgentWorldError(f"unexpected {type(fault).__name__}: {fault}")), 500)

        return guarded

    @staticmethod
    def _check_origin(request: web.Request) -> None:
        """Keep pages of other sites out: browsers send `Origin` with what could change something, programs do not."""
        origin = request.headers.get("Origin")
        host = origin_host(origin) if origin is not None else "localhost"
        if host is None or not is_loopback(host):
            raise ForbiddenError(f"pages of {str(origin)[:100]!r} may not call this engine", path="Origin")

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, "chat")

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, "completions")

    async def _complete(self, request: web.Request, kind: Literal["chat", "completions"]) -> web.StreamResponse:
        body = await _body(request)
        parsed = parse_request(body, kind, self.guided)
        backend = self.backend
        if parsed.model is not None and parsed.model != backend.model:
            raise NotFoundError(
                f"The model `{parsed.model}` does not exist.",
                path="model",
                hint=f"This engine serves {backend.model}",
            )
        envelope = Envelope.make(
            parsed,
            request.headers.get("X-Request-Id"),
            backend.model,
            backend.logprobs_mode(parsed),
        )
        prompts = self._prompts(parsed)
        job = Job(
            id=envelope.id,
            request=parsed,
            body=body,
            prompts=prompts,
            max_tokens=[resolve_max_tokens(parsed.sampling, len(prompt), backend.max_model_len) for prompt in prompts],
        )
        choices = [
            Choice(index, prompts[index // parsed.n], parsed, backend.chat) for index in range(len(prompts) * parsed.n)
        ]
        try:
            if parsed.stream:
                return await self._stream(request, job, envelope, choices)
            return await self._plain(job, envelope, choices)
        finally:
            self.log.write(job, choices)

    def _prompts(self, request: GenerationRequest) -> list[list[int]]:
        chat = self.backend.chat
        if request.kind == "chat":
            return [chat.render(request.messages, request.tools, request.template)]
        out = [chat.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt) for prompt in request.prompts]
        size = self.backend.vocab_size
        for prompt in out:
            if any(token_id >= size for token_id in prompt):
                raise InvalidRequestError(f"a token id is outside the vocabulary of {size}", path="prompt")
        return out

    async def _scored(self, prompt: list[int], top: int) -> list[dict[str, Any] | None]:
        """As vLLM has it: null, then for each further id of the prompt an object by ids."""
        backend = self.backend
        if not isinstance(backend, ScoringBackend):
            raise InvalidRequestError("this engine scores no prompts", path="prompt_logprobs")
        decode = backend.chat.tokenizer.decode
        return [
            None,
            *(
                {
                    str(token_id): {"logprob": logprob, "rank": rank, "decoded_token": decode([token_id])}
                    for token_id, logprob, rank in reversed(place)
                }
                for place in await backend.prompt_scores(prompt, top)
            ),
        ]

    async def _plain(self, job: Job, envelope: Envelope, choices: list[Choice]) -> web.Response:
        async with aclosing(self.backend.generate(job)) as batches:
            async for batch in batches:
                for tokens in batch:
                    choices[tokens.index].feed(tokens)
        body = reply_body(envelope, choices, _usage(job, choices))
        if job.request.prompt_logprobs is not None:
            scored = [await self._scored(prompt, job.request.prompt_logprobs) for prompt in job.prompts]
            for choice in body["choices"]:
                choice["prompt_logprobs"] = scored[choice["index"] // job.request.n]
        data = self.backend.wire(job).body(body)
        return web.Response(body=data, content_type="application/json", headers={"X-Request-Id": job.id})

    async def _stream(
        self, request: web.Request, job: Job, envelope: Envelope, choices: list[Choice]
    ) -> web.StreamResponse:
        streams = [ChoiceStream(choice) for choice in choices]
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                "X-Request-Id": job.id,
            }
        )
        wire = Wire()
        settings = job.request
        kind = "chat.completion.chunk" if settings.kind == "chat" else "text_completion"
        started = False

        async def send(pieces: list[bytes]) -> None:
            for piece in pieces:
                await response.write(piece)

        async def start(batch: list[Tokens]) -> None:
            nonlocal started, wire
            started = True
            for tokens in batch:
                choices[tokens.index].begin(tokens)
            wire = self.backend.wire(job)
            await response.prepare(request)
            for stream in streams:
                for opening in stream.opening():
                    # Of a choice that has not begun nobody knows which weights will speak.
                    chunk = envelope.frame(kind, [opening], [stream.choice])
                    if stream is streams[0] and settings.return_token_ids:
                        chunk["prompt_token_ids"] = job.prompts[0]
                    await send(wire.chunk(chunk))

        async with aclosing(self.backend.generate(job)) as batches:
            try:
                async for batch in batches:
                    if not started:
                        await start(batch)
                    for tokens in batch:
                        for entry in streams[tokens.index].feed(tokens):
                            chunk = envelope.frame(kind, [entry], [choices[tokens.index]])
                            if settings.continuous_usage:
                                chunk["usage"] = _usage(job, choices)
                            await send(wire.chunk(chunk))
            except AgentWorldError as error:
                if not started:
                    raise
                await send(wire.chunk(openai_error(error)))
        if settings.include_usage:
            chunk = envelope.frame(kind, [], choices)
            chunk["usage"] = _usage(job, choices)
            await send(wire.chunk(chunk))
        await send(wire.end())
        await response.write_eof()
        return response

    async def _models(self, request: web.Request) -> web.Response:
        backend = self.backend
        policy = backend.policy
        model = {
            "id": backend.model,
            "object": "model",
            "created": 0,
            "owned_by": "agentworld",
            "root": backend.root,
            "parent": None,
            "max_model_len": backend.max_model_len,
            "vocabulary_digest": backend.chat.tokenizer.digest.hex(),
            "chat_format": backend.chat.family,
            "policy_version": policy.version,
            "policy_run": policy.run,
        }
        return _json({"object": "list", "data": [model]})

    async def _version(self, request: web.Request) -> web.Response:
        return _json(
            {"version": importlib.metadata.version("agentworld"), "policy": msgspec.to_builtins(self.backend.policy)}
        )

    async def _health(self, request: web.Request) -> web.Response:
        return _json({"status": "ok", "policy_version": self.backend.policy.version})

    async def _reload(self, request: web.Request) -> web.Response:
        body = await _body(request)
        path, version, run = body.get("path"), body.get("version"), body.get("run")
        if not isinstance(path, str) or not path:
            raise InvalidRequestError("path must be a directory or a safetensors file", path="path")
        if isinstance(version, bool) or not isinstance(version, int):
            raise InvalidRequestError("version must be a whole number", path="version")
        if run is not None and not isinstance(run, str):
            raise InvalidRequestError("run must be a string", path="run")
        policy = await self.backend.reload(path, version, run)
        return _json({"policy": msgspec.to_builtins(policy)})

    async def _nothing(self, request: web.Request) -> web.Response:
        raise NotFoundError(f"no route {request.method} {request.path}")


def _usage(job: Job, choices: Sequence[Choice]) -> dict[str, Any]:
    return usage(
        sum(len(prompt) for prompt in job.prompts),
        sum(len(choice.ids) for choice in choices),
        job.cached_tokens,
    )


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(await request.read())
    except msgspec.DecodeError as fault:
        raise InvalidRequestError(f"the body is not valid JSON: {fault}") from fault
    except web.HTTPRequestEntityTooLarge as fault:
        raise InvalidRequestError(f"the body is larger than {MAX_BODY_BYTES} bytes") from fault
    if not isinstance(decoded, dict):
        raise InvalidRequestError("the body must be a JSON object")
    return decoded


def _json(body: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=_encode(body), status=status, content_type="application/json")


class Server:
    """An `EngineApp` on a port. `url` is known once `start` has returned."""

    def __init__(self, app: EngineApp, host: str = "127.0.0.1", port: int = 0) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen."""
        self._runner = web.AppRunner(
            self._app.application(), handler_cancellation=True, access_log=None, shutdown_timeout=1.0
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, backlog=1024)
        await site.start()
        port = self._runner.addresses[0][1]
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        """Stop listening and cancel what runs."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._app.log.close()


async def serve_until_signal(server: Server, announce: Callable[[str], None]) -> None:
    """Start, announce the URL, and serve until SIGINT or SIGTERM."""
    import signal

    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stopped.set)
    await server.start()
    announce(server.url)
    try:
        await stopped.wait()
    finally:
        await server.stop()
