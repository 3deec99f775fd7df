"""Which stored step a request continues, and why a step does not simply extend another.

Messages route before the call; tokens are compared after it; the difference between the two is the fork reason.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentworld.forest.tokens import TokenArray, common_prefix
from agentworld.records.message import Message
from agentworld.records.step import ForkReason


class Tip(msgspec.Struct, frozen=True):
    """One step of an open trajectory, as matching needs it.

    `keys`: match keys of the prompt's messages and the reply; the chain is rooted at a constant, so `tools` (their
    digest) is compared apart. `messages`: prompt and reply. `ids`: prompt and reply, uint32, or None for text-only
    steps. `ordinal` grows with time and breaks ties. `agent`: who called, None where nobody said.
    """

    step_id: str
    keys: Sequence[bytes]
    messages: list[Message]
    tools: bytes
    ids: TokenArray | None
    prompt_length: int
    finish_reason: str | None
    ordinal: int
    agent: str | None = None

    @property
    def prompt_key(self) -> bytes | None:
        """The match key of the prompt's last message."""
        return self.keys[-2] if len(self.keys) > 1 else None


class Match(msgspec.Struct, frozen=True):
    """`tip` is continued: the request's first `depth` messages are its prompt and reply. 0: known by its ids alone."""

    tip: Tip
    depth: int


def match(
    tips: Sequence[Tip],
    messages: Sequence[Message],
    keys: Sequence[bytes],
    tools: bytes,
    agent: str | None = None,
) -> Match | None:
    """The tip whose whole path is the longest prefix of the request; the same tools first, then the same agent, then
    the latest step.
    """
    found: Tip | None = None
    rank: tuple[int, bool, bool, int] = (0, False, False, -1)
    for tip in tips:
        depth = len(tip.keys)
        if not 0 < depth <= len(keys) or keys[depth - 1] != tip.keys[-1]:
            continue
        candidate = (depth, tip.tools == tools, tip.agent == agent, tip.ordinal)
        if candidate > rank and same_reasoning(tip.messages, messages):
            found, rank = tip, candidate
    return Match(found, rank[0]) if found is not None else None


def same_reasoning(stored: Sequence[Message], sent: Sequence[Message]) -> bool:
    """No message carries another reasoning than the stored one; absent reasoning matches any."""
    return all(
        mine is yours or mine.reasoning is None or yours.reasoning is None or mine.reasoning == yours.reasoning
        for mine, yours in zip(stored, sent, strict=False)
    )


def fork_reason(
    tips: Sequence[Tip],
    matched: Match | None,
    messages: Sequence[Message],
    keys: Sequence[bytes],
    tools: bytes,
    prompt_ids: TokenArray | None,
    *,
    is_retry: bool = False,
    agent: str | None = None,
) -> ForkReason | None:
    """Why the step with this request is not the plain continuation of an unbranched trajectory; None if it is.

    `tips`: the trajectory's earlier steps. `is_retry`: the client repeats a call, and this step supersedes the first.
    `agent`: who calls; an agent that has not called yet begins a branch of its own, unless it continues a step.
    """
    if is_retry:
        return "retry"
    if not tips:
        return None
    if matched is None:
        tips = [tip for tip in tips if tip.agent == agent]
        if not tips:
            return "subagent"
    if any(tip.prompt_key == keys[-1] and len(tip.keys) == len(keys) + 1 and tip.tools == tools for tip in tips):
        return "parallel"
    if matched is None:
        return _unmatched(tips, messages, keys, tools)
    tip = matched.tip
    if tip.tools != tools:
        return "tools_changed"
    if tip.ids is not None and prompt_ids is not None and common_prefix(tip.ids, prompt_ids) < len(tip.ids):
        return "template"
    if matched.depth == 0:
        return "history_rewritten" if _is_continued(tips, tip) else None
    continued = any(
        other.step_id != tip.step_id
        and len(other.keys) - 1 > matched.depth
        and other.keys[matched.depth - 1] == tip.keys[-1]
        for other in tips
    )
    return "history_rewritten" if continued else None


def _is_continued(tips: Sequence[Tip], tip: Tip) -> bool:
    """Whether another prompt begins with all ids of the tip."""
    return tip.ids is not None and any(
        other.ids is not None
        and other.prompt_length > len(tip.ids)
        and common_prefix(other.ids, tip.ids) == len(tip.ids)
        for other in tips
    )


def _unmatched(tips: Sequence[Tip], messages: Sequence[Message], keys: Sequence[bytes], tools: bytes) -> ForkReason:
    """No stored path is a prefix of the request: another conversation, or this one with a changed history."""
    same_opening = [tip for tip in tips if tip.keys[0] == keys[0]]
    # An opening that is not a system prompt tells conversations apart as well as a system prompt does.
    if not same_opening:
        return "subagent"
    if all(tip.tools != tools for tip in same_opening):
        return "tools_changed" if any(_shares_prompt(tip, keys) for tip in same_opening) else "subagent"
    longest = max(len(tip.keys) - 1 for tip in same_opening)
    return "compaction" if len(messages) < longest else "history_rewritten"


def _shares_prompt(tip: Tip, keys: Sequence[bytes]) -> bool:
    return len(tip.keys) - 1 <= len(keys) and tip.keys[len(tip.keys) - 2] == keys[len(tip.keys) - 2]
