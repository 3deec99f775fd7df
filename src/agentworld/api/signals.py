"""Rewards, policies, pauses and counters."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.datastructures import State
from litestar.params import QueryParameter, RawBody

from agentworld.api.bodies import RewardRequest, decode, decode_signals
from agentworld.api.events import After
from agentworld.client.wire import API, RewardsRequest
from agentworld.pool.protocol import DeadLetter, GatewayState, Page, PoolStats, SignalsResult, sequence_page
from agentworld.records import Policy

Limit = Annotated[int, QueryParameter(ge=1, le=1000, description="Dead letters a page, at most")]


class PolicyRequest(Policy, frozen=True, forbid_unknown_fields=True):
    """The weights that now speak."""


class PauseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Calls that run go on in any case; waiting for their end is the caller's, by the events or the counters."""


@post(f"{API}/rewards", status_code=200, sync_to_thread=True, opt={"body": RewardRequest | RewardsRequest})
def add_rewards(state: State, body: RawBody) -> SignalsResult:
    """Set one reward, a list of them, or `{"rewards": [...]}`: all or none. Missing targets are waited for."""
    result: SignalsResult = state.pool.add_signals(decode_signals(body, "rewards"))
    return result


@post(f"{API}/policy", status_code=200, sync_to_thread=True, opt={"body": PolicyRequest})
def set_policy(state: State, body: RawBody) -> Policy:
    """Publish a policy. A lower version within the same run is a conflict: going back starts a new run."""
    sent = decode(body, PolicyRequest)
    policy: Policy = state.pool.set_policy(Policy(sent.model, sent.run, sent.version))
    return policy


@get(f"{API}/policy", sync_to_thread=True)
def get_policy(state: State) -> GatewayState:
    """The policies by model, and whether the gateways are paused."""
    gateway: GatewayState = state.pool.gateway_state()
    return gateway


def _set_paused(pool: Any, body: bytes, paused: bool) -> GatewayState:
    decode(body, PauseRequest)
    pool.set_paused(paused)
    gateway: GatewayState = pool.gateway_state()
    return gateway


@post(f"{API}/gateway/pause", status_code=200, sync_to_thread=True, opt={"body": PauseRequest})
def pause(state: State, body: RawBody) -> GatewayState:
    """Stop the dispatch of new calls on every gateway of this pool."""
    return _set_paused(state.pool, body, True)


@post(f"{API}/gateway/resume", status_code=200, sync_to_thread=True, opt={"body": PauseRequest})
def resume(state: State, body: RawBody) -> GatewayState:
    """Take new calls again."""
    return _set_paused(state.pool, body, False)


@get(f"{API}/stats", sync_to_thread=True)
def stats(state: State) -> PoolStats:
    """Counters of the pool."""
    counters: PoolStats = state.pool.stats()
    return counters


@get(f"{API}/dead-letters", sync_to_thread=True)
def dead_letters(state: State, after: After = 0, limit: Limit = 100) -> Page[DeadLetter]:
    """Steps and signals that could not be stored, and why."""
    return sequence_page(state.pool.dead_letters(after, limit), limit)


ROUTES = [add_rewards, set_policy, get_policy, pause, resume, stats, dead_letters]
