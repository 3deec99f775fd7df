"""API keys over HTTP, for who has the scope admin."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get, post
from litestar.datastructures import State
from litestar.params import FromPath, RawBody

from agentworld.api.access import reach
from agentworld.api.bodies import decode
from agentworld.client.wire import API
from agentworld.pool.keys import ApiKey, IssuedKey, NewKey
from agentworld.pool.protocol import Page


class KeyRequest(NewKey, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to make: who uses it, what it may do, what it is bound to, and for how many seconds it holds."""

    name: Annotated[str, msgspec.Meta(min_length=1)]


class RevokeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to say."""


@post(f"{API}/keys", status_code=201, sync_to_thread=True, opt={"body": KeyRequest})
def create_key(state: State, body: RawBody) -> IssuedKey:
    """Make a key. Its secret is in this reply and nowhere else."""
    sent = decode(body, KeyRequest)
    new = NewKey(**{name: getattr(sent, name) for name in NewKey.__struct_fields__})
    issued = reach(state).create_key(new)
    state.access.forget_unknown()
    return issued


@get(f"{API}/keys", sync_to_thread=True)
def list_keys(state: State) -> Page[ApiKey]:
    """All keys without their secrets, revoked and expired ones too."""
    return Page(reach(state).list_keys())


@post(f"{API}/keys/{{key_id:str}}/revoke", status_code=200, sync_to_thread=True, opt={"body": RevokeRequest})
def revoke_key(state: State, key_id: FromPath[str], body: RawBody) -> ApiKey:
    """End a key for good; again is no error. Servers may let it pass for a few seconds more."""
    decode(body, RevokeRequest)
    return reach(state).revoke_key(key_id)


ROUTES = [create_key, list_keys, revoke_key]
