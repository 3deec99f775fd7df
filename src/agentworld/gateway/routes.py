"""Paths of the gateway: `/v1/...`, alone or under `/t/{trajectory}` and `/t/{trajectory}/g/{group}`; `HEAD /` says that
it lives."""

from __future__ import annotations

import re

import msgspec

from agentworld.errors import AgentWorldError, NotFoundError
from agentworld.records import check_id

_PATH = re.compile(r"(?:/t/(?P<trajectory>[^/]+)(?:/g/(?P<group>[^/]+))?)?(?P<rest>/[a-z0-9_/]*)?")
_DOUBLED = re.compile(r"(?:/v1)+(?=/v1/)")
METHODS = {
    "/": ("HEAD",),
    "/v1/chat/completions": ("POST",),
    "/v1/completions": ("POST",),
    "/v1/messages": ("POST",),
    "/v1/messages/count_tokens": ("POST",),
    "/v1/models": ("GET", "HEAD"),
    "/v1/responses": ("POST",),
    "/v1/responses/input_tokens": ("POST",),
    "/v1/responses/{id}": ("GET",),
    "/v1/responses/{id}/input_items": ("GET",),
}
_RESPONSE = re.compile(r"/v1/responses/(?P<id>resp_[a-z0-9_]{1,100})(?P<rest>/input_items)?")
_BEHIND_V1 = {name.removeprefix("/v1/"): name for name in METHODS if name.startswith("/v1/") and "{" not in name}
LATER = {"/v1/embeddings": "embeddings"}


class Route(msgspec.Struct, frozen=True):
    """A known path and the identity in it; `item`: the id of what the path is about."""

    name: str
    trajectory: str | None
    group: str | None
    item: str | None = None


_BARE = {name: Route(name, None, None) for name in METHODS}


class MethodError(AgentWorldError):
    """The path is known, the method is not for it."""

    code = "method_not_allowed"
    status = 405


def find_route(method: str, path: str, *, any_method: bool = False) -> Route:
    """The route of a request; NotFoundError or MethodError otherwise, InvalidRequestError for an id that is none."""
    usual = _usual(path)
    if usual is not None and method in METHODS[usual.name]:
        if usual.trajectory is not None:
            check_id(usual.trajectory, "trajectory")
        if usual.group is not None:
            check_id(usual.group, "group")
        return usual
    return spelled_route(method, path, any_method=any_method)


def spelled_route(method: str, path: str, *, any_method: bool = False) -> Route:
    """As `find_route`, for every spelling that is taken."""
    found = _PATH.fullmatch(path)
    name = _name(found) if found else ""
    item = _RESPONSE.fullmatch(name)
    if item is not None:
        name = f"/v1/responses/{{id}}{item['rest'] or ''}"
    if found is None or name not in METHODS:
        if name in LATER:
            raise NotFoundError(
                f"the {LATER[name]} API is not served here",
                path=path[:200],
                hint="Use /v1/chat/completions, /v1/completions, /v1/responses or /v1/messages",
            )
        raise NotFoundError(
            f"there is nothing at {path[:200]}",
            path=path[:200],
            hint="LLM routes are /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages and /v1/models, "
            "alone or under /t/{trajectory}",
        )
    if not any_method and method not in METHODS[name]:
        raise MethodError(f"{name} takes {METHODS[name][0]}, not {method[:20]}", path=path[:200])
    trajectory, group = found["trajectory"], found["group"]
    if trajectory is not None:
        check_id(trajectory, "trajectory")
    if group is not None:
        check_id(group, "group")
    return Route(name, trajectory, group, item["id"] if item is not None else None)


def route_name(path: str) -> str | None:
    """The route that a path means, without what it names; None where it is none."""
    usual = _usual(path)
    if usual is not None:
        return usual.name
    return spelled_name(path)


def spelled_name(path: str) -> str | None:
    """As `route_name`, for every spelling that is taken."""
    found = _PATH.fullmatch(path)
    name = _name(found) if found else ""
    if item := _RESPONSE.fullmatch(name):
        name = f"/v1/responses/{{id}}{item['rest'] or ''}"
    return name if name in METHODS else None


def _usual(path: str) -> Route | None:
    """The route of a path in its usual spelling, whatever its ids; None for others."""
    before, _, behind = path.partition("/v1/")
    name = _BEHIND_V1.get(behind)
    if name is None:
        return None
    if not before:
        return _BARE[name]
    parts = before.split("/")
    trajectory, group = parts[2] if len(parts) > 2 else "", None
    if len(parts) == 5 and parts[3] == "g" and parts[4]:
        group = parts[4]
    elif len(parts) != 3:
        return None
    if parts[0] or parts[1] != "t" or not trajectory:
        return None
    return Route(name, trajectory, group)


def _name(found: re.Match[str]) -> str:
    """The route that is meant. Some clients add /v1 to their base URL and some do not, so under a trajectory it may
    be missing, and it may be doubled.
    """
    rest = _DOUBLED.sub("", found["rest"] or "").rstrip("/")
    if rest in ("", "/v1"):
        return "/"
    return rest if rest.startswith("/v1/") or found["trajectory"] is None else f"/v1{rest}"
