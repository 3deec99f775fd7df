"""Each loss against the same formula in numpy loops, and its gradient against finite differences."""

import math

import numpy as np
import pytest
import torch

from agentworld.credit import CreditSpec
from agentworld.errors import ConfigError
from agentworld.trainers.heads import new_head
from agentworld.trainers.judged_rows import GOOD
from agentworld.trainers.losses import (
    clipped_policy_loss,
    forward_kl_loss,
    imitation_loss,
    preference_loss,
    reference_penalty,
    reverse_kl_loss,
    sequence_policy_loss,
)
from agentworld.trainers.minibatches import flat_weights
from agentworld.trainers.objective import Objective
from agentworld.trainers.parts import flat_parts
from agentworld.trainers.recipes import RECIPES
from agentworld.trainers.rows import Row
from agentworld.trainers.settings import TrainSettings
from tests.trainers.builders import tiny_model

ROWS = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3, 3])


@pytest.fixture(scope="module")
def drawn():
    """New, old, reference and teacher log-probabilities, advantages and weights of ten tokens in four rows."""
    random = np.random.default_rng(5)
    new = random.normal(-1.5, 0.5, 10)
    near = {name: new + random.normal(0, 0.3, 10) for name in ("old", "reference", "teacher")}
    return {"new": new, **near, "advantages": random.normal(size=10), "weights": random.uniform(0.01, 0.2, 10)}


def numpy_clipped(new, old, advantages, weights, low, high):
    total = 0.0
    for lp, before, advantage, weight in zip(new, old, advantages, weights, strict=True):
        ratio = math.exp(lp - before)
        total -= weight * min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
    return total


def numpy_sequence(new, old, advantages, weights, low, high):
    """With one advantage a row: GSPO's equation 5, each row by the sum of its weights."""
    total = 0.0
    for row in np.unique(ROWS):
        own = row == ROWS
        ratio = math.exp(float(np.mean(new[own] - old[own])))
        advantage = float(advantages[own][0])
        total -= weights[own].sum() * min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
    return total


def numpy_preference(new, reference, beta, weight):
    """Rows 0 and 2 are preferred to 1 and 3."""
    total = 0.0
    for good, bad in ((0, 1), (2, 3)):
        margin = beta * (float((new - reference)[good == ROWS].sum()) - float((new - reference)[bad == ROWS].sum()))
        total += weight * math.log1p(math.exp(-margin))
    return total


def as_tensors(drawn, *names):
    return [torch.from_numpy(drawn[name]) for name in names]


def test_policy_losses_equal_numpy(drawn):
    new, old, advantages, weights = (drawn[name] for name in ("new", "old", "advantages", "weights"))
    given = as_tensors(drawn, "new", "old", "advantages", "weights")
    for low, high in ((0.2, 0.28), (0.05, 0.1)):
        found = clipped_policy_loss(*given, clip_low=low, clip_high=high)
        assert float(found.loss) == pytest.approx(numpy_clipped(new, old, advantages, weights, low, high), abs=1e-12)
    ratio = np.exp(new - old)
    np.testing.assert_allclose(found.kl.numpy(), ratio - 1 - np.log(ratio), atol=1e-12)
    of_rows = np.array([0.7, -1.2, 0.4, -0.3])[ROWS]
    rows = torch.from_numpy(ROWS)
    for low, high in ((3e-4, 4e-4), (0.3, 0.3)):
        own = sequence_policy_loss(
            given[0], given[1], torch.from_numpy(of_rows), given[3], rows, clip_low=low, clip_high=high
        )
        assert float(own.loss) == pytest.approx(numpy_sequence(new, old, of_rows, weights, low, high), abs=1e-12)


def test_the_gradient_of_a_sequence_is_that_of_its_ratio(drawn):
    """Where weights of a row are equal, that is: by finite differences of the formula over whole rows."""
    weights = np.array([0.3, 0.2, 0.4, 0.1])[ROWS] / np.bincount(ROWS)[ROWS]
    advantages = np.array([0.7, -1.2, 0.4, -0.3])[ROWS]
    new = torch.from_numpy(drawn["new"]).requires_grad_()
    arguments = (torch.from_numpy(drawn["old"]), torch.from_numpy(advantages), torch.from_numpy(weights))
    sequence_policy_loss(new, *arguments, torch.from_numpy(ROWS), clip_low=0.3, clip_high=0.3).loss.backward()
    slopes = []
    for place in range(10):
        ends = []
        for step in (1e-6, -1e-6):
            moved = drawn["new"].copy()
            moved[place] += step
            ends.append(numpy_sequence(moved, drawn["old"], advantages, weights, 0.3, 0.3))
        slopes.append((ends[0] - ends[1]) / 2e-6)
    np.testing.assert_allclose(new.grad.numpy(), slopes, atol=1e-8)


def test_other_losses_equal_numpy(drawn):
    new, old, reference, teacher, weights = as_tensors(drawn, "new", "old", "reference", "teacher", "weights")
    plain = {name: drawn[name] for name in ("new", "old", "reference", "teacher", "weights")}
    assert float(imitation_loss(new, weights)) == pytest.approx(-float((plain["new"] * plain["weights"]).sum()))
    moved = plain["reference"] - plain["new"]
    penalty = float((plain["weights"] * (np.exp(moved) - 1 - moved)).sum())
    assert float(reference_penalty(new, reference, weights)) == pytest.approx(penalty, abs=1e-12)
    found = preference_loss(
        new,
        reference,
        torch.from_numpy(ROWS),
        torch.tensor([0, 0, 1, 1]),
        torch.tensor([True, False, True, False]),
        weight=0.5,
        beta=0.3,
    )
    assert float(found.loss) == pytest.approx(numpy_preference(plain["new"], plain["reference"], 0.3, 0.5), abs=1e-12)
    ratio, share = np.exp(plain["new"] - plain["old"]), np.exp(plain["teacher"] - plain["old"])
    gap = plain["teacher"] - plain["new"]
    assert float(reverse_kl_loss(new, old, teacher, weights)) == pytest.approx(-(ratio * gap * plain["weights"]).sum())
    assert float(forward_kl_loss(new, old, teacher, weights)) == pytest.approx((share * gap * plain["weights"]).sum())


@pytest.mark.parametrize("direction", ["reverse", "forward"])
def test_distillation_on_average_has_the_gradient_of_the_divergence(direction):
    """Summed over all tokens that could have been sampled, by their probabilities: exact, no drawing."""
    random = np.random.default_rng(2)
    logits = torch.from_numpy(random.normal(size=7)).requires_grad_()
    teacher = torch.log_softmax(torch.from_numpy(random.normal(size=7)), 0)
    old = torch.log_softmax(torch.from_numpy(random.normal(size=7)), 0)  # an older policy sampled
    student = torch.log_softmax(logits, 0)
    if direction == "reverse":
        loss, divergence = reverse_kl_loss, (student.exp() * (student - teacher)).sum()
    else:
        loss, divergence = forward_kl_loss, (teacher.exp() * (teacher - student)).sum()
    estimate = loss(student, old, teacher, old.exp())
    torch.testing.assert_close(estimate, divergence)
    own, exact = (torch.autograd.grad(each, logits, retain_graph=True)[0] for each in (estimate, divergence))
    torch.testing.assert_close(own, exact)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "has_gradient"),
    [
        (1.0, 2.0, -2.0, True),
        (1.5, 2.0, -2.0 * 1.28, False),  # too far up for a good token: held
        (0.5, 2.0, -1.0, True),  # a good token that became unlikely is pulled back
        (0.5, -2.0, 1.6, False),  # too far down for a bad token: held
        (1.5, -2.0, 3.0, True),
    ],
)
def test_the_clip_bounds_what_a_token_can_gain(ratio, advantage, expected, has_gradient):
    logprobs = torch.tensor([math.log(ratio)], requires_grad=True)
    result = clipped_policy_loss(
        logprobs, torch.zeros(1), torch.tensor([advantage]), torch.ones(1), clip_low=0.2, clip_high=0.28
    )
    assert float(result.loss.detach()) == pytest.approx(expected)
    result.loss.backward()
    assert (float(logprobs.grad.abs().sum()) > 0) == has_gradient
    assert result.clipped.tolist() == [not has_gradient]


def method_rows():
    random = np.random.default_rng(3)
    rows = []
    for number in range(4):
        mask = np.arange(9) >= 4
        numbers = [random.normal(-3.4, 0.3, 9), random.normal(size=9)]
        old, advantages = ((each * mask).astype(np.float32) for each in numbers)
        rows.append(Row(f"t{number // 2}", random.integers(1, 32, 9), mask, old, advantages, 1.0, 10))
        rows[-1].arrays = {"teacher_logprobs": (random.normal(-3.4, 0.3, 9) * mask).astype(np.float32)}
        rows[-1].arrays[GOOD] = (mask & (np.arange(9) % 2 == 0)).astype(np.float32)
        rows[-1].preferred = number % 2 == 0
    return rows


@pytest.mark.parametrize("method", RECIPES)
def test_each_method_is_its_formula_with_its_weights(method):
    """From rows to the loss, as the trainer does, against numpy from the log-probabilities of a plain forward."""
    model, rows = tiny_model(), method_rows()
    horizon = {"horizon": 64} if method == "dr_grpo" else {}
    settings = TrainSettings(method=method, merging="off", **horizon)
    units = [rows[:2], rows[2:]] if method == "dpo" else [[row] for row in rows]
    found = Objective(model, settings, new_head(model) if method == "prm" else None).gradient(units)
    weights = flat_weights(rows, settings.loss_aggregation, horizon=64)
    with torch.no_grad():
        table = torch.log_softmax(model(torch.from_numpy(np.stack([row.ids for row in rows]))).logits.double(), -1)
    mask = rows[0].mask
    new, old, advantages, teacher, spread = [], [], [], [], []
    for number, row in enumerate(rows):
        new.append([float(table[number, at - 1, row.ids[at]]) for at in np.flatnonzero(mask)])
        old.append(row.logprobs[mask].astype(float))
        advantages.append(row.advantages[mask].astype(float))
        teacher.append(row.arrays["teacher_logprobs"][mask].astype(float))
        spread.append(weights[number][mask])
    new, old, advantages, teacher, spread = map(np.asarray, (new, old, advantages, teacher, spread))
    clip = settings.clip
    if method == "sft":
        expected = -float(new.mean())
    elif method in ("reinforce", "rloo"):
        expected = -float((new * advantages).sum()) / 2  # two trajectories
    elif method == "dpo":
        expected = math.log(2)  # the reference is the model itself
    elif method == "kto":
        expected = 0.5  # likewise
    elif method == "prm":
        expected = math.log(2)  # the head begins at 0
    elif method == "distill":
        expected = -float((np.exp(new - old) * (teacher - new)).mean())
    else:
        ratio = np.exp(new - old)
        if method == "gspo":
            ratio = np.exp((new - old).mean(axis=1, keepdims=True)) * np.ones_like(new)
        bounded = np.clip(ratio, 1 - clip[0], 1 + clip[1])
        surrogate = np.minimum(ratio * advantages, bounded * advantages)
        # Ten tokens a trajectory, two trajectories: all but the constant denominator are the plain mean here.
        expected = -float(surrogate.sum()) / (2 * 64) if method == "dr_grpo" else -float(surrogate.mean())
    assert found.loss == pytest.approx(expected, abs=1e-6)


def test_additions_are_in_the_loss():
    model, rows = tiny_model(), method_rows()
    for row in rows:
        row.arrays["ref"] = row.arrays["teacher_logprobs"]
    units = [[row] for row in rows]
    plain = Objective(model, TrainSettings(method="dapo", merging="off"))
    base = plain.gradient(units).loss
    terms = plain.terms(flat_parts(units, 4096)[0], flat_weights(rows, "token_mean"), 4)
    more = Objective(
        model, TrainSettings(method="dapo", merging="off", reference="ref", reference_weight=0.5, entropy_weight=0.1)
    ).gradient(units)
    teacher = torch.from_numpy(np.concatenate([row.arrays["ref"][row.mask] for row in rows]))
    penalty = float(reference_penalty(terms.logprobs.detach(), teacher, terms.weights))
    assert more.loss == pytest.approx(base + 0.5 * penalty - 0.1 * more.means["entropy"], abs=1e-5)
    assert 0 < more.means["entropy"] <= math.log(32)


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"method": "sft", "clip_low": 0.1}, "clip_low"),
        ({"method": "dpo", "shared": "mean"}, "shared"),
        ({"method": "dpo", "aggregation": "token_mean"}, "aggregation"),
        ({"method": "dpo", "token_weights": "gates"}, "token_weights"),
        ({"method": "grpo", "beta": 0.5}, "beta"),
        ({"method": "kto", "reference": "ref"}, "reference"),
        ({"method": "kto", "aggregation": "token_mean"}, "aggregation"),
        ({"method": "dpo", "desirable_weight": 2.0}, "desirable_weight"),
        ({"method": "dpo", "threshold": 0.2}, "threshold"),
        ({"method": "prm", "token_weights": "gates"}, "token_weights"),
        ({"method": "prm", "entropy_weight": 0.1}, "entropy_weight"),
        ({"method": "grpo", "critic": "annotation"}, "critic"),
        ({"method": "prm", "value_weight": 0.5}, "value_weight"),
        ({"method": "ppo", "critic": "annotation", "value_clip": 0.5}, "value_clip"),
        ({"method": "ppo", "credit": CreditSpec(), "head_learning_rate": 0.1}, "head_learning_rate"),
        ({"method": "grpo", "horizon": 512}, "horizon"),
        ({"method": "dapo", "divergence": "forward_kl"}, "divergence"),
        ({"method": "sft", "teacher": "other"}, "teacher"),
        ({"method": "grpo", "teacher_model": "large"}, "teacher_model"),
        ({"method": "grpo", "reference": "ref"}, "reference"),
        ({"method": "sft", "entropy_weight": 0.1}, "entropy_weight"),
        ({"method": "grpo", "reference_weight": -1.0}, "reference_weight"),
        ({"method": "grpo", "micro_pairs": 0}, "micro_pairs"),
    ],
)
def test_what_does_not_go_with_a_method_is_refused(wrong, path):
    with pytest.raises(ConfigError) as caught:
        TrainSettings(**wrong)
    assert caught.value.path == path
