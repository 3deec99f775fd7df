"""Rewards, policies, pauses and counters."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import msgspec
from litestar import Request, get, post
from litestar.concurrency import sync_to_thread
from litestar.datastructures import State
from litestar.params import QueryParameter, RawBody

from agentworld.api.access import reach
from agentworld.api.bodies import RewardRequest, decode, decode_signals
from agentworld.api.events import After
from agentworld.api.leaving import until_gone
from agentworld.client.wire import API, MetricsRequest, MetricsResult, RewardsRequest
from agentworld.errors import InvalidRequestError
from agentworld.pool import draining
from agentworld.pool.protocol import (
    DeadLetter,
    Drain,
    GatewayState,
    GatewayWorker,
    Page,
    PoolStats,
    SignalsResult,
    sequence_page,
)
from agentworld.records import Policy, Reward

Ids = Annotated[str | None, QueryParameter(description="Comma-separated ids, up to 1,000")]
Limit = Annotated[int, QueryParameter(ge=1, le=1000, description="Dead letters a page, at most")]


class PolicyRequest(Policy, frozen=True, forbid_unknown_fields=True):
    """The weights that now speak."""


class PauseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Calls that run go on in any case. `drain`: answer only once no live worker of a gateway has a call in flight, or
    after `timeout` seconds; the reply says which.
    """

    drain: bool = False
    timeout: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 60.0


class GatewayResumeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to say."""


class PausedState(GatewayState, frozen=True):
    """The state after a pause. `drain`: how far the gateways have drained, where that was asked for."""

    drain: Drain | None = None


class GatewayStatus(GatewayState, frozen=True, kw_only=True):
    """The state of all gateways of this pool, and what their live workers last said of themselves."""

    drain: Drain
    workers: list[GatewayWorker]


@post(f"{API}/rewards", status_code=200, sync_to_thread=True, opt={"body": RewardRequest | RewardsRequest})
def add_rewards(state: State, body: RawBody) -> SignalsResult:
    """Set one reward, a list of them, or `{"rewards": [...]}`: all or none. Missing targets are waited for."""
    result: SignalsResult = reach(state).add_signals(decode_signals(body, "rewards"))
    return result


@get(f"{API}/rewards", sync_to_thread=True)
def given_rewards(state: State, trajectory_ids: Ids = None, step_ids: Ids = None) -> Page[Reward]:
    """Who gave which reward: every one, of each source, of these trajectories themselves, then of these steps. Those
    that were set last come last in each; of one name the last one is in force.
    """
    if trajectory_ids is None and step_ids is None:
        raise InvalidRequestError(
            "trajectory_ids or step_ids is needed", path="?trajectory_ids", hint="Name up to 1,000, with commas"
        )
    return Page(reach(state).rewards_on(trajectory_ids=_named(trajectory_ids), step_ids=_named(step_ids)))


def _named(ids: str | None) -> list[str]:
    return [one.strip() for one in (ids or "").split(",") if one.strip()]


@post(f"{API}/policy", status_code=200, sync_to_thread=True, opt={"body": PolicyRequest})
def set_policy(state: State, body: RawBody) -> Policy:
    """Publish a policy. A lower version within the same run is a conflict: going back starts a new run."""
    sent = decode(body, PolicyRequest)
    policy: Policy = reach(state).set_policy(Policy(sent.model, sent.run, sent.version))
    return policy


@post(f"{API}/metrics", status_code=200, sync_to_thread=True, opt={"body": MetricsRequest})
def add_metrics(state: State, body: RawBody) -> MetricsResult:
    """Tell numbers of runs, each as an event `metrics.added` of its channel; all or none."""
    sent = decode(body, MetricsRequest)
    return MetricsResult(reach(state).add_metrics(sent.metrics))


@get(f"{API}/policy", sync_to_thread=True)
def get_policy(state: State) -> GatewayState:
    """The policies by model, and whether the gateways are paused."""
    gateway: GatewayState = reach(state).gateway_state()
    return gateway


@get(f"{API}/gateway", sync_to_thread=True)
def gateway(state: State) -> GatewayStatus:
    """The policies, the pause, and what each live worker of a gateway has in flight."""
    found, workers = reach(state).gateway_state(), reach(state).gateway_workers()
    return GatewayStatus(
        policies=found.policies,
        paused=found.paused,
        pauses=found.pauses,
        drain=draining.judge(found, workers),
        workers=workers,
    )


@post(f"{API}/gateway/pause", status_code=200, opt={"body": PauseRequest})
async def pause(state: State, body: RawBody, request: Request[Any, Any, Any]) -> PausedState:
    """Stop the dispatch of new calls on every gateway of this pool, and wait until all have drained where asked to."""
    asked = decode(body, PauseRequest)
    await sync_to_thread(reach(state).set_paused, True)
    drain = await _drain(state, asked.timeout, request) if asked.drain else None
    found: GatewayState = await sync_to_thread(reach(state).gateway_state)
    return PausedState(policies=found.policies, paused=found.paused, pauses=found.pauses, drain=drain)


async def _drain(state: State, timeout: float, request: Request[Any, Any, Any]) -> Drain:
    """Look until all have drained, the time is over, the client leaves or the server ends."""
    deadline = time.monotonic() + timeout
    gone = asyncio.ensure_future(until_gone(request))
    try:
        while True:
            found: Drain = await sync_to_thread(reach(state).drain)
            if found.drained or time.monotonic() >= deadline or state.closing.is_set() or gone.done():
                return found
            await asyncio.wait({gone}, timeout=draining.LOOK_SECONDS)
    finally:
        gone.cancel()


@post(f"{API}/gateway/resume", status_code=200, sync_to_thread=True, opt={"body": GatewayResumeRequest})
def resume(state: State, body: RawBody) -> GatewayState:
    """Take new calls again."""
    decode(body, GatewayResumeRequest)
    reach(state).set_paused(False)
    found: GatewayState = reach(state).gateway_state()
    return found


@get(f"{API}/stats", sync_to_thread=True)
def stats(state: State) -> PoolStats:
    """Counters of the pool."""
    counters: PoolStats = reach(state).stats()
    return counters


@get(f"{API}/dead-letters", sync_to_thread=True)
def dead_letters(state: State, after: After = 0, limit: Limit = 100) -> Page[DeadLetter]:
    """Steps and signals that could not be stored, and why."""
    return sequence_page(reach(state).dead_letters(after, limit), limit)


ROUTES = [
    add_rewards,
    given_rewards,
    add_metrics,
    set_policy,
    get_policy,
    gateway,
    pause,
    resume,
    stats,
    dead_letters,
]
