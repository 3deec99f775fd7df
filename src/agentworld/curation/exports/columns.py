"""Columns of exports: what each kind is in Parquet, for `datasets`, and in JSON.

Messages and tools are JSON objects in lists, as `datasets` reads conversations: each object keeps exactly its own keys,
where a struct of Arrow would give each message the keys of all others, null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from agentworld.errors import ConfigError
from agentworld.records import exact_json

Kind = Literal[
    "text", "texts", "whole", "real", "flag", "flags", "reals",
    "json", "objects", "turns", "ids", "labels", "bits", "logprobs", "images", "about", "reward_model", "extra_info",
    "plain_messages", "plain_tools",
]  # fmt: skip

_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON = {"_type": "Json"}
_DTYPES: dict[str, type[np.signedinteger[Any]]] = {"ids": np.int64, "labels": np.int64, "bits": np.int8}
_NUMBERS = frozenset(("whole", "real", "reals", "flag", "flags", "ids", "labels", "bits", "logprobs", "images"))


class NotPlain(ValueError):
    """A value cannot stand in its column; the message is the reason under which its row is counted."""


def value_feature(dtype: str) -> dict[str, Any]:
    """A `Value` of `datasets`, as its JSON says it."""
    return {"dtype": dtype, "_type": "Value"}


def list_feature(of: Any) -> dict[str, Any]:
    """A `List` of `datasets`."""
    return {"feature": of, "_type": "List"}


_STRING = value_feature("string")
_FEATURES: dict[Kind, Any] = {
    "text": _STRING,
    "texts": list_feature(_STRING),
    "whole": value_feature("int64"),
    "real": value_feature("float64"),
    "reals": list_feature(value_feature("float64")),
    "flag": value_feature("bool"),
    "flags": list_feature(value_feature("bool")),
    "json": _JSON,
    "objects": list_feature(_JSON),
    "turns": list_feature(list_feature(_JSON)),
    "ids": list_feature(value_feature("int64")),
    "labels": list_feature(value_feature("int64")),
    "bits": list_feature(value_feature("int8")),
    "logprobs": list_feature(value_feature("float32")),
    "images": list_feature({"_type": "Image"}),
    "reward_model": {"style": _STRING, "ground_truth": _STRING},
    "extra_info": {"split": _STRING, "index": value_feature("int64"), "task_id": _STRING, "trajectory_id": _STRING},
    "about": {"version": _STRING, "trajectory_id": _STRING, "step_ids": list_feature(_STRING)},
}


def arrow() -> Any:
    """pyarrow, loaded where it is needed; ConfigError where it is missing or too old for JSON columns."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            "Parquet needs pyarrow",
            path="file_format",
            hint="Install it: pip install 'agentworld[parquet]', or export as jsonl",
        ) from None
    if not hasattr(pyarrow, "json_"):
        raise ConfigError(
            f"pyarrow {pyarrow.__version__} has no JSON columns", path="file_format", hint="pip install 'pyarrow>=19'"
        )
    return pyarrow


def arrow_type(kind: Kind, sample: Any = None) -> Any:
    """The Arrow type of a column. `sample`: a value of a plain column, whose tools give the shape of all."""
    pa = arrow()
    if kind == "plain_messages":
        return pa.list_(_plain_message())
    if kind == "plain_tools":
        return _plain_tools(sample or [])
    types = {
        "text": pa.string(), "texts": pa.list_(pa.string()), "whole": pa.int64(), "real": pa.float64(),
        "reals": pa.list_(pa.float64()), "flag": pa.bool_(), "flags": pa.list_(pa.bool_()), "json": pa.json_(),
        "objects": pa.list_(pa.json_()), "turns": pa.list_(pa.list_(pa.json_())), "ids": pa.list_(pa.int64()),
        "labels": pa.list_(pa.int64()), "bits": pa.list_(pa.int8()), "logprobs": pa.list_(pa.float32()),
        "images": pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        "reward_model": pa.struct([("style", pa.string()), ("ground_truth", pa.string())]),
        "extra_info": pa.struct([
            ("split", pa.string()), ("index", pa.int64()), ("task_id", pa.string()), ("trajectory_id", pa.string())
        ]),
        "about": pa.struct([
            ("version", pa.string()), ("trajectory_id", pa.string()), ("step_ids", pa.list_(pa.string()))
        ]),
    }  # fmt: skip
    return types[kind]


def _plain_tools(sample: Any) -> Any:
    """The shape of these tools; of texts, which no tools are, where Parquet cannot hold it."""
    pa = arrow()
    try:
        found = pa.infer_type([sample])
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.list_(pa.string())
    return found if _has_shape(pa, found.value_type) else pa.list_(pa.string())


def _has_shape(pa: Any, kind: Any) -> bool:
    if pa.types.is_list(kind):
        return _has_shape(pa, kind.value_type)
    if pa.types.is_struct(kind):  # Parquet has no structs without fields.
        return kind.num_fields > 0 and all(_has_shape(pa, field.type) for field in kind)
    return not pa.types.is_null(kind)


def _plain_message() -> Any:
    pa = arrow()
    function = pa.struct([("name", pa.string()), ("arguments", pa.string())])
    call = pa.struct([("id", pa.string()), ("type", pa.string()), ("function", function)])
    names = ("role", "content", "reasoning_content", "tool_call_id", "name")
    return pa.struct([*((name, pa.string()) for name in names), ("tool_calls", pa.list_(call))])


def stored(kind: Kind, value: Any) -> Any:
    """A value as its Arrow array is made from it: JSON as text. NotPlain where a text has no UTF-8."""
    if value is None:
        return None
    if kind == "json":
        return json_text(value)
    if kind == "objects":
        return [json_text(one) for one in value]
    if kind == "turns":
        return [[json_text(one) for one in turn] for turn in value]
    if kind in _DTYPES:  # A list of Python's numbers takes five times as much.
        return np.asarray(value, dtype=_DTYPES[kind])
    if kind not in _NUMBERS:
        check_text(value)
    return value


def arrow_array(kind: Kind, values: Sequence[Any], kind_type: Any) -> Any:
    """Stored values of one column as an Arrow array."""
    pa = arrow()
    if kind == "json":
        return pa.array(values, pa.string()).cast(kind_type)
    if kind == "objects":
        return _objects(values, kind_type)
    if kind == "turns":
        offsets: list[int] = [0]
        rows: list[Any] = []
        for value in values:
            rows += value or ()
            offsets.append(len(rows))
        return _lists(values, offsets, _objects(rows, kind_type.value_type), kind_type)
    return pa.array(values, kind_type)


def _objects(values: Sequence[Any], kind_type: Any) -> Any:
    """Lists of JSON: pyarrow makes no arrays of them from Python values by itself."""
    pa = arrow()
    offsets: list[int] = [0]
    texts: list[str] = []
    for value in values:
        texts += value or ()
        offsets.append(len(texts))
    return _lists(values, offsets, pa.array(texts, pa.string()).cast(pa.json_()), kind_type)


def _lists(values: Sequence[Any], offsets: list[int], inner: Any, kind_type: Any) -> Any:
    pa = arrow()
    nulls = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), inner, type=kind_type, mask=nulls)


def features(columns: Mapping[str, Kind], types: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The columns as `datasets` writes its features in JSON, so that it reads them as they were meant."""
    return {
        name: _FEATURES[kind] if kind in _FEATURES else _feature_of((types or {})[name])
        for name, kind in columns.items()
    }


def _feature_of(kind: Any) -> Any:
    pa = arrow()
    if pa.types.is_struct(kind):
        return {field.name: _feature_of(field.type) for field in kind}
    if pa.types.is_list(kind):
        return list_feature(_feature_of(kind.value_type))
    names = {"double": "float64", "float": "float32"}
    return value_feature(names.get(str(kind), str(kind)))


def card_feature(feature: Any) -> Any:
    """A feature as the front matter of a card spells it."""
    kind = feature.get("_type") if isinstance(feature.get("_type"), str) else None
    if kind == "Value":
        return {"dtype": feature["dtype"]}
    if kind == "List":
        inner = card_feature(feature["feature"])
        only = next(iter(inner.values())) if set(inner) in ({"dtype"}, {"struct"}) else inner
        return {"list": only}
    if kind is not None:
        return {"dtype": kind.lower()}
    return {"struct": [{"name": name, **card_feature(one)} for name, one in feature.items()]}


def json_text(value: Any) -> str:
    """A value as JSON text; a lone surrogate in it is an escape."""
    return exact_json.encode(value).decode()


def check_text(value: Any) -> None:
    """NotPlain where a text of a value that Arrow keeps as text has a lone surrogate."""
    if isinstance(value, str):
        if not value.isascii() and _SURROGATE.search(value):
            raise NotPlain("text_without_utf8")
    elif isinstance(value, Mapping):
        for key, one in value.items():
            check_text(key)
            check_text(one)
    elif isinstance(value, list | tuple):
        for one in value:
            check_text(one)
