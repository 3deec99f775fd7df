"""Engines that score prompts: how likely they find each token of a reply that somebody else sampled."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from agentworld.engines.base import check_address
from agentworld.errors import ConfigError, EngineError
from agentworld.trainers.weight_servers import Line


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
