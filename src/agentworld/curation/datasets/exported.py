"""One row of a file that an export wrote, to be traced back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentworld.curation.datasets.provenance import PROVENANCE
from agentworld.errors import ConfigError, InvalidRequestError, NotFoundError
from agentworld.records import exact_json


def exported_row(path: Path, number: int) -> dict[str, Any]:
    """The provenance of the row `number`, from 0, of a Parquet or JSONL file, or of a document of ATIF, which is one
    row; NotFoundError where it has fewer.
    """
    if number < 0:
        raise InvalidRequestError("rows are counted from 0", path="row")
    try:
        if path.suffix == ".parquet":
            return _of_parquet(path, number)
        if path.suffix == ".json":
            return _of_document(path, number)
        return _of_lines(path, number)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", path="file") from None


def _of_document(path: Path, number: int) -> dict[str, Any]:
    try:
        found = exact_json.decode(path.read_bytes())
    except ValueError as error:
        raise InvalidRequestError(f"{path} is no JSON: {error}", path="file") from None
    if number:
        raise NotFoundError(f"{path} has no row {number}", path="row")
    for name in ("extra", PROVENANCE, "dataset"):
        found = found.get(name) if isinstance(found, dict) else None
    return {} if found is None else {PROVENANCE: found}


def _of_lines(path: Path, number: int) -> dict[str, Any]:
    with path.open("rb") as lines:
        for at, line in enumerate(lines):
            if at == number:
                try:
                    row = exact_json.decode(line)
                except ValueError as error:
                    raise InvalidRequestError(f"line {at + 1} of {path} is no JSON: {error}", path="file") from None
                return row if isinstance(row, dict) else {}
    raise NotFoundError(f"{path} has no row {number}", path="row")


def _of_parquet(path: Path, number: int) -> dict[str, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError:
        raise ConfigError(
            "Parquet needs pyarrow", path="file", hint="Install it: pip install 'agentworld[parquet]'"
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            left = number
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if left < rows:
                    if PROVENANCE not in file.schema_arrow.names:
                        return {}
                    column = file.read_row_group(group, columns=[PROVENANCE]).column(0)
                    return {PROVENANCE: column[left].as_py()}
                left -= rows
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(f"{path} is no Parquet file: {error}", path="file") from None
    raise NotFoundError(f"{path} has no row {number}", path="row")
