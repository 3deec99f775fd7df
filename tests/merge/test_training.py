"""The trainer with merging and without: the same loss, the same gradients, the same weights after many updates."""

import logging

import numpy as np
import pytest
import torch

from agentworld.errors import ConfigError
from agentworld.factory import open_pool
from agentworld.merge.heads import check_head
from agentworld.merge.verify import MergeDiffersError, windows
from agentworld.records import Annotation, BatchSpec, Reward
from agentworld.trainers.forward import part_scores
from agentworld.trainers.objective import Objective
from agentworld.trainers.parts import flat_parts
from agentworld.trainers.recipes import RECIPES
from agentworld.trainers.reference import Trainer
from agentworld.trainers.rows import Row
from agentworld.trainers.settings import TrainSettings
from tests.merge.models import VOCABULARY, farthest, flat_logprobs, model_of
from tests.trainers.builders import fill, step

CONVENTIONS = ("per_path", "first_path", "mean")
ANNOTATIONS = ("teacher_logprobs", "reference_logprobs", "values")


def rollout(random, opening, turns, *, compacts=False, sub_agent=False):
    """The steps of one run: a tool's result between replies; a compaction or a sub-agent makes more branches."""
    steps, history = [], list(opening)
    for turn in range(turns):
        reply = random.integers(1, VOCABULARY, int(random.integers(3, 8))).tolist()
        steps.append(step("", history, reply, logprobs=random.normal(-3.3, 0.3, len(reply)).tolist()))
        history = [*history, *reply, *random.integers(1, VOCABULARY, 4).tolist()]
        if sub_agent and turn == 1:
            own = [*opening[:6], *history[-3:]]
            steps.append(step("", own, reply, logprobs=random.normal(-3.3, 0.3, len(reply)).tolist()))
        if compacts and turn == turns // 2:
            history = [*opening, *history[-6:]]
    return steps


@pytest.fixture(scope="module")
def pool():
    """Three groups of multi-turn rollouts with forks, every step annotated."""
    random = np.random.default_rng(11)
    system = random.integers(1, VOCABULARY, 12).tolist()
    groups = {}
    for group in range(3):
        opening = [*system, *random.integers(1, VOCABULARY, 5).tolist()]
        groups[f"g{group}"] = [
            (rollout(random, opening, 3, compacts=own == 1, sub_agent=own == 2), float(own % 2)) for own in range(4)
        ]
    # What two rollouts happened to sample alike is shared as well.
    first, second = groups["g0"][0][0][0], groups["g0"][1][0][0]
    second.response_ids = list(first.response_ids)
    second.response_logprobs, second.usage = list(first.response_logprobs), first.usage
    pool = open_pool("memory://")
    fill(pool, groups)
    steps = [each for runs in groups.values() for steps, _ in runs for each in steps]
    pool.add_annotations(
        [
            Annotation(name=name, step_id=each.step_id, values=random.normal(-3.0, 0.4, len(each.response_ids)))
            for each in steps
            for name in ANNOTATIONS
        ]
    )
    pool.add_rewards([Reward(value=float(random.random() < 0.5), step_id=each.step_id) for each in steps])
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def models():
    return {kind: model_of(kind) for kind in ("llama", "qwen3")}


def settings_of(method, **given):
    low = {"clip_low": 0.2, "clip_high": 0.3} if method == "gspo" else {}
    extra = {"reference": "reference_logprobs"} if method == "dpo" else {}
    return TrainSettings(method=method, **{"micro_tokens": 150, "rows_per_update": 64, **low, **extra, **given})


def batch_of(pool, settings, consumer):
    spec = BatchSpec(
        method=settings.method,
        unit="pair" if settings.method == "dpo" else "group",
        require=(*settings.requires, *(f"annotation.{name}" for name in ANNOTATIONS)),
        **({"size": 3} if settings.method == "dpo" else {"groups": 3, "rollouts": 4}),
    )
    return pool.consumer(consumer).lease(spec).batch


def gradient(model, trainer, units):
    model.zero_grad()
    found = trainer.objective.gradient(units)
    parameters = [*model.named_parameters(), *(trainer.head.named_parameters("head") if trainer.head else ())]
    return found, {name: weights.grad.clone() for name, weights in parameters if weights.grad is not None}


def begun(trainer):
    """The trainer, with a head that is not of zeros."""
    if trainer.head is not None:
        with torch.no_grad():
            trainer.head.weight.copy_(torch.linspace(-0.5, 0.5, trainer.head.weight.numel()))
    return trainer


@pytest.mark.parametrize("method", RECIPES)
def test_every_method_has_the_flat_loss_and_gradients_on_a_batch_of_a_pool(models, pool, tmp_path, method):
    model = models["qwen3"]
    batch = batch_of(pool, settings_of(method), method)
    for shared in CONVENTIONS if method not in ("dpo", "kto") else ("per_path",):
        found, units = {}, None
        for merging in ("on", "off"):
            more = {} if method in ("sft", "dpo", "kto", "prm") else {"entropy_weight": 0.05}
            settings = settings_of(method, merging=merging, shared=shared, verify_merging=False, **more)
            trainer = begun(Trainer(model, settings, tmp_path))
            if method == "ppo" and units is not None:  # Values are rounded: they are compared in tests of the critic.
                found[merging] = gradient(model, trainer, units)
                continue
            units, _ = trainer.units(batch)
            found[merging] = gradient(model, trainer, units)
        (merged, own), (flat, other) = found["on"], found["off"]
        assert own.keys() == other.keys()
        assert merged.loss == pytest.approx(flat.loss, abs=1e-12, rel=1e-12)
        assert farthest(own, other) <= 1e-10
        assert merged.means == pytest.approx(flat.means, abs=1e-9)
        assert (flat.merged, merged.merged) == (0, merged.computed_tokens)
        assert merged.computed_tokens < 0.8 * merged.sequence_tokens <= flat.computed_tokens


def test_conventions_differ_where_rows_train_the_same_tokens(models, pool, tmp_path):
    batch = batch_of(pool, settings_of("sft"), "conventions")
    losses = []
    for shared in CONVENTIONS:
        trainer = Trainer(models["llama"], settings_of("sft", merging="on", shared=shared), tmp_path)
        losses.append(trainer.objective.gradient(trainer.units(batch)[0]).loss)
    assert losses[1] == pytest.approx(losses[2], rel=1e-9)  # the log-probability of one token is one number
    assert abs(losses[0] - losses[1]) > 1e-3


def test_fifty_updates_with_merging_follow_those_without(pool, tmp_path):
    batch = batch_of(pool, settings_of("grpo"), "fifty")
    weights, losses = [], []
    for merging in ("on", "off"):
        model = model_of("llama")
        settings = settings_of(
            "grpo", merging=merging, epochs=25, rows_per_update=10, learning_rate=3e-3, warmup=5, schedule="cosine"
        )
        trainer, own = Trainer(model, settings, tmp_path / merging), []
        metrics = trainer.train_batch(batch, lambda done, total, figures, own=own: own.append(dict(figures)))
        assert metrics.updates == 50
        assert metrics.merged == (1.0 if merging == "on" else 0.0)
        losses.append([[each[name] for name in ("loss", "gradient_norm", "kl", "clipped")] for each in own])
        weights.append(torch.cat([each.detach().flatten() for each in model.parameters()]))
    np.testing.assert_allclose(*losses, rtol=1e-8, atol=1e-8)
    assert float((weights[0] - weights[1]).abs().max()) <= 1e-8
    assert abs(losses[0][-1][0] - losses[0][0][0]) > 1e-3  # it went somewhere


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_single_precision(pool, tmp_path, kind):
    model = model_of(kind, torch.float32)
    batch = batch_of(pool, settings_of("dapo"), f"single-{kind}")
    found = {}
    for merging in ("on", "off"):
        trainer = Trainer(model, settings_of("dapo", merging=merging), tmp_path)
        found[merging] = gradient(model, trainer, trainer.units(batch)[0])
    assert found["on"][0].loss == pytest.approx(found["off"][0].loss, rel=1e-5, abs=1e-5)
    assert farthest(found["on"][1], found["off"][1]) <= 1e-5


def test_a_frozen_reference_is_the_weights_at_the_beginning(pool, tmp_path):
    batch = batch_of(pool, settings_of("dpo"), "frozen")
    losses = []
    for merging in ("on", "off"):
        model = model_of("llama")
        trainer = Trainer(model, TrainSettings(method="dpo", merging=merging, epochs=3, rows_per_update=4), tmp_path)
        figures = []
        metrics = trainer.train_batch(batch, lambda done, total, own, figures=figures: figures.append(own["loss"]))
        assert figures[0] == pytest.approx(np.log(2), abs=1e-9)
        assert figures[-1] < figures[0]
        assert metrics.figures["margin"] > 0
        losses.append(figures)
    np.testing.assert_allclose(*losses, rtol=1e-8)


def test_the_first_merged_update_is_verified_once(pool, tmp_path, caplog):
    model = model_of()
    trainer = Trainer(model, settings_of("sft", merging="on"), tmp_path)
    units, _ = trainer.units(batch_of(pool, trainer.settings, "verified"))
    with caplog.at_level(logging.INFO, logger="agentworld.trainers.objective"):
        for _ in range(2):
            trainer.objective.gradient(units)
    assert [line for line in caplog.messages if line.startswith("merged against flat")] == caplog.messages[:1]
    assert len(caplog.messages) == 1
    rows = len(units)
    assert f" of {rows} sequences, around a fork 256 tokens of each at most, of " in caplog.messages[0]


def test_a_model_that_looks_beyond_a_path_ends_the_run_before_it_is_trained(pool, tmp_path):
    model = model_of()
    before = [weights.detach().clone() for weights in model.parameters()]
    model.model.layers[0].mlp.register_forward_hook(
        lambda module, given, found: found + 0.1 * found.mean(dim=1, keepdim=True)
    )
    trainer = Trainer(model, settings_of("sft", merging="on"), tmp_path)
    with pytest.raises(MergeDiffersError, match="log-probabilities differ by"):
        trainer.train_batch(batch_of(pool, trainer.settings, "differs"))
    assert all(torch.equal(one, two) for one, two in zip(before, model.parameters(), strict=True))
    assert trainer.record.applied == []


def test_what_is_verified_is_small_and_forks(pool, tmp_path):
    trainer = Trainer(model_of(), settings_of("sft"), tmp_path)
    rows = [row for unit in trainer.units(batch_of(pool, trainer.settings, "part"))[0] for row in unit]
    cuts = windows([row.ids for row in rows], 256)
    assert 2 <= len(cuts) <= 8
    parts = [rows[place].ids[begin : begin + 256] for place, begin in cuts]
    assert len({int(each[0]) for each in parts}) == 1
    assert len({each.tobytes() for each in parts}) > 1


@pytest.mark.parametrize(
    ("kind", "more"), [("cohere", {"logit_scale": 0.25}), ("granite", {"logits_scaling": 3.0}), ("gemma2", {})]
)
def test_what_models_do_to_their_logits_is_done_flat_too(kind, more):
    if kind == "gemma2":
        more = {"final_logit_softcapping": 2.0, "head_dim": 4, "attn_implementation": "eager"}
    ends = {"eos_token_id": 1, "bos_token_id": 1, "pad_token_id": 0}
    model = model_of(kind, torch.float32, **more, **ends).eval()
    ids, zeros = np.array([1, 2, 3, 4, 5]), np.zeros(5, np.float32)
    row = Row("", ids, np.arange(5) > 0, zeros, zeros)
    found = part_scores(model, flat_parts([[row]], 64)[0]).logprobs
    torch.testing.assert_close(found, flat_logprobs(model, [ids])[0], rtol=1e-5, atol=1e-5)
    check_head(model)


def test_a_model_that_makes_its_logits_in_another_way_is_refused(pool, tmp_path):
    model = model_of("qwen3")
    plain = model.forward

    def forward(*given, **settings):
        found = plain(*given, **settings)
        found.logits = found.logits * 0.5
        return found

    model.forward = forward
    trainer = Trainer(model, settings_of("sft", merging="off"), tmp_path)
    with pytest.raises(ConfigError, match="makes its logits by more than an output layer"):
        trainer.train_batch(batch_of(pool, trainer.settings, "logits"))


def test_models_that_merging_does_not_know_run_flat_with_a_line_or_are_refused(pool, tmp_path, caplog):
    model = model_of("gpt2")
    settings = settings_of("sft")
    batch = batch_of(pool, settings, "unknown")
    with caplog.at_level(logging.WARNING, logger="agentworld.trainers.objective"):
        metrics = Trainer(model, settings, tmp_path).train_batch(batch)
    assert metrics.merged == 0.0
    said = [record.message for record in caplog.records if record.name.startswith("agentworld")]
    assert said == ["training unmerged: merging knows no models of type 'gpt2'"]
    with pytest.raises(ConfigError, match="merging knows no models of type 'gpt2'"):
        Trainer(model, settings_of("sft", merging="on"), tmp_path).train_batch(batch)


def test_objectives_of_one_model_are_alike_in_any_budget(models, pool, tmp_path):
    """However an update is cut into micro-batches, its loss is the same."""
    batch = batch_of(pool, settings_of("gspo"), "budgets")
    losses = []
    for given in ({"micro_tokens": 60}, {"micro_tokens": 4096}, {"micro_pairs": 3000}, {"merging": "off"}):
        settings = settings_of("gspo", **{"merging": "on", "shared": "mean", **given})
        trainer = Trainer(models["llama"], settings, tmp_path)
        losses.append(Objective(models["llama"], settings).gradient(trainer.units(batch)[0]).loss)
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-10)
