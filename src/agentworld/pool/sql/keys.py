"""API keys."""

from __future__ import annotations

import msgspec
from sqlalchemy import insert, select, update

from agentworld.errors import NotFoundError
from agentworld.pool import schema
from agentworld.pool.keys import ApiKey, IssuedKey, NewKey, StoredKey, key_from, new_secret, secret_digest
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.transaction import Transaction

_k = schema.keys
_NAMES = ("key_id", "name", "channel", "trajectory_id", "created_at", "expires_at")
_INSERT = sql(insert(_k).values({name: parameter(name) for name in ("pk", "digest", "scopes", *_NAMES)}))
_ALL = sql(select(_k).order_by(_k.c.pk))
_BY_ID = sql(select(_k).where(_k.c.key_id == parameter("id")))
_BY_DIGEST = sql(select(_k).where(_k.c.digest == parameter("of_digest")))
_REVOKE = sql(update(_k).where(_k.c.key_id == parameter("id")).values(revoked_at=parameter("at")))


def create(txn: Transaction, new: NewKey) -> IssuedKey:
    """Make a key."""
    key, secret = key_from(new, txn.now), new_secret()
    row = {name: getattr(key, name) for name in _NAMES}
    scopes = msgspec.json.encode(key.scopes).decode()
    txn.execute(_INSERT, row | {"pk": txn.next_pk("keys"), "digest": secret_digest(secret), "scopes": scopes})
    return IssuedKey(secret, key)


def revoke(txn: Transaction, key_id: str) -> ApiKey:
    """End a key."""
    row = txn.one(_BY_ID, {"id": key_id})
    if row is None:
        raise NotFoundError(f"no key {key_id[:100]!r}", path="key_id", hint="`agentworld keys list` shows their ids")
    key = _key(row)
    if key.revoked_at is not None:
        return key
    txn.execute(_REVOKE, {"id": key_id, "at": txn.now})
    return msgspec.structs.replace(key, revoked_at=txn.now)


def all_keys(reader: Reader) -> list[ApiKey]:
    """Every key."""
    return [_key(row) for row in reader.execute(_ALL, {})]


def by_id(reader: Reader, key_id: str) -> StoredKey | None:
    """The key of this id."""
    return _stored(reader.execute(_BY_ID, {"id": key_id}))


def by_digest(reader: Reader, digest: bytes) -> StoredKey | None:
    """The key whose secret has this digest."""
    return _stored(reader.execute(_BY_DIGEST, {"of_digest": digest}))


def _stored(rows: list[Row]) -> StoredKey | None:
    return StoredKey(_key(rows[0]), bytes(rows[0]["digest"])) if rows else None


def _key(row: Row) -> ApiKey:
    scopes = msgspec.json.decode(row["scopes"])
    return ApiKey(**{name: row[name] for name in _NAMES}, scopes=tuple(scopes), revoked_at=row["revoked_at"])
