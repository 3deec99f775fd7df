"""verl's own agent-loop worker runs the plug-in, and its advantage and loss are computed on what it makes."""

import given
import numpy as np
import torch
import verl_run
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopWorker, _agent_loop_registry
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, compute_policy_loss_vanilla
from verl.utils.config import omega_conf_to_dataclass

from agentworld.factory import open_pool


def prompts():
    """Two tasks, two rollouts each, as verl hands them over."""
    made = [row for row in verl_run.rows() for _ in range(2)]
    columns = {
        "raw_prompt": [row["prompt"] for row in made],
        "uid": [f"u{place // 2}" for place in range(4)],
        **{name: [row[name] for row in made] for name in ("data_source", "reward_model", "extra_info")},
    }
    found = {}
    for name, values in columns.items():
        found[name] = np.empty(len(values), dtype=object)
        found[name][:] = values
    return DataProto(non_tensor_batch=found, meta_info={"global_steps": 1, "validate": False})


def main():
    settings = verl_run.settings_file()
    config = verl_run.configuration(settings, v1=False)
    # By task, as rollouts come in any order.
    answers = {"Door left?": iter(["left", "right"]), "Door right?": iter(["right", "left, no: right"])}
    client = verl_run.Engines(
        config, lambda prompt, call: next(next(said for task, said in answers.items() if task in prompt))
    )
    worker = AgentLoopWorker(config, llm_client=client)
    data = verl_run.run(worker.generate_sequences(prompts()))
    loop = _agent_loop_registry["agentworld"]
    from agentworld.verl_loop.agent_loop import AgentWorldLoop

    assert issubclass(AgentWorldLoop, AgentLoopBase)
    mask = data.batch["response_mask"]
    scores = data.batch["rm_scores"]
    advantages, _ = compute_grpo_outcome_advantage(scores, mask, np.array(["u0", "u0", "u1", "u1"], dtype=object))
    old = data.batch["rollout_log_probs"]
    new = (old + 0.1).requires_grad_()
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    loss, _ = compute_policy_loss_vanilla(old, new, advantages, mask, loss_agg_mode="token-mean", config=actor)
    loss.backward()
    ratio = torch.exp(new - old)
    terms = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    with open_pool(f"sqlite:///{given.FOLDER}/pool.db") as pool:
        steps = pool.list_steps(include=("tokens", "logprobs")).items
        stored = {
            step.trajectory_id: [step.prompt_ids, step.response_ids, step.response_logprobs, step.logprob_space]
            for step in steps
        }
        groups = sorted(each.group_id for each in pool.list_trajectories().items)
    origins = data.non_tensor_batch["agentworld"]
    given.say(
        {
            "registered": loop["_target_"],
            "prompts": data.batch["prompts"].tolist(),
            "responses": data.batch["responses"].tolist(),
            "mask": mask.tolist(),
            "logprobs": old.tolist(),
            "attention": data.batch["attention_mask"].tolist(),
            "scores": scores.sum(1).tolist(),
            "stored": [stored[origin["trajectory_id"]] for origin in origins],
            "leases": [bool(origin["batch_id"]) for origin in origins],
            "versions": [data.non_tensor_batch[name].tolist() for name in ("min_global_steps", "max_global_steps")],
            "turns": data.non_tensor_batch["__num_turns__"].tolist(),
            "groups": groups,
            "loss": loss.item(),
            "by_hand": float((terms * mask).sum() / mask.sum()),
            "outside": float((new.grad * (1 - mask)).abs().max()),
        }
    )


if __name__ == "__main__":
    main()
