"""Session keys: an API key for one trajectory, which agents get with its base URL.

`aw-t-TRAJECTORY` only names it, for clients that can set nothing else: where keys are optional it grants nothing that
the address does not. Where keys are required it is `aw-t-TRAJECTORY.KEY.EXPIRY.MAC`, signed with what the pool keeps of
the key that made it. So it needs no place in the pool, any worker can check it, it is worth no more than that key, and
ends with it.

A page key, `aw-p-TRAJECTORY.KEY.EXPIRY.MAC`, is signed likewise and may only say what people think of that trajectory:
it is for browsers, whose users can read it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import NamedTuple

from agentworld.errors import InvalidRequestError
from agentworld.records import check_id

PREFIX = "aw-t-"
PAGE_PREFIX = "aw-p-"
_SIGNED = re.compile(
    r"(?P<trajectory>.+)\.(?P<key>key_[0-9a-z]{26})\.(?P<expiry>[0-9a-f]{1,12})\.(?P<mac>[\w-]{43})",
    re.ASCII,
)


class SessionKey(NamedTuple):
    """What a session key says. `key_id`, `expires_at` (seconds since the epoch) and `mac` of a signed one alone.
    `page`: it is a page key.
    """

    trajectory_id: str
    key_id: str | None = None
    expires_at: int = 0
    mac: bytes = b""
    page: bool = False

    def is_signed_with(self, secret: bytes) -> bool:
        """Whether who knows `secret` signed it, in constant time."""
        return hmac.compare_digest(self.mac, _mac(secret, self.trajectory_id, self.expires_at, page=self.page))


def session_key(trajectory_id: str) -> str:
    """The key that routes its calls to this trajectory."""
    return PREFIX + check_id(trajectory_id, "trajectory_id")


def signed_session_key(trajectory_id: str, key_id: str, secret: bytes, expires_at: int) -> str:
    """The key that grants writing to this trajectory until `expires_at`; `secret`: the digest of the key `key_id`."""
    return _signed(session_key(trajectory_id), trajectory_id, key_id, secret, expires_at, page=False)


def signed_page_key(trajectory_id: str, key_id: str, secret: bytes, expires_at: int) -> str:
    """The key that grants feedback on this trajectory until `expires_at`, and nothing else."""
    named = PAGE_PREFIX + check_id(trajectory_id, "trajectory_id")
    return _signed(named, trajectory_id, key_id, secret, expires_at, page=True)


def read_session_key(key: str) -> SessionKey | None:
    """What a session key says, whoever made it; None for any other key."""
    page = key.startswith(PAGE_PREFIX)
    if not page and not key.startswith(PREFIX):
        return None
    said = key[len(PREFIX) :]  # Both are as long.
    signed = _SIGNED.fullmatch(said) if "." in said else None
    try:
        if signed is None:
            return SessionKey(check_id(said, "authorization"), page=page)
        mac = base64.urlsafe_b64decode(signed["mac"] + "=")
        trajectory_id, expiry = check_id(signed["trajectory"], "authorization"), int(signed["expiry"], 16)
        return SessionKey(trajectory_id, signed["key"], expiry, mac, page)
    except InvalidRequestError:
        return None


def trajectory_of(key: str) -> str | None:
    """The trajectory that a key was made for, or None for any other key."""
    found = read_session_key(key)
    return None if found is None else found.trajectory_id


def _signed(named: str, trajectory_id: str, key_id: str, secret: bytes, expires_at: int, *, page: bool) -> str:
    mac = base64.urlsafe_b64encode(_mac(secret, trajectory_id, expires_at, page=page)).rstrip(b"=").decode()
    return f"{named}.{key_id}.{expires_at:x}.{mac}"


def _mac(secret: bytes, trajectory_id: str, expires_at: int, *, page: bool) -> bytes:
    said = f"{expires_at:x}.{trajectory_id}".encode()
    person = b"aw.page" if page else b"aw.session"
    return hashlib.blake2b(said, key=secret, digest_size=32, person=person).digest()
