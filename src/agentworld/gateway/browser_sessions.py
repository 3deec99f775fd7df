"""What a browser shows in the place of a key: a cookie that no script of the page can read.

`KEY.EXPIRY.MAC`, signed with what the pool keeps of the key that was shown at the sign-in, as session keys are. So it
needs no place in the pool, any worker can check it, it may do what that key may, and it ends with it.

A cookie belongs to a host and not to a port of it, so its name has the key's id: servers of several pools on one host
take nothing from each other, and replicas on one pool know the sign-in of the others, whatever their ports.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import NamedTuple

COOKIE = "agentworld_session"
"""How names of cookies begin; of those made before there was an id in it, the whole name."""
SESSIONS = 16
"""So many cookies of a request are looked at, those that were set last."""
_SIGNED = re.compile(r"(?P<key>key_[0-9a-z]{26})\.(?P<expiry>[0-9a-f]{1,12})\.(?P<mac>[\w-]{43})", re.ASCII)


class BrowserSession(NamedTuple):
    """What a cookie says; `expires_at`: seconds since the epoch; `cookie`: its name."""

    key_id: str
    expires_at: int
    mac: bytes
    cookie: str

    def is_signed_with(self, secret: bytes) -> bool:
        """Whether who knows `secret`, the digest of the key, signed it, in constant time."""
        return hmac.compare_digest(self.mac, _mac(secret, self.key_id, self.expires_at))


def cookie_of(key_id: str) -> str:
    """The name of the cookie of a sign-in with that key."""
    return f"{COOKIE}_{key_id.removeprefix('key_')}"


def signed_browser_session(key_id: str, secret: bytes, expires_at: int) -> str:
    """The value of the cookie; `secret`: the digest of the key `key_id`."""
    mac = base64.urlsafe_b64encode(_mac(secret, key_id, expires_at)).rstrip(b"=").decode()
    return f"{key_id}.{expires_at:x}.{mac}"


def read_browser_sessions(headers: Iterable[tuple[bytes, bytes]]) -> list[BrowserSession]:
    """The sessions in the headers `Cookie`, the latest first as browsers send them; some may be other servers'."""
    found: list[BrowserSession] = []
    for name, value in headers:
        if name.lower() != b"cookie":
            continue
        for part in value.decode("latin-1").split(";"):
            cookie, _, said = part.strip().partition("=")
            if not cookie.startswith(COOKIE) or (signed := _SIGNED.fullmatch(said)) is None:
                continue
            if cookie in (COOKIE, cookie_of(signed["key"])):
                mac = base64.urlsafe_b64decode(signed["mac"] + "=")
                found.append(BrowserSession(signed["key"], int(signed["expiry"], 16), mac, cookie))
    return found[: -SESSIONS - 1 : -1]


def _mac(secret: bytes, key_id: str, expires_at: int) -> bytes:
    said = f"{expires_at:x}.{key_id}".encode()
    return hashlib.blake2b(said, key=secret, digest_size=32, person=b"aw.browser").digest()
