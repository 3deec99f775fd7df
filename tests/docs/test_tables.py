"""Fields of `where`, codes of errors and kinds of events: all are documented, and nothing else is."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentworld.gateway.metrics import REGISTRY
from agentworld.pool.arguments import EVENT_KINDS
from agentworld.pool.lease_rules import LEASE_STATES
from agentworld.query import FIELDS
from tests.docs.pages import REFERENCE, SOURCE, codes, section, table_of, tables


def test_every_field_of_where_is_documented() -> None:
    rows = table_of(section(REFERENCE / "where.md", "Fields"))
    kinds = {"json": "any"}
    expected = {}
    for field in FIELDS:
        subjects = "both" if len(field.subjects) == 2 else field.subjects[0]
        facts = [subjects, kinds.get(field.kind, field.kind)]
        if field.plain:
            expected[field.name] = facts
        if field.keys:
            expected[f"{field.name}.{field.keys}"] = facts
    assert {name: row[1:3] for name, row in rows.items()} == expected


def test_the_page_on_where_tells_its_limits() -> None:
    from agentworld.pool.sql.reads import SCAN_ROWS, WHERE_SECONDS
    from agentworld.query.lexer import MAX_LENGTH
    from agentworld.query.parser import MAX_DEPTH, MAX_NODES

    text = (REFERENCE / "where.md").read_text()
    grammar = (f"{MAX_LENGTH:,} characters", f"{MAX_NODES} conditions", f"{MAX_DEPTH} levels")
    for said in (*grammar, f"{SCAN_ROWS:,} rows", f"{WHERE_SECONDS:g} s"):
        assert said in text


def classes_with_codes() -> Iterator[Any]:
    """Every error class of ours that sets a code."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        if not re.search(r"class \w+Error\b", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.ClassDef) or not node.name.endswith("Error"):
                continue
            names = {
                target.id
                for item in node.body
                for target in (item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)])
                if isinstance(target, ast.Name)
            }
            if "code" in names:
                module = ".".join(("agentworld", *path.relative_to(SOURCE).with_suffix("").parts))
                yield getattr(importlib.import_module(module), node.name)


def test_every_error_code_is_documented_with_its_status() -> None:
    rows = table_of((REFERENCE / "errors.md").read_text())
    found = {each.code: str(each.status) for each in (*classes_with_codes(), _base())}
    assert len(found) > 15
    assert {code: row[1] for code, row in rows.items()} == found


def _base() -> Any:
    from agentworld.errors import AgentWorldError

    return AgentWorldError


def event_kinds(folder: Path) -> set[str]:
    """The kinds that the code of a store writes."""
    kinds: set[str] = set()
    named = {
        target.id: node.value.value
        for path in folder.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and "." in str(node.value.value)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            of_events = ast.unparse(node.func) in ("events.add", "self._events.add", "self._events.append")
            if called not in ("add_event", "_event") and not of_events:
                continue
            given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "kind")]
            for part in (piece for argument in given for piece in ast.walk(argument)):
                if isinstance(part, ast.JoinedStr) and ast.unparse(part).startswith("f'batch.{"):
                    kinds |= {f"batch.{state}" for state in LEASE_STATES}
                elif isinstance(part, ast.Constant) and isinstance(part.value, str) and "." in part.value.strip("."):
                    kinds.add(part.value)
                elif isinstance(part, ast.Name) and part.id in named:
                    kinds.add(named[part.id])
    return kinds


def test_every_event_kind_is_documented() -> None:
    [rows] = tables((REFERENCE / "events.md").read_text())
    documented = {code for row in rows for code in codes(row[0])}
    assert documented == event_kinds(SOURCE / "pool" / "sql")
    assert documented == event_kinds(SOURCE / "pool" / "memory")
    assert documented == set(EVENT_KINDS)


def test_every_metric_is_documented_with_its_kind_and_labels() -> None:
    [rows] = tables((REFERENCE / "metrics.md").read_text())
    documented = {codes(row[0])[0]: (row[1], codes(row[2])) for row in rows}
    counted = {each.describe()[0].name: each for each in set(REGISTRY._collector_to_names)}
    assert documented.keys() == counted.keys()
    for name, metric in counted.items():
        kind, labels = documented[name]
        assert kind == metric.describe()[0].type, name
        assert set(metric._labelnames) <= set(labels), name
