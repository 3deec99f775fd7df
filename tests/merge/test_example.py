"""The example's loop trains as the flat loss does."""

import runpy
import sys

import torch
from examples.merged_loop import flatten, update

import agentworld as aw
from agentworld.factory import open_pool
from tests.docs.pages import ROOT
from tests.merge.models import farthest, flat_logprobs, model_of
from tests.merge.pools import filled


class Kept(torch.optim.SGD):
    """Keeps the gradients that it was given."""

    def step(self):
        self.gradients = {number: each.grad.clone() for number, each in enumerate(self.param_groups[0]["params"])}


def test_it_has_the_flat_gradients_in_micro_batches_too_and_runs_from_the_command_line(tmp_path, monkeypatch, capsys):
    url = f"sqlite:///{tmp_path}/pool.db"
    with open_pool(url) as pool:
        filled(pool)
        batch = pool.consumer("own").lease(aw.BatchSpec(method="grpo", groups=1, rollouts=2))
        ids, columns = flatten(batch)
    model = model_of("qwen3", vocab_size=300)
    logprobs = flat_logprobs(model, ids)[0]
    old, advantages = (torch.cat([torch.from_numpy(each[row][1:]).double() for each in columns]) for row in (1, 2))
    mask = torch.cat([torch.from_numpy(each[0][1:] > 0) for each in columns])
    ratios = (logprobs - old).exp()
    terms = torch.minimum(ratios * advantages, ratios.clamp(0.8, 1.28) * advantages)
    flat = -(terms[mask]).sum() / mask.sum()
    flat.backward()
    expected = {number: each.grad.clone() for number, each in enumerate(model.parameters())}
    for budget in (16_384, 130):
        model.zero_grad()
        optimizer = Kept(model.parameters(), lr=0.1)
        loss = update(model, optimizer, ids, columns, budget)
        assert abs(loss - flat.item()) <= 1e-12
        assert farthest(optimizer.gradients, expected) <= 1e-10
    model.float().save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    for name in ("model", "pocket"):
        with open_pool(f"sqlite:///{name}.db") as pool:
            filled(pool)
        monkeypatch.setattr(sys, "argv", ["merged_loop.py", f"sqlite:///{name}.db", name])
        runpy.run_path(str(ROOT / "examples" / "merged_loop.py"), run_name="__main__")
        printed = capsys.readouterr().out
        assert "merged against flat on 8 sequences of" in printed
        assert "unique=159" in printed
        assert (tmp_path / f"{name}-trained" / "model.safetensors").exists()
    assert len((ROOT / "examples" / "merged_loop.py").read_text().splitlines()) < 60
