"""The pages on trainers: their code runs on a pool, and their tables are the fields and options that there are."""

import ast
import re

import pytest

import agentworld as aw
from agentworld.records import NewTrajectory, Reward, adapter_by_name, adapter_names
from agentworld.trainers.adapters.samples import SampleOptions
from tests.docs.pages import DOCS, blocks, section, table_of, tables
from tests.trainers.adapters.rollouts import said, two_groups

FOLDER = DOCS / "trainers"
COMMON = SampleOptions.__struct_fields__
# What adapters that are not over `Samples` alone share with them.
NAMES = adapter_names()


def fill(url):
    """Two groups of two runs of two turns, with messages, ids and rewards."""
    with aw.open_pool(url) as pool:
        for group in ("g1", "g2"):
            for place, reward in enumerate((1.0, 0.0)):
                name = f"{group}-{place}"
                pool.create_trajectory(NewTrajectory(trajectory_id=name, group_id=group, group_size=2,
                                                     rollout_index=place, task={"task_id": "t"}))  # fmt: skip
                steps = said(name, "Left.")
                for step in steps:
                    step.group_id = group
                outcomes = [one.outcome for one in pool.append_steps(steps)]
                assert outcomes == ["stored", "stored"]
                pool.add_signals([Reward(step_id=step.step_id, value=1.0) for step in steps])
                pool.complete_trajectory(name, "finished", reward)


def code_of(page, number=0):
    return [block for block in blocks("python") if block.page == page][number]


def fields_of(data):
    """The names of what came, without where it is put."""
    if hasattr(data, "fields"):
        return set(data.fields[0])
    row = data[0] if isinstance(data, list) else data
    if "meta_info" in row:
        return {name for part in row.values() for name in part}
    return set(row.get("loss_fn_inputs", row))


def arrays_of(data):
    """The tensors and arrays by name; of rows those of the first."""
    row = data.fields[0] if hasattr(data, "fields") else data[0] if isinstance(data, list) else data
    parts = row.values() if "meta_info" in row else [row.get("loss_fn_inputs", row)]
    return {name: value for part in parts for name, value in part.items() if hasattr(value, "dtype")}


def as_said(array):
    """Its type and how many dimensions it has: `int64 2`."""
    return f"{str(array.dtype).removeprefix('torch.')} {array.ndim}"


@pytest.mark.parametrize("name", NAMES)
def test_its_code_runs_and_its_fields_are_those_that_come(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fill("sqlite:///pool.db")
    page, names = FOLDER / f"{name}.md", {}
    try:
        exec(compile(code_of(page).text, page.name, "exec"), names)
        assert names["pool"].stats().consumers["policy"].acknowledged == 2
    finally:
        names["pool"].close()
    table = table_of(section(page, "Fields"))
    told, came = set(table), fields_of(names["data"])
    assert came <= told
    arrays = arrays_of(names["data"])
    assert {field: as_said(array) for field, array in arrays.items()} == {
        field: re.sub(r"\[.*", lambda dims: str(dims[0].count(",") + 1), table[field][1]) for field in arrays
    }
    # A layout of arrays says so of all of them.
    said_so = {field for field in came if re.match(r"(int|float|bool|object)\d* \[", table[field][1])}
    assert said_so <= set(arrays)
    source = (FOLDER.parent.parent / "src" / "agentworld" / "trainers" / "adapters" / f"{name}.py").read_text()
    texts = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    texts |= {node.arg for node in ast.walk(ast.parse(source)) if isinstance(node, ast.keyword)}
    assert told - came <= texts


@pytest.mark.parametrize("name", NAMES)
def test_its_options_are_those_that_it_takes(name):
    options = adapter_by_name(name).options
    found = tables(section(FOLDER / f"{name}.md", "Options"))
    told = table_of(section(FOLDER / f"{name}.md", "Options")) if found else {}
    defaults = options()
    own = {field: getattr(defaults, field) for field in options.__struct_fields__}
    if issubclass(options, SampleOptions):
        plain = SampleOptions()
        own = {field: value for field, value in own.items()
               if field not in COMMON or value != getattr(plain, field)}  # fmt: skip
    assert {field: row[1].strip("`") for field, row in told.items()} == {field: as_told(own[field]) for field in own}


def test_the_index_has_every_adapter_and_the_options_of_all():
    index = FOLDER / "README.md"
    (rows, *_) = tables(index.read_text())
    links = [(f"[{name}]({name}.md)", adapter_by_name(name).says) for name in NAMES]
    assert [(row[0], row[2]) for row in rows] == links
    told = table_of(section(index, "Options"))
    assert {name: row[1].strip("`") for name, row in told.items()} == {
        name: as_told(getattr(SampleOptions(), name)) for name in COMMON
    }


def test_an_adapter_of_your_own():
    names = {}
    exec(compile(code_of(FOLDER / "README.md").text, "README.md", "exec"), names)
    adapter = names["Lengths"]()
    assert adapter.convert(two_groups(), adapter.options()) == [10, 10, 6, 5]


def as_told(value):
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return str(list(value) if isinstance(value, tuple) else value)
