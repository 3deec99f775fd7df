"""Media: blobs in the pool's own table, or in a folder with a row for each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sqlalchemy import insert, select, update

from agentworld.errors import AgentWorldError, ConfigError, NotFoundError, PoolError
from agentworld.pool import counters, schema
from agentworld.pool.keeping.records import Problem, Progress
from agentworld.pool.media import Medium, check_medium, media_digest, read_digest
from agentworld.pool.media.folder import MediaFolder
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.store_base import SqlStore
from agentworld.pool.sql.transaction import Transaction

_AT_ONCE = 200
_m = schema.media
_FIND = sql(select(_m.c.media_type, _m.c.size, _m.c.data).where(_m.c.digest == parameter("digest")))
_KNOWN = sql(select(_m.c.pk).where(_m.c.digest == parameter("digest")))
_OUTSIDE = sql(
    select(_m.c.pk, _m.c.digest, _m.c.size)
    .where(_m.c.pk > parameter("above"), _m.c.data.is_(None))
    .order_by(_m.c.pk)
    .limit(parameter("limit"))
)
_MEND = sql(update(_m).where(_m.c.digest == parameter("digest")).values(data=parameter("data")))
_ADD = sql(insert(_m).values({column.name: parameter(column.name) for column in _m.c}))


class MediaMethods(SqlStore):
    """`media`: where blobs lie, None for the pool's own table; set by whoever opens the pool."""

    media: MediaFolder | None = None

    def put_media(self, data: bytes, media_type: str) -> str:
        """See Pool."""
        check_medium(data, media_type)
        digest = media_digest(data)
        with self._database.reading() as reader:
            known = reader.execute(_FIND, {"digest": digest})
        if not known:
            if self.media is not None:
                self.media.write(digest, data)
            self._writer.submit(lambda txn: self._add(txn, digest, data, media_type)).result()
        elif (kept := known[0]["data"]) is None:
            if self.media is not None:
                self.media.mend(digest, data)
        elif bytes(kept) != data:
            self._writer.submit(lambda txn: txn.execute(_MEND, {"digest": digest, "data": data})).result()
        return digest.hex()

    def get_media(self, digest: str) -> Medium:
        """See Pool."""
        named = read_digest(digest)
        with self._database.reading() as reader:
            rows = reader.execute(_FIND, {"digest": named})
        if not rows:
            raise NotFoundError(f"no medium {digest!r}", path="digest")
        data = self._read_blob(named) if rows[0]["data"] is None else bytes(rows[0]["data"])
        if media_digest(data) != named:
            raise PoolError(f"the medium {digest} is damaged", hint="Run `agentworld pool check`, and send it again")
        return Medium(digest, rows[0]["media_type"] or "application/octet-stream", data)

    def _add(self, txn: Transaction, digest: bytes, data: bytes, media_type: str) -> None:
        if txn.one(_KNOWN, {"digest": digest}) is not None:
            return
        if self.media is not None and not self.media.has(digest):
            self.media.write(digest, data)  # A collection took it since it was written.
        values = {
            "pk": txn.next_pk("media"),
            "digest": digest,
            "media_type": media_type,
            "size": len(data),
            "data": None if self.media is not None else data,
            "created_at": txn.now,
        }
        txn.execute(_ADD, values)
        txn.count(counters.MEDIA)
        txn.count(counters.MEDIA_BYTES, len(data))

    def _check_media(self) -> None:
        """ConfigError where blobs of the pool lie in a folder that is not known here: what goes would leave them."""
        if self.media is not None:
            return
        with self._database.reading() as reader:
            if reader.execute(_OUTSIDE, {"above": 0, "limit": 1}):
                raise ConfigError(
                    "media of this pool lie in a folder which is not known here, so they could not be removed",
                    path="pool",
                    hint="Add ?media=FOLDER to the pool's URL, as it was when they were stored",
                )

    def _read_blob(self, digest: bytes) -> bytes:
        if self.media is None:
            raise PoolError(
                f"the medium {digest.hex()} lies in the pool's media folder, which is not known here",
                hint="Add ?media=FOLDER to the pool's URL",
            )
        return self.media.read(digest)

    def _remove_blobs(self, digests: list[bytes]) -> None:
        """Delete blobs outside whose rows are gone, unless they have come back."""

        def remove(txn: Transaction, digest: bytes) -> None:
            # While nobody writes, so that no row for it can come in between.
            if txn.one(_KNOWN, {"digest": digest}) is None and self.media is not None:
                self.media.remove(digest)

        for digest in digests if self.media is not None else []:
            self._writer.submit(partial(remove, digest=digest)).result()

    def _outside_problems(self, progress: Progress) -> Iterator[Problem]:
        """Blobs in the folder that are missing, or not what their digest says."""
        above, seen = 0, 0
        while True:
            with self._database.reading() as reader:
                rows = reader.execute(_OUTSIDE, {"above": above, "limit": _AT_ONCE})
            for row in rows:
                above, seen = row["pk"], seen + 1
                digest = bytes(row["digest"])
                try:
                    data = self._read_blob(digest)
                    right = media_digest(data) == digest and len(data) == row["size"]
                    fault = None if right else "the bytes in the folder are not those of its digest"
                except AgentWorldError as error:
                    fault = error.message
                if fault is not None:
                    yield Problem("media", "media", digest.hex(), fault, "Restore the folder from a backup")
                progress("media outside", seen, None)
            if len(rows) < _AT_ONCE:
                return

    def _stray_blobs(self) -> list[bytes]:
        """Blobs in the folder without a row: what a crash left between the two."""
        if self.media is None:
            return []
        stray = []
        for digest in self.media.digests():
            with self._database.reading() as reader:
                if not reader.execute(_KNOWN, {"digest": digest}):
                    stray.append(digest)
        return stray
