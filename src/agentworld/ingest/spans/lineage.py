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
_LOOKED_AT = 4
_SYSTEM = ("system", "developer")


class Place(msgspec.Struct, frozen=True):
    """Where a call stands among those before it. `parent`: the step that it continues. `keys`: of its prompt."""

    parent: str | None
    fork_reason: ForkReason | None
    keys: list[bytes]


class Lineage:
    """The calls of one trajectory so far, the latest `most` of them."""

    def __init__(self, most: int = 2_000) -> None:
        self._tips: list[Tip] = []
        self._ordinal = 0
        self._most = most

    def place(self, prompt: Sequence[Message], tools: Sequence[Tool], agent: str | None) -> Place:
        """Where a call with this prompt stands."""
        keys = self._keys(prompt)
        if not keys:
            return Place(None, None, keys)
        rooted = tools_digest(tools)
        found = match(self._tips, prompt, keys, rooted, agent)
        reason = fork_reason(self._tips, found, prompt, keys, rooted, None, agent=agent)
        if reason in ("compaction", "history_rewritten", "subagent"):
            tips = [tip for tip in self._tips if tip.agent == agent]
            if any(tip.tools == rooted and _shows(tip, keys, len(keys)) for tip in tips):
                reason = None  # It comes late: a later call, which is there, was shown all of this and more.
            elif found is None and tips:
                reason = _of_unmatched(reason, tips, prompt, keys)
        return Place(found.tip.step_id if found is not None else None, reason, keys)

    def add(
        self,
        step_id: str,
        prompt: Sequence[Message],
        reply: Message,
        tools: Sequence[Tool],
        agent: str | None,
        keys: Sequence[bytes] | None = None,
    ) -> None:
        """The call was answered so; later ones may continue it. `keys`: of the prompt, where they are known."""
        messages = [*prompt, reply]
        self._ordinal += 1
        self._tips.append(
            Tip(
                step_id=step_id,
                keys=chain(_ROOT, messages, match_key, self._keys(prompt) if keys is None else keys),
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

    def _keys(self, messages: Sequence[Message]) -> list[bytes]:
        """The keys of all prefixes; what a late call has said is not hashed again."""
        known: list[bytes] = []
        for tip in self._tips[: -_LOOKED_AT - 1 : -1]:
            same = 0
            for mine, its in zip(messages, tip.messages, strict=False):
                if mine != its:
                    break
                same += 1
            if same > len(known):
                known = list(tip.keys[:same])
            if same == len(tip.messages):
                break
        return chain(_ROOT, messages, match_key, known)


def _shows(tip: Tip, keys: Sequence[bytes], count: int) -> bool:
    """Whether a call was shown the first `count` messages, and others after them."""
    return len(tip.keys) > count + 1 and tip.keys[count - 1] == keys[count - 1]


def _of_unmatched(
    reason: ForkReason, tips: Sequence[Tip], prompt: Sequence[Message], keys: Sequence[bytes]
) -> ForkReason:
    """The reason of a call that continues none of its agent's: calls of one trace may have nothing in common."""
    if reason == "subagent":
        # A system prompt of its own tells of another agent; another question alone does not.
        return reason if prompt[0].role in _SYSTEM else "parallel"
    # One system prompt stands before many conversations.
    opening = next((at for at, message in enumerate(prompt) if message.role not in _SYSTEM), None)
    if opening is None:
        return "parallel"
    return reason if any(_shows(tip, keys, opening + 1) for tip in tips) else "parallel"
