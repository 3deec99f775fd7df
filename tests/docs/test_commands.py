"""Every command and option is documented, with its variable and default, and those that are shown exist."""

import re
from typing import Any

import pytest

from agentworld.cli import COMMANDS, load
from tests.docs.pages import DOCS, PAGES, REFERENCE, ROOT, SOURCE, codes, name, section, table_of, tables

CLI = REFERENCE / "cli.md"


def leaves(command: Any, path: str) -> dict[str, Any]:
    found = {}
    for each, sub in getattr(command, "commands", {}).items():
        found.update(leaves(sub, f"{path} {each}"))
    return found or {path: command}


def all_commands() -> dict[str, Any]:
    return {path: leaf for each in COMMANDS for path, leaf in leaves(load(each), each).items()}


def options(command: Any) -> dict[str, Any]:
    """Option string -> parameter."""
    return {
        text: param
        for param in command.params
        if param.param_type_name == "option" and param.name != "help"
        for text in (*param.opts, *param.secondary_opts)
    }


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    return all_commands()


def test_every_command_has_a_section_and_no_other_has(commands: dict[str, Any]) -> None:
    documented = re.findall(r"^## agentworld (.+)$", CLI.read_text(), re.MULTILINE)
    assert sorted(documented) == sorted(commands)


@pytest.mark.parametrize("path", sorted(all_commands()))
def test_every_option_is_documented(commands: dict[str, Any], path: str) -> None:
    text = section(CLI, f"agentworld {path}")
    known = options(commands[path])
    rows = table_of(text) if tables(text) else {}
    assert set(rows) == set(known)
    for option, row in rows.items():
        variables = [code for code in codes(" ".join(row[1:-1])) if code.startswith("AGENTWORLD_")]
        variable = known[option].envvar
        assert variables == ([variable] if variable else []), option
        default = known[option].default
        if isinstance(default, str | int | float) and not isinstance(default, bool):
            assert row[-2].strip("`").startswith(str(default)), option


@pytest.mark.parametrize("path", sorted(all_commands()))
def test_every_argument_is_shown(commands: dict[str, Any], path: str) -> None:
    text = section(CLI, f"agentworld {path}")
    for param in commands[path].params:
        if param.param_type_name == "argument":
            assert (param.metavar or param.name.upper()) in text


def shown() -> list[tuple[str, str]]:
    """Command lines in README and docs: page and what follows `agentworld`."""
    found = []
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        lines = [line for line in text.splitlines() if re.match(r"^\s{4,}\S*agentworld ", line)]
        for piece in [*lines, *(code for code in codes(text) if code.startswith("agentworld "))]:
            found.append((name(page), piece.split("agentworld ", 1)[1].split(" -- ")[0].split("#")[0].strip()))
    return found


def test_command_lines_that_are_shown_exist(commands: dict[str, Any]) -> None:
    lines = shown()
    assert len(lines) > 20
    for page, line in lines:
        words = re.sub(r"'[^']*'|\"[^\"]*\"", "TEXT", line).split()
        if words[0].startswith(("-", "[", "COMMAND", ".")):
            continue
        assert words[0] in COMMANDS, f"{page}: agentworld {line}"
        path = " ".join(words[:2]) if " ".join(words[:2]) in commands else words[0]
        given = set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", " ".join(words)))
        known = options(commands[path]) if path in commands else {}
        assert given <= set(known), f"{page}: agentworld {line}"


def test_every_environment_variable_is_documented() -> None:
    text = (REFERENCE / "configuration.md").read_text()
    used = {found for path in SOURCE.rglob("*.py") for found in re.findall(r"AGENTWORLD_[A-Z_]+", path.read_text())}
    assert len(used) > 15
    assert {variable for variable in used if f"`{variable}`" not in text} == set()


def test_every_target_of_make_is_documented() -> None:
    text = section(CLI, "make")
    makefile = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert targets
    assert set(targets[1].split()) == {code.removeprefix("make ") for code in codes(text) if code.startswith("make ")}
    for variable in re.findall(r"^([A-Z_]+) \?=", makefile, re.MULTILINE):
        assert f"`{variable}`" in text


def test_the_reference_is_whole() -> None:
    assert {page.name for page in (DOCS / "reference").iterdir()} == {
        "checks.md",
        "cli.md",
        "configuration.md",
        "errors.md",
        "evaluators.md",
        "events.md",
        "metrics.md",
        "where.md",
    }
