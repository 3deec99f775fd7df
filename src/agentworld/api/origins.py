"""Who may call a server on a loopback address: programs on this machine, but no page of another site in a browser.

A browser runs pages of any site on this machine, and they can reach loopback addresses. With every request that could
change something it names the page's site in `Origin`, also where the body is a form or text, for which it asks no
permission first. In `Host` it names the address that it believes to call, which a page can only bend to a name of its
own (DNS rebinding). Programs send no `Origin`. So no content type has to be asked for, and `curl -d` works.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from agentworld.api.lifespan import Scope
from agentworld.config import ServeSettings
from agentworld.errors import AgentWorldError, ForbiddenError, InvalidRequestError
from agentworld.loopback import host_name, is_loopback, origin_host


class OriginGuard:
    """The rule for one server. `gateway_url`'s host is the server's own name too, as behind a proxy."""

    def __init__(self, settings: ServeSettings) -> None:
        self._guarded = is_loopback(settings.host)
        own = urlsplit(settings.gateway_url).hostname if settings.gateway_url else None
        self._own = {own.lower()} if own else set()

    def fault(self, scope: Scope) -> AgentWorldError | None:
        """What is wrong with the request's Host or Origin; None where it may pass."""
        # Servers below may add an empty one where a program sends none.
        hosts = [each for each in _headers(scope, b"host") if each]
        names = [host_name(each) for each in hosts]
        if len(names) > 1 or None in names:
            return InvalidRequestError("The Host header is no host with a port from 0 to 65535", path="Host")
        if not self._guarded:
            return None
        for name in names:
            if not self._is_own(name):
                return ForbiddenError(
                    f"This server does not answer as {name!r}",
                    path="Host",
                    hint="Call it as 127.0.0.1 or localhost; behind a proxy, set gateway_url to the address outside",
                )
        for origin in _headers(scope, b"origin"):
            if not self._is_own(origin_host(origin)):
                return ForbiddenError(
                    f"Pages of {origin[:100]!r} may not call this server",
                    path="Origin",
                    hint="Programs send no Origin; for a page outside this machine, set gateway_url to its address",
                )
        return None

    def _is_own(self, name: str | None) -> bool:
        return name is not None and (name in self._own or is_loopback(name))


def _headers(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for name, value in scope.get("headers") or () if name.lower() == wanted]
