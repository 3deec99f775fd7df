"""verl's engines as an engine of the gateway: calls go through verl's own client, so its routing, its priorities and
its sleeping replicas hold, whether vLLM, SGLang or another server stands behind it.

Each piece of a reply comes with the weights that sampled it (`global_steps` of the trainer). One that new weights cut
ends as `abort`, and the gateway asks for the rest: the client's loop that would join pieces is passed by, as it does
not say where one ends. Left out: alternatives to tokens, which the client does not tell, and images.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np

from agentworld.engines.backend import Job, Policy, Wire
from agentworld.engines.chat_format import ChatFormat
from agentworld.engines.replies import Tokens
from agentworld.engines.surface import GenerationRequest
from agentworld.engines.tokenizer import TokenizerAdapter
from agentworld.errors import EngineError, InvalidRequestError

REMEMBERED = 4096
CUT = ("aborted", "abort")


class TokenOutput(Protocol):
    """What verl's servers answer."""

    token_ids: list[int]
    log_probs: list[float] | None
    stop_reason: str | None
    extra_fields: dict[str, Any]


Generate = Callable[..., Awaitable[TokenOutput]]
"""`generate(request_id, prompt_ids=, sampling_params=)` of verl's client, once, without joining what was cut."""


class VerlBackend:
    """The trainer's engines behind vLLM's routes. `mode`: vLLM's word for where in sampling
    they take log-probabilities; empty for other engines.
    """

    def __init__(
        self, generate: Generate, tokenizer: TokenizerAdapter, *, model: str, run: str, context: int, mode: str
    ) -> None:
        self.generate_once = generate
        self.published: Callable[[int], None] = lambda version: None
        """Told, in a thread, of each newer version before the first reply with it goes on."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where `generate` is awaited: the loop of verl's worker."""
        self.model = self.root = model
        self.run = run
        self.max_model_len = context
        self.vocab_size = 2**31
        self.chat = ChatFormat(tokenizer)
        self._mode = mode
        self._newest = -1
        self._openings: OrderedDict[tuple[int, bytes], str] = OrderedDict()
        self._ends = {*self.chat.stop_ids}

    @property
    def policy(self) -> Policy:
        """The newest weights that have spoken."""
        return Policy(version=max(0, self._newest), run=self.run)

    def logprobs_mode(self, request: GenerationRequest) -> str:
        """That of the rollout configuration, whatever is asked for; empty where the gateway's settings have it."""
        return self._mode

    def wire(self, job: Job) -> Wire:
        """Replies as they are."""
        return Wire()

    async def reload(self, path: str, version: int, run: str | None) -> Policy:
        """Refused: the trainer updates its engines itself."""
        raise InvalidRequestError("verl updates the weights of these engines", path="path")

    async def generate(self, job: Job) -> AsyncGenerator[list[Tokens], None]:
        """Whole replies, one after the other as they come; EngineError where verl's servers fail."""
        if job.request.logprobs:
            raise InvalidRequestError("verl's engines tell no alternatives to tokens", path="top_logprobs")
        tasks = [asyncio.ensure_future(self._one(job, index)) for index in range(len(job.prompts) * job.request.n)]
        try:
            for done in asyncio.as_completed(tasks):
                yield [await done]
        finally:
            for task in tasks:
                task.cancel()

    async def _one(self, job: Job, index: int) -> Tokens:
        prompt = job.prompts[index // job.request.n]
        limit = job.max_tokens[index // job.request.n]
        asked = sampling_params(job.request, limit)
        call = self.generate_once(self.request_id(prompt), prompt_ids=list(prompt), sampling_params=asked)
        try:
            said = await self._in_its_loop(call)
        except (RuntimeError, ValueError, OSError) as error:
            raise EngineError(f"verl's engines: {type(error).__name__}: {error}") from error
        version = said.extra_fields.get("global_steps")
        if version is not None and int(version) > self._newest:
            await asyncio.to_thread(self.published, int(version))
            self._newest = max(self._newest, int(version))
        return self._tokens(index, said, limit, job.request)

    async def _in_its_loop(self, call: Awaitable[TokenOutput]) -> TokenOutput:
        if self.loop is None or self.loop is asyncio.get_running_loop():
            return await call

        async def awaited() -> TokenOutput:
            return await call

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(awaited(), self.loop))

    def _tokens(self, index: int, said: TokenOutput, limit: int, request: GenerationRequest) -> Tokens:
        ids, wanted, stops = list(said.token_ids), request.logprobs is not None, request.sampling.stop_token_ids
        values = said.log_probs
        if wanted and ids and (values is None or len(values) != len(ids)):
            raise EngineError(
                f"verl's engine gave {len(values or ())} log-probabilities for {len(ids)} tokens",
                hint="Set actor_rollout_ref.rollout.calculate_log_probs=True",
            )
        version = said.extra_fields.get("global_steps")
        ended = bool(ids) and (ids[-1] in self._ends or ids[-1] in stops)
        if said.stop_reason in CUT:
            reason = "abort"
        else:  # verl says completed for both.
            reason = "length" if len(ids) >= limit and not ended else "stop"
        return Tokens(
            index=index,
            ids=ids,
            logprobs=[float(value) for value in values or ()] if wanted else [],
            tops=[[] for _ in ids] if wanted else [],
            finish_reason=reason,
            stop_reason=ids[-1] if ended and reason == "stop" and ids[-1] in stops else None,
            ends_with_stop_token=ended and reason == "stop",
            version=None if version is None else int(version),
            run=None if version is None else self.run,
        )

    def request_id(self, prompt: Sequence[int]) -> str:
        """What keeps a conversation on one server, where its prefix cache is warm: the digest of the longest prompt of
        those before that this one begins with, or where there is none its own. Each id is hashed once.
        """
        data, hashed, begun = memoryview(np.asarray(prompt, np.int64).tobytes()), blake2b(digest_size=16), 0
        known: tuple[int, bytes] | None = None
        for length in sorted({length for length, _ in self._openings if length <= len(prompt)} | {len(prompt)}):
            hashed.update(data[8 * begun : 8 * length])
            begun, key = length, (length, hashed.digest())
            known = key if key in self._openings else known
        found = known or key  # The last key is that of the whole prompt.
        name = self._openings.setdefault(found, found[1].hex())
        self._openings.move_to_end(found)
        if len(self._openings) > REMEMBERED:
            self._openings.popitem(last=False)
        return name


def sampling_params(request: GenerationRequest, max_tokens: int) -> dict[str, Any]:
    """The sampling of a call as verl's servers of all kinds take it: fields that are neutral are left out, but for
    those that verl itself always sends.
    """
    asked = request.sampling
    found: dict[str, Any] = {
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": asked.top_k or -1,
        "repetition_penalty": asked.repetition_penalty,
        "logprobs": request.logprobs is not None,
        "max_tokens": max_tokens,
    }
    neutral = {
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": None,
        "ignore_eos": False,
    }
    found |= {name: getattr(asked, name) for name, value in neutral.items() if getattr(asked, name) != value}
    if asked.min_tokens:
        found["min_tokens"] = asked.min_tokens
    if asked.stop_token_ids:
        found["stop_token_ids"] = list(asked.stop_token_ids)
    if asked.stop or asked.logit_bias:
        name = "stop" if asked.stop else "logit_bias"
        raise InvalidRequestError(f"verl's engines take no {name}: they answer with ids alone", path=name)
    return found
