"""Mixed turns: a name whose turns several models answer, with probabilities that follow the policy's version.

A draw depends on the mix, the trajectory, the number of the turn and the policy's version alone, so every gateway draws
alike, and a run can be told again from its seed. A client's retry is not drawn again, as the version may have changed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from agentworld.capture.call import first_step_id
from agentworld.capture.recorder import DRAWN
from agentworld.config import MixSettings, ModelSettings
from agentworld.errors import ConfigError, NotFoundError
from agentworld.pool.protocol import Pool
from agentworld.records import Exchange, Message

MIXED_FROM, PROBABILITY = DRAWN
"""The names in a step's metadata, and in the error of a call that failed."""
MAX_DRAWS = 20_000
"""So many calls of mixes are remembered: some 10 MB."""
_MOST_CALLS = 1000
"""So many of a trajectory's latest calls are looked at: what is asked again came lately."""


class Draw(msgspec.Struct, frozen=True):
    """The model that answers a turn, and how probable that was."""

    model: str
    probability: float

    def facts(self, mix: str) -> dict[str, Any]:
        """What goes on record of it."""
        return {MIXED_FROM: mix, PROBABILITY: self.probability}


class Mix:
    """One mix. `name`: what callers ask for; `base`: the model whose policy's version schedules it."""

    def __init__(self, settings: MixSettings) -> None:
        self.name = settings.name
        self.base = settings.base
        self.models = frozenset({settings.base, *settings.shares})
        self._seed = settings.seed
        self._shares = {model: tuple(sorted(points)) for model, points in settings.shares.items()}

    def shares(self, version: int) -> dict[str, float]:
        """The probability of each other model at a version of the base's policy."""
        return {model: _at(points, version) for model, points in self._shares.items()}

    def draw(self, trajectory_id: str, turn: int, version: int) -> Draw:
        """Who answers this turn of the trajectory."""
        said = msgspec.json.encode([self._seed, self.name, trajectory_id, turn])
        number = int.from_bytes(hashlib.blake2b(said, digest_size=8).digest()) / 2**64
        shares = self.shares(version)
        passed = 0.0
        for model, share in shares.items():
            passed += share
            if number < passed:
                return Draw(model, share)
        return Draw(self.base, max(1.0 - sum(shares.values()), 0.0))


class Draws:
    """The draws of one gateway. A retry gets that of its first try, which may have ended, or be on its way, here, or be
    on record from another gateway.
    """

    def __init__(self, pool: Pool, limit: int = MAX_DRAWS) -> None:
        self._pool = pool
        self._limit = limit
        self._drawn: OrderedDict[tuple[str, str, str], Draw] = OrderedDict()

    async def draw(
        self, mix: Mix, trajectory_id: str, turn: int, version: int, body_digest: str, *, retry: bool
    ) -> Draw:
        """Who answers this call. `body_digest`: of its body, by which a `retry` knows its first try."""
        place = (mix.name, trajectory_id, body_digest)
        found = None
        if retry:
            found = self._drawn.get(place) or await asyncio.to_thread(self._on_record, *place)
        if found is None or found.model not in mix.models:  # The mix may have had other models then.
            found = mix.draw(trajectory_id, turn, version)
        self._drawn[place] = found
        self._drawn.move_to_end(place)
        if len(self._drawn) > self._limit:
            self._drawn.popitem(last=False)
        return found

    def _on_record(self, mix: str, trajectory_id: str, body_digest: str) -> Draw | None:
        """What was drawn for the latest call with this body, as the pool has it."""
        try:
            calls = self._pool.list_exchanges(trajectory_id, order="newest", limit=_MOST_CALLS)
        except NotFoundError:
            return None
        for call in calls:
            if call.body_digest == body_digest and (facts := self._facts(call)).get(MIXED_FROM) == mix:
                return Draw(call.model, facts[PROBABILITY])
        return None

    def _facts(self, call: Exchange) -> dict[str, Any]:
        if call.error is not None:
            return call.error
        try:
            return self._pool.get_step(first_step_id(call.exchange_id), include=()).metadata
        except NotFoundError:  # Pruned meanwhile.
            return {}


def turn_of(messages: Sequence[Message]) -> int:
    """The number of the turn that these messages ask for: how many replies there were before."""
    return sum(message.role == "assistant" for message in messages)


def _at(points: tuple[tuple[int, float], ...], version: int) -> float:
    """The height at `version` of the line through the points, level beyond its ends."""
    before, after = points[0], points[-1]
    if version <= before[0]:
        return before[1]
    for after in points[1:]:
        if version <= after[0]:
            part = (version - before[0]) / (after[0] - before[0])
            return before[1] + part * (after[1] - before[1])
        before = after
    return after[1]


def open_mixes(settings: Sequence[MixSettings], models: Collection[ModelSettings]) -> dict[str, Mix]:
    """The mixes by name; ConfigError for names that are taken or lead nowhere, and for shares that cannot be."""
    names = {model.name for model in models}
    found: dict[str, Mix] = {}
    for mix in settings:
        if mix.name in names or mix.name in found:
            raise ConfigError(f"the name {mix.name!r} of a mix is taken", path="mix.name")
        for model in (mix.base, *mix.shares):
            if model not in names:
                raise ConfigError(
                    f"the mix {mix.name} names the model {model!r}, which is not there",
                    path="mix.base" if model == mix.base else "mix.shares",
                    hint=f"Models of this server: {', '.join(sorted(names)) or 'none'}",
                )
        if mix.base in mix.shares:
            raise ConfigError(
                f"the mix {mix.name} gives its base a share",
                path="mix.shares",
                hint="Leave it out: the base answers what no other model is drawn for",
            )
        for model, points in mix.shares.items():
            versions = [version for version, _ in points]
            if not points or len(set(versions)) < len(versions):
                raise ConfigError(
                    f"the share of {model} in {mix.name} needs points of different versions",
                    path="mix.shares",
                    hint="Write it like [[0, 0.5], [100, 0.0]]",
                )
        opened = Mix(mix)
        # The sum of such lines is highest at one of their points.
        for version in {version for points in mix.shares.values() for version, _ in points}:
            total = sum(opened.shares(version).values())
            if total > 1 + 1e-9:
                raise ConfigError(
                    f"the shares of {mix.name} add up to {total:g} at version {version}", path="mix.shares"
                )
        found[mix.name] = opened
    return found
