"""Who may call a server through a browser: pages of its own site, but of no other.

A browser runs pages of any site on this machine, and they can reach its addresses, loopback ones too. With every
request that could change something it names the page's site in `Origin` and `Sec-Fetch-Site`, also where the body is a
form or text, for which it asks no permission first; a body of JSON it sends to another site only after it has asked,
and no such permission is ever given here. So every write has to be of JSON. In `Host` a browser names the address that
it believes to call, which a page can only bend to a name of its own (DNS rebinding). Programs send no `Origin`.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from agentworld.api import otlp_replies
from agentworld.config import ServeSettings
from agentworld.errors import AgentWorldError, ForbiddenError, InvalidRequestError, MediaTypeError
from agentworld.http_server.lifespan import Scope
from agentworld.loopback import host_name, is_loopback, origin_host

READING = frozenset(("GET", "HEAD", "OPTIONS"))
# A deletion has no body, and no page may send one to another site without asking first.
_TYPELESS = READING | {"DELETE"}
_OWN_SITE = frozenset(("same-origin", "none"))
_LOOKED_AT = frozenset((b"host", b"origin", b"sec-fetch-site", b"content-type", b"content-encoding"))
_MOST, _LONGEST = 256, 1024
_Said = dict[bytes, list[str]]


class OriginGuard:
    """The rule for one server. `gateway_url`'s host and the `allowed_hosts` are the server's own names too."""

    def __init__(self, settings: ServeSettings) -> None:
        self._loopback = is_loopback(settings.host)
        own = urlsplit(settings.gateway_url).hostname if settings.gateway_url else None
        self._passed: set[tuple[Any, ...]] = set()
        """What was looked at of requests that may pass: most say the same."""
        self._own = {each.strip("[]").rstrip(".").lower() for each in (*settings.allowed_hosts, own or "") if each}

    def fault(self, scope: Scope) -> AgentWorldError | None:
        """What is wrong with the request's Host, Origin or type; None where it may pass."""
        seen = [(low, value) for name, value in scope.get("headers") or () if (low := name.lower()) in _LOOKED_AT]
        request = (scope.get("method", "GET"), scope.get("path") == otlp_replies.PATH, *seen)
        if request in self._passed:
            return None
        fault = self._fault(scope, seen)
        if fault is None and sum([len(name) + len(value) for name, value in seen]) <= _LONGEST:
            if len(self._passed) >= _MOST:
                self._passed.clear()
            self._passed.add(request)
        return fault

    def _fault(self, scope: Scope, seen: list[tuple[bytes, bytes]]) -> AgentWorldError | None:
        said = _said(seen)
        # Servers below may add an empty one where a program sends none.
        hosts = [each for each in said.get(b"host", ()) if each]
        names = [host_name(each) for each in hosts]
        if len(names) > 1 or None in names:
            return InvalidRequestError("The Host header is no host with a port from 0 to 65535", path="Host")
        name = names[0] if names else None
        if self._loopback and name is not None and not self._is_own(name):
            return ForbiddenError(
                f"This server does not answer as {name!r}",
                path="Host",
                hint="Call it as 127.0.0.1 or localhost, or start it with --allowed-host NAME",
            )
        method = scope.get("method", "GET")
        if method == "OPTIONS":
            return None  # Whoever asks for permission gets none, but an answer.
        return self._foreign(said, name, method) or (None if method in _TYPELESS else _type_fault(scope, said))

    def _foreign(self, said: _Said, host: str | None, method: str) -> ForbiddenError | None:
        for origin in said.get(b"origin", ()):
            site = origin_host(origin)
            # Elsewhere than on a loopback address every name of the server is its own, as it cannot know them.
            if not self._is_own(site) and (self._loopback or site is None or site != host):
                return ForbiddenError(
                    f"Pages of {origin[:100]!r} may not call this server",
                    path="Origin",
                    hint="Programs send no Origin; for a page of another host, start it with --allowed-host NAME",
                )
        if method not in READING:
            for site in said.get(b"sec-fetch-site", ()):
                if site.lower() not in _OWN_SITE:
                    return ForbiddenError(
                        "Pages of other sites may not call this server",
                        path="Sec-Fetch-Site",
                        hint="Call it by a program",
                    )
        return None

    def _is_own(self, name: str | None) -> bool:
        return name is not None and (name in self._own or (self._loopback and is_loopback(name)))


def _type_fault(scope: Scope, said: _Said) -> MediaTypeError | None:
    """What is wrong with the type of a body; a write without a body has to say it too."""
    if scope["path"] != otlp_replies.PATH:  # Exporters of spans compress theirs.
        for encoding in said.get(b"content-encoding", ()):
            if encoding.lower() not in ("", "identity"):
                return MediaTypeError(
                    f"A body that was packed with {encoding[:60]!r} cannot be taken",
                    path="Content-Encoding",
                    hint="Send it as it is; clients have a setting for the compression of requests",
                )
    kind, _, parameters = said.get(b"content-type", [""])[0].partition(";")
    kind = kind.strip().lower()
    if kind == otlp_replies.PROTOBUF and scope["path"] == otlp_replies.PATH:
        return None  # No page may send it to another site without asking first.
    charset = parameters.lower().replace(" ", "").replace('"', "")
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        if "charset=" not in charset or "charset=utf-8" in charset:
            return None
        return MediaTypeError("The body must be UTF-8", path="Content-Type", hint="Send Content-Type: application/json")
    return MediaTypeError(
        f"A body of {kind[:60]!r} cannot be taken" if kind else "The request does not say what its body is",
        path="Content-Type",
        hint="Send Content-Type: application/json",
    )


def _said(seen: list[tuple[bytes, bytes]]) -> _Said:
    """The headers that the rule looks at, by name in lower case."""
    said: _Said = {}
    for name, value in seen:
        said.setdefault(name, []).append(value.decode("latin-1").strip())
    return said
