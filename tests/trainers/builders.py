"""Small models, steps and batches."""

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from agentworld.merge.costs import ModelShape
from agentworld.records import (
    Batch,
    BatchItem,
    BatchTrajectory,
    NewTrajectory,
    Sampling,
    Step,
    Trajectory,
    Usage,
)

VOCABULARY = 32
SHAPE = ModelShape(2, 32, 64, 2, 2, 16, VOCABULARY)


def tiny_model(seed=0):
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        tie_word_embeddings=True,
    )
    return Qwen3ForCausalLM(config).eval()


def step(step_id, prompt, reply, trajectory="t0", logprobs=None, space="processed", **more):
    return Step(
        step_id=step_id,
        trajectory_id=trajectory,
        prompt_ids=list(prompt),
        response_ids=list(reply),
        response_logprobs=[-1.0] * len(reply) if logprobs is None else logprobs,
        logprob_space=space,
        sampling=more.pop("sampling", Sampling(temperature=1.0)),
        usage=Usage(len(prompt), len(reply)),
        finish_reason="stop",
        token_source="engine",
        **more,
    )


def member(steps, reward=1.0, trajectory="t0"):
    return BatchTrajectory(trajectory=Trajectory(trajectory_id=trajectory, reward=reward), steps=steps)


def batch(groups, batch_id="bat_1", unit="group"):
    """`groups`: {key: [BatchTrajectory, ...]}."""
    items = [BatchItem(key=key, trajectories=members) for key, members in groups.items()]
    return Batch(batch_id=batch_id, consumer="c", epoch=1, deadline=0.0, unit=unit, method="grpo", items=items)


def fill(pool, groups):
    """Put finished, rewarded trajectories into a pool: {group: [(steps, reward), ...]}."""
    for group, runs in groups.items():
        for index, (steps, reward) in enumerate(runs):
            name = f"{group}-{index}"
            pool.create_trajectory(
                NewTrajectory(trajectory_id=name, group_id=group, group_size=len(runs), rollout_index=index)
            )
            for number, each in enumerate(steps):
                each.trajectory_id, each.step_id, each.group_id = name, f"{name}-{number}", group
            pool.append_steps(steps)
            pool.complete_trajectory(name, "finished", reward)


def reply_logprobs(model, prompt, reply, temperature=1.0):
    """The log-probabilities of the reply by a plain full forward pass."""
    with torch.no_grad():
        logits = model(torch.tensor([list(prompt) + list(reply)])).logits[0] / temperature
    table = torch.log_softmax(logits, dim=-1)
    return [float(table[len(prompt) - 1 + i, token]) for i, token in enumerate(reply)]
