"""The page on ready agents and task sets names those that there are."""

import re
import tomllib

from agentworld.tasks.bfcl import CATEGORIES
from agentworld.tasks.ready import PACKAGES
from agentworld.tasks.textworld_games import GAMES, OPTIONS
from tests.docs.pages import DOCS, ROOT, codes, section, table_of

PAGE = DOCS / "agents-and-tasks.md"


def test_every_agent_file_has_a_row_and_its_program_is_there() -> None:
    folder = ROOT / "examples" / "agents"
    files = {file.name: tomllib.loads(file.read_text()) for file in folder.glob("*.toml")}
    assert set(table_of(section(PAGE, "Agents"))) == set(files)
    scripts = {part for fields in files.values() for part in fields.get("command", ()) if "{here}" in part}
    assert {name.removeprefix("{here}/") for name in scripts} == {file.name for file in folder.glob("*.py")}


def test_every_set_of_a_package_has_a_row_with_its_options() -> None:
    text = section(PAGE, "Task sets")
    rows = table_of(text)
    assert {name.partition(":")[0] for name in rows} == set(PACKAGES)
    assert set(CATEGORIES) <= set(codes(rows["bfcl:CATEGORY"][1]))
    assert [name for name in rows if name.startswith("textworld:")] == [f"textworld:{game}" for game in GAMES]
    assert dict(re.findall(r"`(\w+)` \((\d+)\)", text)) == {name: str(value) for name, value in OPTIONS.items()}
