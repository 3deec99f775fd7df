"""Values inside JSON texts, the order of texts and patterns: what SQLite and PostgreSQL write in different ways.

PostgreSQL reads JSON with the operators of `json`. `jsonb` would refuse texts that are stored here, and loses numbers'
digits. Keys are looked up in objects only, never as positions of arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Boolean, ColumnElement, Float, Text, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from agentworld.pool.schema import Whole
from agentworld.query.patterns import glob

# From here on the nearest double of a number is infinite.
_INFINITE = str(2**1024 - 2**970)
# Whole numbers that have 64 bits, and that may have. Patterns of PostgreSQL are cheaper than reading a number.
_SHORT, _LONG = "^-?[0-9]{1,18}$", "^-?[0-9]{19}$"


class _JsonValue(FunctionElement[Any]):
    """Base of what is read under keys of a JSON column; null where there is nothing, or nothing of that type."""

    def __init__(self, column: ColumnElement[Any], path: Sequence[str]) -> None:
        # Keys hold no quotes. SQLite takes one path, PostgreSQL one key after the other.
        joined = literal("$" + "".join(f'."{key}"' for key in path), Text)
        super().__init__(column, joined, *(literal(key, Text) for key in path))


class json_kind(_JsonValue):  # Written as the SQL function that it is.
    """text, number, true, false, object, array, or null where there is no value."""

    inherit_cache = True
    type = Text()


class json_text(_JsonValue):
    """The text."""

    inherit_cache = True
    type = Text()


class json_integer(_JsonValue):
    """The whole number, where it is written without a point or exponent and has 64 bits."""

    inherit_cache = True
    type = Whole


class json_real(_JsonValue):
    """Any other number, as a double."""

    inherit_cache = True
    type = Float()


@compiles(json_kind, "sqlite")
def _kind_on_sqlite(element: json_kind, compiler: SQLCompiler, **options: Any) -> str:
    kind = f"coalesce(json_type({_sqlite_arguments(element, compiler, options)}), 'null')"
    return f"CASE {kind} WHEN 'integer' THEN 'number' WHEN 'real' THEN 'number' ELSE {kind} END"


@compiles(json_text, "sqlite")
def _text_on_sqlite(element: json_text, compiler: SQLCompiler, **options: Any) -> str:
    found = _sqlite_arguments(element, compiler, options)
    return f"CASE json_type({found}) WHEN 'text' THEN json_extract({found}) END"


@compiles(json_integer, "sqlite")
def _integer_on_sqlite(element: json_integer, compiler: SQLCompiler, **options: Any) -> str:
    found = _sqlite_arguments(element, compiler, options)
    inner = f"CASE typeof(json_extract({found})) WHEN 'integer' THEN json_extract({found}) END"
    return f"CASE json_type({found}) WHEN 'integer' THEN {inner} END"


@compiles(json_real, "sqlite")
def _real_on_sqlite(element: json_real, compiler: SQLCompiler, **options: Any) -> str:
    # SQLite reads whole numbers of more than 64 bits as doubles.
    found = _sqlite_arguments(element, compiler, options)
    inner = f"CASE typeof(json_extract({found})) WHEN 'real' THEN json_extract({found}) END"
    return f"CASE WHEN json_type({found}) IN ('integer', 'real') THEN {inner} END"


@compiles(json_kind, "postgresql")
def _kind_on_postgres(element: json_kind, compiler: SQLCompiler, **options: Any) -> str:
    found = _postgres_value(element, compiler, options)
    return (
        f"CASE coalesce(json_typeof({found}), 'null') WHEN 'string' THEN 'text' WHEN 'boolean' THEN {found} #>> '{{}}'"
        f" ELSE coalesce(json_typeof({found}), 'null') END"
    )


@compiles(json_text, "postgresql")
def _text_on_postgres(element: json_text, compiler: SQLCompiler, **options: Any) -> str:
    found = _postgres_value(element, compiler, options)
    return f"CASE json_typeof({found}) WHEN 'string' THEN {found} #>> '{{}}' END"


@compiles(json_integer, "postgresql")
def _integer_on_postgres(element: json_integer, compiler: SQLCompiler, **options: Any) -> str:
    number = _postgres_number(element, compiler, options)
    return (
        f"CASE WHEN {number} ~ '{_SHORT}' THEN CAST({number} AS BIGINT)"
        f" WHEN {number} ~ '{_LONG}' THEN CASE WHEN {_has_64_bits(number)} THEN CAST({number} AS BIGINT) END END"
    )


@compiles(json_real, "postgresql")
def _real_on_postgres(element: json_real, compiler: SQLCompiler, **options: Any) -> str:
    number = _postgres_number(element, compiler, options)
    double = f"CAST({number} AS FLOAT)"
    # PostgreSQL refuses to make an infinity of a number that is too large.
    whole = (
        f"CASE WHEN length({number}) < 309 THEN {double}"
        f" WHEN CAST({number} AS NUMERIC) >= {_INFINITE} THEN CAST('Infinity' AS FLOAT)"
        f" WHEN CAST({number} AS NUMERIC) <= -{_INFINITE} THEN CAST('-Infinity' AS FLOAT) ELSE {double} END"
    )
    return (
        f"CASE WHEN {number} ~ '^-?[0-9]' THEN CASE WHEN {number} ~ '{_SHORT}' THEN NULL"
        f" WHEN {number} ~ '[.eE]' THEN {double}"
        f" WHEN {number} ~ '{_LONG}' THEN CASE WHEN {_has_64_bits(number)} THEN NULL ELSE {double} END"
        f" ELSE {whole} END END"
    )


class json_list_has(FunctionElement[bool]):
    """Whether a JSON list of texts, or null, has the text."""

    inherit_cache = True
    type = Boolean()

    def __init__(self, column: ColumnElement[Any], text: str) -> None:
        super().__init__(column, literal(text, Text))


@compiles(json_list_has, "sqlite")
def _list_has_on_sqlite(element: json_list_has, compiler: SQLCompiler, **options: Any) -> str:
    column, text = (compiler.process(clause, **options) for clause in element.clauses)
    return f"EXISTS (SELECT 1 FROM json_each({column}) AS listed WHERE listed.value = {text})"


@compiles(json_list_has, "postgresql")
def _list_has_on_postgres(element: json_list_has, compiler: SQLCompiler, **options: Any) -> str:
    column, text = (compiler.process(clause, **options) for clause in element.clauses)
    listed = f"json_array_elements_text(CAST({column} AS JSON)) AS listed(value)"
    return f"EXISTS (SELECT 1 FROM {listed} WHERE listed.value = {text})"


class by_code_point(FunctionElement[str]):
    """A text that is ordered by its code points, whatever the language of the server."""

    inherit_cache = True
    type = Text()


@compiles(by_code_point, "sqlite")
def _order_on_sqlite(element: by_code_point, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.clauses, **options)


@compiles(by_code_point, "postgresql")
def _order_on_postgres(element: by_code_point, compiler: SQLCompiler, **options: Any) -> str:
    return f'({compiler.process(element.clauses, **options)} COLLATE "C")'


class fits_pattern(FunctionElement[bool]):
    """Whether a text fits a pattern of `agentworld.query.patterns`. SQLite's own LIKE does not mind the case."""

    inherit_cache = True
    type = Boolean()

    def __init__(self, text: ColumnElement[Any], pattern: str) -> None:
        super().__init__(text, literal(pattern, Text), literal(glob(pattern), Text))


@compiles(fits_pattern, "sqlite")
def _fits_on_sqlite(element: fits_pattern, compiler: SQLCompiler, **options: Any) -> str:
    text, _, pattern = element.clauses
    return f"({compiler.process(text, **options)} GLOB {compiler.process(pattern, **options)})"


@compiles(fits_pattern, "postgresql")
def _fits_on_postgres(element: fits_pattern, compiler: SQLCompiler, **options: Any) -> str:
    text, pattern, _ = element.clauses
    return f'({compiler.process(text, **options)} COLLATE "C" LIKE {compiler.process(pattern, **options)})'


def _sqlite_arguments(element: _JsonValue, compiler: SQLCompiler, options: dict[str, Any]) -> str:
    column, path, *_ = element.clauses
    return f"{compiler.process(column, **options)}, {compiler.process(path, **options)}"


def _postgres_value(element: _JsonValue, compiler: SQLCompiler, options: dict[str, Any]) -> str:
    column, _, *keys = element.clauses
    found = f"CAST({compiler.process(column, **options)} AS JSON)"
    for key in keys:
        found += f" -> CAST({compiler.process(key, **options)} AS TEXT)"
    return f"({found})"


def _postgres_number(element: _JsonValue, compiler: SQLCompiler, options: dict[str, Any]) -> str:
    """The JSON text, which begins with a digit or a minus where it is a number, and with a quote where it is a text."""
    return f"CAST({_postgres_value(element, compiler, options)} AS TEXT)"


def _has_64_bits(number: str) -> str:
    return f"CAST({number} AS NUMERIC) BETWEEN -9223372036854775808 AND 9223372036854775807"
