"""The page is what the command makes of the results, and says what they say."""

from pathlib import Path

import msgspec
import pytest
from experiments.__main__ import PAGE, main
from experiments.cells import CELLS, Plan, chosen, plan_for
from experiments.page import pages, write_page
from experiments.reading import by_plan, findings
from experiments.results import FOLDER, Evaluation, Result, read_results, result_path, write_result

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


def test_the_readme_says_what_the_results_say() -> None:
    own = {finding.cell.name: finding for finding in by_plan(read_results(FOLDER))[0]}
    base, retokenised = own["base"], own["retokenised"]
    readme = " ".join((PAGE.parents[1] / "README.md").read_text().split())
    assert f"{base.results[0].plan.iterations} batches of GRPO took a model of a million parameters" in readme
    assert (
        f"from {base.before:.3f} to {base.after:.3f} of {base.tasks} held-out tasks, over {len(base.seeds)} seeds"
        in readme
    )
    assert f"it fell to {retokenised.after:.3f}." in readme


def test_results_are_in_it(tmp_path: Path) -> None:
    for seed in range(3):
        write_result(tmp_path, result("base", seed, "1111111111"))
        write_result(tmp_path, result("sft", seed, "0011001100"))
    write_result(tmp_path, result("conversion", 0, "0000000000", tasks="b"))
    write_page(tmp_path, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "Yes: in 1 batch the base, GRPO" in " ".join(text.split())
    assert "Of 1 other cell with 3 seeds 0 gained (" in " ".join(text.split())
    assert "| `base` | GRPO on sums, white-box loop, everything as it comes | 3 | 0.400 | 1.000 | **+0.600** [" in text
    assert "- **Methods**: no gain shown: `sft`; less than the base: `sft`.\n" in text
    assert "- **Task sets**: a loss: `conversion` (1 seed).\n" in text
    assert "`conversion` (2 runs)" in text
    assert "`rloo` (3 runs)" in text
    assert "A lag of 16 that moves" in text
    assert 'class="bar"' in (tmp_path / "page-gains.svg").read_text()
    base, _, conversion = findings(read_results(tmp_path))
    assert base.gains == pytest.approx([0.6] * 3)
    assert conversion.beside_base is None  # Other tasks.


def test_each_number_of_batches_is_read_by_itself(tmp_path: Path) -> None:
    """Both budgets are on the page, that with more runs first, and the correction of a lag is told."""
    longer = Plan(iterations=17)
    write_result(tmp_path, msgspec.structs.replace(result("lag-4-uncorrected", 0, "0000000000"), plan=longer))
    path = write_result(tmp_path, msgspec.structs.replace(result("lag-4", 0, "1111111111"), plan=longer))
    assert path == result_path(tmp_path, longer, "lag-4", 0)
    for seed in range(3):
        write_result(tmp_path, result("lag-4", seed, "0011001100"))
    made = pages(tmp_path, tmp_path / "page.md")
    assert sorted(each.name for each in made) == [
        "page-curves-17.svg", "page-curves.svg", "page-gains-17.svg", "page-gains.svg", "page.md"
    ]  # fmt: skip
    first, later = made[tmp_path / "page.md"].split("## Runs of 17 batches")
    assert "+0.000" in first
    assert "No cell has 3 seeds." in later
    assert "At `lag-4` the correction helps: +1.000" in later.split("## Axis by axis")[0]
    assert "A lag of 16 that moves" not in later
    assert "runs of more than 17 batches" in " ".join(later.split())


def test_what_cannot_be_compared_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["page", "--results", str(tmp_path), "--out", str(tmp_path / "page.md")]) == 1
    assert "there are no results" in capsys.readouterr().err
    write_result(tmp_path, result("base", 0, "1111111111"))
    other = msgspec.structs.replace(result("base", 1, "1111111111"), plan=Plan(iterations=2))
    with pytest.raises(AgentWorldError, match="2 plans"):
        findings([*read_results(tmp_path), other])
    lagging = msgspec.structs.replace(CELLS["base"], lag=3)
    write_result(tmp_path, msgspec.structs.replace(result("base", 1, "1111111111"), cell=lagging))
    with pytest.raises(AgentWorldError, match="base seed 1 was run when the cell was another"):
        findings(read_results(tmp_path))
    result_path(tmp_path, Plan(iterations=1), "base", 1).write_text("{")
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


def test_results_of_two_starts_are_not_compared(tmp_path: Path) -> None:
    """A runtime has its own evaluation of the start, and a task set its own start."""
    write_result(tmp_path, result("base", 0, "1111111111"))
    write_result(tmp_path, result("openai", 0, "1111111111", before="0011001101"))
    write_result(tmp_path, result("conversion", 0, "1111111111", before="0000000000"))
    assert len(findings(read_results(tmp_path))) == 3
    write_result(tmp_path, result("sft", 1, "1111111111", before="0011001101"))
    with pytest.raises(
        AgentWorldError, match=r"begins with other weights .*: they passed 0\.\d00 and 0\.\d00 of"
    ) as told:
        findings(read_results(tmp_path))
    assert "--work" in (told.value.hint or "")
