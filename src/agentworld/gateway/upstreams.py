"""The engines of one model: which one a call goes to, how many at once, and which are well.

Calls of a trajectory go to the same engine, so that its prefix cache is warm: the one with the highest hash of
trajectory and address (rendezvous hashing), so that all gateways choose alike without speaking to each other, and an
engine that fails moves its own trajectories only.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Collection
from typing import Any

import msgspec
import structlog

from agentworld.config import ModelSettings
from agentworld.engines.base import Engine, EngineAbortedError, EngineTimeoutError, ModelCard, open_engine
from agentworld.errors import AgentWorldError, ConfigError, EngineError, InvalidRequestError
from agentworld.gateway.clock import Clock
from agentworld.gateway.health import Health
from agentworld.gateway.queueing import Place, QueueFullError, Slots
from agentworld.timing_wheel import TimingWheel

log = structlog.get_logger("agentworld.gateway")


class OutOfTimeError(EngineTimeoutError):
    """What was left of a call's time after earlier tries was not enough for this one: no mark against its engine."""


class EngineFigures(msgspec.Struct, kw_only=True):
    """Counters of one engine of one model in this process. `calls`: tries that were sent to it; `retries`: those of
    them that repeat a try which failed here or elsewhere; `failovers`: tries that failed here and went to another
    engine. `in_flight` and `waiting` are of now.
    """

    model: str
    engine: str
    calls: int = 0
    failures: int = 0
    aborted: int = 0
    """Tries whose reply the engine cut for an update of its weights; no failures."""
    retries: int = 0
    failovers: int = 0
    refused: int = 0
    """Calls that found the queue full, or waited too long in it."""
    resubmitted: int = 0
    """Replies that the engine cut for an update of its weights, and that were gone on with or asked for anew."""
    in_flight: int = 0
    waiting: int = 0
    healthy: bool = True


class Upstream:
    """One engine at one address."""

    def __init__(self, settings: ModelSettings, engine: Engine, limit: int | None, clock: Clock) -> None:
        self.engine = engine
        self.address = engine.settings.upstream
        self.health = Health(clock)
        self.slots = Slots(limit, settings.queue, settings.queue_seconds, clock)
        self.counts = EngineFigures(model=settings.name, engine=self.address)
        self.vocabulary: str | None = None
        """The digest of the tokenizer from which its prompts are rendered, where they are rendered here."""
        self.looked = False
        """Whether it has said which models it serves."""
        self.misfit: str | None = None
        """Why no call may go to it: its vocabulary is not that of the tokenizer."""
        self._unserved: str | None = None

    @property
    def figures(self) -> EngineFigures:
        """The counters, with what holds now."""
        figures = self.counts
        figures.in_flight, figures.waiting = self.slots.in_use, self.slots.waiting
        figures.healthy = self.health.sound
        return figures

    @property
    def usable(self) -> bool:
        """Whether a call may be sent to it now."""
        return self.misfit is None and self.health.usable

    async def probe(self) -> None:
        """Ask the engine which models it serves, and mark it by that; its error where it does not say."""
        try:
            cards = await self.engine.models()
        except AgentWorldError as error:
            self.health.probed(error)
            raise
        self.health.probed(None)
        self._compare(cards)

    def _compare(self, cards: list[ModelCard]) -> None:
        """What it serves with what is asked of it; said in the log once where it is not the same."""
        name, known = self.engine.settings.name, (self._unserved, self.misfit)
        card = next((each for each in cards if each.name == name), None)
        self.looked, self._unserved, self.misfit = True, None, None
        if card is None and cards:
            self._unserved = f"the engine serves {', '.join(each.name for each in cards[:5])}, not {name}"
        elif card is not None and None not in (self.vocabulary, card.vocabulary) and self.vocabulary != card.vocabulary:
            tokenizer = self.engine.settings.tokenizer
            self.misfit = f"the vocabulary of the tokenizer {tokenizer} is not that of the engine at {self.address}"
        if known != (self._unserved, self.misfit):
            wrong = self._unserved or self.misfit
            if wrong is not None:
                log.error("engine_unfit", model=name, engine=self.address, error=wrong)
            else:
                log.info("engine_fit", model=name, engine=self.address)

    def refusal(self) -> EngineError | None:
        """The error of every call while the engine is not the one that is meant."""
        if self.misfit is None:
            return None
        hint = f"Set tokenizer of {self.engine.settings.name} to that of the model which the engine serves"
        return EngineError(self.misfit, path="models.tokenizer", hint=hint)

    async def status(self) -> dict[str, Any]:
        """For /readyz: whether the engine answers now, and is the one that is meant."""
        out: dict[str, Any] = {"engine": self.address, "ready": True}
        try:
            await self.probe()
        except AgentWorldError as error:
            return {**out, "ready": False, "error": error.one_line()}
        if self._unserved is not None and self.engine.capabilities.ids:
            out |= {"ready": False, "error": self._unserved}
        elif self._unserved is not None:
            # Services list some of the names that they answer to.
            out["warning"] = self._unserved
        elif (refusal := self.refusal()) is not None:
            out |= {"ready": False, "error": refusal.one_line()}
        elif not self.health.sound:
            # It answers this question, but not the calls.
            out |= {"ready": False, "error": self.health.error}
        return out | {"in_flight": self.slots.in_use, "waiting": self.slots.waiting}


class Turn:
    """A call at one of the engines. `upstream`, `place`: the present ones. `left`: seconds that the call has."""

    upstream: Upstream
    place: Place

    def __init__(self, upstreams: Upstreams, trajectory_id: str, left: Callable[[], float]) -> None:
        self._upstreams = upstreams
        self._trajectory_id = trajectory_id
        self._left = left
        self._trial: int | None = None
        self._trying = False

    async def begin(self, without: Collection[Upstream] = (), *, again: bool = False) -> None:
        """Go to an engine and have a place there. `without`: tried already, taken again only where there is no other;
        `again`: the call had a place before. QueueFullError where it cannot wait either, or waited too long.
        """
        upstream = self.upstream = self._upstreams.best(self._trajectory_id, without)
        if upstream.misfit is not None and (refusal := upstream.refusal()) is not None:
            raise refusal
        # Claimed before the call queues, so that no second one tries an engine that is not known to be well.
        self.again()
        self.place = Place(upstream.slots, self._left, had=again)
        if not self.place.take_now():
            try:
                await self.place.take()
            except BaseException as error:
                self.end(error)
                raise
        counts = upstream.counts
        counts.calls += 1
        counts.retries += bool(without)

    def again(self) -> None:
        """Try the engine, be it anew after a try that ended."""
        if not self._trying:
            self._trying, self._trial = True, self.upstream.health.begin()

    def end(self, error: BaseException | None) -> None:
        """The try at this engine ended, well or with this error: count it, and mark the engine by it."""
        if not self._trying:
            return
        self._trying = False
        figures, health = self.upstream.counts, self.upstream.health
        trial, self._trial = self._trial, None
        if error is None:
            health.succeed()
        elif isinstance(error, QueueFullError):
            figures.refused += 1
            health.end(trial)
        elif isinstance(error, EngineAbortedError):
            figures.aborted += 1
            health.end(trial)
        elif isinstance(error, OutOfTimeError):
            figures.failures += 1
            health.end(trial)
        elif isinstance(error, EngineError):
            figures.failures += 1
            health.fail(error, trial)
        else:
            health.end(trial)

    async def leave(self, error: BaseException | None) -> None:
        """The call has no more to do with its engine, as the try ended, well or with this error; raises what its caller
        is told in the place of one that says that the request is wrong.
        """
        try:
            self.end(error)
            if isinstance(error, InvalidRequestError):
                raise await self._upstreams.blamed(error, self.upstream) from None
        finally:
            self.place.give_back()

    async def move(self, without: Collection[Upstream]) -> None:
        """Go on at another engine than these; the try at the present one has ended."""
        self.place.give_back()
        await self.begin(without, again=True)


class Upstreams:
    """All engines of one model."""

    def __init__(self, settings: ModelSettings, timeout: float, clock: Clock, workers: int = 1) -> None:
        addresses = [address.rstrip("/") for address in settings.addresses]
        if len(set(addresses)) < len(addresses):
            raise ConfigError(f"an engine of {settings.name} is named twice", path="models.upstreams")
        limit = settings.concurrency
        if limit is not None and limit < workers:
            raise ConfigError(
                f"a concurrency of {limit} cannot be shared by {workers} workers",
                path="models.concurrency",
                hint=f"Set it to {workers} or more, or use fewer workers",
            )
        share = None if limit is None else limit // workers
        self.wheel = TimingWheel()
        self.all = [
            Upstream(
                settings,
                open_engine(msgspec.structs.replace(settings, upstream=address, upstreams=()), timeout),
                share,
                clock,
            )
            for address in settings.addresses
        ]

    def __len__(self) -> int:
        return len(self.all)

    def ranked(self, trajectory_id: str, without: Collection[Upstream] = ()) -> list[Upstream]:
        """The engines for a trajectory, the one to take first; those that are well, or all where none is."""
        if len(self.all) == 1:
            return [] if without else list(self.all)
        fit = [each for each in self.all if each.misfit is None] or self.all
        left = [each for each in fit if each not in without]
        left.sort(key=lambda each: _weight(trajectory_id, each.address), reverse=True)
        return [each for each in left if each.usable] or left

    def others(self, without: Collection[Upstream]) -> bool:
        """Whether an engine beside these is well."""
        return any(each.usable for each in self.all if each not in without)

    def best(self, trajectory_id: str, without: Collection[Upstream] = ()) -> Upstream:
        """The engine that a call goes to: the warm one, or one that has a place. Those `without`: only where there is
        no other.
        """
        if len(self.all) == 1:
            return self.all[0]
        ranked = self.ranked(trajectory_id, without) or self.ranked(trajectory_id)
        return next((each for each in ranked if not each.slots.full), ranked[0])

    async def blamed(self, error: InvalidRequestError, upstream: Upstream) -> AgentWorldError:
        """The error, or what is wrong with the engine that refused a call before anybody had looked at it."""
        if upstream.vocabulary is not None and not upstream.looked:
            with contextlib.suppress(AgentWorldError):
                await upstream.probe()
        return upstream.refusal() or error

    async def probe(self) -> None:
        """Look at all engines at once. That one does not answer is a mark on it; any other error is a bug: raised."""
        for found in await asyncio.gather(*(each.probe() for each in self.all), return_exceptions=True):
            if isinstance(found, BaseException) and not isinstance(found, AgentWorldError):
                raise found

    async def status(self) -> list[dict[str, Any]]:
        """For /readyz, engine by engine."""
        return list(await asyncio.gather(*(each.status() for each in self.all)))

    async def close(self) -> None:
        """Let go of all connections."""
        for each in self.all:
            await each.engine.close()


def _weight(trajectory_id: str, address: str) -> bytes:
    said = f"{len(address)}:{address}{trajectory_id}"
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=8).digest()
