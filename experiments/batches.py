"""What cells change in a batch before it is trained on, and the trainer that does so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.engines.tokenizer import TokenizerAdapter
from agentworld.errors import AgentWorldError
from agentworld.records import Batch, Message, Step
from agentworld.trainers.minibatches import Unit
from agentworld.trainers.reference import Progress, Trainer
from agentworld.trainers.rows import Row

Change = Callable[[Batch], Batch]


class ChangingTrainer(Trainer):
    """The reference trainer, on batches that `change` was applied to.

    `present`: the log-probabilities at sampling are replaced by those of the weights as they are before the batch, so
    that ratios begin at 1 whoever sampled.
    """

    change: Change | None = None
    present: bool = False

    def train_batch(self, batch: Batch, progress: Progress | None = None) -> Any:
        """As the base's, after the change."""
        return super().train_batch(batch if self.change is None else self.change(batch), progress)

    def units(self, batch: Batch) -> tuple[list[Unit], float | None]:
        """As the base's, with present log-probabilities where asked for."""
        units, reward = super().units(batch)
        if self.present:
            for unit in units:
                for row in unit:
                    row.logprobs = row_logprobs(self.model, row)
        return units, reward


def row_logprobs(model: Any, row: Row) -> npt.NDArray[np.float32]:
    """log p(ids[t] | ids[:t]) at the row's temperature, float32 [L]; 0 outside the mask."""
    import torch

    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(row.ids)[None]).logits[0, :-1].float() / row.temperature
        found = logits.log_softmax(-1).gather(1, torch.from_numpy(row.ids)[1:, None])[:, 0].numpy()
    return np.where(row.mask, np.concatenate([np.zeros(1, np.float32), found]), np.float32(0.0))


def step_logprobs(model: Any, step: Step) -> npt.NDArray[np.float32]:
    """log p of each reply token given all before it, at temperature 1, float32 [reply tokens]."""
    prompt, reply = step.prompt_ids or [], step.response_ids or []
    ids = np.asarray([*prompt, *reply], dtype=np.int64)
    mask = np.arange(len(ids)) >= len(prompt)
    row = Row(step.trajectory_id, ids, mask, np.zeros(len(ids), np.float32), np.zeros(len(ids), np.float32))
    return row_logprobs(model, row)[len(prompt) :]


class Retokenised:
    """Each step with the ids that its texts come to: messages are rendered by the model's template, as trainers do that
    are handed texts. A reply is what its message adds to the prompt, up to the end of its turn.

    `steps`, `different`: how many steps the newest batch had, and of how many the ids are not those that were sampled.
    """

    def __init__(self, tokenizer: TokenizerAdapter) -> None:
        from renderers import Qwen3RendererConfig, create_renderer

        self._renderer = create_renderer(tokenizer, Qwen3RendererConfig(enable_thinking=True))
        self._end = tokenizer.convert_tokens_to_ids("<|im_end|>")
        self.steps = self.different = 0

    def __call__(self, batch: Batch) -> Batch:
        """The batch with other ids in its steps."""
        self.steps = self.different = 0
        for item in batch.items:
            for member in item.trajectories:
                member.steps = [self._step(step) for step in member.steps]
        return batch

    def _step(self, step: Step) -> Step:
        if step.response_message is None:
            raise AgentWorldError(f"step {step.step_id} has no message to render")
        said = list(step.prompt_messages or ())
        prompt = self._rendered(said, step, opened=True)
        whole = self._rendered([*said, step.response_message], step, opened=False)
        # A template may write the opening of a turn otherwise once it is history: then the reply is what differs.
        shared = next(
            (place for place, pair in enumerate(zip(prompt, whole, strict=False)) if pair[0] != pair[1]), len(prompt)
        )
        reply = whole[shared:]
        if self._end in reply:
            reply = reply[: reply.index(self._end) + 1]
        self.steps += 1
        self.different += reply != step.response_ids
        return msgspec.structs.replace(
            step,
            prompt_ids=prompt[:shared],
            response_ids=reply,
            response_mask=None,
            response_logprobs=[0.0] * len(reply),  # Replaced by those of the present weights.
        )

    def _rendered(self, messages: Sequence[Message], step: Step, *, opened: bool) -> list[int]:
        plain = [msgspec.to_builtins(message) for message in messages]
        tools = list(step.tools or ()) or None
        return list(self._renderer.render_ids(plain, tools=tools, add_generation_prompt=opened))
