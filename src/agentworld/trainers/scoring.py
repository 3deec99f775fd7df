"""Log-probabilities of sampled tokens under another model, from any engine that scores prompts, kept as annotations.

A step's prompt and reply go to the engine as one prompt of ids, so nothing is tokenised again: its vocabulary must be
that of the steps. The numbers are raw: of the teacher's own distribution, without a temperature.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from agentworld.engines.base import check_address
from agentworld.errors import ConfigError, EngineError
from agentworld.pool.protocol import Consumer, Page
from agentworld.records import Annotation, BatchSpec, Event, Step
from agentworld.trainers.rows import has_images
from agentworld.trainers.weight_servers import Line

PAGE, IDS_AT_ONCE = 100, 20
LOOK_SECONDS = 1.0
"""How long one who waits for a batch waits before the teacher scores what came meanwhile."""


class TokenScores(NamedTuple):
    """Of the n tokens of a reply: `logprobs` [n]; `top_ids` and `top_logprobs` [n][k] of the likeliest in each place,
    the likeliest first.
    """

    logprobs: list[float]
    top_ids: list[list[int]]
    top_logprobs: list[list[float]]


class TeacherSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The engine that scores what a job is about to lease: steps that lack the annotation, as they come.

    `model`: its name there. `driver`: what it is. `top_k`: how many of the likeliest ids to keep in each place, for the
    divergences that compare them. `where`: which steps, beside. `api_key_env`: the variable with its key. `timeout`:
    seconds for one step. `concurrency`: steps at once.
    """

    engine: str
    model: str
    driver: Literal["builtin", "vllm", "sglang"] = "builtin"
    top_k: int = 0
    where: str | None = None
    api_key_env: str | None = None
    timeout: float = 120.0
    concurrency: int = 8

    def __post_init__(self) -> None:
        check_address(self.engine, "the engine of the teacher", "teacher.engine")
        if not 0 <= self.top_k <= 1000:
            raise ConfigError(f"top_k must be from 0 to 1000, not {self.top_k}", path="teacher.top_k")
        for name in ("timeout", "concurrency"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be over 0, not {getattr(self, name)}", path=f"teacher.{name}")


class Scorer(Protocol):
    """One engine that scores."""

    def score(self, prompt: Sequence[int], reply: Sequence[int], top: int) -> TokenScores:
        """How likely it finds each token of the reply after what is before it. EngineError where it cannot say."""


class VllmScorer:
    """vLLM's `prompt_logprobs`, which the builtin engine has too. vLLM takes up to `--max-logprobs` (20) of them."""

    def __init__(self, settings: TeacherSettings) -> None:
        self._line = Line(settings.engine, _key(settings), settings.timeout)
        self._model = settings.model

    def score(self, prompt: Sequence[int], reply: Sequence[int], top: int) -> TokenScores:
        """See Scorer."""
        ids = [*prompt, *reply]
        body = {"model": self._model, "prompt": ids, "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": top}
        found = self._line.send("POST", "/v1/completions", body)
        places = _at(found, "choices", 0, "prompt_logprobs")
        if not isinstance(places, list) or len(places) != len(ids):
            raise _unfit(self._line.url, f"prompt_logprobs of {len(ids)} places")
        logprobs, top_ids, top_logprobs = [], [], []
        for token, place in zip(reply, places[len(prompt) :], strict=True):
            if not isinstance(place, dict) or str(token) not in place:
                raise _unfit(self._line.url, f"the log-probability of id {token}")
            logprobs.append(_number(_at(place, str(token), "logprob")))
            ranked = {name: _at(entry, "rank") for name, entry in place.items()}
            if not all(isinstance(rank, int) and name.isdecimal() for name, rank in ranked.items()):
                raise _unfit(self._line.url, "ids and ranks in prompt_logprobs")
            best = sorted(ranked, key=ranked.__getitem__)[:top]
            top_ids.append([int(name) for name in best])
            top_logprobs.append([_number(_at(place, name, "logprob")) for name in best])
        return TokenScores(logprobs, top_ids, top_logprobs)


class SglangScorer:
    """SGLang's own route, with `logprob_start_len` at the last id before the reply."""

    def __init__(self, settings: TeacherSettings) -> None:
        self._line = Line(settings.engine, _key(settings), settings.timeout)

    def score(self, prompt: Sequence[int], reply: Sequence[int], top: int) -> TokenScores:
        """See Scorer. The entry where it starts has no number, so what is read are the last ones, by their ids."""
        body = {
            "input_ids": [*prompt, *reply],
            "sampling_params": {"max_new_tokens": 0, "temperature": 0.0},
            "return_logprob": True,
            "logprob_start_len": len(prompt) - 1,
            "top_logprobs_num": top,
        }
        meta = _at(self._line.send("POST", "/generate", body), "meta_info")
        own = _last(_at(meta, "input_token_logprobs"), len(reply))
        if own is None or [_at(entry, 1) for entry in own] != list(reply):
            raise _unfit(self._line.url, f"input_token_logprobs of the reply's {len(reply)} ids")
        best = _last(_at(meta, "input_top_logprobs"), len(reply)) if top else [[]] * len(reply)
        if best is None or any(not isinstance(place, list) or len(place) < top for place in best):
            raise _unfit(self._line.url, f"{top} input_top_logprobs in each place")
        return TokenScores(
            [_number(_at(entry, 0)) for entry in own],
            [[_at(entry, 1) for entry in place[:top]] for place in best],
            [[_number(_at(entry, 0)) for entry in place[:top]] for place in best],
        )


def open_scorer(settings: TeacherSettings) -> Scorer:
    """The scorer of an engine."""
    return SglangScorer(settings) if settings.driver == "sglang" else VllmScorer(settings)


class ScoredSource(Protocol):
    """The part of a pool that scoring needs."""

    def list_steps(
        self,
        *,
        where: str | None = None,
        channel: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
        include: Sequence[str] = (),
    ) -> Page[Step]:
        """See Pool.list_steps."""

    def events(self, after: int = 0, limit: int = 1000, *, channel: str | None = None) -> list[Event]:
        """See Pool.events."""

    def add_annotations(self, annotations: Sequence[Annotation]) -> int:
        """See Pool.add_annotations."""


class Scoring:
    """Scores the steps of a channel that lack the annotation `name`: those that are there, then as they come."""

    def __init__(
        self, source: ScoredSource, scorer: Scorer, settings: TeacherSettings, channel: str, name: str
    ) -> None:
        self._source, self._scorer, self._settings = source, scorer, settings
        self._channel, self._name = channel, name
        lacking = f"has tokens and response_length > 0 and not has annotation.{name} and not excluded"
        self._where = lacking if settings.where is None else f"{lacking} and ({settings.where})"
        self._after: int | None = None

    def score_new(self) -> int:
        """Score what lacks it now; returns how many steps that were. After the first look, which walks over the steps
        of the channel, only those that events name are looked at.
        """
        if self._after is None:
            self._after = self._last_event()  # What comes while it walks is named by an event after it.
            return self._score(self._where)
        scored = 0
        while events := self._source.events(self._after, PAGE, channel=self._channel):
            named = [event.step_id for event in events if event.kind == "step.appended"]
            for some in (named[first : first + IDS_AT_ONCE] for first in range(0, len(named), IDS_AT_ONCE)):
                ids = ", ".join(f"'{step_id}'" for step_id in some)  # Ids hold no quotes.
                scored += self._score(f"step_id in ({ids}) and {self._where}")
            self._after = events[-1].sequence
        return scored

    def _last_event(self) -> int:
        """The sequence of the channel's last event, or one after it, in few looks."""
        low, high = 0, 1
        while self._source.events(high, 1, channel=self._channel):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if self._source.events(middle, 1, channel=self._channel):
                low = middle
            else:
                high = middle
        return high if self._source.events(low, 1, channel=self._channel) else low

    def _score(self, where: str) -> int:
        scored, cursor = 0, None
        while True:
            page = self._source.list_steps(
                where=where, channel=self._channel, cursor=cursor, limit=PAGE, include=("tokens", "messages")
            )
            steps = [step for step in page.items if not has_images(step)]  # Another model would not see them either.
            with ThreadPoolExecutor(self._settings.concurrency) as threads:
                # Engines compute several at once; each is stored as it comes, so that a stop loses few.
                try:
                    for annotations in threads.map(self._annotations, steps):
                        self._source.add_annotations(annotations)
                        scored += 1
                finally:  # Where one cannot be stored, the teacher is not asked for the rest.
                    threads.shutdown(wait=False, cancel_futures=True)
            if (cursor := page.next_cursor) is None:
                return scored

    def _annotations(self, step: Step) -> list[Annotation]:
        reply = step.response_ids or []
        found = self._scorer.score(step.prompt_ids or [], reply, self._settings.top_k)
        stem = self._name.removesuffix("_logprobs")
        arrays: list[tuple[str, Any, str]] = []
        if self._settings.top_k:  # The one that is looked for comes last: where it is, all are.
            arrays.append((f"{stem}_top_ids", found.top_ids, "int32"))
            arrays.append((f"{stem}_top_logprobs", found.top_logprobs, "float32"))
        arrays.append((self._name, found.logprobs, "float32"))
        source = f"teacher:{self._settings.model}"
        return [
            Annotation(name=name, values=values, dtype=dtype, step_id=step.step_id, source=source)
            for name, values, dtype in arrays
        ]


class ScoredConsumer:
    """A consumer for whom a teacher scores what comes, before each look for a batch."""

    def __init__(self, consumer: Consumer, scoring: Scoring, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = consumer.name
        self._consumer, self._scoring, self._clock = consumer, scoring, clock

    def resume(self, applied: Sequence[str]) -> dict[str, list[str]]:
        """See Pool.resume."""
        return self._consumer.resume(applied)

    def lease(self, spec: BatchSpec) -> Any:
        """One LeasedBatch or None."""
        self._scoring.score_new()
        return self._consumer.lease(spec)

    def stream(self, spec: BatchSpec, *, timeout: float | None = None) -> Iterator[Any]:
        """Leased batches as they become available; what is scored meanwhile counts as something that came."""
        patience = math.inf if timeout is None else timeout
        deadline = self._clock() + patience
        while True:
            if self._scoring.score_new():
                deadline = self._clock() + patience
            wait = min(LOOK_SECONDS, max(0.0, deadline - self._clock()))
            for leased in self._consumer.stream(spec, timeout=wait):
                yield leased
                deadline = self._clock() + patience
                break
            else:
                if self._clock() >= deadline:
                    return


def _at(value: Any, *places: str | int) -> Any:
    """What is at a path of a decoded JSON, None where there is nothing."""
    for place in places:
        try:
            value = value[place]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _last(entries: Any, count: int) -> list[Any] | None:
    return entries[len(entries) - count :] if isinstance(entries, list) and len(entries) >= count else None


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise EngineError(f"the engine gave {value!r} as a log-probability", hint="Look at the engine")
    return float(value)


def _unfit(url: str, what: str) -> EngineError:
    return EngineError(
        f"the engine at {url} did not give {what}", hint="Score with an engine that gives log-probabilities of prompts"
    )


def _key(settings: TeacherSettings) -> str | None:
    if settings.api_key_env is None:
        return None
    key = os.environ.get(settings.api_key_env)
    if not key:
        raise ConfigError(f"the variable {settings.api_key_env} is not set", path="teacher.api_key_env")
    return key
