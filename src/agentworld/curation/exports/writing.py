"""Files of one split: rows go out in groups as they come, a new file begins where one is large enough."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from agentworld.curation.datasets.provenance import PROVENANCE
from agentworld.curation.exports.columns import (
    Kind,
    arrow,
    arrow_array,
    arrow_type,
    features,
    json_text,
    stored,
)
from agentworld.records import digest, exact_json

ROWS_OF_A_GROUP = 1000
BYTES_OF_A_GROUP = 32 << 20
_MOST_SHAPES = 10_000


class Writer(Protocol):
    """Writes the rows of one split."""

    rows: int

    def add(self, row: Mapping[str, Any]) -> None:
        """Raises NotPlain where a value cannot stand in its column."""

    def close(self) -> list[Path]:
        """Write what is held; the files in order."""

    def stop(self) -> None:
        """Let go of the file, whatever is in it."""


class JsonlWriter:
    """One JSON object a line."""

    def __init__(self, folder: Path, split: str, columns: Mapping[str, Kind], shard_bytes: int) -> None:
        self.rows = 0
        self._folder, self._split, self._columns, self._most = folder, split, columns, shard_bytes
        self._files: list[Path] = []
        self._open: io.BufferedWriter | None = None

    def add(self, row: Mapping[str, Any]) -> None:
        """See Writer."""
        line = exact_json.encode({name: jsonable(row.get(name)) for name in self._columns})
        if self._open is None:
            self._files.append(self._folder / f"{self._split}-{len(self._files):05d}.jsonl")
            self._open = self._files[-1].open("wb")
        self._open.write(line + b"\n")
        self.rows += 1
        if self._open.tell() >= self._most:
            self._open.close()
            self._open = None

    def close(self) -> list[Path]:
        """See Writer."""
        self.stop()
        return self._files

    def stop(self) -> None:
        """See Writer."""
        if self._open is not None:
            self._open.close()
            self._open = None


class DocumentWriter:
    """Each row's document as a file of its own, in a folder of the split. Where it comes from stands in its `extra`."""

    def __init__(self, folder: Path, split: str) -> None:
        self.rows = 0
        self._folder = folder / split

    def add(self, row: Mapping[str, Any]) -> None:
        """See Writer."""
        document, about = row["document"], row[PROVENANCE]
        own = document.setdefault("extra", {}).setdefault(PROVENANCE, {})
        own["dataset"] = about
        self._folder.mkdir(exist_ok=True)
        # Ids may differ in the case of their letters alone, which some file systems do not tell apart.
        name = f"{self.rows:06d}-{about['trajectory_id'].replace(':', '_')}.json"
        (self._folder / name).write_bytes(exact_json.encode(document))
        self.rows += 1

    def close(self) -> list[Path]:
        """The folder, where something is in it."""
        return [self._folder] if self.rows else []

    def stop(self) -> None:
        """Nothing is open."""


class ParquetWriter:
    """Parquet with zstd, and with the features that `datasets` reads its columns by."""

    def __init__(
        self, folder: Path, split: str, columns: Mapping[str, Kind], shard_bytes: int, left_out: Counter[str]
    ) -> None:
        self.rows = 0
        self._pa = arrow()
        self._folder, self._split, self._columns, self._most = folder, split, columns, shard_bytes
        self._left_out = left_out
        self._files: list[Path] = []
        self._schema: Any = None
        self._writer: Any = None
        self._sink: io.BufferedWriter | None = None
        self._held: list[dict[str, Any]] = []
        self._bytes = 0
        self._shapes: dict[bytes, bool] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """See Writer."""
        held = {name: stored(kind, row.get(name)) for name, kind in self._columns.items()}
        self._held.append(held)
        self._bytes += sum(map(_size, held.values()))
        self.rows += 1
        if len(self._held) >= ROWS_OF_A_GROUP or self._bytes >= BYTES_OF_A_GROUP:
            self._flush()

    def close(self) -> list[Path]:
        """See Writer."""
        self._flush()
        self.stop()
        return self._files

    def stop(self) -> None:
        """See Writer."""
        writer, sink = self._writer, self._sink
        self._writer = self._sink = None
        try:
            if writer is not None:
                writer.close()  # Or it does so when it is collected, and finds its file closed.
        finally:
            if writer is not None:
                writer.is_open = False
            if sink is not None:
                sink.close()

    def _flush(self) -> None:
        if not self._held:
            return
        if self._schema is None:
            self._schema = self._make_schema()
        kept = [row for row in self._held if self._fits(row)]
        self.rows -= len(self._held) - len(kept)
        self._left_out["tools_of_another_shape"] += len(self._held) - len(kept)
        self._held, self._bytes = [], 0
        if not kept:
            return
        if self._writer is None:
            self._files.append(self._folder / f"{self._split}-{len(self._files):05d}.parquet")
            self._sink = self._files[-1].open("wb")
            self._writer = self._pa.parquet.ParquetWriter(self._sink, self._schema, compression="zstd")
        arrays = [
            arrow_array(kind, [row[name] for row in kept], self._schema.field(name).type)
            for name, kind in self._columns.items()
        ]
        self._writer.write_table(self._pa.Table.from_arrays(arrays, schema=self._schema))
        assert self._sink is not None
        if self._sink.tell() >= self._most:
            self.stop()

    def _make_schema(self) -> Any:
        types = {}
        for name, kind in self._columns.items():
            sample = next((row[name] for row in self._held if row[name]), None) if kind == "plain_tools" else None
            types[name] = arrow_type(kind, sample)
        about = {"info": {"features": features(self._columns, types)}}
        fields = [self._pa.field(name, kind) for name, kind in types.items()]
        return self._pa.schema(fields, metadata={"huggingface": msgspec.json.encode(about)})

    def _fits(self, row: Mapping[str, Any]) -> bool:
        """Whether plain columns give back what is put in: a struct gives objects the keys of all others, too."""
        for name, kind in self._columns.items():
            if kind != "plain_tools" or not row[name]:
                continue
            shape = digest(json_text(row[name]).encode())  # Tools are long, and there may be many.
            if shape not in self._shapes:
                if len(self._shapes) >= _MOST_SHAPES:
                    self._shapes.clear()
                self._shapes[shape] = self._comes_back(row[name], self._schema.field(name).type)
            if not self._shapes[shape]:
                return False
        return True

    def _comes_back(self, value: Any, kind_type: Any) -> bool:
        try:
            return bool(self._pa.array([value], kind_type).to_pylist() == [value])
        except (self._pa.ArrowInvalid, self._pa.ArrowTypeError, self._pa.ArrowNotImplementedError):
            return False


def jsonable(value: Any) -> Any:
    """A value of a row as JSON has it."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def _size(value: Any) -> int:
    """About how many bytes are held for a value."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, list | tuple):
        return 32 * len(value) if value and isinstance(value[0], int | float) else sum(map(_size, value))
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    return 8
