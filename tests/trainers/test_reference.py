import errno
import resource

import pytest
import torch

from agentworld.errors import AgentWorldError, ConfigError, InvalidRequestError
from agentworld.pool import open_store
from agentworld.records import BatchSpec
from agentworld.trainers import checkpoint as checkpoint_module
from agentworld.trainers.checkpoint import latest_checkpoint, read_record
from agentworld.trainers.reference import Trainer
from agentworld.trainers.settings import TrainSettings
from tests.trainers.builders import batch, fill, member, reply_logprobs, step, tiny_model

SFT = TrainSettings(method="sft", learning_rate=5e-3, epochs=80, rows_per_update=4, schedule="cosine", warmup=4)
GRPO = TrainSettings(method="grpo", learning_rate=2e-3, rows_per_update=8)
PROMPT = [1, 2, 3]


@pytest.fixture
def pool():
    pool = open_store("memory://")
    yield pool
    pool.close()


def bandit(model, good=5, bad=6, rollouts=4):
    """A group whose rollouts reply one token each, rewarded if it is `good`, with true log-probabilities."""
    members = []
    for number in range(rollouts):
        reply = [good if number % 2 else bad]
        each = step(f"s{number}", PROMPT, reply, f"t{number}", reply_logprobs(model, PROMPT, reply))
        members.append(member([each], float(number % 2), f"t{number}"))
    return {"g": members}


def test_imitation_learns_replies_by_heart(tmp_path):
    model = tiny_model()
    runs = {f"g{n}": [member([step(f"s{n}", [1, n], [n + 10, 0], f"t{n}")], 1.0, f"t{n}")] for n in range(8)}
    metrics = Trainer(model, SFT, tmp_path).train_batch(batch(runs, unit="trajectory"))
    assert metrics.rows == 8
    assert metrics.updates == 160
    for n in range(8):
        with torch.no_grad():
            assert int(model(torch.tensor([[1, n]])).logits[0, -1].argmax()) == n + 10


def test_grpo_makes_the_rewarded_reply_likelier(tmp_path):
    model = tiny_model()
    before = [reply_logprobs(model, PROMPT, [token])[0] for token in (5, 6)]
    trainer = Trainer(model, GRPO, tmp_path)
    metrics = trainer.train_batch(batch(bandit(model)))
    after = [reply_logprobs(model, PROMPT, [token])[0] for token in (5, 6)]
    assert after[0] > before[0]
    assert after[1] < before[1]
    assert metrics.reward == 0.5
    assert metrics.kl == pytest.approx(0.0, abs=1e-6)
    assert trainer.record.version == 1


def test_a_batch_of_equal_rewards_changes_nothing_and_counts_as_applied(tmp_path):
    model = tiny_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = Trainer(model, GRPO, tmp_path)
    metrics = trainer.train_batch(
        batch({"g": [member([step("a", [1], [2])], 1.0), member([step("b", [1], [3])], 1.0)]})
    )
    assert metrics.updates == 0
    assert trainer.record.applied == ["bat_1"]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_same_seed_gives_the_same_weights(tmp_path):
    weights = []
    for number in range(2):
        model = tiny_model()
        Trainer(model, GRPO, tmp_path / str(number)).train_batch(batch(bandit(model)))
        weights.append(model.state_dict())
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_a_checkpoint_restores_weights_optimizer_and_record(tmp_path):
    model = tiny_model()
    trainer = Trainer(model, GRPO, tmp_path, run="r")
    first, second = batch(bandit(model), "bat_1"), batch(bandit(model), "bat_2")
    trainer.train_batch(first)
    trainer.save()
    other = Trainer(tiny_model(seed=3), GRPO, tmp_path)
    assert other.resume()
    assert other.record == trainer.record
    trainer.train_batch(second)
    other.train_batch(second)
    states = trainer.model.state_dict(), other.model.state_dict()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_a_checkpoint_that_was_cut_short_is_not_seen(tmp_path):
    trainer = Trainer(tiny_model(), GRPO, tmp_path)
    assert not trainer.resume()
    path = trainer.save()
    partial = tmp_path / ".partial-000002"
    partial.mkdir()
    (partial / "model.safetensors").write_bytes(b"half")
    assert latest_checkpoint(tmp_path) == path
    assert trainer.save().name == "checkpoint-000002"
    trainer.save()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["checkpoint-000002", "checkpoint-000003"]


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    path = Trainer(tiny_model(), GRPO, tmp_path).save()
    (path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="does not fit"):
        Trainer(tiny_model(), GRPO, tmp_path).resume()


class CrashError(Exception):
    """Stands for a kill at one moment."""


@pytest.mark.parametrize("moment", ["train_batch", "save", "ack", "published"])
def test_each_batch_has_its_effect_once_wherever_the_trainer_dies(tmp_path, pool, moment, monkeypatch):
    """Two batches, a crash at `moment` of the first; the weights at the end equal those of an undisturbed trainer."""
    runs = {f"g{n}": [([step("", [1, n], [4])], 1.0), ([step("", [1, n], [6])], 0.0)] for n in range(2)}
    fill(pool, runs)
    spec = BatchSpec(method="grpo", groups=1, rollouts=2)
    undisturbed = Trainer(tiny_model(), GRPO, tmp_path / "undisturbed")
    list(undisturbed.run(pool.consumer("undisturbed"), spec, batches=2, timeout=0))

    def dies(*_, **__):
        raise CrashError

    trainer = Trainer(tiny_model(), GRPO, tmp_path / "policy")
    with monkeypatch.context() as patched:
        if moment in ("train_batch", "save"):
            patched.setattr(trainer, moment, dies)
        elif moment == "ack":
            patched.setattr("agentworld.pool.consumer.LeasedBatch.ack", dies)
        with pytest.raises(CrashError):
            list(
                trainer.run(
                    pool.consumer("policy"),
                    spec,
                    batches=2,
                    timeout=0,
                    published=dies if moment == "published" else None,
                )
            )
    again = Trainer(tiny_model(), GRPO, tmp_path / "policy")
    again.resume()
    list(again.run(pool.consumer("policy"), spec, batches=2, timeout=0))
    states = undisturbed.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert len(set(again.record.applied)) == len(again.record.applied) == 2
    assert pool.consumer("policy").lease(spec) is None


def test_a_batch_that_cannot_be_trained_on_goes_back(tmp_path, pool):
    fill(pool, {"g": [([step("", [1], [2], logprobs=[None])], 1.0), ([step("", [1], [3])], 0.0)]})
    trainer = Trainer(tiny_model(), GRPO, tmp_path)
    spec = BatchSpec(method="grpo", groups=1, rollouts=2)
    with pytest.raises(InvalidRequestError, match="log-probability"):
        list(trainer.run(pool.consumer("policy"), spec, batches=1, timeout=0))
    assert latest_checkpoint(tmp_path) is None
    assert pool.consumer("policy").lease(spec) is not None


def test_long_training_keeps_its_lease(tmp_path, pool):
    fill(pool, {"g": [([step("", [1], [2])], 1.0), ([step("", [1], [3])], 0.0)]})
    spec = BatchSpec(method="grpo", groups=1, rollouts=2, lease_seconds=0.5)
    extended = []
    leased = pool.consumer("policy").lease(spec)
    leased.deadline = 0.0
    leased.extend = extended.append
    from agentworld.trainers.reference import _extending

    _extending(leased, spec, None)(1, 2, {})
    assert extended == [0.5]


def test_gradients_that_are_not_finite_stop_before_the_update(tmp_path):
    model = tiny_model()
    runs = bandit(model)
    runs["g"][0].steps[0].response_logprobs = [-float("inf")]
    before = model.state_dict()["model.norm.weight"].clone()
    with pytest.raises(AgentWorldError, match="not finite"):
        Trainer(model, GRPO, tmp_path).train_batch(batch(runs))
    assert torch.equal(model.state_dict()["model.norm.weight"], before)


def test_the_record_says_what_is_in_the_weights(tmp_path):
    model = tiny_model()
    trainer = Trainer(model, GRPO, tmp_path, version=3, run="r")
    trainer.train_batch(batch(bandit(model)))
    record = read_record(trainer.save())
    assert (record.version, record.run, record.applied, record.updates) == (4, "r", ["bat_1"], 1)


@pytest.mark.parametrize("field", [{"learning_rate": 0}, {"epochs": 0}, {"clip_low": 1.0}, {"clip_high": 0.0}])
def test_settings_that_make_no_sense_are_refused(field):
    with pytest.raises(ConfigError) as error:
        TrainSettings(**field)
    assert error.value.path == next(iter(field))


def test_a_checkpoint_whose_folder_cannot_be_synced_does_not_stay(tmp_path, monkeypatch):
    trainer = Trainer(tiny_model(), GRPO, tmp_path)
    trainer.save()
    sync = checkpoint_module.sync

    def failing(path):
        if path == tmp_path:
            raise OSError(errno.EIO, "Input/output error")
        sync(path)

    monkeypatch.setattr(checkpoint_module, "sync", failing)
    with pytest.raises(AgentWorldError, match="checkpoint-000002 could not be written: Input/output error"):
        trainer.save()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000001"]


def test_a_disk_that_takes_no_checkpoint_is_said_and_the_batch_comes_again(pool, tmp_path):
    model = tiny_model()
    fill(pool, {f"g{n}": [([step("", PROMPT, [5])], 1.0), ([step("", PROMPT, [6])], 0.0)] for n in range(2)})
    spec = BatchSpec(method="grpo", groups=1, rollouts=2)
    trainer = Trainer(model, GRPO, tmp_path)
    kept = next(trainer.run(pool.consumer("c"), spec, batches=2)).batch_id
    weights = (tmp_path / "checkpoint-000001" / "model.safetensors").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    says = r"checkpoint-000002 could not be written: .*MiB are free"
    for most in (weights // 2, weights + 4096):  # Too little for the weights, or for the optimizer's state after them.
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
        try:
            with pytest.raises(AgentWorldError, match=says) as seen:
                next(trainer.run(pool.consumer("c"), spec, batches=1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert "File too large" in seen.value.message, "what the system says"
        assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000001"]
        assert pool.list_batches(consumer="c", state="leased").items == []
        trainer = Trainer(tiny_model(), GRPO, tmp_path)
        assert trainer.resume()
        assert trainer.record.applied == [kept]
    assert len(list(trainer.run(pool.consumer("c"), spec, batches=1))) == 1
    assert pool.consumer("c").lease(spec) is None
