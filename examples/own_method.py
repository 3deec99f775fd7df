"""A method of your own: CISPO (arXiv:2506.13585) with a pull towards a reference, on merged trees. Copy and change it.

    python examples/own_method.py sqlite:///pool.db model-folder      # a causal model in transformers' format

lease -> annotate what the pool lacks -> loss on the tree of the batch -> checkpoint -> ack. The checkpoint says which
batch is in it, so each has its effect once, wherever the process dies. merged_loop.py has micro-batches too."""

import copy
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

import agentworld as aw
from agentworld.merge import build_tree, tree_scores
from agentworld.records import Annotation

SPEC = aw.BatchSpec(method="cispo", unit="group", groups=1, rollouts=2, require=("tokens", "logprobs", "reward"))
REFERENCE, BETA, CEILING = "reference_logprobs", 0.01, 2.0


def read(batch):
    """Of every step that is trained on: the step, its annotations, its reward less its group's mean."""
    for item in batch.items:
        mean = np.mean([rollout.trajectory.reward for rollout in item.trajectories])
        for rollout in item.trajectories:
            for step in rollout.steps if rollout.trained else ():
                yield step, rollout.annotations.get(step.step_id, {}), rollout.trajectory.reward - mean


def logprobs_of(model, steps):
    """The log-probabilities of all reply tokens (`nodes`: their places); what steps share is computed once."""
    tree = build_tree([step.prompt_ids + step.response_ids for step in steps])
    nodes = tree.index[np.concatenate([[False] * len(s.prompt_ids) + [True] * len(s.response_ids) for s in steps])]
    return tree_scores(model, tree, np.bincount(nodes, minlength=len(tree.tokens)) > 0).on_paths(nodes)


def annotate(pool, frozen, steps):
    """Put what the frozen model says of the replies into the pool, where it stays; returns it by step."""
    with torch.no_grad():
        found = logprobs_of(frozen, steps).split([len(step.response_ids) for step in steps])
    values = {step.step_id: each.cpu().numpy() for step, each in zip(steps, found, strict=True)}
    pool.add_annotations([Annotation(name=REFERENCE, step_id=name, values=each) for name, each in values.items()])
    return values


def loss_of(model, rows, reference):
    """Mean over sampled tokens of -min(r, c) A lp, the ratio r held fixed, and of the divergence from the reference."""
    steps = [step for step, _, _ in rows]
    lp = logprobs_of(model, steps)
    given = [(step.response_logprobs, reference[step.step_id], step.response_mask) for step in steps]
    old, anchor, mask = torch.tensor(np.concatenate(given, axis=1), dtype=lp.dtype, device=lp.device)
    advantages = torch.cat([lp.new_full((len(step.response_ids),), advantage) for step, _, advantage in rows])
    ratios, apart = (lp.detach() - old).exp().clamp(max=CEILING), (anchor - lp).exp() - 1 - (anchor - lp)
    return ((BETA * apart - ratios * advantages * lp) * mask).sum() / mask.sum()


if __name__ == "__main__":
    pool, file, partial = aw.open_pool(sys.argv[1]), Path(sys.argv[2], "own.pt"), Path(sys.argv[2], "own.part")
    model = AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.float32)
    frozen, optimizer = copy.deepcopy(model).eval(), torch.optim.AdamW(model.parameters(), lr=1e-6)
    saved = torch.load(file) if file.exists() else {"applied": [], "states": []}
    for part, state in zip((model, optimizer), saved["states"], strict=False):
        part.load_state_dict(state)
    (consumer := pool.consumer("own-method")).resume(saved["applied"])
    for batch in consumer.stream(SPEC, timeout=1):
        rows = list(read(batch))
        known = {step.step_id: given[REFERENCE] for step, given, _ in rows if REFERENCE in given}
        lacking = [step for step, _, _ in rows if step.step_id not in known]
        loss = loss_of(model, rows, known | (annotate(pool, frozen, lacking) if lacking else {}))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.save({"applied": [batch.batch_id], "states": [model.state_dict(), optimizer.state_dict()]}, partial)
        partial.replace(file)
        batch.ack()
        print(f"loss {loss.item():.6f} on {len(rows)} steps")
