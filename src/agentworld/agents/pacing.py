"""How far rollouts may run ahead of training, so that what is collected is not too old once it is trained on.

A trainer takes `batch` rollouts an update and publishes a version after it. Of rollouts that begin now, those that it
takes first are trained on with the next version, later ones with later versions; a rollout is trained on at most
`max_staleness` versions after the one that it began with if at most

    capacity = (max_staleness + version + 1) x batch - (accepted + running)

more rollouts begin, with the versions and rollouts counted from the same start (AReaL, arXiv:2505.24298, section 5.1).
With max_staleness 0 that is a barrier: a batch of rollouts begins, and the next waits until its version is published.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from agentworld.agents.ports import Notify, ignore
from agentworld.errors import ConfigError
from agentworld.pool.results import GatewayState
from agentworld.records import Policy

POLL_SECONDS = 0.5


def capacity(max_staleness: int, version: int, batch: int, accepted: int, running: int) -> int:
    """How many rollouts may begin now; below 0 where more are on their way than should be.

    `version`: updates since the start. `batch`: rollouts an update. `accepted`: rollouts that can be trained on.
    """
    return (max_staleness + version + 1) * batch - (accepted + running)


def check_pace(max_staleness: int | None, batch: int | None, barrier: bool, rollouts: int) -> int | None:
    """The lag that is meant, None for no bound; ConfigError where the settings do not go together."""
    if barrier and max_staleness:
        raise ConfigError(
            f"a barrier is max_staleness 0, not {max_staleness}", path="$.barrier", hint="Set one of the two"
        )
    if max_staleness is not None and max_staleness < 0:
        raise ConfigError(f"max_staleness must be 0 or more, not {max_staleness}", path="$.max_staleness")
    bounded = barrier or max_staleness is not None
    if not bounded:
        if batch is not None:
            raise ConfigError("batch goes with max_staleness or barrier", path="$.batch", hint="Set one of the two")
        return None
    if batch is None:
        raise ConfigError(
            "how many rollouts an update takes is not said", path="$.batch", hint="Set batch: groups x rollouts"
        )
    if batch < 1 or batch % rollouts:
        raise ConfigError(
            f"batch is {batch} rollouts, which is no number of groups of {rollouts}",
            path="$.batch",
            hint=f"Use a multiple of rollouts, such as {max(1, batch // rollouts + 1) * rollouts}",
        )
    return max_staleness or 0


class Published(Protocol):
    """The part of the client that tells which policy speaks."""

    async def gateway_state(self) -> GatewayState:
        """Policies by model."""


class Pace:
    """Lets groups of rollouts begin when the rule allows, each as a whole, so that no group straddles two batches.

    `policies`: of rollouts that were accepted before, of which those of the run that speaks now count. Versions are
    counted from the lowest of these, else from the one that speaks at the start; a policy of another run starts the
    count anew. `skip_equal`: groups whose rewards are all equal do not count once they have ended, as they do not for a
    trainer that skips them; otherwise that one would wait for more rollouts, and these for its next version.
    """

    def __init__(
        self,
        client: Published,
        model: str,
        max_staleness: int,
        batch: int,
        *,
        skip_equal: bool = False,
        policies: Iterable[Policy | None] = (),
        notify: Notify = ignore,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client, self._model = client, model
        self._lag, self._batch, self._skip_equal = max_staleness, batch, skip_equal
        self._earlier = [policy for policy in policies if policy is not None]
        self._notify, self._sleep = notify, sleep
        self._run: str | None = None
        self._base = self._version = 0
        self._accepted = self._running = 0
        self._groups: dict[str, _Begun] = {}
        self._turn = asyncio.Lock()

    async def begin(self, group_id: str, rollouts: int) -> None:
        """Wait until the rollout may begin: the first of its group for all `rollouts` of it that are to be done."""
        if group_id in self._groups:
            return  # Without waiting behind a group that waits for this one to end.
        async with self._turn:  # Who came first begins first.
            if group_id in self._groups:
                return
            if self._run is None:
                await self._look()
            while self.capacity < rollouts:
                await self._look()
                if self.capacity < rollouts:
                    self._notify(f"waits for version {self._base + self._version + 1} of {self._model}{self._counts()}")
                    await self._sleep(POLL_SECONDS)
            self._running += rollouts
            self._groups[group_id] = _Begun(rollouts)

    def end(self, group_id: str, reward: float | None) -> None:
        """A rollout has ended for good; `reward`: None where it cannot be trained on."""
        begun = self._groups[group_id]
        self._running -= 1
        begun.left -= 1
        if reward is not None:
            self._accepted += 1
            begun.rewards.append(reward)
        if self._skip_equal and begun.left == 0 and len(set(begun.rewards)) == 1:
            self._accepted -= len(begun.rewards)

    @property
    def capacity(self) -> int:
        """How many rollouts may begin, as far as is known."""
        return capacity(self._lag, self._version, self._batch, self._accepted, self._running)

    def _counts(self) -> str:
        return f": {self._accepted} rollouts can be trained on, {self._running} run, {self._batch} are a batch"

    async def _look(self) -> None:
        policies = (await self._client.gateway_state()).policies
        only = next(iter(policies.values())) if len(policies) == 1 else None
        speaks = policies.get(self._model) or only or Policy(self._model)
        if speaks.run != self._run:
            own = [one.version for one in self._earlier if (one.model, one.run) == (speaks.model, speaks.run)]
            self._run, self._base, self._accepted = speaks.run, min(own, default=speaks.version), len(own)
            self._earlier = []
        self._version = speaks.version - self._base


@dataclass(slots=True)
class _Begun:
    """A group that has begun: rollouts that have not ended, and the rewards of those that can be trained on."""

    left: int
    rewards: list[float] = field(default_factory=list)
