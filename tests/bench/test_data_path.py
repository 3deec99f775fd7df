"""The benchmark of the data path: what it times is what a step does. How long is said by `python -m benchmarks`."""

import pytest
from benchmarks import data_path


def test_it_times_lease_tensors_training_and_acknowledgement(capsys):
    sizes = {"groups": 1, "rollouts": 2, "turns": 2, "tokens": 4, "steps": 1, "hidden": 64, "layers": 1}
    given = [part for name, size in sizes.items() for part in (f"--{name}", str(size))]
    code = data_path.main(given)
    first, *rows, verdict = capsys.readouterr().out.splitlines()
    # Two rollouts of a chain each: an opening of 8 ids, two replies of 4, and 4 ids between them.
    assert first.endswith("40 tokens a step")
    times = {name: float(time) for name, time, _ in map(str.split, rows)}
    assert list(times) == ["lease", "tensors", "train", "ack"]
    assert all(time > 0 for time in times.values())
    assert verdict.endswith("NOT met" if code else ": met")
    cost = data_path.StepCost(lease=1.0, tensors=2.0, train=100.0, ack=1.0, tokens=1)
    assert cost.share == pytest.approx(0.04)
