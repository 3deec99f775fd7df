import math

import pytest
import torch

from agentworld.trainers.losses import clipped_policy_loss, imitation_loss, token_logprobs
from tests.trainers.builders import reply_logprobs, tiny_model


def test_imitation_is_weighted_cross_entropy():
    loss = imitation_loss(torch.tensor([-1.0, -3.0]), torch.tensor([0.25, 0.75]))
    assert float(loss) == pytest.approx(0.25 + 2.25)


def ratios(*values):
    return torch.tensor([math.log(value) for value in values], requires_grad=True)


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
    logprobs = ratios(ratio)
    result = clipped_policy_loss(
        logprobs, torch.zeros(1), torch.tensor([advantage]), torch.ones(1), clip_low=0.2, clip_high=0.28
    )
    assert float(result.loss.detach()) == pytest.approx(expected)
    result.loss.backward()
    assert (float(logprobs.grad.abs().sum()) > 0) == has_gradient
    assert result.clipped == (0.0 if has_gradient else 1.0)


def test_kl_is_zero_where_nothing_has_moved_and_positive_elsewhere():
    same = clipped_policy_loss(torch.tensor([-1.0]), torch.tensor([-1.0]), torch.ones(1), torch.ones(1))
    moved = clipped_policy_loss(
        torch.tensor([-1.5, -0.5]), torch.tensor([-1.0, -1.0]), torch.ones(2), torch.ones(2) / 2
    )
    assert same.kl == 0.0
    assert moved.kl > 0.0


def test_logprobs_of_padded_rows_equal_those_of_plain_forwards():
    model = tiny_model()
    rows = [([1, 2, 3], [4, 5]), ([6], [7, 8, 9, 10])]
    ids, selected = torch.zeros(2, 5, dtype=torch.long), torch.zeros(2, 5, dtype=torch.bool)
    for number, (prompt, reply) in enumerate(rows):
        ids[number, : len(prompt + reply)] = torch.tensor(prompt + reply)
        selected[number, len(prompt) : len(prompt + reply)] = True
    found = token_logprobs(model, ids, selected, torch.tensor([0.7, 1.3]))
    expected = reply_logprobs(model, *rows[0], 0.7) + reply_logprobs(model, *rows[1], 1.3)
    assert found.tolist() == pytest.approx(expected, abs=1e-5)
