"""What stands behind the engine's routes: a backend takes jobs and yields tokens; a wire writes replies."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Protocol, runtime_checkable

import msgspec

from agentworld.engines.chat_format import ChatFormat
from agentworld.engines.replies import Tokens
from agentworld.engines.surface import GenerationRequest

_encode = msgspec.json.Encoder().encode


class Policy(msgspec.Struct, frozen=True):
    """Which weights are being served."""

    version: int = 0
    run: str | None = None
    path: str | None = None


class Job(msgspec.Struct, kw_only=True):
    """One call on its way through a backend. Choice `i` belongs to prompt `i // n`."""

    id: str
    request: GenerationRequest
    body: dict[str, Any]
    prompts: list[list[int]]
    max_tokens: list[int]
    cached_tokens: int = 0
    """Prompt tokens whose computation was reused; a backend fills it in."""


class Wire:
    """How bodies and chunks become bytes. A fake may write them in other, broken ways."""

    def body(self, body: dict[str, Any]) -> bytes:
        """A plain reply."""
        return _encode(body)

    def chunk(self, chunk: dict[str, Any]) -> list[bytes]:
        """One stream chunk, as pieces that are sent one by one."""
        return [b"data: " + _encode(chunk) + b"\n\n"]

    def end(self) -> list[bytes]:
        """The end of a stream."""
        return [b"data: [DONE]\n\n"]


class DropConnection(Exception):
    """Raised by a wire: close the connection without another byte."""


class RawReply(Exception):
    """Raised by a backend: answer with exactly this."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.body = body
        self.headers = {"Content-Type": "application/json", **(headers or {})}


PlaceScores = list[tuple[int, float, int]]
"""In one place of a prompt: (id, log-probability, rank from 1), first of what stands there."""


@runtime_checkable
class ScoringBackend(Protocol):
    """One that tells how likely prompts are."""

    async def prompt_scores(self, prompt: list[int], top: int) -> list[PlaceScores]:
        """Raw log-probabilities of each id of the prompt but the first, and of the `top` likeliest in its place."""
        ...


class Backend(Protocol):
    """What produces tokens behind the routes."""

    model: str
    root: str
    max_model_len: int
    vocab_size: int
    """Prompt ids must be below it; a model's table may be larger than its tokenizer."""
    chat: ChatFormat

    @property
    def policy(self) -> Policy: ...

    def logprobs_mode(self, request: GenerationRequest) -> str:
        """The log-probability space that this request gets."""
        ...

    def generate(self, job: Job) -> AsyncGenerator[list[Tokens], None]:
        """Tokens of all choices of a job, in the order sampled, by weights of one run: those of another end what is
        left as `abort`. Closing the iterator cancels what is left.
        """
        ...

    def wire(self, job: Job) -> Wire:
        """How to write this job's reply. Asked once, when its first tokens are there."""
        ...

    async def reload(self, path: str, version: int, run: str | None) -> Policy:
        """Serve other weights from the next token on."""
        ...
