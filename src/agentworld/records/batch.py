"""What a consumer asks for and what it is handed."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.records.ids import check_name
from agentworld.records.methods import METHOD_UNITS, Unit
from agentworld.records.step import Policy, Step
from agentworld.records.trajectory import Trajectory

Order = Literal["fifo", "freshest", "random", "priority"]

MOST_REQUIRED = 32  # different requirements of one spec
# Of one batch. It is leased, acknowledged and given back in one transaction each, while everybody's writes wait.
MOST_UNITS = 1_024


class BatchSpec(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One kind of batch.

    `groups` x `rollouts` for units of groups: that many groups of at least `rollouts` ready trajectories each. A group
    is delivered once, with those that are ready then: with `rollouts` below its size, later ones are not delivered. One
    that closed with fewer waits, for a spec that asks for fewer.
    `size` for units of steps or trajectories. `min_size`: a smaller batch is handed out only down to this (default:
    the full number). A batch has at most 1,024 units. `where` filters trajectories (units trajectory, group and pair)
    or steps. `lease_seconds`: how long the consumer has before the batch goes back.

    Unit `pair`: two trajectories, the preferred one first; from comparisons, and from groups (the best and the worst
    primary reward, where they differ by at least `pair_margin`). `order`: fifo, freshest, random (by `seed`), or
    priority (of trajectories; a group has its highest). `max_staleness`: units that are staler are, with `stale`
    "drop", dropped for this consumer for good, as are those of another run than the one that speaks; with "wait" they
    stay, and the lease waits for fresh ones. What has no policy cannot be judged: it waits under any `max_staleness`.
    `skip_equal`: name of a reward that says correctness; groups all of whose rollouts have it equal are dropped.
    `require`: at most 32 of tokens, logprobs, messages, reward, step_reward, annotation.NAME, label.NAME and
    logprob_space.NAME (of several of these, any); what the method needs (agentworld.records.methods) is added.
    `max_deliveries`: a unit that was handed out so often and never acknowledged is poisoned, which means set aside and
    reported.
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
        return self._checked()._resolved()

    def _checked(self) -> BatchSpec:
        """The spec with values of the right types: Python code may have given any."""
        given: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        if isinstance(given["require"], list | tuple):
            given["require"] = tuple(dict.fromkeys(map(str, given["require"])))
        try:
            spec = msgspec.convert(given, BatchSpec)
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at `$.")
            name = where.rstrip("`") or "spec"
            from agentworld.records.known_values import hint_of_values

            raise InvalidRequestError(f"{name}: {what}", path=name, hint=hint_of_values(what, name)) from None
        check_name(spec.channel, "channel")
        if len(spec.method) > 128 or not spec.method.isprintable():
            raise InvalidRequestError("method must be at most 128 printable characters", path="method")
        if len(spec.require) > MOST_REQUIRED:
            raise InvalidRequestError(f"{len(spec.require)} requirements, at most {MOST_REQUIRED}", path="require")
        return spec

    def _resolved(self) -> BatchSpec:
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
            most = 100_000 if name == "rollouts" else MOST_UNITS
            if not 1 <= number <= most:
                hint = "Lease several batches and acknowledge each" if number > most == MOST_UNITS else None
                raise InvalidRequestError(f"{name} must be from 1 to {most}, not {number}", path=name, hint=hint)
        if minimum > count:
            raise InvalidRequestError(f"min_size {minimum} is over the size {count}", path="min_size")
        if not 0 < self.lease_seconds <= 7 * 86_400:
            raise InvalidRequestError("lease_seconds must be over 0 and at most 604800", path="lease_seconds")
        self._check_choice(unit)
        return msgspec.structs.replace(
            self,
            unit=unit,
            groups=count if unit == "group" else None,
            rollouts=rollouts if unit == "group" else None,
            size=None if unit == "group" else count,
            min_size=minimum,
        )

    def _check_choice(self, unit: Unit) -> None:
        """Whether what decides on the order and on what is left out can be meant."""
        if self.order not in get_args(Order):
            raise InvalidRequestError(f"no order {self.order!r}", path="order", hint=f"Known: {_listed(Order)}")
        if not -(2**63) <= self.seed < 2**63:
            raise InvalidRequestError("seed must be a whole number of 64 bits", path="seed")
        if self.max_staleness is not None and not 0 <= self.max_staleness < 2**63:
            raise InvalidRequestError("max_staleness must be a whole number of 0 or more", path="max_staleness")
        if self.stale not in ("drop", "wait"):
            raise InvalidRequestError(
                f"no way {self.stale!r} to treat stale units", path="stale", hint="Use drop or wait"
            )
        if self.skip_equal is not None and unit != "group":
            raise InvalidRequestError(f"skip_equal does not go with unit {unit}", path="skip_equal", hint="Use groups")
        if not 0 <= self.pair_margin < math.inf:
            raise InvalidRequestError("pair_margin must be 0 or more", path="pair_margin")
        if self.pair_margin and unit != "pair":
            raise InvalidRequestError(f"pair_margin does not go with unit {unit}", path="pair_margin", hint="Use pairs")
        if not 1 <= self.max_deliveries <= 1_000_000:
            raise InvalidRequestError("max_deliveries must be from 1 to 1000000", path="max_deliveries")

    @property
    def count(self) -> int:
        """Units asked for; call on a resolved spec."""
        return self.groups or self.size or 1


def _listed(choice: Any) -> str:
    return ", ".join(get_args(choice))


class BatchTrajectory(msgspec.Struct, kw_only=True):
    """One trajectory in a batch with its steps in order, tokens and messages included.

    `loss_denominator`: reply tokens that the policy sampled over all of its steps here, so that rows of its branches
    share one weight. `trained` is false where it is here for its group's statistics only. `annotations`: the arrays
    that the spec required, as nested lists by step id and name; those of the whole trajectory under its own id.
    """

    trajectory: Trajectory
    steps: list[Step]
    loss_denominator: int = 0
    trained: bool = True
    annotations: dict[str, dict[str, Any]] = {}


class BatchItem(msgspec.Struct, kw_only=True):
    """One unit: a group or pair with its trajectories, or one trajectory (for unit step, with the one step).

    `rewards`: of each trajectory and each step that has any, by id, every reward as it was at the lease. `padding`: a
    copy that only makes shards equally long, not to be trained on.
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

    def to(self, name: str, /, **options: Any) -> Any:
        """The batch in a trainer's own layout, by the adapter of that name. See agentworld.records.adapting."""
        from agentworld.records.adapting import adapt  # It imports this module, and adapters are loaded when used.

        return adapt(self, name, **options)


BatchState = Literal["leased", "acked", "released", "expired"]


class BatchUnit(msgspec.Struct, kw_only=True, frozen=True):
    """What a batch record keeps of one unit: its key and every reward as it was at the lease, by target and name.

    `trajectories`: those that were handed out whole, in order, or `steps` where the unit was single ones. Both are
    empty for groups and pairs of batches that earlier versions leased, which did not keep them.
    """

    key: str
    rewards: dict[str, dict[str, float]] = {}
    trajectories: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


class BatchRecord(msgspec.Struct, kw_only=True, frozen=True):
    """What a pool keeps of a batch that it handed out. Times in seconds since the epoch.

    `spec` as it was asked for, with its numbers filled in; null for batches of the first schema, which kept neither it
    nor `created_at` and `ended_at`. `unit_count`: units handed out. `units`: in the order of the batch; a listing
    leaves them out.
    """

    batch_id: str
    consumer: str
    unit: Unit
    method: str
    channel: str
    state: BatchState
    epoch: int
    deadline: float
    spec: BatchSpec | None = None
    created_at: float | None = None
    ended_at: float | None = None
    unit_count: int = 0
    units: list[BatchUnit] = []


class PoisonedUnit(msgspec.Struct, kw_only=True, frozen=True):
    """A unit that was handed out too often without being acknowledged, and is set aside until it is requeued."""

    consumer: str
    unit: Unit
    key: str
    deliveries: int
    reason: str
