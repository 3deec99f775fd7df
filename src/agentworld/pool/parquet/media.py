"""The media of an export: each blob that a message of its steps shows, once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from agentworld.errors import ConfigError, NotFoundError
from agentworld.pool.media import media_digest
from agentworld.pool.media.blob import Medium
from agentworld.pool.media.uses import media_uses_of
from agentworld.pool.parquet.layout import arrow
from agentworld.records import Message

NAME = "media"
_BYTES_OF_A_GROUP = 32 * 1024 * 1024
_ROWS_OF_A_GROUP = 1_000


class MediaFile:
    """The file that is written. `read`: Pool.get_media; what is not there is left out, and counted in `missing`."""

    def __init__(self, folder: Path, read: Callable[[str], Medium]) -> None:
        self._pa = arrow()
        self._read = read
        self._schema = self._pa.schema(
            [("digest", self._pa.string()), ("media_type", self._pa.string()), ("data", self._pa.binary())]
        )
        self._writer = self._pa.parquet.ParquetWriter(folder / f"{NAME}.parquet", self._schema, compression="zstd")
        self._seen: set[bytes] = set()
        self._held: list[dict[str, Any]] = []
        self._bytes = 0
        self.rows = 0
        self.missing = 0

    def add(self, messages: Iterable[Message]) -> None:
        """Those that the messages show and that are not in it yet."""
        for message in messages:
            for digest in media_uses_of(message):
                if digest not in self._seen:
                    self._seen.add(digest)
                    self._put(digest.hex())

    def close(self) -> None:
        """Write what is held, and the end of the file."""
        self._flush()
        self._writer.close()

    def _put(self, digest: str) -> None:
        try:
            medium = self._read(digest)
        except NotFoundError:
            self.missing += 1
            return
        self._held.append({"digest": digest, "media_type": medium.media_type, "data": medium.data})
        self._bytes += len(medium.data)
        self.rows += 1
        if self._bytes >= _BYTES_OF_A_GROUP or len(self._held) >= _ROWS_OF_A_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(self._pa.Table.from_pylist(self._held, schema=self._schema))
        self._held, self._bytes = [], 0


def read_media(folder: Path, write: Callable[[bytes, str], str]) -> int:
    """Put all media of an export into a pool by `write`, Pool.put_media; ConfigError where one is not what its digest
    says. Returns how many there are.
    """
    path = folder / f"{NAME}.parquet"
    if not path.is_file():
        raise ConfigError(f"{path} is missing", path="path", hint="Export again")
    count = 0
    try:
        for batch in arrow().parquet.ParquetFile(path).iter_batches(batch_size=1):
            for row in batch.to_pylist():
                if media_digest(row["data"]).hex() != row["digest"]:
                    raise ConfigError(
                        f"{path}: the medium {row['digest']} is damaged", path="path", hint="Export again"
                    )
                write(row["data"], row["media_type"])
                count += 1
    except (arrow().ArrowException, KeyError, TypeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", path="path") from None
    return count
