"""The page is what the command makes of the results, and says what they say."""

from pathlib import Path

import msgspec
import pytest
from experiments.__main__ import PAGE, main
from experiments.cells import CELLS, Plan, chosen, plan_for
from experiments.page import pages, write_page
from experiments.reading import findings
from experiments.results import FOLDER, Evaluation, Result, read_results, write_result

from agentworld.errors import AgentWorldError


def result(cell: str, seed: int, after: str, before: str = "0011001100", tasks: str = "a") -> Result:
    """A run with this outcome on ten tasks."""
    point = {"reward": 0.5, "sequence_tokens": 10, "computed_tokens": 5}
    return Result(
        cell=CELLS[cell],
        seed=seed,
        plan=Plan(iterations=1),
        before=Evaluation(tasks=tasks, passed=before),
        after=Evaluation(tasks=tasks, passed=after),
        curve=[point],
        figures={},
        cpu_seconds=30.0,
        seconds=60.0,
        software={"python": "3", "torch": "2", "cores": "2"},
    )


def test_the_page_is_what_the_results_make() -> None:
    made = pages(FOLDER, PAGE)
    assert {path.name: path.read_text() for path in made} == {path.name: text for path, text in made.items()}


def test_results_are_in_it(tmp_path: Path) -> None:
    for seed in range(3):
        write_result(tmp_path, result("base", seed, "1111111111"))
        write_result(tmp_path, result("sft", seed, "0011001100"))
    write_result(tmp_path, result("conversion", 0, "0000000000", tasks="b"))
    write_page(tmp_path, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "With 3 seeds, a gain, the whole interval above 0: base +0.600" in text
    assert "With 3 seeds, no gain shown, as the interval holds 0: sft +0.000" in text
    assert "Less gain than the base: sft -0.600" in text
    assert "With fewer than 3 seeds, a loss, the whole interval below 0: conversion -0.400" in text
    assert "`conversion` (2 runs)" in text
    assert "`rloo` (3 runs)" in text
    assert 'class="bar"' in (tmp_path / "page-gains.svg").read_text()
    base, _, conversion = findings(read_results(tmp_path))
    assert base.gains == pytest.approx([0.6] * 3)
    assert conversion.beside_base is None  # Other tasks.


def test_what_cannot_be_compared_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["page", "--results", str(tmp_path), "--out", str(tmp_path / "page.md")]) == 1
    assert "there are no results" in capsys.readouterr().err
    write_result(tmp_path, result("base", 0, "1111111111"))
    other = msgspec.structs.replace(result("base", 1, "1111111111"), plan=Plan(iterations=2))
    write_result(tmp_path, other)
    with pytest.raises(AgentWorldError, match="2 plans"):
        findings(read_results(tmp_path))
    lagging = msgspec.structs.replace(CELLS["base"], lag=3)
    write_result(tmp_path, msgspec.structs.replace(result("base", 1, "1111111111"), cell=lagging))
    with pytest.raises(AgentWorldError, match="base seed 1 was run when the cell was another"):
        findings(read_results(tmp_path))
    (tmp_path / "base-seed1.json").write_text("{")
    with pytest.raises(AgentWorldError, match="no result"):
        read_results(tmp_path)


def test_cells_differ_from_the_base_in_one_thing() -> None:
    described = {"name", "axis", "what"}
    for cell in CELLS.values():
        fields = {name for name in cell.__struct_fields__ if getattr(cell, name) != getattr(CELLS["base"], name)}
        settled = {"method", "settings"}
        allowed = {"rloo": settled, "ppo": settled, "corrupted-curated": {"corrupted", "curated"}}
        lagging = {"lag", "corrected"}
        assert len(fields - described) == 1 - (cell.name == "base") or fields - described in (
            allowed.get(cell.name),
            lagging,
        ), cell.name
    assert [cell.name for cell in chosen(["merging", "base"])] == ["merging-off", "base"]
    with pytest.raises(AgentWorldError, match="no cell 'bass'"):
        chosen(["bass"])
    assert plan_for(4).iterations == 32
    assert main(["list"]) == 0
