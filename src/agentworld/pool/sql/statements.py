"""SQLAlchemy statements as SQL text for the raw drivers, once for each engine."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Dialect,
    Executable,
    Float,
    Integer,
    LargeBinary,
    Select,
    Text,
    bindparam,
    column,
    select,
)
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from agentworld.pool.exact_text import stored_json
from agentworld.pool.schema import Whole, metadata

EngineName = Literal["sqlite", "postgres"]
NO_INDEX = "NOT INDEXED"  # Hint for SQLite: find the table's rows by their primary key alone.


class _Compiler(SQLiteCompiler):
    def get_from_hint_text(self, table: Any, text: str | None) -> str | None:
        return text


class _Dialect(SQLiteDialect_pysqlite):
    statement_compiler = _Compiler
    supports_statement_cache = False


_DIALECTS: dict[EngineName, Dialect] = {
    "sqlite": _Dialect(paramstyle="named"),
    "postgres": PGDialect_psycopg(),  # type: ignore[no-untyped-call]
}
_PLAIN_INSERT = re.compile(r'INSERT INTO (?P<table>"?\w+"?) \((?P<columns>[^()]+)\) VALUES \((?P<values>.+)\)')
_PLAIN_UPDATE = re.compile(r'UPDATE (?P<table>"?\w+"?) SET (?P<sets>.+) WHERE (?P=table)\.pk = %\(row\)s(::BIGINT)?')
ROWS_TOGETHER = 16
_NARROW = 7  # parameters
_PARAMETER = re.compile(r'%\((?P<name>\w+)\)s(::[A-Z]+( COLLATE "C")?)?')
_COLUMN_TYPES: dict[type[TypeEngine[Any]], str] = {
    BigInteger: "int8",
    Float: "float8",
    Text: "text",
    LargeBinary: "bytea",
}


class Insertion:
    """How PostgreSQL inserts many rows at once as a plain INSERT does one: each parameter, in the order of the
    statement's `names`, is a column of a type.
    """

    def __init__(self, table: str, columns: Sequence[str], types: list[str]) -> None:
        self.types = types
        self._begin = f"INSERT INTO {table} ({', '.join(columns)}) SELECT "
        self._texts: dict[int, str] = {}

    def text(self, alike: int) -> str:
        """The statement where the columns of these bits, not of all columns, are one value that all rows have."""
        known = self._texts.get(alike)
        if known is None:
            # Lists beside one another, not a table of them, of which the server would keep each column apart first.
            values = [
                f"%s::{kind}" if alike >> at & 1 else f"unnest(%s::{kind}[])" for at, kind in enumerate(self.types)
            ]
            known = self._texts[alike] = self._begin + ", ".join(values)
        return known

    @property
    def known(self) -> Collection[int]:
        """The bits for which `text` was asked."""
        return self._texts


class Alteration(NamedTuple):
    """How PostgreSQL changes many rows at once as a plain UPDATE by `pk` changes one: each parameter is a column."""

    text: str
    types: dict[str, str]  # by parameter


_NAMED = re.compile(r"(?<!:):(\w+)")


class Statement:
    """One statement, compiled for an engine when that first asks for it."""

    __slots__ = ("__dict__", "_constants_inline", "_held", "_order", "_source", "_texts")

    def __init__(self, source: Executable, constants_inline: bool, order: Sequence[str] | None = None) -> None:
        self._source = source
        self._order = order
        self._constants_inline = constants_inline
        self._texts: dict[EngineName, str] = {}
        self._held: dict[EngineName, dict[str, Any]] = {}

    def text(self, engine: EngineName) -> str:
        """The SQL, with `:name` parameters on SQLite and `%(name)s` on PostgreSQL."""
        known = self._texts.get(engine)
        if known is None:
            known = self._texts[engine] = self._compile(engine)
        return known

    def bound(self, engine: EngineName, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values of a call with those that the statement itself holds and that are not in its text."""
        self.text(engine)
        held = self._held.get(engine)
        return {**held, **parameters} if held else parameters

    @functools.cached_property
    def on_sqlite(self) -> tuple[str, Mapping[str, Any]]:
        """Its text for SQLite and the values that it holds itself."""
        return self.text("sqlite"), self._held.get("sqlite", {})

    @functools.cached_property
    def names(self) -> list[str]:
        """Its parameters in the order of `many_in_order`: the one that was asked for, or in which they stand in it.
        Each stands there once in a plain INSERT.
        """
        return list(self._order) if self._order is not None else _NAMED.findall(self.text("sqlite"))

    @functools.cached_property
    def positional(self) -> tuple[str, Callable[[Mapping[str, Any]], Any]]:
        """As SQLite binds many rows fastest: `?` for each parameter, and what makes a row of a mapping."""
        text = self.text("sqlite")
        names = self.names
        several = operator.itemgetter(*names)  # Gives a tuple, but for one name.
        if self._order is None:
            text = _NAMED.sub("?", text)
        else:
            text = _NAMED.sub(lambda found: f"?{names.index(found[1]) + 1}", text)
        return text, several if len(names) > 1 else lambda row: (several(row),)

    @functools.cached_property
    def together(self) -> str | None:
        """As SQLite inserts ROWS_TOGETHER rows at once, where that is worth it; `?` for each of their parameters.

        For such a statement SQLite keeps what it changes until it ends, so this is for rows that go to the end of their
        tables, few to a page.
        """
        text = self.positional[0]
        row = f"({', '.join('?' * len(self.names))})"
        plain = len(self.names) <= _NARROW and _PLAIN_INSERT.fullmatch(text) and text.endswith(f" VALUES {row}")
        return text + f", {row}" * (ROWS_TOGETHER - 1) if plain else None

    @functools.cached_property
    def writes(self) -> bool:
        """Whether it may change rows."""
        return isinstance(self._source, UpdateBase)

    @functools.cached_property
    def only_writes(self) -> bool:
        """Whether it gives no rows."""
        return isinstance(self._source, UpdateBase) and not self._source._returning

    @functools.cached_property
    def insertion(self) -> Insertion | None:
        """As one statement for many rows on PostgreSQL, where it inserts rows of parameters and nothing else."""
        found = _PLAIN_INSERT.fullmatch(self.text("postgres"))
        if found is None:
            return None
        of_column = {}
        for column_name, value in zip(found["columns"].split(", "), found["values"].split(", "), strict=True):
            said = _PARAMETER.fullmatch(value)
            if said is None:
                return None
            of_column[said["name"]] = column_name
        columns = metadata.tables[found["table"].strip('"')].c
        named = [of_column[name] for name in self.names]
        types = [_COLUMN_TYPES[type(columns[name.strip('"')].type)] for name in named]
        return Insertion(found["table"], named, types)

    @functools.cached_property
    def alteration(self) -> Alteration | None:
        """As one statement for many rows on PostgreSQL, where it sets columns of the row `row` to parameters, and no
        bytes.
        """
        found = _PLAIN_UPDATE.fullmatch(self.text("postgres"))
        if found is None:
            return None
        columns = metadata.tables[found["table"].strip('"')].c
        types = {"row": "int8"}
        sets = []
        for place, said in enumerate(found["sets"].split(", ")):
            name, _, value = said.partition("=")
            of_row = _PARAMETER.fullmatch(value)
            kind = _COLUMN_TYPES[type(columns[name.strip('"')].type)]
            if of_row is None or kind == "bytea" or of_row["name"] in types:
                return None
            types[of_row["name"]] = kind
            sets.append(f"{name}=said.c{place}")
        lists = ", ".join(f"unnest(%({name})s::{kind}[])" for name, kind in types.items())
        names = ", ".join(["key", *(f"c{place}" for place in range(len(sets)))])
        table, said = found["table"], f"(SELECT {lists}) AS said({names})"
        text = f"UPDATE {table} SET {', '.join(sets)} FROM {said} WHERE {table}.pk = said.key"
        return Alteration(text, types)

    def _compile(self, engine: EngineName) -> str:
        result = self._source.compile(  # type: ignore[attr-defined]  # Every statement built here is a ClauseElement.
            dialect=_DIALECTS[engine], compile_kwargs={"render_postcompile": True}
        )
        assert isinstance(result, SQLCompiler)
        text, held = result.string, dict(result.params)
        if not self._constants_inline:
            self._held[engine] = held
            return text
        for name, value in held.items():
            if value is None:
                continue
            if engine == "sqlite":
                text = re.sub(rf":{name}\b", _constant(value), text)
            else:
                text = re.sub(rf"%\({name}\)s(::[A-Z]+)?", _constant(value), text)
        return text


class Explained(Statement):
    """A statement that gives the engine's plan for another one instead of its rows."""

    def __init__(self, statement: Statement) -> None:
        super().__init__(statement._source, statement._constants_inline)

    def text(self, engine: EngineName) -> str:
        """See Statement."""
        return ("EXPLAIN QUERY PLAN " if engine == "sqlite" else "EXPLAIN ") + super().text(engine)


def parameter(name: str) -> BindParameter[Any]:
    """A parameter whose value comes with each call."""
    return bindparam(name, required=False)


def sql(statement: Executable, order: Sequence[str] | None = None) -> Statement:
    """A statement whose parameters come at each call; its own constants go into the text. `order`: that of its
    parameters for `many_in_order`, all of them, each of which stands in the statement once.
    """
    return Statement(statement, constants_inline=True, order=order)


def compiled(statement: Executable) -> Statement:
    """A statement that was built for one query, whose own values are its `parameters` (known once it has a text)."""
    return Statement(statement, constants_inline=False)


def json_list(values: Any) -> str:
    """A list as the parameter of `integers` or `texts`."""
    return stored_json(values).decode()


class _Listed(FunctionElement[Any]):
    """The values of a JSON list parameter, as a table with one column `value`."""

    inherit_cache = True
    name = "listed"

    def __init__(self, bound: BindParameter[Any], kind: TypeEngine[Any]) -> None:
        super().__init__(bound)
        self.type = kind


@compiles(_Listed, "sqlite")
def _listed_on_sqlite(element: _Listed, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **options)})"


@compiles(_Listed, "postgresql")
def _listed_on_postgres(element: _Listed, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_array_elements_text(CAST({compiler.process(element.clauses, **options)} AS JSON))"


class _Pairs(FunctionElement[Any]):
    """The members of a JSON object parameter, as a table with the columns `key` and `value`."""

    inherit_cache = True
    name = "pairs"

    def __init__(self, bound: BindParameter[Any]) -> None:
        super().__init__(bound)


@compiles(_Pairs, "sqlite")
def _pairs_on_sqlite(element: _Pairs, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **options)})"


@compiles(_Pairs, "postgresql")
def _pairs_on_postgres(element: _Pairs, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_each_text(CAST({compiler.process(element.clauses, **options)} AS JSON))"


def numbers_by_name(name: str) -> Select[Any]:
    """The names and whole numbers of a JSON object parameter, as rows."""
    key, value = column("key", Text), column("value", Whole)
    listed = _Pairs(bindparam(name, required=False, type_=Text())).alias()
    # SQLite needs a condition before ON CONFLICT, so as not to read it as that of a join.
    columns: list[ColumnElement[Any]] = [key, value.cast(Whole)]
    return select(*columns).select_from(listed).where(key.is_not(None))


def integers(name: str) -> Select[Any]:
    """The whole numbers of a JSON list parameter, for `column.in_(integers(name))`."""
    value = column("value", Whole)
    return select(value.cast(Whole)).select_from(_Listed(bindparam(name, required=False, type_=Text()), Whole).alias())


def texts(name: str) -> Select[Any]:
    """The texts of a JSON list parameter."""
    return select(column("value", Text)).select_from(
        _Listed(bindparam(name, required=False, type_=Text()), Integer()).alias()
    )


def _constant(value: Any) -> str:
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, str) and value.isidentifier():
        return f"'{value}'"
    raise TypeError(f"{value!r} is no constant of a statement")
