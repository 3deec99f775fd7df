"""What may change between a checkpoint and who goes on from it."""

import math

import msgspec
import pytest

from agentworld.config import convert
from agentworld.errors import ConfigError
from agentworld.records.methods import METHODS, required_by
from agentworld.trainers.checkpoint import latest_checkpoint
from agentworld.trainers.job import TrainJob
from agentworld.trainers.recipes import RECIPES
from agentworld.trainers.reference import Trainer
from agentworld.trainers.resuming import FREE, changes
from agentworld.trainers.settings import TrainSettings
from tests.trainers.builders import batch, member, step, tiny_model

BEFORE = TrainSettings(method="grpo", weight_decay=0.1, seed=1)
FIXED = {"model": "tiny", "consumer": "policy"}


@pytest.fixture
def folder(tmp_path):
    Trainer(tiny_model(), BEFORE, tmp_path, fixed=FIXED).save()
    return tmp_path


def test_how_fast_it_learns_may_change_and_is_told(folder):
    now = msgspec.structs.replace(BEFORE, learning_rate=2e-4, weight_decay=0.3, beta2=0.9, merging="off")
    trainer = Trainer(tiny_model(), now, folder, fixed=FIXED)
    assert trainer.resume()
    assert trainer.changed == [
        "beta2: 0.95 -> 0.9", "learning_rate: 0.001 -> 0.0002", "merging: auto -> off", "weight_decay: 0.1 -> 0.3",
    ]  # fmt: skip
    assert [group["weight_decay"] for group in trainer.optimizer.param_groups] == [0.3, 0.0]
    assert {group["betas"] for group in trainer.optimizer.param_groups} == {(0.9, 0.9)}
    trainer.save()
    again = Trainer(tiny_model(), now, folder, fixed=FIXED)
    assert again.resume()
    assert again.changed == []


def test_lists_of_a_job_are_the_same_when_it_goes_on(tmp_path):
    job = convert({"model": "pocket", "batch": {}, "lora": {"target_modules": ["q_proj", "v_proj"]}}, TrainJob, "job")
    Trainer(tiny_model(), BEFORE, tmp_path, fixed=job.fixed).save()
    assert Trainer(tiny_model(), BEFORE, tmp_path, fixed=job.fixed).resume()


OTHER = {
    "method": "dapo", "credit": {"method": "leave_one_out"}, "clip_low": 0.1, "clip_high": 0.3, "seed": 2,
    "aggregation": "token_mean", "horizon": 7, "reference": "mine", "reference_weight": 0.1, "entropy_weight": 0.1,
    "token_weights": "gates", "shared": "mean", "beta": 0.2, "divergence": "forward_kl", "teacher": "other",
    "teacher_model": "x", "critic": "annotation", "value_weight": 0.5, "value_clip": 0.5, "desirable_weight": 2.0,
    "undesirable_weight": 2.0, "threshold": 0.1,
}  # fmt: skip


def test_every_other_setting_is_held(folder):
    assert set(OTHER) | FREE >= set(TrainSettings.__struct_fields__)
    for name, value in OTHER.items():
        before = msgspec.to_builtins(BEFORE)
        with pytest.raises(ConfigError, match=r"when .*checkpoint-000001 was written") as caught:
            changes(latest_checkpoint(folder), before, {**before, name: value})
        assert caught.value.path == name
    with pytest.raises(ConfigError, match="seed is 2, and was 1"):
        Trainer(tiny_model(), msgspec.structs.replace(BEFORE, seed=2), folder, fixed=FIXED).resume()
    for name in FIXED:
        with pytest.raises(ConfigError, match=f"{name} is other"):
            Trainer(tiny_model(), BEFORE, folder, fixed={**FIXED, name: "other"}).resume()


def test_a_checkpoint_of_an_earlier_version_says_less_and_goes_on(folder):
    path = latest_checkpoint(folder) / "trainer.json"
    said = msgspec.json.decode(path.read_bytes())
    del said["settings"], said["fixed"]
    path.write_bytes(msgspec.json.encode(said))
    assert Trainer(tiny_model(), BEFORE, folder, fixed=FIXED).resume()


@pytest.mark.parametrize("method", RECIPES)
def test_leases_ask_for_what_the_table_of_methods_says(method):
    given = {"dpo": {"reference": "reference_logprobs"}, "ppo": {"critic": "annotation"}}.get(method, {})
    requires = set(TrainSettings(method=method, **given).requires)
    values = {"annotation.values"} if method == "ppo" else set()
    reference = {"annotation.reference_logprobs"} if method == "dpo" else set()
    assert requires == set(required_by(method, ())) | values | reference
    assert values | reference <= {f"annotation.{name}" for name in METHODS[method].uses}


@pytest.mark.parametrize("method", ["rloo", "reinforce"])
def test_methods_without_a_ratio_train_on_what_has_no_log_probabilities(tmp_path, method):
    runs = [
        member([step(f"s{n}", [1, 2], [n + 5], f"t{n}", logprobs=[None], space=None)], float(n), f"t{n}")
        for n in range(2)
    ]
    metrics = Trainer(tiny_model(), TrainSettings(method=method), tmp_path).train_batch(batch({"g": runs}))
    assert metrics.updates == 1
    assert metrics.kl == 0.0
    assert math.isfinite(metrics.loss)
