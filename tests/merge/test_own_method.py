"""The example of a method of one's own: its loss is the flat one, what it annotates stays, each batch counts once."""

import runpy
import sys

import numpy as np
import pytest
import torch

import agentworld as aw
from agentworld.factory import open_pool
from examples import own_method
from tests.docs.pages import DOCS, ROOT
from tests.merge.models import flat_logprobs, model_of
from tests.merge.pools import filled

PROGRAM = ROOT / "examples" / "own_method.py"


def flat_loss(model, rows, reference):
    """The formula, sequence by sequence, with a loop over tokens."""
    terms, count = [], 0
    for step, _, advantage in rows:
        ids = step.prompt_ids + step.response_ids
        lp = flat_logprobs(model, [ids])[0][len(step.prompt_ids) - 1 :]
        for place, bit in enumerate(step.response_mask):
            if bit:
                ratio = min(float(torch.exp(lp[place].detach() - step.response_logprobs[place])), own_method.CEILING)
                away = float(reference[step.step_id][place]) - lp[place]
                terms.append(own_method.BETA * (torch.exp(away) - 1 - away) - ratio * advantage * lp[place])
                count += 1
    return torch.stack(terms).sum() / count


def test_its_loss_and_gradients_are_the_flat_ones(tmp_path):
    with open_pool(f"sqlite:///{tmp_path}/pool.db") as pool:
        filled(pool)
        batch = pool.consumer("a").lease(own_method.SPEC)
        rows = list(own_method.read(batch))
        model, frozen = model_of("qwen3", vocab_size=300), model_of("qwen3", vocab_size=300, seed=5)
        reference = own_method.annotate(pool, frozen, [step for step, _, _ in rows])
        stored = {each.step_id: each.values for each in pool.get_annotations(step_ids=list(reference))}
    assert all(np.allclose(stored[name], values, atol=1e-6) for name, values in reference.items())
    expected = flat_loss(model, rows, reference)
    expected.backward()
    gradients = [each.grad.clone() for each in model.parameters()]
    model.zero_grad()
    loss = own_method.loss_of(model, rows, reference)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), abs=1e-9)
    for one, other in zip(gradients, model.parameters(), strict=True):
        assert torch.allclose(one, other.grad, atol=1e-9)


def test_it_runs_and_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    url, folder = f"sqlite:///{tmp_path}/pool.db", tmp_path / "model"
    with open_pool(url) as pool:
        filled(pool)
    model_of("qwen3", vocab_size=300).float().save_pretrained(folder)
    monkeypatch.setattr(sys, "argv", [PROGRAM.name, url, str(folder)])
    for _ in range(2):
        ended = runpy.run_path(str(PROGRAM), run_name="__main__")
        ended["pool"].close()
    # The second had no batch, and yet the moments of the first: it would go on as if it had not been stopped.
    assert {float(each["step"]) for each in ended["optimizer"].state.values()} == {1.0}
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 1
    assert printed[0].endswith("on 8 steps")
    with open_pool(url) as pool:
        (batch,) = pool.list_batches(consumer="own-method").items
        assert batch.state == "acked"
        # Killed between checkpoint and acknowledgement: a restart acknowledges, and trains nothing twice.
        again = pool.consumer("second").lease(own_method.SPEC)
        assert torch.load(folder / "own.pt")["applied"] == [batch.batch_id] != [again.batch_id]
        assert {each.name for each in pool.get_annotations(step_ids=["g-0-0"])} == {own_method.REFERENCE}
        assert pool.check_spec("third", aw.BatchSpec(method="grpo", groups=1, rollouts=2,
                               require=("annotation.reference_logprobs",))).satisfied  # fmt: skip


def test_the_page_tells_of_a_file_of_under_80_lines():
    assert len(PROGRAM.read_text().splitlines()) < 80
    page = (DOCS / "trainers" / "own_method.md").read_text()
    assert "examples/own_method.py" in page
    for name in ("read", "annotate", "logprobs_of", "loss_of"):
        assert f"`{name}`" in page
