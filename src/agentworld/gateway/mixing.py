"""Mixed turns: a name whose turns several models answer, with probabilities that follow the policy's version.

A draw depends on the mix, the trajectory and the number of the turn alone, so every gateway draws alike, a client's
retry gets the model of its first try, and a run can be told again from its seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

import msgspec

from agentworld.config import MixSettings, ModelSettings
from agentworld.errors import ConfigError
from agentworld.records import Message


class Draw(msgspec.Struct, frozen=True):
    """The model that answers a turn, and how probable that was."""

    model: str
    probability: float


class Mix:
    """One mix. `name`: what callers ask for; `base`: the model whose policy's version schedules it."""

    def __init__(self, settings: MixSettings) -> None:
        self.name = settings.name
        self.base = settings.base
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
