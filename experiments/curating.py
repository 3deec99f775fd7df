"""The curation of the cells with `curated`: what a rollout did is held against its reward, without the reference.

An answer is grounded where it is the last thing that the tool said. Who guesses is seldom right, and who works it out
is seldom wrong once it copies well; so a reward of 1 on an answer that is not grounded, or of 0 on one that is, is
suspect. The price is that rollouts that asked the tool for something else, and believed it, are kept back too.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.agents.report import RolloutResult
from agentworld.records import CurationPolicy, Message, Reward
from agentworld.rewards.answers import extract_answer
from experiments.tree import Tree

GROUNDED = "grounded"


def curation_policy() -> CurationPolicy:
    """Nothing is served before it was looked at, nor where reward and grounding disagree."""
    return CurationPolicy(
        name="at-odds",
        channel="train",
        default="ready",
        rules=(
            f'when not has reward.{GROUNDED} then exclude "not looked at yet"',
            f'when reward >= 1 and reward.{GROUNDED} < 1 then exclude "rewarded, and not grounded"',
            f'when reward < 1 and reward.{GROUNDED} >= 1 then exclude "grounded, and not rewarded"',
        ),
    )


def ask_what_they_did(tree: Tree, rollouts: Sequence[RolloutResult]) -> int:
    """Give each rollout the reward `grounded`; how many the policy keeps back."""
    found = []
    ids = [each.trajectory_id for each in rollouts if each.trajectory_id is not None]
    for trajectory_id in ids:
        steps = list(tree.pool.all_steps(trajectory_id=trajectory_id, include=("messages",)))
        last = steps[-1]
        said = [*(last.prompt_messages or ()), *([last.response_message] if last.response_message else ())]
        found.append(Reward(value=grounded(said), trajectory_id=trajectory_id, name=GROUNDED, source="experiments"))
    tree.pool.add_rewards(found)
    return sum(tree.pool.get_trajectory(each).readiness == "excluded" for each in ids)


def grounded(messages: Sequence[Message]) -> float:
    """1 where the answer of the last message is what the tool said last, else 0."""
    answer = extract_answer(messages[-1].text, "after_answer")
    results = [message.text for message in messages if message.role == "tool"]
    return float(bool(results) and answer is not None and answer.strip() == results[-1].strip())
