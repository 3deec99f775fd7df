"""What is seen at once of a usual call is what the whole look at it gives: its route, its client, whose it is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.errors import AgentWorldError
from agentworld.gateway.access import EVERYTHING, GRANT, Grant
from agentworld.gateway.clients import read_client, session_of
from agentworld.gateway.http import Http
from agentworld.gateway.identity import Identity, read_identity
from agentworld.gateway.keys import trajectory_of
from agentworld.gateway.routes import METHODS, Route, find_route, route_name, spelled_name, spelled_route
from agentworld.records import check_id

ENDINGS = [
    *METHODS,
    "/v1/embeddings",
    "/v1/responses/resp_1",
    "/v1",
    "/",
    "",
    "/chat/completions",
    "/V1/models",
    "/v1/",
]
PARTS = ["t", "one", "g", "two", "v1", "", " ", "\n", "a%20b", "x" * 200, "é", "-", "chat", "completions"]
prefixes = st.lists(st.sampled_from(PARTS), max_size=5).map(lambda parts: "".join(f"/{part}" for part in parts))
usual_prefixes = st.sampled_from(
    ["", "/t/one", "/t/one/g/two", "/t/v1", "/t/one/g/v1", "/t/one/x/two", "/t//g/two", "/x/one"]
)
paths = st.builds(lambda before, ending: before + ending, prefixes | usual_prefixes, st.sampled_from(ENDINGS))

SESSION = "0f8fad5b-d9cb-469f-a165-70867728950e"
values = st.sampled_from(
    [b"", b"0", b"1", b"one", b"ses_12345678", SESSION.encode(), b"codex_cli", b"/root", b"\xff", b"{}"]
)
values |= st.just(f'{{"session_id": "{SESSION}"}}'.encode())
NAMES = ["x-agentworld-trajectory", "x-agentworld-group", "x-agentworld-agent", "x-agentworld-channel", "originator"]
NAMES += ["x-stainless-retry-count", "x-claude-code-session-id", "x-claude-code-agent-id", "x-codex-turn-metadata"]
NAMES += ["thread-id", "session-id", "session_id", "conversation_id", "x-openai-subagent", "x-session-id", "accept"]
NAMES += ["x-parent-session-id", "user-agent", "X-Session-Id", "X-AgentWorld-Group"]
keys = st.sampled_from([b"Bearer sk-none", b"Bearer aw-t-one", b"Bearer ", b"Basic x", b"aw-t-two", b"bearer \xff"])
headers = st.lists(
    st.tuples(st.sampled_from(NAMES), values) | st.tuples(st.sampled_from(["authorization", "x-api-key"]), keys),
    max_size=5,
)
metadata = st.sampled_from([None, {}, {"user_id": "u"}, {"user_id": f'{{"session_id": "{SESSION}"}}'}, "x", []])
bodies = st.fixed_dictionaries(
    {}, optional={"metadata": metadata, "prompt_cache_key": st.sampled_from([None, SESSION])}
)
grants = st.sampled_from(
    [EVERYTHING, Grant(frozenset(("write",)), channel="one"), Grant(frozenset(("write",)), trajectory_id="one")]
)
routes = st.sampled_from(
    [Route("/v1/models", None, None), Route("/v1/models", "one", None), Route("/v1/models", "b", "g")]
)


def outcome(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What comes of it, be it an error."""
    try:
        return work(*args, **kwargs)
    except AgentWorldError as error:
        return type(error), error.to_dict()


async def _unused(*args: Any) -> Any:
    raise AssertionError


def http_with(given_headers: list[tuple[str, bytes]], grant: Grant = EVERYTHING) -> Http:
    raw = [(name.encode(), value) for name, value in given_headers]
    return Http({"type": "http", "method": "POST", "path": "/", "headers": raw, GRANT: grant}, _unused, _unused)


@given(paths, st.sampled_from(["GET", "POST", "HEAD", "PUT"]), st.booleans())
def test_the_route_of_any_spelling(path: str, method: str, any_method: bool) -> None:
    whole = outcome(spelled_route, method, path, any_method=any_method)
    assert outcome(find_route, method, path, any_method=any_method) == whole
    assert route_name(path) == spelled_name(path)


@pytest.mark.parametrize("before", ["", "/t/one", "/t/one/g/two"])
@pytest.mark.parametrize("name", [name for name in METHODS if "{" not in name and name != "/"])
def test_the_usual_spelling(before: str, name: str) -> None:
    route = find_route(METHODS[name][0], before + name)
    assert route == spelled_route(METHODS[name][0], before + name)
    assert (route.name, route.trajectory) == (name, "one" if before else None)
    assert route.group == ("two" if "/g/" in before else None)
    assert route_name(before + name) == name


@given(headers, bodies)
def test_the_client_of_any_call(given_headers: list[tuple[str, bytes]], body: dict[str, Any]) -> None:
    http = http_with(given_headers)
    assert read_client(http, body) == session_of(http, body)


def whole_identity(http: Http, route: Route, body: dict[str, Any]) -> Identity:
    """The identity, with every header looked at in turn."""

    def named(name: str) -> str | None:
        value = http.header(name)
        return check_id(value, name) if value else None

    client, grant = session_of(http, body), http.grant
    places = (lambda: route.trajectory, lambda: named("x-agentworld-trajectory"), lambda: trajectory_of(http.key))
    trajectory = next((found for place in places if (found := place())), None)
    trajectory = trajectory or grant.trajectory_id or client.trajectory_id
    retries, channel = http.header("x-stainless-retry-count") or "0", named("x-agentworld-channel")
    if channel is not None:
        grant.check_channel(channel, "this call")
    if trajectory is not None:
        grant.check_trajectory(trajectory)
    return Identity(
        key=hashlib.blake2b(http.key.encode("utf-8", "replace"), digest_size=16).digest(),
        trajectory_id=trajectory,
        group_id=route.group or named("x-agentworld-group"),
        agent=http.header("x-agentworld-agent") or client.agent,
        channel=channel or grant.channel,
        only_channel=grant.channel,
        retry_count=int(retries) if retries.isdecimal() else 0,
        rewrites_calls=client.rewrites_calls,
    )


@given(headers, bodies, grants, routes)
def test_whose_any_call_is(
    given_headers: list[tuple[str, bytes]], body: dict[str, Any], grant: Grant, route: Route
) -> None:
    http = http_with(given_headers, grant)
    assert outcome(read_identity, http, route, body) == outcome(whole_identity, http, route, body)
