"""What a job tells of itself: a file, the pool, TensorBoard, each number once."""

import sys

import pytest

from agentworld.errors import ConfigError
from agentworld.pool import open_store
from agentworld.trainers.checkpoint import latest_checkpoint, read_record
from agentworld.trainers.job import open_trainer, read_job, run_job
from agentworld.trainers.metrics import MetricsLog, read_lines
from tests.trainers.test_job import job  # noqa: F401 - a fixture


@pytest.fixture
def pool():
    pool = open_store("memory://")
    yield pool
    pool.close()


def told(pool):
    return [event.data for event in pool.events(channel="metrics") if event.kind == "metrics.added"]


def test_each_number_is_told_once_also_after_a_kill_in_a_line(tmp_path, pool):
    log = MetricsLog(tmp_path, "r", pool)
    assert log.tell("train", 1, {"loss": 0.5, "reward": None})
    assert not log.tell("train", 1, {"loss": 0.7})
    log.tell("evaluation", 1, {"reward": 1.0, "odd": float("nan")})
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"kind": "train", "st')
    again = MetricsLog(tmp_path, "r", pool)
    assert not again.tell("evaluation", 1, {"reward": 0.0})
    again.tell("train", 2, {"loss": 0.25})
    lines = read_lines(tmp_path / "metrics.jsonl")
    assert [(line.kind, line.step, line.values) for line in lines] == [
        ("train", 1, {"loss": 0.5, "reward": None}), ("evaluation", 1, {"reward": 1.0, "odd": None}),
        ("train", 2, {"loss": 0.25}),
    ]  # fmt: skip
    assert [(data["kind"], data["step"], data["values"]) for data in told(pool)] == [
        (line.kind, line.step, line.values) for line in lines
    ]


def test_a_file_of_somebody_else_is_refused(tmp_path, pool):
    (tmp_path / "metrics.jsonl").write_text("hello\n")
    with pytest.raises(ConfigError, match="none of the trainer's"):
        MetricsLog(tmp_path, "r", pool)


def test_what_the_newest_checkpoint_did_is_told_where_a_kill_came_between(job, pool):  # noqa: F811
    settings = read_job(job)
    from agentworld.factory import open_pool

    with open_pool(settings.pool) as source:
        trainer = open_trainer(settings)
        next(trainer.run(source.consumer("policy"), settings.spec, batches=1, timeout=0))  # And then nothing was told.
        assert len(list(run_job(settings, open_trainer(settings), source))) == 1
        assert [(data["kind"], data["step"]) for data in told(source)] == [("train", 1), ("train", 2)]
        values = told(source)[1]["values"]
    assert values == read_record(latest_checkpoint(trainer.folder)).metrics
    assert {"loss", "kl", "clipped", "reward", "gradient_norm", "tokens", "updates", "merged"} <= set(values)


def test_tensorboard_has_the_curves(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = MetricsLog(tmp_path, "r", None, tensorboard=True)
    for step in (1, 2):
        log.tell("train", step, {"loss": 1.0 / step, "reward": None})
    log.close()
    curves = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(point.step, point.value) for point in curves.Scalars("train/loss")] == [(1, 1.0), (2, 0.5)]
    assert curves.Tags()["scalars"] == ["train/loss"]


def test_tensorboard_that_is_not_there_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"agentworld\[tensorboard\]"):
        MetricsLog(tmp_path, "r", None, tensorboard=True)
