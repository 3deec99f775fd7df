"""What steps and the forests refer to, as PostgreSQL looks after it: once for all rows of a statement.

A foreign key of PostgreSQL looks each row's other end up by itself, and locks it against writers that no pool has
beside the one that holds its lock: up to 40% of what the server does for a step. Triggers of statements find the same
faults with one query, and raise the same error: an insert of a row whose other end is not there, and a deletion of a
row that another refers to. No statement of a pool changes a column that refers to another row. SQLite keeps its keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import DDL, MetaData, Table, event

_ADDED = """
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before text;
    lowest bigint;
    highest bigint;
    stray bigint;
BEGIN{placed}{range}
    SELECT new_one.pk INTO stray FROM added AS new_one WHERE {faults} LIMIT 1;
    IF FOUND THEN
        RAISE foreign_key_violation USING MESSAGE = 'row ' || stray || ' of {table} refers to one that is not there';
    END IF;{back}
    RETURN NULL;
END $$
"""
# Where there is no gap between the numbers, whatever refers into them refers to a row of this statement.
_RANGE = """
    SELECT min(pk), max(pk) INTO lowest, highest FROM added HAVING max(pk) - min(pk) + 1 = count(*);"""
_GONE = """
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before text;
    needed bigint;
BEGIN{placed}
    SELECT old_one.pk INTO needed FROM gone AS old_one WHERE {faults} LIMIT 1;
    IF FOUND THEN
        RAISE foreign_key_violation USING MESSAGE = 'row ' || needed || ' of {table} is still referred to';
    END IF;{back}
    RETURN NULL;
END $$
"""
# A session that writes by hand may look elsewhere, where another pool may be; its path is as before afterwards.
_PLACED = """
    IF current_schema() IS DISTINCT FROM TG_TABLE_SCHEMA THEN
        before := current_setting('search_path');
        PERFORM set_config('search_path', quote_ident(TG_TABLE_SCHEMA), true);
    END IF;"""
_BACK = """
    IF before IS NOT NULL THEN
        PERFORM set_config('search_path', before, true);
    END IF;"""
# Queries for one value, which are looked up in an index for each row whatever the server believes of the tables' sizes.
# Where a column has few values, it would rather read rows until it finds one, which is all of them where there is none;
# in order it finds them by the index alone.
_STRAY = "(new_one.{column} IS NOT NULL AND {outside}(SELECT pk FROM {target} WHERE pk = new_one.{column}) IS NULL)"
_OUTSIDE = "(lowest IS NULL OR new_one.{column} NOT BETWEEN lowest AND highest) AND "
_NEEDED = (
    "(SELECT {column} FROM {table} WHERE {column} BETWEEN old_one.pk AND old_one.pk ORDER BY {column} LIMIT 1)"
    " IS NOT NULL"
)

Reference = tuple[str, str, str]  # table, column, whose `pk` it refers to


def by_statement(metadata: MetaData, tables: Sequence[Table]) -> None:
    """Make these tables without foreign keys on PostgreSQL, and with triggers in their place."""
    references: list[Reference] = []
    for table in tables:
        references += [(table.name, key.parent.name, key.column.table.name) for key in table.foreign_keys]
        for constraint in table.foreign_key_constraints:
            constraint.ddl_if(dialect="sqlite")
    for statement in trigger_statements(references):
        ddl = DDL(statement.replace("%", "%%"))  # type: ignore[no-untyped-call]
        event.listen(metadata, "after_create", ddl.execute_if(dialect="postgresql"))


def trigger_statements(references: Iterable[Reference]) -> list[str]:
    """What makes the triggers of PostgreSQL for these references."""
    known = sorted(references)
    made = []
    for table in sorted({table for table, _, _ in known}):
        own = [(column, target) for of, column, target in known if of == table]
        faults = [
            _STRAY.format(column=column, target=target, outside=_OUTSIDE.format(column=column) * (target == table))
            for column, target in own
        ]
        function = _ADDED.replace("{range}", _RANGE * (table in {target for _, target in own}))
        made += _trigger(function, table, "refer", "INSERT ON {table} REFERENCING NEW TABLE AS added", faults)
    for target in sorted({target for _, _, target in known}):
        faults = [_NEEDED.format(table=table, column=column) for table, column, referred in known if referred == target]
        made += _trigger(_GONE, target, "referred", "DELETE ON {table} REFERENCING OLD TABLE AS gone", faults)
    return made


def _trigger(function: str, table: str, name: str, when: str, faults: Sequence[str]) -> list[str]:
    whole = f"{table}_{name}"
    return [
        function.format(name=whole, table=table, faults=" OR ".join(faults), placed=_PLACED, back=_BACK),
        f"CREATE TRIGGER {whole} AFTER {when.format(table=table)} FOR EACH STATEMENT EXECUTE FUNCTION {whole}()",
    ]
