"""Whether a unit may be handed out now, and which of its trajectories go with it; the same in every store. Pure.

A unit that is not for this spec waits, as another spec may be for it; one that consumers cannot get at all is gone
until it becomes fit to be served again; a stale one, or a group of equal correctness, is dropped where the spec says
so.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from agentworld.pool.rules import staleness
from agentworld.records import BatchSpec, Policy, TrajectoryStatus, digest

SHUFFLE_PRIME = 2_147_483_647  # below 2^31, so that a product of two numbers below it has 64 bits


class Member(NamedTuple):
    """One trajectory of a unit, or one of its steps (`step`), as it stands now. `row`, `step`: numbers in the store.

    `served`: consumers may get it. `usable`: it has steps in the channel that are not excluded. `able`: each of them
    has what the spec requires. `wanted`: it has the readiness that the spec wants and matches its `where`.
    """

    row: int
    trajectory_id: str
    status: TrajectoryStatus
    served: bool
    usable: bool
    able: bool
    wanted: bool
    masked: bool = False
    reward: float | None = None
    rewards: Mapping[str, float] = {}
    policy: Policy | None = None
    step: int | None = None
    step_id: str | None = None

    @property
    def trained(self) -> bool:
        """Whether it is here to be trained on; else for its group's statistics alone."""
        return self.usable and self.able and not self.masked

    @property
    def counts_only(self) -> bool:
        """Whether its group serves it for its statistics alone: masked, or a failure that took no step."""
        return self.masked or (self.status in ("failed", "abandoned") and not self.usable)


class Verdict(NamedTuple):
    """What is to become of a unit; `members` go with it where it fits, `reason` says why it is dropped."""

    kind: Literal["fits", "waits", "gone", "stale", "equal"]
    members: tuple[Member, ...] = ()
    reason: str | None = None


Policies = Mapping[str, Policy]
WAITS, GONE = Verdict("waits"), Verdict("gone")


def judge_single(member: Member | None, spec: BatchSpec, current: Policies) -> Verdict:
    """A step or a trajectory."""
    if member is None or not member.served or not member.usable or member.masked:
        return GONE
    if not (member.able and member.wanted):
        return WAITS
    return _fresh((member,), spec, current)


def judge_group(offered: bool, members: Sequence[Member], spec: BatchSpec, current: Policies) -> Verdict:
    """A group; `offered`: it is closed, or will never close."""
    served = [m for m in members if m.served and (m.usable or m.counts_only)]
    if not served:
        return GONE
    chosen = tuple(m for m in served if m.wanted and (m.able or m.counts_only))
    if not offered or len(chosen) < (spec.rollouts or 1) or not any(m.trained for m in chosen):
        return WAITS
    if spec.skip_equal is not None:
        values = {m.rewards.get(spec.skip_equal) for m in chosen}
        if len(values) == 1 and None not in values:
            return Verdict("equal", reason=f"{spec.skip_equal} is {values.pop()} for all {len(chosen)} rollouts")
    return _fresh(chosen, spec, current)


def judge_pair_of_group(offered: bool, members: Sequence[Member], spec: BatchSpec, current: Policies) -> Verdict:
    """The best and the worst of a group by primary reward, the earlier one of equals."""
    served = [m for m in members if m.served and m.usable]
    if not served:
        return GONE
    chosen = [m for m in served if m.wanted and m.trained and m.reward is not None]
    if not offered or len(chosen) < 2:
        return WAITS
    best = max(chosen, key=_reward)
    worst = min(chosen, key=_reward)
    margin = _reward(best) - _reward(worst)
    if margin <= 0 or margin < spec.pair_margin:
        return WAITS
    return _fresh((best, worst), spec, current)


def judge_comparison(
    better: Member | None, worse: Member | None, there: bool, spec: BatchSpec, current: Policies
) -> Verdict:
    """What a human preferred, and to what; None where it has not come or is not of the channel. `there`: so is the
    comparison itself.
    """
    if not there:
        return GONE
    if better is None or worse is None:
        return WAITS
    if not all(m.served and m.trained and m.wanted for m in (better, worse)):
        return WAITS
    return _fresh((better, worse), spec, current)


def shuffled(number: int, seed: int) -> int:
    """Where chance puts the unit with this number, from 0 to SHUFFLE_PRIME, by the seed; SQL computes the same."""
    for factor, shift in shuffle_rounds(seed):
        number = (number % SHUFFLE_PRIME * factor + shift) % SHUFFLE_PRIME
        number = number * number % SHUFFLE_PRIME
    return number


@functools.lru_cache(maxsize=64)
def shuffle_rounds(seed: int) -> tuple[tuple[int, int], ...]:
    """Factor and shift of each round of `shuffled`: a line, then the square, modulo the prime."""
    noise = digest(b"shuffle", str(seed).encode())
    numbers = [int.from_bytes(noise[4 * n : 4 * n + 4], "big") for n in range(4)]
    return tuple(
        (1 + numbers[n] % (SHUFFLE_PRIME - 1), numbers[n + 1] % SHUFFLE_PRIME) for n in range(0, len(numbers), 2)
    )


def _fresh(members: tuple[Member, ...], spec: BatchSpec, current: Policies) -> Verdict:
    if spec.max_staleness is not None:
        trained = [member for member in members if member.trained]
        for member in trained:
            if member.policy is None:
                continue
            behind = staleness(member.policy, current.get(member.policy.model))
            if behind is None or behind > spec.max_staleness:
                if spec.stale == "wait":
                    return WAITS
                what = "its policy is not of a run that speaks now" if behind is None else f"staleness {behind}"
                return Verdict("stale", reason=f"{what}, at most {spec.max_staleness} was asked for")
        if any(member.policy is None for member in trained):
            return WAITS  # How stale it is nobody can say; a spec without max_staleness may take it.
    return Verdict("fits", members)


def _reward(member: Member) -> float:
    assert member.reward is not None
    return member.reward
