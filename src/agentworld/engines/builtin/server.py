"""The builtin engine behind the HTTP routes: requests to sequences, tokens back to requests, hot reload."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from agentworld.engines.backend import Job, PlaceScores, Policy, Wire
from agentworld.engines.builtin.models import LoadedModel, install_weights, open_model, read_weights
from agentworld.engines.builtin.runner import Runner, Sequence
from agentworld.engines.builtin.sampler import RowSampler
from agentworld.engines.chat_format import ChatFormat
from agentworld.engines.detokenize import StopStrings, TextStream
from agentworld.engines.http_surface import EngineApp, Server, serve_until_signal
from agentworld.engines.replies import Tokens
from agentworld.engines.surface import LOGPROBS_MODES, GenerationRequest
from agentworld.errors import AgentWorldError, ConfigError, EngineError, InvalidRequestError

SWITCH_INTERVAL = 0.0005
"""Seconds a thread may hold the interpreter while the other waits. The loop releases it at every torch
operation; with Python's 5 ms it would wait that long to get it back whenever the server is busy."""

SMALL_MODEL = 20_000_000
"""Parameters below which one CPU thread is the default."""


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to run the builtin engine."""

    model: str
    weights: Path | None = None
    name: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    threads: int | None = None
    max_batch: int = 64
    max_model_len: int | None = None
    dtype: str = "float32"
    device: str | None = None
    logprobs_mode: str = "processed_logprobs"
    log_tokens: Path | None = None
    version: int = 0
    run: str | None = None


class BuiltinEngine:
    """A `Backend` that computes. Made inside the event loop that serves it."""

    def __init__(self, loaded: LoadedModel, settings: EngineSettings) -> None:
        self.model = settings.name or loaded.name
        self.root = loaded.root
        self.max_model_len = loaded.context
        self.chat = ChatFormat(loaded.tokenizer)
        self.vocab_size = int(loaded.model.config.vocab_size)
        self._settings = settings
        self._model = loaded.model
        self._eos = frozenset(loaded.eos_ids) | frozenset(self.chat.stop_ids)
        self._policy = Policy(version=settings.version, run=settings.run)
        self._loop = asyncio.get_running_loop()
        self._reloading = asyncio.Lock()
        self._runner = Runner(
            loaded.model,
            max_batch=settings.max_batch,
            version=settings.version,
            run=settings.run,
            deliver=self._deliver,
        )
        self._runner.verify()

    def start(self) -> None:
        """Start the generation thread."""
        sys.setswitchinterval(SWITCH_INTERVAL)
        self._runner.start()

    def stop(self) -> None:
        """End the generation thread."""
        self._runner.stop()

    @property
    def policy(self) -> Policy:
        """The weights that the next token is sampled with."""
        return self._policy

    def logprobs_mode(self, request: GenerationRequest) -> str:
        """The space of the values that this request gets; at temperature 0 they are raw whatever was asked."""
        if request.sampling.temperature == 0:
            return "raw_logprobs"
        return request.logprobs_mode or self._settings.logprobs_mode

    def wire(self, job: Job) -> Wire:
        """The plain wire."""
        return Wire()

    def _deliver(self, batch: list[tuple[Any, Tokens | BaseException]]) -> None:
        self._loop.call_soon_threadsafe(_hand_out, batch)

    async def generate(self, job: Job) -> AsyncGenerator[list[Tokens], None]:
        """Tokens of every choice; leaving early cancels the rest."""
        queue: asyncio.Queue[Tokens | BaseException] = asyncio.Queue()
        sequences = self._sequences(job, queue)
        self._runner.submit(sequences)
        open_choices = len(sequences)
        try:
            while open_choices:
                batch: list[Tokens] = []
                item = await queue.get()
                while True:
                    if isinstance(item, BaseException):
                        raise EngineError(f"generation failed: {item}") from item
                    batch.append(item)
                    open_choices -= item.finish_reason is not None
                    if queue.empty():
                        break
                    item = queue.get_nowait()
                job.cached_tokens = max(sequence.reused for sequence in sequences)
                yield batch
        finally:
            if open_choices:
                self._runner.cancel(sequences)

    def _sequences(self, job: Job, queue: asyncio.Queue[Tokens | BaseException]) -> list[Sequence]:
        request, sampling = job.request, job.request.sampling
        size = self.vocab_size
        for token_id in [*sampling.stop_token_ids, *(pair[0] for pair in sampling.logit_bias)]:
            if token_id >= size:
                raise InvalidRequestError(f"token id {token_id} is outside the model's vocabulary of {size}")
        asked = frozenset(sampling.stop_token_ids)
        ends = asked if sampling.ignore_eos else asked | self._eos
        raw = self.logprobs_mode(request) == "raw_logprobs"
        out = []
        for index in range(len(job.prompts) * request.n):
            choice = index % request.n
            sampler = RowSampler(
                sampling,
                seed=None if sampling.seed is None else sampling.seed + choice,
                stop_ids=sorted(ends),
                tops=request.logprobs,
                raw=raw,
            )
            watched = bool(sampling.stop)
            out.append(
                Sequence(
                    owner=queue,
                    index=index,
                    prompt=job.prompts[index // request.n],
                    limit=job.max_tokens[index // request.n],
                    sampler=sampler,
                    stream=request.stream,
                    ends=ends,
                    reported_ends=asked,
                    text=TextStream(self.chat.tokenizer, request.skip_special_tokens) if watched else None,
                    stops=StopStrings(sampling.stop, request.include_stop) if watched else None,
                )
            )
        return out

    async def prompt_scores(self, prompt: list[int], top: int) -> list[PlaceScores]:
        """See ScoringBackend: one forward between two tokens of the running batch."""
        done: asyncio.Future[list[PlaceScores]] = self._loop.create_future()

        def score() -> None:
            try:
                found = score_prompt(self._model, prompt, top)
            except Exception as fault:
                self._loop.call_soon_threadsafe(_fail, done, fault)
                return
            self._loop.call_soon_threadsafe(_tell, done, found)

        self._runner.call(score)
        return await done

    async def reload(self, path: str, version: int, run: str | None) -> Policy:
        """Read and check weights beside the running batch, then put them in place between two tokens. Replies under way
        go on with them, but end as `abort` where they are of another run.
        """
        async with self._reloading:
            weights = await asyncio.to_thread(read_weights, self._model, Path(path))
            policy = Policy(version=version, run=run if run is not None else self._policy.run, path=path)
            done: asyncio.Future[None] = self._loop.create_future()

            def install() -> None:
                try:
                    install_weights(self._model, weights)
                    self._runner.weights_changed(version, policy.run)
                except Exception as fault:
                    self._loop.call_soon_threadsafe(_fail, done, fault)
                    return
                self._loop.call_soon_threadsafe(self._take_policy, policy, done)

            self._runner.call(install)
            await done
            return policy

    def _take_policy(self, policy: Policy, done: asyncio.Future[None]) -> None:
        self._policy = policy
        if not done.done():
            done.set_result(None)


def _hand_out(batch: list[tuple[asyncio.Queue[Any], Any]]) -> None:
    for queue, item in batch:
        queue.put_nowait(item)


def _fail(done: asyncio.Future[Any], fault: Exception) -> None:
    if not done.done():
        done.set_exception(fault if isinstance(fault, AgentWorldError) else EngineError(f"the engine failed: {fault}"))


def _tell(done: asyncio.Future[Any], found: Any) -> None:
    if not done.done():
        done.set_result(found)


def score_prompt(model: Any, prompt: list[int], top: int) -> list[PlaceScores]:
    """Of every id but the first: its log-probability and rank, then those of the `top` likeliest in its place."""
    if len(prompt) < 2:
        return []
    device = next(model.parameters()).device
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt], device=device), use_cache=False).logits[0, :-1].float()
    table = torch.log_softmax(logits, dim=-1)
    own = table.gather(1, torch.tensor(prompt[1:], device=device)[:, None])
    ranks = (table > own).sum(dim=-1) + 1
    best = table.topk(min(top, table.shape[1]), dim=-1) if top else None
    found: list[PlaceScores] = []
    for place, token_id in enumerate(prompt[1:]):
        scores: PlaceScores = [(token_id, float(own[place, 0]), int(ranks[place]))]
        if best is not None:
            likeliest = zip(best.indices[place].tolist(), best.values[place].tolist(), strict=True)
            scores += [(each, value, rank) for rank, (each, value) in enumerate(likeliest, start=1)]
        found.append(scores)
    return found


def set_threads(threads: int | None, model: Any) -> None:
    """Give torch this many CPU threads; by default one for a small model, else what torch chose.

    The operations of a small model are too short to be split: measured with two threads on two busy cores,
    a batch of 64 ran at 166 tokens a second, and at 5,200 with one.
    """
    if threads is None and sum(parameter.numel() for parameter in model.parameters()) < SMALL_MODEL:
        threads = 1
    if threads is not None:
        torch.set_num_threads(threads)


async def run_engine(settings: EngineSettings, announce: Callable[[str], None]) -> None:
    """Open the model, serve it until SIGINT or SIGTERM; `announce` gets the URL once it is ready."""
    if settings.logprobs_mode not in LOGPROBS_MODES:
        raise ConfigError(f"logprobs mode must be one of {', '.join(LOGPROBS_MODES)}", path="--logprobs-mode")
    loaded = open_model(
        settings.model,
        weights=settings.weights,
        dtype=settings.dtype,
        device=settings.device,
        max_model_len=settings.max_model_len,
    )
    set_threads(settings.threads, loaded.model)
    engine = BuiltinEngine(loaded, settings)
    engine.start()
    try:
        server = Server(EngineApp(engine, settings.log_tokens), settings.host, settings.port)
        await serve_until_signal(server, announce)
    finally:
        engine.stop()
