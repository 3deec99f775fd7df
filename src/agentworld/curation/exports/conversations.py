"""Branches of a trajectory as conversations in which each sampled reply stands once to be trained on.

A step goes on a branch where its prompt is that conversation and, after it, what others said. Where a client rewrote
history, a sub-agent began, or another reply went on from there, a new branch begins with the prompt as it was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentworld.forest.messages import says_the_same
from agentworld.records import Message, Step, Tool


@dataclass(slots=True)
class Conversation:
    """`messages` of one branch. `replies`: where the sampled replies of `steps` stand, which alone are trained on."""

    messages: list[Message]
    tools: list[Tool]
    replies: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    @property
    def prompt(self) -> list[Message]:
        """What comes before the first reply that is trained on."""
        return self.messages[: self.replies[0]]

    @property
    def completion(self) -> list[Message]:
        """From the first reply that is trained on."""
        return self.messages[self.replies[0] :]

    @property
    def other_replies(self) -> bool:
        """Whether there are replies in it that are not to be trained on."""
        own = sum(1 for message in self.messages if message.role == "assistant")
        return own != len(self.replies)

    def between(self, number: int) -> list[Message]:
        """What was said since the reply before; nothing before the first one."""
        return [] if number == 0 else self.messages[self.replies[number - 1] + 1 : self.replies[number]]


def has_messages(step: Step) -> bool:
    """Whether a step says in words what it was asked and what it replied."""
    return step.prompt_messages is not None and step.response_message is not None


def is_cut_off(step: Step) -> bool:
    """Whether the limit of tokens ended the reply, which templates end as if it were whole."""
    return step.finish_reason in ("length", "max_tokens")


def conversations(steps: Sequence[Step]) -> list[Conversation]:
    """The branches of the steps that have messages; with what was sampled in place of what clients sent back."""
    found: list[Conversation] = []
    for step in steps:
        if step.prompt_messages is None or step.response_message is None:
            continue
        branch = _extended(found, step, step.prompt_messages)
        if branch is None:
            branch = Conversation(list(step.prompt_messages), step.tools or [])
            found.append(branch)
        else:
            branch.messages += step.prompt_messages[len(branch.messages) :]
        branch.replies.append(len(branch.messages))
        branch.messages.append(step.response_message)
        branch.steps.append(step)
    return found


def _extended(found: Sequence[Conversation], step: Step, prompt: list[Message]) -> Conversation | None:
    """The longest branch that the prompt goes on without another's reply in between."""
    longest: Conversation | None = None
    for branch in reversed(found):
        length = len(branch.messages)
        if length > len(prompt) or (longest is not None and length <= len(longest.messages)):
            continue
        if branch.tools != (step.tools or []) or any(each.role == "assistant" for each in prompt[length:]):
            continue
        if all(one is other or one == other or says_the_same(one, other) for one, other in _pairs(branch, prompt)):
            longest = branch
    return longest


def _pairs(branch: Conversation, prompt: list[Message]) -> list[tuple[Message, Message]]:
    # From the end: what differs is mostly near it.
    return list(zip(reversed(branch.messages), reversed(prompt[: len(branch.messages)]), strict=True))
