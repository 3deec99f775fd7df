"""What a client says again: the same messages in another spelling, and the same call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from agentworld.forest import says_the_same
from agentworld.records import Message


class Repeat(NamedTuple):
    """A stored step, as retries of its call see it. `created_at`: when its call came, seconds since the epoch.

    `after_failure`: it is the retry of a call that failed, so that it repeats no call whose reply came or is to come.
    """

    step_id: str
    retry_count: int
    created_at: float
    after_failure: bool = False


def alike(known: Sequence[Message], messages: Sequence[Message]) -> int:
    """How many messages both begin with, whatever the spelling."""
    for position, (mine, yours) in enumerate(zip(known, messages, strict=False)):
        if mine is not yours and mine != yours and not says_the_same(mine, yours):
            return position
    return min(len(known), len(messages))


def spoken(mine: Message, yours: Message) -> Message:
    """My message, which says the same as yours, with no more reasoning than you sent."""
    if mine.reasoning == yours.reasoning:
        return mine
    return msgspec.structs.replace(mine, reasoning=yours.reasoning)
