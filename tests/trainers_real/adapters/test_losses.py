"""The reference trainer's policy losses are verl's, value and gradient, with the trainer's own weights."""

import json

import numpy as np
import pytest
import torch

from agentworld.trainers.losses import Terms, loss_of
from agentworld.trainers.minibatches import flat_weights
from agentworld.trainers.rows import Row
from agentworld.trainers.settings import TrainSettings
from tests.trainers_real.adapters.running import needs, run

pytestmark = needs("verl")

ROWS, WIDTH = 6, 12


def test_policy_losses_are_those_of_verl(tmp_path):
    random = np.random.default_rng(4)
    mask = np.arange(WIDTH) < random.integers(3, WIDTH + 1, ROWS)[:, None]
    old = random.normal(-1.5, 0.5, (ROWS, WIDTH)).astype(np.float32)
    # Ratios under 3, from which on verl also bounds what a bad token can lose.
    new = (old + random.uniform(-0.8, 0.8, (ROWS, WIDTH))).astype(np.float32)
    advantages = np.broadcast_to(random.normal(size=(ROWS, 1)), (ROWS, WIDTH)).astype(np.float32)
    numbers = {"old": old, "new": new, "advantages": advantages, "mask": mask.astype(np.float32)}
    (tmp_path / "numbers.json").write_text(json.dumps({name: each.tolist() for name, each in numbers.items()}))
    said = run("verl", "policy_losses", tmp_path)
    assert set(said) == {"grpo", "dapo", "dr_grpo", "gspo"}
    # A row has a prompt token before its reply, which nothing trains.
    rows = []
    for number, own in enumerate(mask):
        trained = np.concatenate([[False], own])
        zeros = np.zeros(WIDTH + 1, np.float32)
        rows.append(Row(f"t{number}", np.ones(WIDTH + 1, np.int64), trained, zeros, zeros, 1.0, int(own.sum())))
    for method, theirs in said.items():
        settings = TrainSettings(method=method, horizon=WIDTH)
        weights = flat_weights(rows, settings.loss_aggregation, horizon=settings.horizon)
        logprobs = torch.from_numpy(new[mask]).requires_grad_()
        terms = Terms(
            logprobs=logprobs,
            weights=torch.from_numpy(np.stack(weights)[:, 1:][mask]).float(),
            old=torch.from_numpy(old[mask]),
            advantages=torch.from_numpy(advantages[mask]),
            row=torch.from_numpy(np.nonzero(mask)[0]),
            unit=torch.arange(ROWS),
            preferred=torch.ones(ROWS, dtype=torch.bool),
            unit_weight=1.0 / ROWS,
        )
        loss = loss_of(terms, settings).value
        loss.backward()
        assert loss.item() == pytest.approx(theirs["loss"], abs=1e-6), method
        np.testing.assert_allclose(logprobs.grad.numpy(), np.asarray(theirs["gradient"])[mask], atol=1e-6)
