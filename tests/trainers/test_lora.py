"""Adapters: merged as flat, checkpoints that hold them alone, and the same model without them."""

import json
import warnings

import pytest
import torch

from agentworld.errors import ConfigError
from agentworld.merge.verify import verify_merging
from agentworld.trainers.checkpoint import read_record
from agentworld.trainers.lora import LoraSettings, add_lora, load_adapter, merged_weights, save_merged
from agentworld.trainers.reference import Trainer
from agentworld.trainers.settings import TrainSettings
from tests.merge.models import model_of
from tests.trainers.builders import batch, member, step, tiny_model

pytest.importorskip("peft")
GRPO = TrainSettings(method="grpo", learning_rate=5e-3, rows_per_update=8, merging="on", verify_merging=True)
LORA = LoraSettings(rank=2, alpha=4.0)


def adapted(seed=0, settings=LORA):
    model = tiny_model()
    add_lora(model, settings, seed=seed)
    return model


def moved(model):
    """Adapters that do something: B is no longer 0."""
    torch.manual_seed(5)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def forks(reply=(5, 6), opening=24):
    first = list(range(1, opening))
    steps = [step(f"s{token}", first, [token, 9], f"t{token}", [-3.0, -3.0]) for token in reply]
    return batch({"g": [member([each], float(n), each.trajectory_id) for n, each in enumerate(steps)]})


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_merged_equals_flat_with_adapters_in_double_precision(kind):
    model = model_of(kind)
    add_lora(model, LORA)
    moved(model.double())
    found = verify_merging(model, [[1, 2, 3, 4, 5], [1, 2, 3, 7, 8, 9], [1, 2], [4, 4, 4]], tolerances=(1e-11, 1e-10))
    assert found.holds
    assert found.unique < found.tokens
    assert 0 < found.gradients < 1e-10


def test_the_model_begins_as_it_was_and_only_adapters_are_trained(tmp_path):
    model, ids = adapted(), torch.tensor([[1, 2, 3]])
    assert torch.equal(model(ids).logits, tiny_model()(ids).logits)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = Trainer(model, GRPO, tmp_path)
    metrics = trainer.train_batch(forks())
    assert metrics.merged == 1.0
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed
    assert all(".lora_B." in name or ".lora_A." in name for name in changed)


def test_a_checkpoint_holds_adapters_and_goes_on_as_if_nothing_had_happened(tmp_path):
    whole = Trainer(adapted(), GRPO, tmp_path / "whole", fixed={"model": "tiny"})
    for number in range(2):
        whole.train_batch(forks((5 + number, 6 + number)))
    first = Trainer(adapted(), GRPO, tmp_path / "cut", fixed={"model": "tiny"})
    first.train_batch(forks((5, 6)))
    folder = first.save()
    assert sorted(path.name for path in folder.iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors", "optimizer.pt", "trainer.json",
    ]  # fmt: skip
    said = json.loads((folder / "adapter_config.json").read_text())
    assert (said["r"], said["lora_alpha"], said["base_model_name_or_path"]) == (2, 4.0, "tiny")
    second = Trainer(adapted(seed=9), GRPO, tmp_path / "cut", fixed={"model": "tiny"})
    assert second.resume()
    second.train_batch(forks((6, 7)))
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name]), name


def test_the_folder_loads_in_peft_and_merged_weights_compute_the_same(tmp_path):
    from peft import PeftModel

    trainer = Trainer(moved(adapted()), GRPO, tmp_path / "out")
    folder, ids = trainer.save(), torch.tensor([[1, 2, 3, 4]])
    wanted = trainer.model(ids).logits
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by an older name.
        loaded = PeftModel.from_pretrained(tiny_model(), folder)
    assert torch.allclose(loaded(ids).logits, wanted, atol=1e-6)
    from agentworld.engines.builtin.models import install_weights, read_weights

    plain = tiny_model(seed=4)
    merged = save_merged(trainer.model, tmp_path / "merged")
    install_weights(plain, read_weights(plain, merged))
    assert torch.allclose(plain(ids).logits, wanted, atol=1e-5)
    assert set(merged_weights(tiny_model())) == set(merged_weights(trainer.model))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"target_modules": ("nope",)}, "Matrices of this model: .*q_proj"),
        ({"target_modules": ("lm_head",)}, "cannot have an adapter of its own"),
        ({"rank": 0}, "rank must be at least 1"),
        ({"alpha": 0.0}, "alpha must be over 0"),
        ({"dropout": 1.0}, "dropout must be from 0"),
        ({"target_modules": ()}, "names no layer"),
    ],
)
def test_adapters_that_cannot_be_are_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        adapted(settings=LoraSettings(**settings))


def test_dropout_goes_unmerged_only_and_draws_the_same_after_a_resume(tmp_path):
    dropping = LoraSettings(rank=2, dropout=0.5)
    with pytest.raises(ConfigError, match="merging computes a shared token once"):
        Trainer(adapted(settings=dropping), GRPO, tmp_path)
    flat = TrainSettings(method="grpo", learning_rate=5e-3, merging="off")
    states = []
    for number in range(2):
        trainer = Trainer(moved(adapted(settings=dropping)), flat, tmp_path / str(number))
        trainer.train_batch(forks())
        torch.manual_seed(number)  # What else was drawn meanwhile does not matter.
        trainer.train_batch(forks((6, 7)))
        states.append(trainer.model.state_dict())
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_adapters_of_another_shape_are_refused(tmp_path):
    folder = Trainer(adapted(), GRPO, tmp_path).save()
    with pytest.raises(ConfigError, match="does not fit this model: its adapters are others"):
        Trainer(adapted(settings=LoraSettings(rank=3)), GRPO, tmp_path).resume()
    assert read_record(folder).method == "grpo"
    with pytest.raises(Exception, match="adapters are others"):
        load_adapter(adapted(settings=LoraSettings(rank=3)), folder)
