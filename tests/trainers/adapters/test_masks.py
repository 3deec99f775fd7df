"""Every layout marks the sampled tokens, each once, where trajectories fork, break, or are cut off under a mask."""

import numpy as np
import pytest

from tests.trainers.adapters.rollouts import ASKED, CALL, batch, marked, member, said, step, with_forks

pytest.importorskip("torch")

# Of what a layout is, the masks of its rows.
MASKS = {
    "torch": lambda found: found["loss_mask"],
    "areal": lambda found: found["loss_mask"],
    "nemo_rl": lambda found: found["token_mask"],
    "verl": lambda found: found["batch"]["response_mask"],
    "openrlhf": lambda found: found["action_mask"],
    "transfer_queue": lambda found: [row["response_mask"] for row in found.fields],
    "slime": lambda found: [row["loss_mask"] for row in found],
    "prime_rl": lambda found: [row["mask"] for row in found],
    "skyrl": lambda found: found["loss_masks"],
    "tinker": lambda found: [row["loss_fn_inputs"]["mask"] for row in found],
    "datasets": lambda found: found["response_mask"],
}
OPTIONS = {name: {"form": "plain"} for name in ("verl", "tinker", "datasets")}
OPTIONS["tinker"]["mask"] = True


def cut_off():
    """A reply cut off after what the grammar forced, and one of which nothing was sampled."""
    steps = [
        step("x-0", [1, 2], [3, 4, 5], trajectory="x", finish_reason="length", response_mask=[0, 1, 1],
             prompt_messages=ASKED, response_message=CALL),
        step("x-1", [9, 9], [8], trajectory="x", response_mask=[0], prompt_messages=ASKED, response_message=CALL),
    ]  # fmt: skip
    return batch({"g": [member("x", steps, 1.0, status="truncated"), member("y", said("y", "Left."), 0.0)]})


@pytest.mark.parametrize("rows", ["chain", "step", "tree"])
@pytest.mark.parametrize("given", [with_forks, cut_off])
@pytest.mark.parametrize("name", MASKS)
def test_each_sampled_token_is_marked_once(name, given, rows):
    trajectories = [each for item in given().items for each in item.trajectories]
    sampled = sum(len(marked(each)) for each in trajectories)
    found = MASKS[name](given().to(name, rows=rows, **OPTIONS.get(name, {})))
    assert sum(float(np.asarray(mask).sum()) for mask in found) == sampled
