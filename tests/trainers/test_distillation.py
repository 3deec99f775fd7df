"""Distillation beyond the sampled token: the k likeliest of a teacher, its own turns, gates."""

import numpy as np
import pytest
import torch

from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.records import BatchTrajectory
from agentworld.trainers.forward import part_scores
from agentworld.trainers.losses import top_forward_kl_loss, top_reverse_kl_loss
from agentworld.trainers.objective import Objective
from agentworld.trainers.parts import flat_parts, merged_parts
from agentworld.trainers.reference import Trainer
from agentworld.trainers.rows import TAUGHT, distillation_rows
from agentworld.trainers.settings import TrainSettings
from tests.merge.models import farthest, model_of
from tests.trainers.builders import VOCABULARY, batch, member, reply_logprobs, step, tiny_model


def distributions(seed, rows=5):
    generator = torch.Generator().manual_seed(seed)
    logits = 2.0 * torch.randn(rows, VOCABULARY, generator=generator, dtype=torch.float64)
    return torch.log_softmax(logits, dim=-1)


def reference_kl(one, other, named):
    """KL over the named outcomes and the rest, by numpy."""
    total = 0.0
    for p, q, ids in zip(one.exp().numpy(), other.exp().numpy(), named.numpy(), strict=True):
        first, second = np.append(p[ids], 1 - p[ids].sum()), np.append(q[ids], 1 - q[ids].sum())
        total += float(np.sum(first * (np.log(first) - np.log(second))))
    return total


@pytest.mark.parametrize("k", [1, 4, VOCABULARY - 1])
def test_the_losses_are_the_divergences_of_what_was_named_and_the_rest(k):
    teacher, student = distributions(0), distributions(1)
    named = teacher.topk(k, dim=-1).indices
    top, theirs, ones = student.gather(1, named), teacher.gather(1, named), torch.ones(5, dtype=torch.float64)
    forward, reverse = top_forward_kl_loss(top, theirs, ones), top_reverse_kl_loss(top, theirs, ones)
    assert float(forward) == pytest.approx(reference_kl(teacher, student, named), abs=1e-9)
    assert float(reverse) == pytest.approx(reference_kl(student, teacher, named), abs=1e-9)
    whole = (teacher.exp() * (teacher - student)).sum()
    assert float(forward) <= float(whole) + 1e-9
    if k == VOCABULARY - 1:
        assert float(forward) == pytest.approx(float(whole), abs=1e-9)
    assert float(top_forward_kl_loss(theirs, theirs, ones)) == pytest.approx(0.0, abs=1e-9)
    assert float(top_reverse_kl_loss(theirs, theirs, ones)) == pytest.approx(0.0, abs=1e-9)


def test_gradients_are_those_of_the_divergence_and_weights_are_factors():
    teacher = distributions(2)
    logits = torch.randn(5, VOCABULARY, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    named = teacher.topk(VOCABULARY - 1, dim=-1).indices
    weights = torch.tensor([1.0, 0.5, 0.0, 2.0, 1.0], dtype=torch.float64)
    for loss in (top_forward_kl_loss, top_reverse_kl_loss):
        own = logits.clone().requires_grad_()
        loss(torch.log_softmax(own, -1).gather(1, named), teacher.gather(1, named), weights).backward()
        other = logits.clone().requires_grad_()
        student = torch.log_softmax(other, -1)
        ends = (teacher, student) if loss is top_forward_kl_loss else (student, teacher)
        ((ends[0].exp() * (ends[0] - ends[1])).sum(-1) * weights).sum().backward()
        assert torch.allclose(own.grad, other.grad, atol=1e-9)
        assert torch.all(own.grad[2] == 0)


def test_what_the_teacher_did_not_name_counts_as_the_rest():
    teacher, student = distributions(4), distributions(5)
    named = teacher.topk(4, dim=-1).indices
    ones = torch.ones(5, dtype=torch.float64)
    padded = torch.cat([teacher.gather(1, named), torch.full((5, 3), float("nan"), dtype=torch.float64)], dim=1)
    top = torch.cat([student.gather(1, named), student[:, :3]], dim=1)
    for loss in (top_forward_kl_loss, top_reverse_kl_loss):
        expected = loss(student.gather(1, named), teacher.gather(1, named), ones)
        assert float(loss(top, padded, ones)) == pytest.approx(float(expected), abs=1e-9)


def scored(step_id, prompt, reply, teacher, k, trajectory="t0", **more):
    """A step with the annotations of a teacher, as scoring stores them."""
    with torch.no_grad():
        table = torch.log_softmax(teacher(torch.tensor([prompt + reply])).logits[0], -1)[len(prompt) - 1 : -1]
    top = table.topk(k, dim=-1)
    each = step(step_id, prompt, reply, trajectory, logprobs=reply_logprobs(tiny_model(), prompt, reply), **more)
    arrays = {
        "teacher_logprobs": table.gather(1, torch.tensor(reply)[:, None])[:, 0].tolist(),
        "teacher_top_ids": top.indices.tolist(),
        "teacher_top_logprobs": top.values.tolist(),
    }
    return each, arrays


def taught_batch(k=4, **more):
    teacher, runs = tiny_model(seed=7), []
    for number in range(3):
        prompt = [1, 2, 3, 4, 5, 6, 7, 8]
        each, arrays = scored(f"s{number}", prompt, [9 + number, 11, 12], teacher, k, f"t{number}", **more)
        whole = member([each], 1.0, f"t{number}")
        runs.append(BatchTrajectory(trajectory=whole.trajectory, steps=whole.steps, annotations={each.step_id: arrays}))
    return batch({f"g{n}": [run] for n, run in enumerate(runs)}, unit="trajectory")


def test_ids_beside_the_sampled_ones_are_scored_alike_merged_and_flat():
    names = ("teacher_logprobs", "teacher_top_ids", "teacher_top_logprobs")
    rows = distillation_rows(taught_batch(), names)
    units, model = [[row] for row in rows], tiny_model()
    found = []
    for part in (*flat_parts(units, 4096), *merged_parts(units, 4096)):
        ids = np.concatenate([row.arrays["teacher_top_ids"][row.mask] for row in part.rows]).astype(np.int64)
        scores = part_scores(model, part, also=ids)
        assert torch.allclose(scores.logprobs, part_scores(model, part).logprobs, atol=1e-5)
        found.append(dict(zip(part.units, scores.top.split([row.trained for row in part.rows]), strict=True)))
    for unit, row in enumerate(rows):
        assert torch.allclose(found[0][unit], found[1][unit], atol=1e-5)
        with torch.no_grad():
            table = torch.log_softmax(model(torch.tensor(row.ids)[None]).logits[0], -1)
        before = table[np.flatnonzero(row.mask) - 1]
        ids = torch.from_numpy(row.arrays["teacher_top_ids"][row.mask].astype(np.int64))
        assert torch.allclose(found[0][unit], before.gather(1, ids), atol=1e-5)


@pytest.mark.parametrize(("filler", "value"), [(-1, -1.0), (5, float("-inf")), (99_999, -1.0)])
def test_what_fills_up_a_place_counts_as_not_named(filler, value):
    settings = TrainSettings(method="distill", divergence="top_reverse_kl", merging="off")
    losses = []
    for more in (0, 2):
        given = taught_batch()
        for run in (each for item in given.items for each in item.trajectories):
            for arrays in run.annotations.values():
                arrays["teacher_top_ids"] = [[*place, *[filler] * more] for place in arrays["teacher_top_ids"]]
                arrays["teacher_top_logprobs"] = [[*place, *[value] * more] for place in arrays["teacher_top_logprobs"]]
        units = [[row] for row in distillation_rows(given, settings.annotations)]
        losses.append(Objective(tiny_model(), settings).gradient(units).loss)
    assert losses[1] == pytest.approx(losses[0], abs=1e-6)
    assert losses[0] > 0


@pytest.mark.parametrize("divergence", ["top_forward_kl", "top_reverse_kl"])
def test_merged_gradients_are_the_flat_ones_in_double_precision(divergence):
    gradients = []
    for merging in ("on", "off"):
        settings = TrainSettings(method="distill", divergence=divergence, merging=merging, verify_merging=False)
        model = model_of("qwen3")  # Of 29 ids, where the teacher named some of 32.
        rows = distillation_rows(taught_batch(), settings.annotations)
        found = Objective(model, settings).gradient([[row] for row in rows])
        assert (found.merged > 0) == (merging == "on")
        gradients.append({name: weights.grad for name, weights in model.named_parameters()})
    assert farthest(*gradients) < 1e-9


@pytest.mark.parametrize("divergence", ["top_forward_kl", "top_reverse_kl"])
@pytest.mark.parametrize("merging", ["on", "off"])
def test_the_student_comes_nearer_to_its_teacher(tmp_path, divergence, merging):
    settings = TrainSettings(
        method="distill", divergence=divergence, learning_rate=5e-3, epochs=6, rows_per_update=3, merging=merging
    )
    given = taught_batch()
    trainer = Trainer(tiny_model(), settings, tmp_path)
    losses = [trainer.train_batch(given).loss for _ in range(3)]
    assert losses[0] > losses[1] > losses[2] > 0


def test_turns_of_the_teacher_are_imitated_and_gates_leave_turns_out(tmp_path):
    given = taught_batch(model="teacher")
    settings = TrainSettings(method="distill", teacher_model="teacher", token_weights="gate", learning_rate=5e-3)
    for number, item in enumerate(given.items):
        item.trajectories[0].annotations[f"s{number}"]["gate"] = [float(number != 1)]
        item.trajectories[0].steps[0].model = "student" if number == 2 else "teacher"
    rows = distillation_rows(given, settings.annotations, "teacher")
    assert [row.arrays[TAUGHT][row.mask].tolist() for row in rows] == [[1.0] * 3, [1.0] * 3, [0.0] * 3]
    model = tiny_model()
    before = [reply_logprobs(model, [1, 2, 3, 4, 5, 6, 7, 8], [9 + n, 11, 12])[0] for n in range(2)]
    metrics = Trainer(model, settings, tmp_path).train_batch(given)
    after = [reply_logprobs(model, [1, 2, 3, 4, 5, 6, 7, 8], [9 + n, 11, 12])[0] for n in range(2)]
    assert metrics.figures["taught"] == pytest.approx(2 / 3)
    assert after[0] - before[0] > 1.5 * abs(after[1] - before[1])  # The second was gated away.


def test_what_was_not_scored_with_k_is_refused(tmp_path):
    given = taught_batch()
    given.items[0].trajectories[0].annotations["s0"]["teacher_top_ids"] = [1.0, 2.0, 3.0]
    settings = TrainSettings(method="distill", divergence="top_forward_kl")
    with pytest.raises(InvalidRequestError, match="one number a token, not several"):
        Trainer(tiny_model(), settings, tmp_path).train_batch(given)
    with pytest.raises(ConfigError, match="does not go with top_forward_kl"):
        TrainSettings(method="distill", divergence="top_forward_kl", entropy_weight=0.1)
    with pytest.raises(ConfigError, match="teacher_model does not go with grpo"):
        TrainSettings(method="grpo", teacher_model="x")


def test_what_a_teacher_said_that_the_student_finds_impossible_is_a_number(tmp_path):
    given = taught_batch(model="teacher")
    for item in given.items:
        [each] = item.trajectories[0].steps
        each.response_logprobs = [-200.0] * 3
        item.trajectories[0].annotations[each.step_id]["teacher_logprobs"] = [200.0] * 3
    for divergence in ("reverse_kl", "forward_kl"):
        settings = TrainSettings(method="distill", teacher_model="teacher", divergence=divergence)
        assert np.isfinite(Trainer(tiny_model(), settings, tmp_path / divergence).train_batch(given).loss)
