"""The counters of the in-memory store, counted when somebody asks: it holds little, and nobody waits for a disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from agentworld.pool import counters
from agentworld.pool.memory.leases import Leases
from agentworld.pool.memory.state import State
from agentworld.pool.stats import PolicyStats, policy_stats
from agentworld.records import Unit


def counted(state: State, leases: Leases) -> dict[str, int]:
    """Every counter by its name."""
    found: Counter[str] = Counter()
    for trajectory in state.trajectories.values():
        found[counters.TRAJECTORIES + trajectory.status] += 1
        found[counters.READINESS + trajectory.readiness] += 1
        found[counters.CHANNEL_TRAJECTORIES + trajectory.channel] += 1
    for kept in state.steps.values():
        found[counters.STEPS] += 1
        found[counters.STEPS_EXCLUDED] += kept.step.excluded_reason is not None
        found[counters.CHANNEL_STEPS + kept.step.channel] += 1
        found[counters.TOKENS_SAMPLED] += kept.prepared.sampled
    for _, exchange in state.exchanges.values():
        found[counters.EXCHANGES] += 1
        found[counters.EXCHANGES_FAILED] += exchange.error is not None
    for _, feedback in state.feedback.values():
        found[counters.FEEDBACK + feedback.kind] += 1
    for group in state.groups.values():
        found[counters.GROUPS + group.state] += 1
    for lease in leases.batches.values():
        found[counters.BATCHES + lease.state] += 1
    for (consumer, *_), delivery in leases.deliveries.items():
        if delivery.state in counters.DELIVERY_STATES:
            found[counters.delivery(delivery.state, consumer)] += 1
    for (consumer, unit, channel), keys in leases.asked.items():
        found[counters.BACKLOG + consumer] += sum(
            _is_there(state, unit, key) and leases.delivery(consumer, unit, key, channel).state == "available"
            for key in keys
        )
    found[counters.TOKENS_FLAT] = state.tokens_flat
    found[counters.TOKENS_IN_TAILS] = state.tokens_in_tails
    found[counters.BLOCKS] = len(state.blocks)
    found[counters.MESSAGE_NODES] = len(state.nodes)
    found[counters.TOOL_SETS] = len(state.tool_sets)
    found[counters.MEDIA] = len(state.media)
    found[counters.MEDIA_BYTES] = sum(len(medium.data) for medium, _ in state.media.values())
    found[counters.REWARDS] = len(state.rewards)
    found[counters.ANNOTATIONS] = len(state.annotations)
    found[counters.AWAITED] = len(state.awaited)
    found[counters.DEAD_LETTERS] = len(state.dead)
    found[counters.TOMBSTONES] = len(state.tombstones)
    return dict(found)


def _is_there(state: State, unit: Unit, key: str) -> bool:
    kind, _, name = key.partition(":") if unit == "pair" else (unit, "", key)
    there: dict[str, Mapping[str, object]] = {
        "step": state.steps,
        "trajectory": state.trajectories,
        "group": state.groups,
        "comparison": state.feedback,
    }
    return name in there[kind]


def policies(state: State) -> dict[str, PolicyStats]:
    """The policy of each model that speaks now."""
    newest: dict[tuple[str, str], int] = {}
    for trajectory in state.trajectories.values():
        if (policy := trajectory.policy) is not None:
            key = (policy.model, policy.run)
            newest[key] = max(policy.version, newest.get(key, policy.version))
    return {
        model: policy_stats(policy.run, policy.version, newest.get((model, policy.run)))
        for model, policy in sorted(state.policies.items())
    }
