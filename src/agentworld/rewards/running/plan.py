"""Which evaluators run on a trajectory and which on a group, each after those that give what it needs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentworld.errors import ConfigError
from agentworld.records import digest
from agentworld.rewards.fingerprint import evaluator_fingerprint
from agentworld.rewards.protocol import Evaluator
from agentworld.rewards.running.settings import RunSettings


class Plan(msgspec.Struct, frozen=True):
    """Evaluators in the order in which they run.

    `inputs`: by name, the evaluators whose values each reads. `given`: names of values that they say they give.
    `awaited`: names of rewards that they read and others give. `fingerprints`: by name, 16 bytes each. `wheres`: by
    name, of those that judge some trajectories only. `rivals`: by name, the `where` of each earlier evaluator of the
    file that gives one of the same rewards; what that matches is not for this one.
    """

    evaluators: tuple[Evaluator, ...]
    inputs: dict[str, frozenset[str]]
    given: frozenset[str]
    awaited: frozenset[str]
    fingerprints: dict[str, bytes]
    wheres: dict[str, str] = {}
    rivals: dict[str, tuple[str, ...]] = {}

    @property
    def of_trajectories(self) -> tuple[Evaluator, ...]:
        """Those that judge a trajectory or its steps."""
        return tuple(each for each in self.evaluators if each.scope != "group")

    @property
    def of_groups(self) -> tuple[Evaluator, ...]:
        """Those that judge a group."""
        return tuple(each for each in self.evaluators if each.scope == "group")

    @property
    def of_members(self) -> tuple[Evaluator, ...]:
        """Those of trajectories whose values a group's evaluators read, directly or not."""
        needed = {name for each in self.of_groups for name in self.inputs[each.name]}
        for each in reversed(self.evaluators):
            if each.name in needed:
                needed |= self.inputs[each.name]
        return tuple(each for each in self.of_trajectories if each.name in needed)

    def digest(self, settings: RunSettings) -> str:
        """16 hex digits of the evaluators and of what they run over: another of these is another run."""
        over = msgspec.json.encode([settings.channel, settings.where, settings.shard])
        parts = [part for name in sorted(self.fingerprints) for part in (name.encode(), self.fingerprints[name])]
        if self.wheres or self.rivals:
            parts.append(msgspec.json.encode([self.wheres, self.rivals], order="sorted"))
        return digest(b"reward run", over, *parts).hex()[:16]


def plan_of(evaluators: Sequence[Evaluator], only: Sequence[str] = ()) -> Plan:
    """The plan of evaluators that are in order (`registry.read_evaluators`); with `only`, of these and of what they
    read. ConfigError names one that is not there.
    """
    givers: dict[str, list[str]] = {}
    wheres = {each.name: where for each in evaluators if (where := getattr(each, "where", None)) is not None}
    rivals: dict[str, tuple[str, ...]] = {}
    for each in evaluators:
        before = {name for value in each.gives or () for name in givers.get(value, ()) if name in wheres}
        if before:
            rivals[each.name] = tuple(sorted(wheres[name] for name in before))
        for value in each.gives or ():
            givers.setdefault(value, []).append(each.name)
    by_name = {each.name: each for each in evaluators}
    inputs: dict[str, frozenset[str]] = {}
    awaited: set[str] = set()
    for each in evaluators:
        inputs[each.name] = frozenset(name for need in each.needs for name in givers.get(need, ())) - {each.name}
        awaited |= {need for need in each.needs if set(givers.get(need, ())) <= {each.name}}
    for name in only:
        if name not in by_name:
            raise ConfigError(f"no evaluator is called {name!r}", path="only", hint=f"Known: {', '.join(by_name)}")
    kept = set(only) or set(by_name)
    for each in reversed(evaluators):
        if each.name in kept:
            kept |= inputs[each.name]
    chosen = tuple(each for each in evaluators if each.name in kept)
    return Plan(
        evaluators=chosen,
        inputs={each.name: inputs[each.name] for each in chosen},
        given=frozenset(value for value, names in givers.items() if kept.intersection(names)),
        awaited=frozenset(awaited),
        fingerprints={each.name: bytes.fromhex(evaluator_fingerprint(each)) for each in chosen},
        wheres={each.name: wheres[each.name] for each in chosen if each.name in wheres},
        rivals={each.name: rivals[each.name] for each in chosen if each.name in rivals},
    )
