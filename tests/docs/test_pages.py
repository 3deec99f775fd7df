"""Links lead somewhere, code blocks are what they say, and what the architecture page quotes exists."""

import ast
import importlib
import json
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

import agentworld
from agentworld.config import convert
from tests.docs.pages import DOCS, PAGES, ROOT, SOURCE, Block, anchors, blocks, codes, name, section, without_fences
from tests.test_architecture import LAYERS

ARCHITECTURE = DOCS / "architecture.md"
EXAMPLES = sorted((ROOT / "examples").rglob("*.toml"))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_resolve(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_fences(page.read_text())):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_parses(block: Block) -> None:
    compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_uses_names_that_are_there(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("agentworld"):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                assert hasattr(module, alias.name), alias.name
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "aw":
            assert hasattr(agentworld, node.attr), node.attr


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_parses(block: Block) -> None:
    assert isinstance(json.loads(block.text), dict)


def load(file: Path) -> Any:
    """The file by the reader that its fields ask for."""
    from agentworld.agents.definition import read_agent
    from agentworld.agents.run_config import read_run
    from agentworld.cli.serve import settings_from
    from agentworld.curation.policies import read_policy
    from agentworld.curation.running import plan_of, read_curate_settings
    from agentworld.query.rules import parse_rules
    from agentworld.rewards.registry import read_evaluators
    from agentworld.tasks.definition import read_task_set
    from agentworld.trainers.job import read_job
    from agentworld.verl_loop.settings import read_settings as read_loop

    fields = tomllib.loads(file.read_text())
    if "consumer" in fields:
        return read_loop(file)
    if "verl" in fields:
        return convert(fields, runpy.run_path(str(ROOT / "examples" / "verl_vllm" / "train.py"))["Training"], str(file))
    if fields.keys() & {"models", "channels", "mix", "traces", "labels"}:
        return settings_from(file, {}, {}, None)
    if "rules" in fields:
        return parse_rules(read_policy(file).rules)
    if fields.keys() & {"checks", "reviews", "evaluation_sets"}:
        return plan_of(read_curate_settings(file))
    if "evaluator" in fields:
        return read_evaluators(file)
    if "task_sets" in fields:
        return read_run(file)
    if "batch" in fields:
        return read_job(file)
    if fields.get("kind") in ("loop", "command"):
        return read_agent(file)
    return read_task_set(file)


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_toml_blocks_load_with_the_real_readers(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "block.toml"
    file.write_text(block.text)
    assert load(file) is not None


@pytest.mark.parametrize("file", EXAMPLES, ids=name)
def test_examples_load_with_the_real_readers(file: Path) -> None:
    assert load(file) is not None


@pytest.mark.parametrize("page", [ARCHITECTURE, DOCS / "pool.md", DOCS / "training.md"], ids=name)
def test_quoted_tests_exist(page: Path) -> None:
    text = without_fences(page.read_text())
    quoted = [found for code in codes(text) if (found := re.fullmatch(r"([\w/]+\.py)::(\w+)", code))]
    assert len(quoted) >= 20
    missing = []
    for found in quoted:
        file = ROOT / "tests" / found[1]
        text = file.read_text() if file.exists() else ""
        if not re.search(rf"^(?:async )?def {found[2]}\(", text, re.MULTILINE):
            missing.append(found[0])
    assert missing == []


def test_the_architecture_page_quotes_files_that_exist() -> None:
    text = ARCHITECTURE.read_text()
    quoted = [code for code in codes(text) if re.fullmatch(r"[a-z_]+(/[a-z_]+)*(/|\.py)", code)]
    assert len(quoted) > 5
    places = (SOURCE, ROOT / "tests")
    assert [code for code in quoted if not any((place / code).exists() for place in places)] == []


def test_the_architecture_page_has_the_order_of_imports() -> None:
    text = section(ARCHITECTURE, "Modules and who may import whom")
    written = re.findall(r"^    (\w+)  ", text, re.MULTILINE)
    there = [module for layer in LAYERS for module in layer if _exists(module)]
    assert written == there


def _exists(module: str) -> bool:
    return (SOURCE / f"{module}.py").exists() or (SOURCE / module / "__init__.py").exists()


def test_every_decision_has_its_number_and_a_heading() -> None:
    files = sorted((DOCS / "decisions").glob("*.md"))
    numbers = [file.name[:4] for file in files]
    assert len(set(numbers)) == len(numbers)
    for file in files:
        assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", file.name)
        assert file.read_text().startswith("# ")


def test_the_architecture_page_stays_short() -> None:
    assert len(ARCHITECTURE.read_text().splitlines()) < 300
