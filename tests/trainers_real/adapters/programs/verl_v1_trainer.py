"""The workers, the replay buffer and the checkpoint callback of verl's V1 trainer around the plug-in, over a
TransferQueue on a local Ray. Left out of the trainer: its models, so there is no update of weights between steps.
"""

import asyncio
import json
from types import SimpleNamespace

import given
import ray
import transfer_queue as tq
import verl_run
from tests.verl_loop.agents import FORGETFUL
from verl.trainer.ppo.checkpoint_callback import build_checkpoint_callback
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from agentworld.factory import open_pool
from agentworld.verl_loop.ledger import FILE

# The method of the trainer that makes its replay buffer needs no more of it than this.
Trainer = SimpleNamespace


def trainer_of(config):
    """What the trainer's constructor makes: first the callback, then the replay buffer, as it makes them."""
    trainer = Trainer(config=config, trainer_mode="sync", _add_prompts_to_generate=len)
    trainer.checkpoint_callback = build_checkpoint_callback(config)
    trainer.replay_buffer = PPOTrainer._build_replay_buffer(trainer)
    return trainer


def states(trainer):
    """Of every lease."""
    return sorted(batch.state for batch in trainer.checkpoint_callback.pool.list_batches(consumer="verl").items)


async def roll_out(worker, step, names):
    """One step's prompts, as the trainer puts them into the queue and hands them to a worker."""
    for name, row in zip(names, verl_run.rows(), strict=True):
        tag = {"is_prompt": True, "status": "pending", "global_steps": step}
        await tq.async_kv_put(key=name, partition_id="train", tag=tag)
        prompt = {
            "uid": name,
            "raw_prompt": row["prompt"],
            "agent_name": "agentworld",
            "global_steps": step,
            **{column: row[column] for column in ("data_source", "reward_model", "extra_info")},
        }
        sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}
        trajectory = {"step": step, "sample_index": 0, "rollout_n": 0, "validate": False}
        await worker._run_prompt(prompt, sampling, trajectory)


def train(trainer, step):
    """What a step does of sampling from the queue."""
    batch, _ = trainer.replay_buffer.sample(global_steps=step, partition_id="train", batch_size=2)
    fields = ["prompts", "responses", "response_mask", "rollout_log_probs", "rm_scores", "num_turns", "extra_fields"]
    rows = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=fields)
    extras = [getattr(each, "data", each) for each in rows["extra_fields"]]
    found = {
        "keys": sorted(batch.keys),
        "scores": [float(each.sum()) for each in rows["rm_scores"].unbind(0)],
        "masks": [each.tolist() for each in rows["response_mask"].unbind(0)],
        "lengths": [len(each) for each in rows["responses"].unbind(0)],
        "parts": [[each["agentworld"]["part"], each["agentworld"]["parts"]] for each in extras],
        "versions": [tag["max_global_steps"] for tag in batch.tags],
    }
    tq.kv_clear(keys=batch.keys, partition_id="train")
    return found


def save(trainer, step):
    """What the trainer does at a checkpoint, but for the weights."""
    folder = given.FOLDER / "checkpoints" / f"global_step_{step}"
    folder.mkdir(parents=True)
    (given.FOLDER / "checkpoints" / "latest_checkpointed_iteration.txt").write_text(str(step))
    trainer.checkpoint_callback.on_save(trainer=trainer, global_step=step, checkpoint_dir=str(folder))


def main():
    # The agent of this run forgets: every rollout comes to two rows.
    command = ["{python}", "-c", FORGETFUL]
    settings = verl_run.settings_file(['kind = "command"', f"command = {json.dumps(command)}"])
    config = verl_run.configuration(settings, v1=True)
    given.start_ray()
    try:
        tq.init()
        trainer = trainer_of(config)
        client = verl_run.Engines(config, lambda prompt, call: "left", version=0)
        # The class behind the actor, in this process.
        worker = AgentLoopWorkerTQ.__ray_metadata__.modified_class(config, client)

        async def rollouts():
            await roll_out(worker, 1, ["u0", "u1"])
            client.scripted.version = 1
            await roll_out(worker, 2, ["u2", "u3"])

        said = {}
        try:
            asyncio.run(rollouts())
            said["before"] = states(trainer)
            said["first"] = train(trainer, 1)
            said["noted"] = len((given.FOLDER / "checkpoints" / FILE).read_text().splitlines())
            save(trainer, 1)
            said["saved"] = states(trainer)
            said["second"] = train(trainer, 2)
            # The process dies before the checkpoint of the second step, and begins anew from the first.
            again = trainer_of(config)
            said["after"] = states(again)
            said["resumed"] = [len(again.checkpoint_callback.resumed[name]) for name in ("acknowledged", "released")]
            filtered = verl_run.configuration(settings, v1=True, extra=["algorithm.filter_groups.enable=True"])
            buffer = trainer_of(filtered).replay_buffer
            said["filter"] = [buffer.filter_groups_metric, buffer.gen_batch_size, buffer.train_batch_size]
            policy = again.checkpoint_callback.policy
            said["policy"] = [policy.run, policy.version]
        finally:
            from agentworld.verl_loop.station import stop_stations

            stop_stations()
        with open_pool(f"sqlite:///{given.FOLDER}/pool.db") as pool:
            said["trajectories"] = [
                [each.group_id, each.rollout_index, each.reward] for each in pool.list_trajectories().items
            ]
        given.say(said)
        tq.close()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
