"""Whose call it is. First match wins: path, headers, session key, a known client's session, message prefix, a new
trajectory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.gateway.clients import read_client
from agentworld.gateway.http import Http
from agentworld.gateway.keys import trajectory_of
from agentworld.gateway.routes import Route
from agentworld.records import check_id


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says of its origin. `key`: digest of the API key, so that keys are compared but not kept.

    `only_channel`: the one that the caller's key is for; its calls go there and to no other.
    """

    key: bytes
    trajectory_id: str | None = None
    group_id: str | None = None
    agent: str | None = None
    channel: str | None = None
    only_channel: str | None = None
    retry_count: int = 0
    rewrites_calls: bool = False


def read_identity(http: Http, route: Route, body: Mapping[str, Any] | None = None) -> Identity:
    """The identity in path, headers, key and body; InvalidRequestError names a header that is no id."""
    key = http.key
    client, own = read_client(http, body or {}), http.grant.trajectory_id
    trajectory = (
        route.trajectory or _id(http, "x-agentworld-trajectory") or trajectory_of(key) or own or client.trajectory_id
    )
    retries = http.header("x-stainless-retry-count") or "0"
    agent = http.header("x-agentworld-agent")
    if agent is not None and (len(agent) > 128 or not agent.isprintable()):
        raise InvalidRequestError(
            "X-AgentWorld-Agent must be up to 128 printable characters", path="X-AgentWorld-Agent"
        )
    channel, grant = _id(http, "x-agentworld-channel"), http.grant
    if channel is not None:
        grant.check_channel(channel, "this call")
    if trajectory is not None:
        grant.check_trajectory(trajectory)
    return Identity(
        key=hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=16).digest(),
        trajectory_id=trajectory,
        group_id=route.group or _id(http, "x-agentworld-group"),
        agent=agent or client.agent,
        channel=channel or grant.channel,
        only_channel=grant.channel,
        retry_count=int(retries) if retries.isdecimal() and len(retries) < 6 else 0,
        rewrites_calls=client.rewrites_calls,
    )


def _id(http: Http, name: str) -> str | None:
    value = http.header(name)
    return check_id(value, name) if value else None
