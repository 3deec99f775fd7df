"""What verl's V1 trainer loads by name: a replay buffer that notes what is trained on, and a checkpoint callback that
acknowledges it. Both live in the driver, which makes the callback first. Importing it imports verl and TransferQueue.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import transfer_queue
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync
from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path

from agentworld.errors import ConfigError
from agentworld.factory import open_pool
from agentworld.verl_loop.hydra_config import settings_of
from agentworld.verl_loop.ledger import Ledger
from agentworld.verl_loop.versions import go_on

_making: list[tuple[Ledger, Any]] = []
"""The ledger and the configuration of the trainer that is being made: the callback puts them here, the replay buffer
takes them.
"""


class Recording:
    """Of a replay buffer: what it hands to the trainer is noted in the ledger."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not _making:
            raise ConfigError(
                "nobody acknowledges what this replay buffer hands out",
                path="trainer.checkpoint_callback_class",
                hint="Use what agentworld.verl_loop.hydra_config.overrides gives",
            )
        self.ledger, config = _making.pop()
        # The trainer leaves these to samplers that are not its own.
        super().__init__(*args, **{**own_arguments(config, isinstance(self, ReplayBufferAsync)), **kwargs})

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> Any:
        """As the buffer that it is mixed into; rows of the partition `train` are noted as used by this step."""
        batch, metrics = super().sample(global_steps, partition_id, batch_size)  # type: ignore[misc]
        if partition_id == "train" and batch.keys:
            rows = transfer_queue.kv_batch_get(
                keys=list(batch.keys), partition_id=partition_id, select_fields=["extra_fields"]
            )
            found = [getattr(each, "data", each) for each in rows["extra_fields"]]
            self.ledger.use(global_steps, (each["agentworld"] for each in found if "agentworld" in each))
        return batch, metrics


class RecordingReplayBuffer(Recording, ReplayBuffer):  # type: ignore[misc]
    """For `trainer.v1.trainer_mode=sync`."""


class RecordingReplayBufferAsync(Recording, ReplayBufferAsync):  # type: ignore[misc]
    """For the asynchronous modes."""


class SettlingCallback(CheckpointCallback):  # type: ignore[misc]
    """Acknowledges with checkpoints. When training begins, what the checkpoint that it goes on from contains is
    acknowledged, all else that was leased goes back, and the pool hears of the weights.
    """

    def __init__(self, config: Any = None) -> None:
        super().__init__(config=config)
        settings = settings_of(config)
        self.consumer = settings.consumer
        self.pool = open_pool(settings.pool)
        self.ledger = Ledger(Path(config.trainer.default_local_dir).resolve())
        step = resumed_step(config)
        self.resumed = self.ledger.resume(step, self.pool, self.consumer)
        self.policy = go_on(self.pool, settings.model, settings.run, step)
        _making[:] = [(self.ledger, config)]

    def on_save(
        self, trainer: Any, global_step: int, checkpoint_dir: str, async_save: bool = False, **kwargs: Any
    ) -> None:
        """Acknowledge what the checkpoint contains. ConfigError where it is written behind the trainer's back, as
        nobody knows then when it is there.
        """
        if async_save:
            raise ConfigError(
                "checkpoints that are saved asynchronously cannot be acknowledged with",
                path="actor_rollout_ref.actor.checkpoint.async_save",
                hint="Set it to False",
            )
        self.ledger.settle(global_step, self.pool, self.consumer)


def own_arguments(config: Any, asynchronous: bool) -> dict[str, Any]:
    """What the trainer gives to a replay buffer of its own beside what it gives to all: the filter of groups whose
    rewards are equal, and how failed groups are replaced.
    """
    sampler, groups = config.trainer.v1.sampler, config.algorithm.get("filter_groups") or {}
    filters, refills = bool(groups.get("enable")), bool(sampler.get("sync_refill_failed_groups"))
    if filters and not groups.get("metric"):
        raise ConfigError("groups are filtered by no metric", path="algorithm.filter_groups.metric", hint="Say reward")
    found: dict[str, Any] = {
        "filter_groups_metric": str(groups["metric"]) if filters else None,
        "sync_refill_failed_groups": refills,
    }
    if not asynchronous:
        size = int(config.data.train_batch_size)
        found |= {
            "train_batch_size": size,
            "gen_batch_size": 1 if filters or refills else int(config.data.get("gen_batch_size") or size),
            "max_inflight_gen_batches": int(groups.get("max_inflight_gen_batches", 1)) if filters else 1,
        }
    return found


def resumed_step(config: Any) -> int:
    """The step of the checkpoint that the trainer will go on from, by the rules that it goes by; 0 for none."""
    trainer = config.trainer
    folder: str | None = None
    if trainer.resume_mode == "resume_path":
        folder = str(trainer.resume_from_path)
    elif trainer.resume_mode == "auto":
        folder = find_latest_ckpt_path(str(Path(trainer.default_local_dir).resolve()))
    return 0 if folder is None else int(str(folder).rstrip("/").split("global_step_")[-1])
