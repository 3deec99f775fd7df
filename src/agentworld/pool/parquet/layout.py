"""The files of an export and their columns.

Steps and trajectories field by field: ids as lists of uint32, log-probabilities as lists of float32, what nests as JSON
text. The other files are the rows of their tables, and `owner` is the trajectory that they go with. All
files have the order of trajectories.parquet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from sqlalchemy import Float, LargeBinary, Table, Text

from agentworld.errors import ConfigError
from agentworld.pool import schema
from agentworld.pool.exact_text import read_json, stored_json
from agentworld.records import FeedbackKind, Step, Trajectory, exact_json

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["text", "whole", "real", "flag", "json", "ids", "mask", "logprobs"]

TRAJECTORY: dict[str, Kind] = {
    **dict.fromkeys(("trajectory_id", "group_id", "agent", "channel", "user", "status", "readiness"), "text"),
    **dict.fromkeys(("group_size", "rollout_index", "attempt", "step_count", "prompt_tokens"), "whole"),
    **dict.fromkeys(("response_tokens", "sampled_tokens"), "whole"),
    **dict.fromkeys(("priority", "reward", "created_at", "completed_at"), "real"),
    **dict.fromkeys(("task", "metadata", "rewards", "labels", "annotations", "policy"), "json"),
    "excluded_reason": "text",
    "masked": "flag",
}
STEP: dict[str, Kind] = {
    **dict.fromkeys(("step_id", "trajectory_id", "exchange_id", "group_id", "channel", "parent_step_id"), "text"),
    **dict.fromkeys(("supersedes", "fork_reason", "agent", "model", "requested_model", "dialect"), "text"),
    **dict.fromkeys(("token_source", "vocabulary", "logprob_space", "finish_reason", "readiness"), "text"),
    "excluded_reason": "text",
    **dict.fromkeys(("choice_index", "step_index", "prompt_length", "response_length"), "whole"),
    **dict.fromkeys(("reward", "created_at", "latency_ms"), "real"),
    **dict.fromkeys(("policy", "version_spans", "prompt_messages", "tools", "response_message", "sampling"), "json"),
    **dict.fromkeys(("usage", "rewards", "labels", "annotations", "metadata"), "json"),
    **dict.fromkeys(("late", "is_last"), "flag"),
    "prompt_ids": "ids",
    "response_ids": "ids",
    "response_mask": "mask",
    "response_logprobs": "logprobs",
}
# Columns of lists, which are read and written as numpy arrays.
ARRAYS = ("prompt_ids", "response_ids", "response_mask", "response_logprobs")
# Tables whose rows go as they are, but for the primary key; and which of their columns hold JSON.
ROWS: dict[str, tuple[Table, tuple[str, ...]]] = {
    "exchanges": (schema.exchanges, ("record",)),
    "rewards": (schema.rewards, ("details",)),
    "feedback": (schema.feedback, ("value", "comment")),
    "annotations": (schema.annotation_arrays, ()),
    "groups": (schema.groups, ()),
    "decisions": (schema.decisions, ("labels",)),
}
# The files of dataset versions, which go with no trajectory; `record` is a DatasetRow. `deleted`, `reason`,
# `deleted_at`: of those of its trajectories that were deleted on request.
DATASETS: dict[str, dict[str, Kind]] = {
    "datasets": {"version": "text", "manifest": "json"},
    "dataset_rows": {"version": "text", "record": "json", "deleted": "flag", "reason": "text", "deleted_at": "real"},
}
# Texts of a file beside the columns of its table: what its rows are of, by id.
NAMED: dict[str, tuple[str, ...]] = {"decisions": ("step_id",)}
# Columns that exports of earlier versions have not; null there.
LATER_COLUMNS: dict[str, tuple[str, ...]] = {"feedback": ("content",)}
# Columns that hold one of a few words.
_TARGETS = ("step", "trajectory")
WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "exchanges": {"status": ("ok", "aborted", "error")},
    "rewards": {"target": _TARGETS},
    "feedback": {"target": _TARGETS, "kind": get_args(FeedbackKind)},
    "annotations": {"target": _TARGETS},
}
_LEFT_OUT = ("pk", "row_pk", "trajectory", "ready_seq")  # numbers of one pool, which mean nothing in another
OWNER = "owner"


def arrow() -> Any:
    """pyarrow, which is loaded only where it is needed; ConfigError where it is missing."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            "Parquet needs pyarrow", path="format", hint="Install it: pip install 'agentworld[parquet]'"
        ) from None
    return pyarrow


def columns_of(name: str) -> list[str]:
    """The columns of a file of rows, `owner` aside."""
    return [str(column.name) for column in ROWS[name][0].columns if column.name not in _LEFT_OUT]


def arrow_schema(name: str) -> pa.Schema:
    """The columns of a file."""
    pa = arrow()
    kinds = {
        "text": pa.string(), "json": pa.string(), "whole": pa.int64(), "real": pa.float64(), "flag": pa.bool_(),
        "ids": pa.list_(pa.uint32()), "mask": pa.list_(pa.uint8()), "logprobs": pa.list_(pa.float32()),
    }  # fmt: skip
    if name in DATASETS:
        return pa.schema([pa.field(field, kinds[kind]) for field, kind in DATASETS[name].items()])
    if name in ("trajectories", "steps"):
        fields = TRAJECTORY if name == "trajectories" else STEP
        found = [pa.field(field, kinds[kind]) for field, kind in fields.items()]
        return pa.schema([*found, pa.field("content", pa.binary())] if name == "steps" else found)
    table = ROWS[name][0]
    own = [pa.field(column, _arrow_type(pa, table.c[column])) for column in columns_of(name)]
    named = [pa.field(column, pa.string()) for column in NAMED.get(name, ())]
    return pa.schema([pa.field(OWNER, pa.string()), *named, *own])


def plain_record(record: Trajectory | Step) -> dict[str, Any]:
    """A record as a row of its file, but for its arrays."""
    fields = TRAJECTORY if isinstance(record, Trajectory) else STEP
    row: dict[str, Any] = {}
    for name, kind in fields.items():
        if name in ARRAYS:
            continue
        value = getattr(record, name)
        row[name] = exact_json.encode(value).decode() if kind == "json" and value is not None else value
    return row


def record_values(row: dict[str, Any], kind: Literal["trajectories", "steps"]) -> dict[str, Any]:
    """The fields of a record from a row, but for its arrays; raises msgspec's errors where JSON is broken."""
    fields = TRAJECTORY if kind == "trajectories" else STEP
    values = {}
    for name, how in fields.items():
        value = None if name in ARRAYS else row.get(name)
        if value is not None:
            values[name] = exact_json.decode(value.encode()) if how == "json" else value
    return values


def plain_row(name: str, owner: str, row: Any) -> dict[str, Any]:
    """A row of a table as a row of its file; texts as they were said."""
    table, texts = ROWS[name]
    found: dict[str, Any] = {OWNER: owner, **{column: row[column] for column in NAMED.get(name, ())}}
    for column in columns_of(name):
        value = row[column]
        if value is not None and column in texts:
            value = exact_json.encode(read_json(value, Any)).decode()
        elif value is not None and isinstance(table.c[column].type, LargeBinary):
            value = bytes(value)
        found[column] = value
    return found


def table_row(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """The columns of a table from a row of its file; ValueError where one holds what its table cannot."""
    table, texts = ROWS[name]
    if row.get("target") == "trajectory" and row["target_id"] != row[OWNER]:
        raise ValueError(f"it goes with {row[OWNER]!r} and is on {row['target_id']!r}")
    found = {column: row[column] for column in NAMED.get(name, ())}
    later = LATER_COLUMNS.get(name, ())
    for column in columns_of(name):
        value = row.get(column) if column in later else row[column]
        if value is None and not table.c[column].nullable:
            raise ValueError(f"{column} is null")
        if value not in WORDS.get(name, {}).get(column, (value,)):
            raise ValueError(f"{column} is {str(value)[:40]!r}, which means nothing")
        if value is not None and column in texts:
            said = exact_json.decode(value.encode())
            if column in ("labels", "record", "details") and not isinstance(said, dict):
                raise ValueError(f"{column} is no object")
            value = stored_json(said).decode()
        found[column] = value
    return found


def as_written(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """The columns of a file as an export writes them, also where others wrote the file anew in types of their own;
    raises pyarrow's errors where that cannot be.
    """
    pa = arrow()
    wanted = arrow_schema(name)
    fields = [wanted.field(each) for each in batch.schema.names if each in wanted.names]
    columns = [batch.column(field.name) for field in fields]
    cast = [one if one.type == field.type else one.cast(field.type) for one, field in zip(columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=pa.schema(fields))


def list_column(arrays: list[npt.NDArray[Any] | None], kind: Any) -> Any:
    """Arrays as one column of lists, null where there is none; NaN becomes null."""
    pa = arrow()
    lengths = np.fromiter((0 if array is None else len(array) for array in arrays), dtype=np.int32, count=len(arrays))
    offsets = np.concatenate([np.zeros(1, dtype=np.int32), np.cumsum(lengths, dtype=np.int32)])
    there = [array for array in arrays if array is not None]
    values = np.concatenate(there) if there else np.zeros(0)
    nulls = np.fromiter((array is None for array in arrays), dtype=bool, count=len(arrays))
    items = pa.array(values, type=kind.value_type, from_pandas=True)
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=kind, mask=pa.array(nulls))


def arrays_of(column: Any) -> list[npt.NDArray[Any] | None]:
    """The lists of a column as views of one array; null within a list is NaN."""
    offsets = column.offsets.to_numpy()
    values = column.values.to_numpy(zero_copy_only=False)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return [
        values[begin:end] if there else None
        for begin, end, there in zip(offsets[:-1].tolist(), offsets[1:].tolist(), valid.tolist(), strict=True)
    ]


def _arrow_type(pa: Any, column: Any) -> Any:
    for kind, own in ((Text, pa.string()), (LargeBinary, pa.binary()), (Float, pa.float64())):
        if isinstance(column.type, kind):
            return own
    return pa.int64()
