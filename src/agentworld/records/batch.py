"""What a consumer asks for and what it is handed."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.records.step import Policy, Step
from agentworld.records.trajectory import Trajectory

Unit = Literal["step", "trajectory", "group", "pair"]
Order = Literal["fifo", "freshest", "random", "priority"]

# The unit that a method trains on, unless the spec names one.
METHOD_UNITS: dict[str, Unit] = {
    "sft": "trajectory",
    "reinforce": "trajectory",
    "grpo": "group",
    "dr_grpo": "group",
    "rloo": "group",
    "dpo": "pair",
}


class BatchSpec(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One kind of batch.

    `groups` x `rollouts` for units of groups: that many groups of at least `rollouts` ready trajectories each. A group
    is delivered once, with those that are ready then: with `rollouts` below its size, later ones are not delivered.
    `size` for units of steps or trajectories. `min_size`: a smaller batch is handed out only down to this (default:
    the full number). `where` filters trajectories (units trajectory, group and pair) or steps. `lease_seconds`: how
    long the consumer has before the batch goes back.

    Unit `pair`: two trajectories, the preferred one first; from comparisons, and from groups (the best and the worst
    primary reward, where they differ by at least `pair_margin`). `order`: fifo, freshest, random (by `seed`), or
    priority (of trajectories; a group has its highest). `max_staleness`: units that are staler are, with `stale`
    "drop", dropped for this consumer for good; with "wait" they stay, and the lease waits for fresh ones.
    `skip_equal`: name of a reward that says correctness; groups all of whose rollouts have it equal are dropped.
    `require`: tokens, logprobs, messages, reward, annotation.NAME, label.NAME. `max_deliveries`: a unit that was handed
    out so often and never acknowledged is poisoned, which means set aside and reported.
    """

    method: str = "sft"
    unit: Unit | None = None
    groups: int | None = None
    rollouts: int | None = None
    size: int | None = None
    min_size: int | None = None
    where: str | None = None
    channel: str = "train"
    order: Order = "fifo"
    seed: int = 0
    require: tuple[str, ...] = ()
    lease_seconds: float = 600.0
    max_staleness: int | None = None
    stale: Literal["drop", "wait"] = "drop"
    skip_equal: str | None = None
    pair_margin: float = 0.0
    max_deliveries: int = 16

    def resolved(self) -> BatchSpec:
        """The spec with its unit and numbers filled in and checked; raises InvalidRequestError."""
        unit = self.unit or METHOD_UNITS.get(self.method)
        if unit is None:
            known = ", ".join(sorted(METHOD_UNITS))
            raise InvalidRequestError(
                f"method {self.method!r} has no default unit",
                path="method",
                hint=f"Known: {known}; or set unit",
            )
        if unit == "group" and self.size is not None:
            raise InvalidRequestError("size does not go with unit group", path="size", hint="Use groups and rollouts")
        if unit != "group" and (self.groups is not None or self.rollouts is not None):
            raise InvalidRequestError(f"groups and rollouts do not go with unit {unit}", path="groups", hint="Use size")
        asked = self.groups if unit == "group" else self.size
        count = 1 if asked is None else asked
        rollouts = 1 if self.rollouts is None else self.rollouts
        minimum = self.min_size if self.min_size is not None else count
        numbers = {"groups" if unit == "group" else "size": count, "rollouts": rollouts, "min_size": minimum}
        for name, number in numbers.items():
            if not 1 <= number <= 100_000:
                raise InvalidRequestError(f"{name} must be from 1 to 100000, not {number}", path=name)
        if minimum > count:
            raise InvalidRequestError(f"min_size {minimum} is over the size {count}", path="min_size")
        if not 0 < self.lease_seconds <= 7 * 86_400:
            raise InvalidRequestError("lease_seconds must be over 0 and at most 604800", path="lease_seconds")
        return msgspec.structs.replace(
            self,
            unit=unit,
            groups=count if unit == "group" else None,
            rollouts=rollouts if unit == "group" else None,
            size=None if unit == "group" else count,
            min_size=minimum,
        )

    @property
    def count(self) -> int:
        """Units asked for; call on a resolved spec."""
        return self.groups or self.size or 1


class BatchTrajectory(msgspec.Struct, kw_only=True):
    """One trajectory in a batch with its steps in order, tokens and messages included.

    `loss_denominator`: reply tokens that the policy sampled over all of its steps here, so that rows of its branches
    share one weight. `trained` is false where it is here for its group's statistics only.
    """

    trajectory: Trajectory
    steps: list[Step]
    loss_denominator: int = 0
    trained: bool = True


class BatchItem(msgspec.Struct, kw_only=True):
    """One unit: a group or pair with its trajectories, or one trajectory (for unit step, with the one step).

    `rewards`: of each trajectory by id, every reward as it was at the lease. `padding`: a copy that only makes shards
    equally long, not to be trained on.
    """

    key: str
    trajectories: list[BatchTrajectory]
    delivery_count: int = 1
    rewards: dict[str, dict[str, float]] = {}
    padding: bool = False


class Batch(msgspec.Struct, kw_only=True):
    """Units leased to one consumer until `deadline` (seconds since the epoch) under fencing number `epoch`."""

    batch_id: str
    consumer: str
    epoch: int
    deadline: float
    unit: Unit
    method: str
    items: list[BatchItem]
    policy: Policy | None = None
    metadata: dict[str, Any] = {}
