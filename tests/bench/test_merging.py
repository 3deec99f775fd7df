"""What merging saves is measured: on tiny sizes, as numbers that hold whatever the machine is doing."""

import gc
import json

import numpy as np
import pytest
import torch
from benchmarks import merge_gpu

from agentworld.bench import merging
from agentworld.bench.merge_shapes import UNSHARED, shapes
from agentworld.merge import build_tree
from agentworld.trainers.measuring import compare, peak_bytes, random_model


@pytest.fixture(scope="module")
def model():
    return random_model(hidden=64, layers=1, vocabulary=97)


def test_the_trie_is_the_tree():
    sequences = merging.multi_turn_ids(20_000, 3)
    flat, offsets = merging.laid(sequences)
    tree = build_tree(flat, offsets)
    tokens, parents, index = merging.trie(flat, offsets)
    assert tree.statistics().ratio == 10.5
    for own, other in ((tree.tokens, tokens), (tree.parent[tree.parent >= 0], [each for each in parents if each >= 0])):
        assert len(own) == len(other)
    # Numbers differ by order: one to one, with the same parents.
    number = np.empty(len(tokens), dtype=np.int64)
    number[index] = tree.index
    assert len(np.unique(number)) == len(tokens)
    roots = np.asarray(parents) < 0
    assert (tree.parent[number[roots]] == -1).all()
    assert (tree.parent[number[~roots]] == number[np.asarray(parents)[~roots]]).all()


def test_sections_have_their_figures(model, monkeypatch):
    monkeypatch.setattr(merging, "_ROUNDS", 1)
    gc.freeze()  # Each round collects what was there before.
    bench = merging.MergeBench(tokens=30_000, scale=0.05, repeats=1, model=lambda: model)
    found = {section.name: figures for section, figures in merging.measure(bench, ())}
    assert [figure.name for figure in found["build"]][:2] == ["tokens by those of the tree (C)", "tree built"]
    assert next(figure for figure in found["build"] if figure.name == "peak memory").met  # It is linear in tokens.
    by_name = {figure.name: figure for figure in found["train"]}
    names = list(shapes(97, 0.05))
    assert len(names) == 7
    for name in names:
        speed, ratio = by_name[f"{name}: speed-up"], by_name[f"{name}: C"]
        assert speed.required == (0.95 if name == UNSHARED else pytest.approx(0.8 * speed.beside))
        assert (ratio.value == 1.0) == (name == UNSHARED)
        assert speed.beside == pytest.approx(1.0) if name == UNSHARED else speed.beside > 1.5
        assert by_name[f"{name}: log-probabilities differ by"].met
    assert [section.name for section, _ in merging.measure(bench, ["build"])] == ["build"]


def test_shapes_at_full_size_share_as_much_as_they_are_to():
    for name, rows in shapes(8192).items():
        statistics = build_tree([row.ids for row in rows]).statistics()
        assert 4_000 < statistics.total < 15_000
        assert statistics.ratio == 1.0 if name == UNSHARED else 3 <= statistics.ratio <= 10


def test_memory_is_counted_until_it_is_freed(model):
    def work():
        kept = torch.zeros(1000)
        torch.zeros(3000)  # freed at once
        view = kept.view(10, 100)
        return kept + 1, view.sum()

    assert peak_bytes(model, work) == 4 * 4000


def test_merged_takes_less_memory(model):
    rows = shapes(97, 0.3)["long prompt"]
    found = compare(model, rows, tokens=4096, repeats=1, merging="on")
    assert found.merged.merged
    assert found.memory < 0.8
    assert found.difference < 1e-5


def test_the_gpu_script_runs_on_another_device(tmp_path, capsys):
    out = tmp_path / "merge.json"
    given = ["--device", "cpu", "--out", str(out), "--scale", "0.05", "--hidden", "64", "--layers", "1"]
    code = merge_gpu.main([*given, "--vocabulary", "97", "--tokens", "512", "--repeats", "1"])
    report = json.loads(out.read_text())
    assert list(report["shapes"]) == list(shapes(97, 0.05))
    assert (report["left_out"], report["settings"]["device"]) == ([], "cpu")
    assert report["verified"]["logprobs"] < 1e-4
    assert code == (1 if report["short"] else 0)
    shape = report["shapes"]["long chain"]
    assert shape["share_of_bound"] == pytest.approx(shape["speedup"] / shape["bound"])
    assert len(capsys.readouterr().out.splitlines()) == 8
    assert merge_gpu.main([*given, "--seconds", "-1"]) == 1
    assert json.loads(out.read_text())["left_out"] == list(shapes(97, 0.05))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_the_script_says_so(tmp_path, capsys):
    assert merge_gpu.main(["--out", str(tmp_path / "none.json")]) == 2
    assert "no CUDA device" in capsys.readouterr().err
