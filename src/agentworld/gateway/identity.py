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

_OURS = frozenset((b"x-agentworld-trajectory", b"x-agentworld-group", b"x-agentworld-agent", b"x-agentworld-channel"))
_RETRIES = b"x-stainless-retry-count"


def _digest(key: str) -> bytes:
    return hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=16).digest()


_NO_KEY = _digest("")


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
    headers, grant = http.by_name, http.grant
    key = http.key if b"authorization" in headers or b"x-api-key" in headers else ""
    client = read_client(http, body or {})
    agent = channel = None
    trajectory, group, retries = route.trajectory, route.group, "0"
    if headers.get(_RETRIES, b"0") != b"0":
        retries = http.header("x-stainless-retry-count") or "0"
    ours = not _OURS.isdisjoint(headers)
    if trajectory is None:
        if ours:
            trajectory = _id(http, "x-agentworld-trajectory")
        trajectory = trajectory or trajectory_of(key) or grant.trajectory_id or client.trajectory_id
    if ours:
        agent = _agent(http)
        channel = _id(http, "x-agentworld-channel")
        if channel is not None:
            grant.check_channel(channel, "this call")
    if trajectory is not None and grant.trajectory_id is not None:
        grant.check_trajectory(trajectory)
    if ours and group is None:
        group = _id(http, "x-agentworld-group")
    return Identity(
        key=_digest(key) if key else _NO_KEY,
        trajectory_id=trajectory,
        group_id=group,
        agent=agent or client.agent,
        channel=channel or grant.channel,
        only_channel=grant.channel,
        retry_count=int(retries) if retries.isdecimal() and len(retries) < 6 else 0,
        rewrites_calls=client.rewrites_calls,
    )


def _agent(http: Http) -> str | None:
    agent = http.header("x-agentworld-agent")
    if agent is not None and (len(agent) > 128 or not agent.isprintable()):
        raise InvalidRequestError(
            "X-AgentWorld-Agent must be up to 128 printable characters", path="X-AgentWorld-Agent"
        )
    return agent


def _id(http: Http, name: str) -> str | None:
    value = http.header(name)
    return check_id(value, name) if value else None
