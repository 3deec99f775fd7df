"""GRPO on merged rollouts in a plain torch loop: every shared token is computed once, and trains as if it were flat.
python examples/merged_loop.py sqlite:///pool.db MODEL    # a Llama or Qwen model's folder, or pocket: tiny, offline"""

import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM

import agentworld as aw
from agentworld.engines.builtin.pocket import load_pocket
from agentworld.merge import build_tree, pack, tree_scores
from agentworld.merge.verify import verify_merging


def flatten(batch):
    """Sequences, and of every token: whether it is trained, what it was sampled with, and its advantage."""
    ids, columns = [], []
    for item in batch.items:
        rewards = np.array([rollout.trajectory.reward for rollout in item.trajectories])
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        for rollout, advantage in zip(item.trajectories, advantages, strict=True):
            for step in rollout.steps if rollout.trained else ():
                ids.append(step.prompt_ids + step.response_ids)
                zeros = [0.0] * len(step.prompt_ids)
                mask, old = zeros + step.response_mask, zeros + step.response_logprobs
                columns.append(np.float32([mask, old, [advantage] * len(mask)]))
    return ids, columns


def update(model, optimizer, ids, columns, budget=16_384):
    """One optimizer step over micro-batches of at most `budget` tokens; returns the loss."""
    total, trained = 0.0, sum(int(each[0].sum()) for each in columns)
    for micro in pack(build_tree(ids), budget).micro_batches:
        tree = build_tree([ids[place] for place in micro.sequences])
        mask, old, advantages = np.concatenate([columns[place] for place in micro.sequences], axis=1)
        nodes = tree.index[mask > 0]  # the place in the tree of every trained token
        logprobs = tree_scores(model, tree, np.bincount(nodes, minlength=len(tree.tokens)) > 0).on_paths(nodes)
        old, advantages = (torch.from_numpy(each[mask > 0]).to(logprobs.device) for each in (old, advantages))
        ratios = (logprobs - old).exp()
        loss = -torch.minimum(ratios * advantages, ratios.clamp(0.8, 1.28) * advantages).sum() / trained
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    return total


if __name__ == "__main__":
    _, url, name = sys.argv
    model = load_pocket()[0] if name == "pocket" else AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    spec = aw.BatchSpec(method="grpo", groups=1, rollouts=2)
    for batch in aw.open_pool(url).consumer("merged-loop").stream(spec, timeout=1):
        ids, columns = flatten(batch)
        print(verify_merging(model, ids).line(), build_tree(ids).statistics(), sep="\n")
        print("loss", update(model, optimizer, ids, columns))
        model.save_pretrained(f"{name}-trained")
        batch.ack()
