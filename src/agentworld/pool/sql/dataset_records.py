"""Rows of dataset versions as bytes, and back."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import msgspec
import zstandard

from agentworld.errors import PoolError
from agentworld.records import DatasetRow, exact_json


class _Coders(threading.local):
    """One of each for a thread: they let go of the interpreter's lock as they work, and must not be shared then."""

    def __init__(self) -> None:
        self.packer = zstandard.ZstdCompressor(level=3, write_content_size=True, write_checksum=False)
        self.unpacker = zstandard.ZstdDecompressor()


_coders = _Coders()


class Packed(NamedTuple):
    """A row that is ready to be put: what `_PUT` takes but for the version and the time."""

    position: int
    trajectory_id: str
    values: dict[str, Any]


def pack(row: DatasetRow) -> Packed:
    """A checked row as it is stored."""
    return Packed(
        row.position,
        row.trajectory_id,
        {
            "position": row.position,
            "trajectory_id": row.trajectory_id,
            "split": row.split,
            "digest": bytes.fromhex(row.digest),
            **record_columns(row),
        },
    )


def row_from(record: bytes) -> DatasetRow:
    """A stored row; PoolError where it is damaged."""
    try:
        return exact_json.decode(_coders.unpacker.decompress(record), DatasetRow)
    except (zstandard.ZstdError, msgspec.MsgspecError) as error:
        raise PoolError(
            f"the pool is damaged: a row of a dataset cannot be read: {error}", hint="Restore it from a backup"
        ) from None


def record_columns(row: DatasetRow) -> dict[str, Any]:
    """The columns that hold what the row says."""
    compared = any(said.other_id is not None for said in row.feedback)
    return {"record": _coders.packer.compress(exact_json.encode(row)), "compared": 1 if compared else None}
