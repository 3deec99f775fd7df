"""SQLAlchemy statements as SQL text and named parameters for the raw sqlite3 driver."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import BindParameter, Executable, bindparam
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.sql.compiler import SQLCompiler

_dialect = SQLiteDialect_pysqlite(paramstyle="named")


def parameter(name: str) -> BindParameter[Any]:
    """A parameter whose value comes with each call."""
    return bindparam(name, required=False)


def compiled(statement: Executable) -> tuple[str, dict[str, Any]]:
    """The SQL and the parameters whose values the statement holds."""
    result = statement.compile(  # type: ignore[attr-defined]  # Every statement that is built here is a ClauseElement.
        dialect=_dialect, compile_kwargs={"render_postcompile": True}
    )
    assert isinstance(result, SQLCompiler)
    return result.string, dict(result.params)


def sql(statement: Executable) -> str:
    """The SQL with the statement's own constants in the text, for statements whose parameters come at each call."""
    text, parameters = compiled(statement)
    for name, value in parameters.items():
        if value is not None:
            text = re.sub(rf":{name}\b", _constant(value), text)
    return text


def _constant(value: Any) -> str:
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, str) and value.isidentifier():
        return f"'{value}'"
    raise TypeError(f"{value!r} is no constant of a statement")
