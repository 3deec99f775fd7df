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
    `awaited`: names of rewards that they read and others give. `fingerprints`: by name, 16 bytes each.
    """

    evaluators: tuple[Evaluator, ...]
    inputs: dict[str, frozenset[str]]
    given: frozenset[str]
    awaited: frozenset[str]
    fingerprints: dict[str, bytes]

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
        return digest(b"reward run", over, *parts).hex()[:16]


def plan_of(evaluators: Sequence[Evaluator], only: Sequence[str] = ()) -> Plan:
    """The plan of evaluators that are in order (`registry.read_evaluators`); with `only`, of these and of what they
    read. ConfigError names one that is not there.
    """
    givers = {value: each.name for each in evaluators for value in each.gives or ()}
    by_name = {each.name: each for each in evaluators}
    inputs: dict[str, frozenset[str]] = {}
    awaited: set[str] = set()
    for each in evaluators:
        found = {givers.get(need, "") for need in each.needs} - {"", each.name}
        inputs[each.name] = frozenset(found)
        awaited |= {need for need in each.needs if givers.get(need) in (None, each.name)}
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
        given=frozenset(value for value, giver in givers.items() if giver in kept),
        awaited=frozenset(awaited),
        fingerprints={each.name: bytes.fromhex(evaluator_fingerprint(each)) for each in chosen},
    )
