"""Rows of messages, for trainers that render conversations themselves: preferences, judged replies, judged steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agentworld.curation.exports.conversations import Conversation, conversations, has_messages
from agentworld.curation.exports.rendering import Renderer, plain_text
from agentworld.errors import InvalidRequestError
from agentworld.feedback.comparisons import prompt_key
from agentworld.forest.messages import says_the_same
from agentworld.records import Batch, BatchItem, BatchTrajectory, Step
from agentworld.trainers.adapters.tasks import rendered


def preferred_rows(batch: Batch) -> list[dict[str, Any]]:
    """`prompt`, `chosen`, `rejected` (lists of messages), `tools` where there are any, and `margin`, by how much the
    primary rewards differ where both have one.

    Of each pair the first prompt that both answer, and differently, with all that each said from there on.
    """
    if batch.unit != "pair":
        raise InvalidRequestError(
            f"preferences are pairs, and the batch is of unit {batch.unit}", path="unit", hint='Lease with unit "pair"'
        )
    return [_preferred(item) for item in batch.items if not item.padding]


def judged_rows(batch: Batch, threshold: float) -> list[dict[str, Any]]:
    """`prompt`, `completion` (lists of messages), `label`: whether the trajectory's primary reward is at least
    `threshold`; one a branch of a trajectory.
    """
    found = []
    for _, member in _members(batch):
        reward = member.trajectory.reward
        if reward is None:
            raise InvalidRequestError(
                f"trajectory {member.trajectory.trajectory_id} has no reward",
                path="reward",
                hint='Lease with require = ["messages", "reward"]',
            )
        for each in _branches(member):
            said = rendered(each.messages, each.steps[0].step_id)
            begin = each.replies[0]
            row = {"prompt": said[:begin], "completion": said[begin:], "label": reward >= threshold}
            found.append(row | _tools(each.steps[0]))
    return found


def stepwise_rows(batch: Batch, name: str, threshold: float) -> list[dict[str, Any]]:
    """`prompt` (text), `completions` (texts), `labels`: of each reply whether its reward `name` is at least
    `threshold`; one a branch of a trajectory.
    """
    found = []
    for item, member in _members(batch):
        for each in _branches(member):
            values = [_step_reward(item, step, name) for step in each.steps]
            starts = [each.replies[0], *(place + 1 for place in each.replies[:-1])]
            pieces = [each.messages[start : end + 1] for start, end in zip(starts, each.replies, strict=True)]
            for message in each.messages:
                if message.media:
                    raise InvalidRequestError(
                        f"step {each.steps[0].step_id} has images, which texts leave out", path="messages"
                    )
            renderer = Renderer()
            found.append(
                {
                    "prompt": plain_text(each.prompt, renderer),
                    "completions": [plain_text(piece, renderer) for piece in pieces],
                    "labels": [value >= threshold for value in values],
                }
            )
    return found


def _preferred(item: BatchItem) -> dict[str, Any]:
    better, worse = item.trajectories
    for member in (better, worse):
        _need_messages(member.steps)
    answers: dict[bytes, Step] = {}
    for step in worse.steps:
        answers.setdefault(prompt_key(step), step)
    common = False
    for step in better.steps:
        other = answers.get(prompt_key(step))
        common = common or other is not None
        if other is None or says_the_same(_reply(step), _reply(other)):
            continue
        row: dict[str, Any] = {
            "prompt": rendered(step.prompt_messages or [], step.step_id),
            "chosen": _from_there(better.steps, step),
            "rejected": _from_there(worse.steps, other),
            **_tools(step),
        }
        high, low = better.trajectory.reward, worse.trajectory.reward
        return row if high is None or low is None else {**row, "margin": high - low}
    leaves_out = "export with format preference, which leaves such pairs out"
    if common:
        raise InvalidRequestError(
            f"both trajectories of pair {item.key} say the same, so that neither reply is to be preferred",
            path=item.key,
            hint=f"Sample at a temperature over 0, or {leaves_out}",
        )
    raise InvalidRequestError(
        f"the trajectories of pair {item.key} have no prompt in common",
        path=item.key,
        hint=f"Compare rollouts of one task, or {leaves_out}",
    )


def _from_there(steps: Sequence[Step], step: Step) -> list[dict[str, Any]]:
    """What was said from the step's reply on, on its branch."""
    for each in conversations(steps):
        for place, own in zip(each.replies, each.steps, strict=True):
            if own.step_id == step.step_id:
                return rendered(each.messages, step.step_id)[place:]
    raise AssertionError(step.step_id)  # Every step with messages is in a conversation.


def _branches(member: BatchTrajectory) -> Iterator[Conversation]:
    _need_messages(member.steps)
    yield from conversations(member.steps)


def _need_messages(steps: Sequence[Step]) -> None:
    for step in steps:
        if not has_messages(step):
            raise InvalidRequestError(
                f"step {step.step_id} has no messages", path="messages", hint='Lease with require = ["messages"]'
            )


def _members(batch: Batch) -> Iterator[tuple[BatchItem, BatchTrajectory]]:
    for item in batch.items:
        if not item.padding:
            yield from ((item, member) for member in item.trajectories if member.trained)


def _step_reward(item: BatchItem, step: Step, name: str) -> float:
    rewards = item.rewards.get(step.step_id, step.rewards)
    if name not in rewards:
        raise InvalidRequestError(
            f"step {step.step_id} has no reward {name!r}", path="step_reward", hint="Absent is not zero: reward it"
        )
    return rewards[name]


def _reply(step: Step) -> Any:
    return step.response_message


def _tools(step: Step) -> dict[str, Any]:
    return {"tools": step.tools} if step.tools else {}
