"""Which call continues which: steps of a trace with their parents and the reasons of their branches, by what the
messages say.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentworld.forest.matching import Tip, fork_reason, match
from agentworld.forest.messages import chain, match_key, tools_digest
from agentworld.records import ForkReason, Message, Tool
from agentworld.records.ids import digest

_ROOT = digest(b"spans")


class Place(msgspec.Struct, frozen=True):
    """Where a call stands among those before it. `parent`: the step that it continues."""

    parent: str | None
    fork_reason: ForkReason | None


class Lineage:
    """The calls of one trajectory so far, the latest `most` of them."""

    def __init__(self, most: int = 2_000) -> None:
        self._tips: list[Tip] = []
        self._ordinal = 0
        self._most = most

    def place(self, prompt: Sequence[Message], tools: Sequence[Tool], agent: str | None) -> Place:
        """Where a call with this prompt stands."""
        keys = chain(_ROOT, prompt, match_key)
        rooted = tools_digest(tools)
        found = match(self._tips, prompt, keys, rooted, agent) if keys else None
        reason = fork_reason(self._tips, found, prompt, keys, rooted, None, agent=agent) if keys else None
        return Place(found.tip.step_id if found is not None else None, reason)

    def add(
        self, step_id: str, prompt: Sequence[Message], reply: Message, tools: Sequence[Tool], agent: str | None
    ) -> None:
        """The call was answered so; later ones may continue it."""
        messages = [*prompt, reply]
        self._ordinal += 1
        self._tips.append(
            Tip(
                step_id=step_id,
                keys=chain(_ROOT, messages, match_key),
                messages=messages,
                tools=tools_digest(tools),
                ids=None,
                prompt_length=0,
                finish_reason=None,
                ordinal=self._ordinal,
                agent=agent,
            )
        )
        if len(self._tips) > self._most:
            del self._tips[0]
