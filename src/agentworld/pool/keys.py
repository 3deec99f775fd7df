"""API keys: what one may do, how its secret is made, and what is kept of it.

A pool keeps the digest of a secret only. A secret is 256 random bits, so a plain digest is as good as a slow and salted
one is for passwords, and it can be looked up.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any, Literal, Protocol, get_args

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.pool.bounds import check_name, wrong_type
from agentworld.pool.plain_values import as_number
from agentworld.records import check_id, new_id

Scope = Literal["write", "feedback", "read", "lease", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
SECRET_PREFIX = "aw-k-"
MAX_LIFETIME = 100 * 366 * 86_400.0  # seconds


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key without its secret. `scopes`: write (call models, append steps, rewards, feedback), feedback (what people
    say on a page: ratings, comments, corrections), read (pages, events, counters), lease (batches, publishing a
    policy), admin (all of these, keys, pauses, deletion).

    `channel` and `trajectory_id`: the only one that it sees and writes. Times are seconds since the epoch.
    """

    key_id: str
    name: str
    scopes: tuple[Scope, ...]
    created_at: float
    channel: str | None = None
    trajectory_id: str | None = None
    expires_at: float | None = None
    revoked_at: float | None = None

    def lives(self, now: float) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key to make; without `expires_in` (seconds) it holds until it is revoked."""

    name: str
    scopes: tuple[Scope, ...]
    channel: str | None = None
    trajectory_id: str | None = None
    expires_in: float | None = None


class IssuedKey(msgspec.Struct, frozen=True):
    """A key that was made just now, with its secret, which nobody can read again."""

    secret: str
    key: ApiKey


class StoredKey(msgspec.Struct, frozen=True):
    """A key with the digest of its secret, as who checks keys sees it."""

    key: ApiKey
    digest: bytes


class KeyMethods(Protocol):
    """See Pool."""

    def create_key(self, new: NewKey) -> IssuedKey:
        """Make an API key. The pool keeps a digest of its secret only."""

    def list_keys(self) -> list[ApiKey]:
        """All keys in the order in which they were made, revoked and expired ones too."""

    def revoke_key(self, key_id: str) -> ApiKey:
        """End a key for good; again is no error. NotFoundError where there is none."""

    def find_key(self, digest: bytes) -> StoredKey | None:
        """The key whose secret has this digest (`secret_digest`), revoked and expired ones too."""

    def get_key(self, key_id: str) -> StoredKey | None:
        """The key of this id, revoked and expired ones too."""


def new_secret() -> str:
    """A secret of 256 random bits."""
    return SECRET_PREFIX + secrets.token_urlsafe(32)


def secret_digest(secret: str) -> bytes:
    """What a pool keeps of a secret: 32 bytes of BLAKE2b."""
    return hashlib.blake2b(secret.encode("utf-8", "surrogatepass"), digest_size=32, person=b"agentworld.key").digest()


def key_from(new: NewKey, now: float) -> ApiKey:
    """The key that `new` asks for; InvalidRequestError names what is wrong."""
    if not isinstance(new, NewKey):
        raise wrong_type(new, "a NewKey", "key")
    check_name(new.name, "name")
    if not new.name.strip():
        raise InvalidRequestError("a key needs a name", path="name", hint="Say who uses it, such as trainer-1")
    scopes = _scopes(new.scopes)
    for field, value in (("channel", new.channel), ("trajectory_id", new.trajectory_id)):
        if value is not None:
            if field == "channel":
                check_name(value, field)
                if not value:
                    raise InvalidRequestError("no channel has an empty name", path=field, hint="Leave it out for all")
            else:
                check_id(value, field)
            if "admin" in scopes:
                raise InvalidRequestError(
                    f"a key with the scope admin cannot be bound to a {field.removesuffix('_id')}",
                    path="scopes",
                    hint="Who may make keys may do everything; leave one of the two out",
                )
    if new.trajectory_id is not None and "lease" in scopes:
        raise InvalidRequestError("a key that is bound to a trajectory cannot lease batches", path="scopes")
    return ApiKey(
        key_id=new_id("key"),
        name=new.name,
        scopes=scopes,
        created_at=now,
        channel=new.channel,
        trajectory_id=new.trajectory_id,
        expires_at=None if new.expires_in is None else now + _lifetime(new.expires_in),
    )


def _scopes(given: Sequence[Any]) -> tuple[Scope, ...]:
    if isinstance(given, str) or not isinstance(given, list | tuple):
        raise wrong_type(given, "a list of scopes", "scopes")
    for number, scope in enumerate(given):
        if scope not in SCOPES:
            raise InvalidRequestError(
                f"{str(scope)[:40]!r} is no scope", path=f"scopes[{number}]", hint=f"Use {', '.join(SCOPES)}"
            )
    if not given:
        raise InvalidRequestError("a key needs a scope", path="scopes", hint=f"Use {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in given)


def _lifetime(seconds: Any) -> float:
    number = as_number(seconds)
    if isinstance(number, bool) or not isinstance(number, int | float) or not 1 <= number <= MAX_LIFETIME:
        raise InvalidRequestError("a key expires in 1 s to 100 years", path="expires_in")
    return float(number)
