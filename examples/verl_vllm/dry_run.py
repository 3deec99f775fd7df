"""The way of one batch through verl without a GPU: configuration, data set, agent loop, advantage, loss."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import verl
from hydra import compose, initialize_config_dir
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, compute_policy_loss_vanilla
from verl.trainer.ppo.utils import create_rl_dataset, need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.dataset.rl_dataset import collate_fn

from agentworld.verl_loop.station import stop_stations

CONFIGS = Path(verl.__file__).parent / "trainer" / "config"
PROMPTS = 2


class ScriptedEngines:
    """In the place of verl's client: every other reply is the reference of the prompt that it finds in `answers`, in
    the words that the example's task set looks for.
    """

    def __init__(self, tokenizer, answers):
        self.tokenizer, self.calls = tokenizer, 0
        self.answers = {self.seen(prompt): answer for prompt, answer in answers.items()}

    def seen(self, text):
        """A text as tokens show it, without spaces, which templates and tokenizers change."""
        return "".join(self.tokenizer.decode(self.tokenizer.encode(text, add_special_tokens=False)).split())

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        self.calls += 1
        text = "".join(self.tokenizer.decode(prompt_ids).split())
        right = next((answer for prompt, answer in self.answers.items() if prompt in text), "")
        ids = self.tokenizer.encode(f"Answer: {right}" if self.calls % 2 else "No answer", add_special_tokens=False)
        ids = [*ids, self.tokenizer.eos_token_id][: sampling_params["max_tokens"]]
        return SimpleNamespace(
            token_ids=ids, log_probs=[-0.5] * len(ids), stop_reason="completed", extra_fields={"global_steps": 0}
        )


def dry_run(training, command):
    """What was seen, by name."""
    with initialize_config_dir(config_dir=str(CONFIGS), version_base=None):
        config = compose("ppo_trainer", overrides=command)
        validate_config(
            config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config)
        )
        # The loop alone, without the queue of the V1 trainer, and without kernels of a GPU.
        eager = "+actor_rollout_ref.model.override_config.attn_implementation=eager"
        alone = compose("ppo_trainer", overrides=[*command, "trainer.use_v1=False", eager])
    worker = AgentLoopWorker(alone, llm_client=None)
    data = create_rl_dataset(config.data.train_files, config.data, worker.tokenizer, worker.processor)
    rows = [data[place] for place in range(PROMPTS) for _ in range(training.rollouts)]
    uids = np.repeat([f"prompt-{place}" for place in range(PROMPTS)], training.rollouts).astype(object)
    batch = collate_fn(rows)
    columns = {name: values for name, values in batch.items() if isinstance(values, np.ndarray)}
    prompts = DataProto.from_dict(non_tensors={**columns, "uid": uids}, meta_info={"global_steps": 0})
    answers = {row["raw_prompt"][-1]["content"]: row["reward_model"]["ground_truth"] for row in rows}
    worker.llm_client = ScriptedEngines(worker.tokenizer, answers)
    try:
        made = asyncio.run(worker.generate_sequences(prompts))
    finally:
        stop_stations()
    mask, old = made.batch["response_mask"], made.batch["rollout_log_probs"]
    advantages, _ = compute_grpo_outcome_advantage(made.batch["rm_scores"], mask, uids)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    mode = config.actor_rollout_ref.actor.loss_agg_mode
    loss, _ = compute_policy_loss_vanilla(old, old, advantages, mask, loss_agg_mode=mode, config=actor)
    return {
        "overrides": len(command),
        "prompts in file": len(data),
        "rows": len(made),
        "sampled tokens": int(mask.sum()),
        "rewards": sorted({float(score) for score in made.batch["rm_scores"].sum(1)}),
        "largest advantage": round(float((advantages * mask).abs().max()), 4),
        "loss": round(float(loss), 6),
    }
