"""Blobs in a folder or an object store, each a file named by its digest."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from agentworld.errors import ConfigError, NotFoundError, PoolError
from agentworld.pool.media.address import shown_folder, without_secrets
from agentworld.syncing import sync

_PARTS = 2  # folders of two digits each above a file, so that none grows without bound


class MediaFolder:
    """A folder that fsspec takes: `file:///...`, `s3://bucket/...` and so on; ConfigError where it does not.

    A blob is written whole before it has its name, and the pool's row comes after it: what a crash leaves behind is a
    blob without a row, never a row without a blob.
    """

    def __init__(self, url: str) -> None:
        self._given = url
        self.url = shown_folder(url)
        try:
            import fsspec
        except ImportError:
            raise ConfigError(
                "a media folder needs fsspec", path="pool", hint="Install it: pip install 'agentworld[media]'"
            ) from None
        try:
            self._system, self._root = fsspec.core.url_to_fs(url)
            self._system.makedirs(self._root, exist_ok=True)
        except Exception as error:  # fsspec and its drivers raise whatever their libraries do.
            reason = without_secrets(str(error), url)
            raise ConfigError(f"the media folder {self.url!r} cannot be used: {reason}", path="pool") from None

    def write(self, digest: bytes, data: bytes) -> None:
        """Store a blob; again is no error."""
        with self._translated(digest):
            if not self._system.exists(self._path(digest)):
                self._put(digest, data)

    def mend(self, digest: bytes, data: bytes) -> None:
        """Store a blob again where it is missing, or is not what it was."""
        with self._translated(digest):
            self._system.invalidate_cache()
            try:
                right = bytes(self._system.cat_file(self._path(digest))) == data
            except FileNotFoundError:
                right = False
            if not right:
                self._put(digest, data)

    def read(self, digest: bytes) -> bytes:
        """The bytes of a blob; NotFoundError where it is not there."""
        with self._translated(digest):
            return bytes(self._system.cat_file(self._path(digest)))

    def has(self, digest: bytes) -> bool:
        """Whether the blob is there."""
        with self._translated(digest):
            self._system.invalidate_cache()
            return bool(self._system.exists(self._path(digest)))

    def remove(self, digest: bytes) -> None:
        """Delete a blob; none is no error."""
        with self._translated(digest), contextlib.suppress(FileNotFoundError):
            self._system.rm_file(self._path(digest))

    def digests(self) -> Iterator[bytes]:
        """The blobs that are there."""
        for path in self._system.find(self._root):
            name = str(path).rpartition("/")[2]
            with contextlib.suppress(ValueError):
                if len(digest := bytes.fromhex(name)) == 16:
                    yield digest

    def _put(self, digest: bytes, data: bytes) -> None:
        path = self._path(digest)
        self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
        if self._is_local():
            _write_local(path, data)
        else:
            self._system.pipe_file(path, data)  # Object stores show a file once it is whole.

    def _path(self, digest: bytes) -> str:
        name = digest.hex()
        above = "/".join(name[2 * number : 2 * number + 2] for number in range(_PARTS))
        return f"{self._root.rstrip('/')}/{above}/{name}"

    def _is_local(self) -> bool:
        protocols: Any = self._system.protocol
        return "file" in ((protocols,) if isinstance(protocols, str) else protocols)

    @contextlib.contextmanager
    def _translated(self, digest: bytes) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise NotFoundError(f"the medium {digest.hex()} is not in {self.url}", path="digest") from None
        except OSError as error:
            reason = without_secrets(str(error), self._given)
            raise PoolError(f"the media folder {self.url} failed: {reason}", hint="Check it and try again") from None


def _write_local(path: str, data: bytes) -> None:
    """As durable as the pool's own commits."""
    partial = f"{path}.{os.getpid()}.partial"
    with open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    for folder in (os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
        sync(folder)
