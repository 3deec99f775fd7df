"""The overview of a pool, made from its counters; no store scans for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from agentworld.forest import BLOCK_SIZE
from agentworld.pool import counters


class ChannelStats(msgspec.Struct, frozen=True):
    """What a channel holds."""

    trajectories: int = 0
    steps: int = 0


class ConsumerStats(msgspec.Struct, frozen=True):
    """Where units stand with a consumer. `available`: those in its backlog, which it has taken in and can lease; what
    became servable since its last lease is not among them. The rest: by the state of their delivery.
    """

    available: int = 0
    leased: int = 0
    acknowledged: int = 0
    dropped: int = 0
    poisoned: int = 0


class PolicyStats(msgspec.Struct, frozen=True):
    """The policy of a model that speaks now. `sampled`: the newest version of its run that a trajectory was wholly
    sampled with, null before the first; `lag`: how far that is behind.
    """

    run: str
    version: int
    sampled: int | None = None
    lag: int | None = None


class PoolStats(msgspec.Struct, frozen=True):
    """Counters that the writes keep; tokens_flat is what storing each step's whole sequence would take.

    `trajectories`: by status. `readiness`: trajectories by readiness. `groups`: by state (open, closed). `batches`: by
    state (leased, acked, released, expired). `feedback`: by kind. `exchanges`: all calls, `failed_exchanges`: those
    with an error. `tokens_sampled`: reply tokens that policies sampled. `awaited`: steps and trajectories that signals
    wait for. `dead_letters`: what could not be stored. `tombstones`: what was deleted on request.
    """

    trajectories: dict[str, int]
    steps: int
    exchanges: int
    excluded_steps: int
    tokens_flat: int
    tokens_stored: int
    message_nodes: int
    rewards: int
    batches: dict[str, int]
    last_event: int
    failed_exchanges: int = 0
    dead_letters: int = 0
    readiness: dict[str, int] = {}
    channels: dict[str, ChannelStats] = {}
    groups: dict[str, int] = {}
    tokens_sampled: int = 0
    tool_sets: int = 0
    media: int = 0
    media_bytes: int = 0
    feedback: dict[str, int] = {}
    annotations: int = 0
    awaited: int = 0
    tombstones: int = 0
    consumers: dict[str, ConsumerStats] = {}
    policies: dict[str, PolicyStats] = {}


def pool_stats(counted: Mapping[str, int], last_event: int, policies: dict[str, PolicyStats]) -> PoolStats:
    """The overview from counters by name."""

    def named(prefix: str) -> dict[str, int]:
        found = {name.removeprefix(prefix): n for name, n in counted.items() if name.startswith(prefix)}
        return {name: number for name, number in sorted(found.items()) if number}

    def total(name: str) -> int:
        return counted.get(name, 0)

    by_channel = {"trajectories": named(counters.CHANNEL_TRAJECTORIES), "steps": named(counters.CHANNEL_STEPS)}
    by_consumer = {"available": named(counters.BACKLOG)}
    by_consumer |= {state: named(counters.delivery(state, "")) for state in counters.DELIVERY_STATES}
    return PoolStats(
        trajectories=named(counters.TRAJECTORIES),
        steps=total(counters.STEPS),
        exchanges=total(counters.EXCHANGES),
        excluded_steps=total(counters.STEPS_EXCLUDED),
        tokens_flat=total(counters.TOKENS_FLAT),
        tokens_stored=total(counters.BLOCKS) * BLOCK_SIZE + total(counters.TOKENS_IN_TAILS),
        message_nodes=total(counters.MESSAGE_NODES),
        rewards=total(counters.REWARDS),
        batches=named(counters.BATCHES),
        last_event=last_event,
        failed_exchanges=total(counters.EXCHANGES_FAILED),
        dead_letters=total(counters.DEAD_LETTERS),
        readiness=named(counters.READINESS),
        channels={name: ChannelStats(**values) for name, values in _turned(by_channel).items()},
        groups=named(counters.GROUPS),
        tokens_sampled=total(counters.TOKENS_SAMPLED),
        tool_sets=total(counters.TOOL_SETS),
        media=total(counters.MEDIA),
        media_bytes=total(counters.MEDIA_BYTES),
        feedback=named(counters.FEEDBACK),
        annotations=total(counters.ANNOTATIONS),
        awaited=total(counters.AWAITED),
        tombstones=total(counters.TOMBSTONES),
        consumers={name: ConsumerStats(**values) for name, values in _turned(by_consumer).items()},
        policies=policies,
    )


def policy_stats(run: str, version: int, sampled: int | None) -> PolicyStats:
    """The policy that speaks now, beside the newest version that was sampled with."""
    return PolicyStats(run, version, sampled, None if sampled is None else version - sampled)


def _turned(figures: dict[str, dict[str, int]]) -> dict[str, dict[str, Any]]:
    """By name, then by figure."""
    turned: dict[str, dict[str, Any]] = {}
    for figure, numbers in figures.items():
        for name, number in numbers.items():
            turned.setdefault(name, {})[figure] = number
    return dict(sorted(turned.items()))
