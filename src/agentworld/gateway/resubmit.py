"""Goes on with replies that an engine cut because its weights change (finish reason `abort`).

In token-in, the prompt and what was sampled so far go to the engine again, with what is left of `max_tokens`, and the
caller sees one reply. It is one step, whose `version_spans` say which weights sampled what, as from an engine that
changes weights between two tokens, but for two things. A seed begins anew, so each piece takes the next seed: with the
same one its draws would repeat those of the first. And the engine looks for stop strings in the new piece only, so one
that lies across the cut is found here: the reply then ends at the id that completes it, as the engine itself ends one.
Its stream is left there, so where it would have told versions at its end, the one stamped when it was asked is noted.

Pieces of two runs are never joined, whoever says of which run they are: the engine, or else the pool at each dispatch.

A piece that fails is asked for again, from what there is of the reply: at another engine that is well, at once, else at
the same one after a while.

Where a cut reply cannot be gone on with (text in, or parameters that depend on what was sampled before, such as a
grammar), the call is made anew, unless its caller has seen some of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from agentworld.capture.call import Call
from agentworld.dialects.exchange import Delta
from agentworld.engines.base import Engine, EngineAbortedError, EngineBrokeError, EngineBusyError
from agentworld.engines.detokenize import StopStrings, TextStream
from agentworld.engines.tokenizer import TokenizerAdapter
from agentworld.errors import EngineError, EngineUnreachableError
from agentworld.gateway.first_token import FirstTokenError, begun_within
from agentworld.records import Policy, Sampling, Usage, VersionSpan

_MAX_SEED = 2**31
BEYOND_STOP = "beyond_stop"
"""The name in a step's metadata under which stand the ids that the engine sampled after a stop string it missed."""


def can_go_on(call: Call) -> bool:
    """Whether a cut reply of this call can be gone on with from its ids."""
    sampling = call.sampling
    return (
        call.prompt_ids is not None
        and sampling.n == 1
        and sampling.response_format is None
        and not sampling.presence_penalty
        and not sampling.frequency_penalty
    )


class Resubmission:
    """One call's reply over several calls of the engine. `cuts`: how many may be; the next one ends the reply.
    `tokenizer`: of the ids; `first_token`: seconds in which each piece has to begin.
    """

    def __init__(self, call: Call, cuts: int, tokenizer: TokenizerAdapter, first_token: float | None = None) -> None:
        assert call.prompt_ids is not None
        self._call = call
        self._prompt = call.prompt_ids
        self._policy = call.policy
        self._sampled: list[int] = []
        self._spans: list[VersionSpan] = []
        self._run: str | None = None
        """Of what was sampled."""
        self._before: str | None = None
        """Of what was sampled before the present piece."""
        self._engine: Engine | None = None
        self._moved = False
        """Whether the present piece comes from another engine than the one before."""
        self._said_run: str | None = None
        self._said_spans = False
        self._start = 0
        self._counts = False
        self._cuts = cuts
        self._first_token = first_token
        self._pieces = 1
        self._text = TextStream(tokenizer)
        self._stops = StopStrings(call.sampling.stop, include=False)

    async def deltas(
        self, engine: Engine, wait: Callable[[EngineError | None], Awaitable[tuple[Engine, Policy]]]
    ) -> AsyncGenerator[Delta, None]:
        """The reply's pieces as if one engine had sent them in one go. `wait` takes the error of the latest piece, and
        returns which engine may be asked for the next one and the policy that then is said to speak, or raises where
        that is never.
        """
        while True:
            cut = ended = False
            failure: EngineError | None = None
            prompt = self._begin(engine)
            try:
                asked = engine.generate(prompt, self._call.request, self._rest())
                async with begun_within(self._first_token, asked) as deltas:
                    async for delta in deltas:
                        if cut and delta.ids:
                            delta.fault = "the engine went on after the end of its reply"
                        beyond = self._cut_off(delta)
                        self._take(delta, prompt)
                        if beyond:
                            yield self._stop(delta, beyond)
                            return
                        if delta.finish_reason == "abort" and self._pieces <= self._cuts:
                            cut = True
                            delta.finish_reason = None
                        ended = ended or delta.finish_reason is not None
                        if cut:
                            delta.usage = None
                        yield delta
            except (EngineUnreachableError, EngineBusyError, EngineBrokeError, FirstTokenError) as error:
                # The reply can go on from what there is of it, at any engine, whatever the caller has seen.
                if ended or not 1 < self._pieces <= self._cuts:
                    raise
                cut, failure = True, error
            if not cut:
                return
            if self._stops.found is not None:
                yield self._stop(Delta(ids=[], logprobs=[]), [])
                return
            limit = self._call.sampling.max_tokens
            if limit is not None and len(self._sampled) >= limit:
                yield self._end("length")
                return
            self._pieces += 1
            engine, policy = await wait(failure)
            if not self._sampled:
                self._call.policy = policy  # Whoever was asked before said nothing of this reply.
            elif policy.run != self._policy.run:
                raise _other_run()
            self._policy = policy

    def _begin(self, engine: Engine) -> list[int]:
        """The prompt of the next piece, which goes to `engine`."""
        self._moved, self._engine = engine is not self._engine, engine
        self._before = self._run
        self._said_run, self._said_spans = None, False
        self._start = len(self._sampled)
        return [*self._prompt, *self._sampled]

    def _end(self, reason: str) -> Delta:
        """What ends a reply that was cut just where it would have ended."""
        usage = Usage(len(self._prompt), len(self._sampled)) if self._counts else None
        return Delta(ids=[], logprobs=[], finish_reason=reason, usage=usage, version_spans=self._told())

    def _stop(self, delta: Delta, beyond: list[int]) -> Delta:
        """The piece as the last one, since a stop string ended in it or before."""
        end = self._end("stop")
        delta.finish_reason, delta.version_spans, delta.more = "stop", end.version_spans, False
        delta.stop_reason = self._stops.found
        # Where the engine's stream is left, its own count does not come.
        delta.usage = Usage(len(self._prompt), len(self._sampled))
        if beyond:
            delta.metadata = {**(delta.metadata or {}), BEYOND_STOP: beyond}
        return delta

    def _rest(self) -> Sampling:
        """What is left to ask for."""
        sampling, done = self._call.sampling, len(self._sampled)
        if self._pieces == 1:
            return sampling
        seed = None if sampling.seed is None else (sampling.seed + self._pieces - 1) % _MAX_SEED
        return msgspec.structs.replace(
            sampling,
            seed=seed,
            max_tokens=None if sampling.max_tokens is None else sampling.max_tokens - done,
            min_tokens=None if sampling.min_tokens is None else max(sampling.min_tokens - done, 0),
        )

    def _cut_off(self, delta: Delta) -> list[int]:
        """Cut a piece off after the id that completes the first stop string, as its text is; the ids beyond that."""
        ids = delta.ids
        if not ids or not self._call.sampling.stop:
            return []
        kept = 0
        while kept < len(ids) and self._stops.found is None:
            self._stops.feed(self._text.feed([ids[kept]]))
            kept += 1
        if kept < len(ids):
            delta.ids = ids[:kept]
            delta.logprobs = None if delta.logprobs is None else delta.logprobs[:kept]
            delta.entries = None if delta.entries is None else delta.entries[:kept]
        return ids[kept:]

    def _take(self, delta: Delta, prompt: list[int]) -> None:
        """Make a piece of the engine's reply one of the whole reply."""
        self._runs(delta)
        self._span(delta)
        self._sampled.extend(delta.ids or ())
        self._counts = self._counts or delta.usage is not None
        if self._pieces == 1:
            return
        if delta.prompt_ids is not None:
            if delta.prompt_ids != prompt:
                raise EngineError("the engine took another prompt than the one sent")
            delta.prompt_ids = None
        if delta.usage is not None:
            first = len(self._prompt)
            if delta.usage.prompt_tokens != len(prompt):
                raise EngineError(
                    f"the engine counts {delta.usage.prompt_tokens} prompt tokens where {len(prompt)} were sent"
                )
            delta.usage = Usage(first, self._start + delta.usage.completion_tokens)
        if delta.ids or delta.finish_reason is not None:
            # With every piece, so that whoever leaves before the end leaves on record who sampled what.
            delta.version_spans = self._told()

    def _runs(self, delta: Delta) -> None:
        """Refuse to join what two runs sampled. The run goes on record with ids, as a piece may be cut before it has
        any; the next one is then of its own run.
        """
        self._said_run = delta.policy_run or self._said_run
        delta.policy_run = self._said_run if delta.ids or delta.finish_reason not in (None, "abort") else None
        if not delta.ids and self._said_run is None:
            return  # It may be said yet.
        run = self._said_run or self._policy.run
        if self._before not in (None, run):
            raise _other_run()
        if delta.ids:
            self._run = run

    def _span(self, delta: Delta) -> None:
        """Note which weights sampled: as the engine says, else as was stamped when this piece was asked for. What is
        said beside no ids, be it at the piece's beginning or end, is nothing that was sampled.
        """
        if delta.version_spans and (delta.ids or len(self._sampled) > self._start):
            self._said_spans = True
            self._spans = [span for span in self._spans if span.start < self._start]
            for span in delta.version_spans:
                self._add(self._start + span.start, span.version)
        elif delta.ids and not self._said_spans:
            if delta.policy_version is not None:
                self._add(len(self._sampled), delta.policy_version)
            elif not any(span.start >= self._start for span in self._spans):
                self._add(self._start, self._policy.version)

    def _add(self, start: int, version: int) -> None:
        before = [span.version for span in self._spans if span.start < self._start]
        if before and version < before[-1] and not self._moved:
            raise _other_run()  # An engine's versions go up within a run. Another one may be behind.
        if not self._spans or self._spans[-1].version != version:
            self._spans.append(VersionSpan(start, version))

    def _told(self) -> tuple[VersionSpan, ...] | None:
        """Who sampled what there is."""
        return tuple(span for span in self._spans if span.start < len(self._sampled)) or None


def _other_run() -> EngineAbortedError:
    return EngineAbortedError("the engine cut the reply for weights of another run", hint="Send it again")
