import errno

import pytest

from agentworld.cli import invoke
from agentworld.errors import ConfigError
from agentworld.factory import open_pool
from agentworld.trainers import sole
from agentworld.trainers.checkpoint import latest_checkpoint, read_record
from agentworld.trainers.job import open_trainer, read_job, run_job
from agentworld.trainers.sole import sole_trainer
from tests.trainers.builders import fill, step

JOB = """
pool = "{pool}"
model = "pocket"
out = "{out}"
batches = 2
timeout = 0.1
[batch]
groups = 1
rollouts = 2
[settings]
method = "grpo"
learning_rate = 1e-4
threads = 1
"""


@pytest.fixture
def job(tmp_path):
    """A job file with two groups to train on in its pool."""
    url = f"sqlite:///{tmp_path}/pool.db"
    pool = open_pool(url)
    fill(pool, {f"g{n}": [([step("", [1, n], [4])], 1.0), ([step("", [1, n], [6])], 0.0)] for n in range(2)})
    pool.close()
    path = tmp_path / "train.toml"
    path.write_text(JOB.format(pool=url, out=tmp_path / "out"))
    return path


def test_a_job_trains_its_batches_and_goes_on_where_it_stopped(job, tmp_path):
    settings = read_job(job)
    pool = open_pool(settings.pool)
    first = next(run_job(settings, open_trainer(settings), pool))
    assert first.trajectories == 2
    trainer = open_trainer(settings)
    assert trainer.record.version == 1
    assert len(list(run_job(settings, trainer, pool))) == 1
    assert list(run_job(settings, open_trainer(settings), pool)) == []
    pool.close()
    assert read_record(latest_checkpoint(tmp_path / "out")).version == 2


def test_the_command_says_what_it_did_and_when_data_runs_out(job, capsys):
    assert invoke(["train", str(job)]) == 0
    assert "batch 2/2: 2 trajectories" in capsys.readouterr().out
    assert invoke(["train", str(job)]) == 0
    assert "all 2 batches are done" in capsys.readouterr().out
    job.write_text(job.read_text().replace("batches = 2", "batches = 3"))
    assert invoke(["train", str(job)]) == 1
    captured = capsys.readouterr()
    assert "going on after 2 of 3 batches" in captured.out
    assert "none came for 0.1 s" in captured.err
    assert captured.err.count("a batch for grpo cannot be had: 0 of 2 groups fit, 1 needed") == 2, "before and after"
    assert "2 of 2 groups were acknowledged by policy" in captured.err


def test_what_the_method_cannot_use_is_not_leased_and_said(tmp_path, capsys):
    """Log-probabilities in no known space would end the job at its first ratio: they stay in the pool, and why."""
    url = f"sqlite:///{tmp_path}/pool.db"
    with open_pool(url) as pool:
        fill(pool, {"g": [([step("", [1, 2], [4], space=None)], 1.0), ([step("", [1, 2], [6])], 0.0)]})
    path = tmp_path / "train.toml"
    path.write_text(JOB.format(pool=url, out=tmp_path / "out"))
    assert invoke(["train", str(path)]) == 1
    said = capsys.readouterr().err
    assert "lacks log-probabilities in the space processed or raw or temperature; 1 of 2 steps lacks them" in said
    assert "logprob_space of its model" in said
    with open_pool(url) as pool:
        assert pool.list_batches(consumer="policy").items == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("batches = 2", "batches = 0"), "batches must be over 0"),
        (("groups = 1", "group = 1"), "no field 'group'"),
        (("groups = 1", "groups = 0"), "groups must be from 1 to 1024, not 0 (at batch.groups)"),
        (("groups = 1", 'groups = 1\nmethod = "sft"'), "batch is for sft, and settings for grpo"),
        (("timeout = 0.1", "timeout = -1"), "timeout must be 0 or more"),
        (('"grpo"', '"gpro"'), "Use dapo, distill, dpo, dr_grpo, gigpo, grpo"),
        (("threads = 1", "weight_decay = -1.0"), "weight_decay must be 0 or more"),
        (("threads = 1", "warmup = -1"), "warmup must be 0 or more"),
        (("threads = 1", "seed = -1"), "seed must be 0 or more"),
        (("threads = 1", "beta1 = 1.5"), "beta1 must be from 0 to below 1"),
        (("threads = 1", "threads = 0"), "threads must be over 0"),
        (("threads = 1", "epochs = 0\nbeta2 = 1.5"), "epochs must be over 0"),
        (("learning_rate = 1e-4", "learning_rate = 0"), "learning_rate must be over 0"),
        (("learning_rate = 1e-4", "learning_rate = inf"), "learning_rate must be over 0"),
        (("learning_rate", "lerning_rate"), "lerning_rate"),
        (('pool = "', 'url = "http://127.0.0.1:1"\npool = "'), "one of pool and url"),
        (("[batch]", "[batch"), "not valid TOML"),
        (("threads = 1", '[publish]\nengine = "http://127.0.0.1:1"\nmodel = "m"'), "publish does not go with prm"),
        (('model = "pocket"', 'model = "/nowhere"'), "no model at /nowhere"),
    ],
)
def test_what_is_wrong_with_a_job_is_one_line(job, capsys, change, says):
    assert change[0] in job.read_text()
    job.write_text(job.read_text().replace(*change))
    if "prm" in says:
        job.write_text(job.read_text().replace('"grpo"', '"prm"'))
    assert invoke(["train", str(job)]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert says in lines[0]
    assert "no model" in says or lines[0].startswith(f"agentworld: {job}"), "which file"


def test_where_the_file_system_has_no_locks_a_job_trains_nonetheless(tmp_path, monkeypatch):
    def none(*asked):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(sole.fcntl, "flock", none)
    with sole_trainer(tmp_path / "out"):
        assert (tmp_path / "out").is_dir()


def test_one_process_trains_into_a_folder(job, tmp_path, capsys):
    with sole_trainer(tmp_path / "out"):
        assert invoke(["train", str(job)]) == 1
        said = capsys.readouterr().err
        assert f"another process trains into {tmp_path}/out (at out). Wait for it to end" in said
        assert latest_checkpoint(tmp_path / "out") is None
    assert invoke(["train", str(job)]) == 0


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        read_job(tmp_path / "none.toml")


def test_a_batch_that_teaches_nothing_says_so(tmp_path, capsys):
    url = f"sqlite:///{tmp_path}/pool.db"
    pool = open_pool(url)
    fill(pool, {"g": [([step("", [1], [4])], 1.0), ([step("", [1], [6])], 1.0)]})
    pool.close()
    path = tmp_path / "train.toml"
    path.write_text(JOB.format(pool=url, out=tmp_path / "out").replace("batches = 2", "batches = 1"))
    assert invoke(["train", str(path)]) == 0
    assert "nothing to learn" in capsys.readouterr().out


def test_the_command_tells_of_merging(tmp_path, capsys):
    url = f"sqlite:///{tmp_path}/pool.db"
    pool = open_pool(url)
    opening = list(range(1, 9))
    fill(pool, {"g": [([step("", opening, [4])], 1.0), ([step("", opening, [6])], 0.0)]})
    pool.close()
    path = tmp_path / "train.toml"
    text = JOB.format(pool=url, out=tmp_path / "out").replace("batches = 2", "batches = 1")
    path.write_text(text.replace("[settings]", '[settings]\nmerging = "on"'))
    assert invoke(["train", str(path)]) == 0
    said = capsys.readouterr().out
    assert "merged against flat" in said.splitlines()[0]
    assert "merged: 10 of 18 computed" in said


@pytest.mark.parametrize("more", [{"vocabulary": "ab" * 16}, {"reply": [70_000]}])
def test_ids_of_another_vocabulary_are_refused(tmp_path, capsys, more):
    url = f"sqlite:///{tmp_path}/pool.db"
    pool = open_pool(url)
    reply = more.pop("reply", [4])
    fill(pool, {"g": [([step("", [1], reply, **more)], 1.0), ([step("", [1], [6])], 0.0)]})
    pool.close()
    path = tmp_path / "train.toml"
    path.write_text(JOB.format(pool=url, out=tmp_path / "out"))
    assert invoke(["train", str(path)]) == 1
    error = capsys.readouterr().err
    assert "of another vocabulary" in error
    assert error.count("\n") == 1 or "updates" in error


def test_what_would_fail_after_the_training_fails_before_it(job, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    text = job.read_text()
    job.write_text(text.replace(str(tmp_path / "out"), str(tmp_path / "file" / "out")))
    assert invoke(["train", str(job)]) == 1
    assert "cannot be made" in capsys.readouterr().err
    job.write_text(text + '\n[publish]\nengine = "http://127.0.0.1:1"\nmodel = "pocket"\n')
    assert invoke(["train", str(job)]) == 1
    assert "nothing answers at http://127.0.0.1:1" in capsys.readouterr().err
    assert latest_checkpoint(tmp_path / "out") is None
