"""Signing in with a browser: a key for a cookie that no script can read and no other site can send."""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.datastructures import Cookie, State
from litestar.params import RawBody

from agentworld.api.access import CALLER
from agentworld.api.bodies import decode
from agentworld.client.wire import API
from agentworld.errors import ForbiddenError
from agentworld.gateway.access import EVERYTHING, NOTHING, Grant
from agentworld.gateway.browser_sessions import cookie_of, signed_browser_session
from agentworld.pool.keys import Scope

SESSION_SECONDS = 12 * 3600
"""After which a browser has to sign in again."""


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key, as `agentworld keys create` printed it."""

    key: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


class SignedIn(msgspec.Struct, frozen=True):
    """Who is calling: whether this server asks for keys, and what the caller may do. `key_id` is null without a key."""

    required: bool
    key_id: str | None
    scopes: list[Scope]
    channel: str | None
    trajectory_id: str | None


@get(f"{API}/session")
async def get_session(state: State) -> SignedIn:
    """Who is calling. Without a key that holds, nobody, who may do nothing where keys are required."""
    return _said(state, CALLER.get())


@post(f"{API}/session", status_code=200, opt={"body": SignIn})
async def sign_in(request: Request[Any, Any, Any], state: State, body: RawBody) -> Response[SignedIn]:
    """Exchange a key for the cookie of a session of 12 hours, which ends with the key too."""
    sent = decode(body, SignIn)
    grant: Grant = await state.access.grant([(b"x-api-key", sent.key.encode("utf-8", "replace"))])
    if grant.key_id is None or grant.secret is None:
        raise ForbiddenError(
            "this is no key to sign in with",
            path="key",
            hint="Use one that `agentworld keys create` made; where the server asks for none, there is no need to",
        )
    value = signed_browser_session(grant.key_id, grant.secret, int(time.time() + SESSION_SECONDS))
    name = cookie_of(grant.key_id)
    cookies = [_cookie(request, state, name, value, SESSION_SECONDS)]
    # Who signs in with another key is no more who it was.
    cookies += await _forgotten(request, state, but=name)
    return Response(_said(state, grant), cookies=cookies)


@delete(f"{API}/session", status_code=200)
async def sign_out(request: Request[Any, Any, Any], state: State) -> Response[SignedIn]:
    """Forget the cookies of this pool's keys; those of other servers on the host stay."""
    # What may be done without it.
    left = NOTHING if state.access.required else EVERYTHING
    return Response(_said(state, left), cookies=await _forgotten(request, state))


async def _forgotten(request: Request[Any, Any, Any], state: State, but: str | None = None) -> list[Cookie]:
    """What takes away the cookies that the request has of this pool's keys, except the one named `but`."""
    known = await state.access.sessions(request.scope["headers"])
    names = dict.fromkeys(session.cookie for session, _ in known)
    return [_cookie(request, state, name, "", 0) for name in names if name != but]


def _said(state: State, grant: Grant) -> SignedIn:
    required: bool = state.access.required
    return SignedIn(required, grant.key_id, sorted(grant.scopes), grant.channel, grant.trajectory_id)


def _cookie(request: Request[Any, Any, Any], state: State, name: str, value: str, seconds: int) -> Cookie:
    # A proxy that ends TLS is known by the address that agents are given.
    secure = request.url.scheme == "https" or (state.settings.gateway_url or "").startswith("https:")
    return Cookie(key=name, value=value, max_age=seconds, path="/", httponly=True, samesite="strict", secure=secure)


ROUTES = [get_session, sign_in, sign_out]
