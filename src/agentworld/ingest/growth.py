"""Whether what is imported is an earlier part of what a pool has, or has grown out of it, by what both say.

A part is: each step of the one is, in that order, a step of the other, with the same prompt and reply, and what comes
after its last step is somewhere in the other. The last reply may be broken off. Names and usage do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from agentworld.pool.protocol import Pool
from agentworld.pool.whole_rules import IMPORT
from agentworld.records import MediaPart, Message, Step, TextPart, Trajectory, WholeTrajectory

Relation = Literal["earlier", "later", "other"]
Said = dict[Any, Any]
_PAGE = 100
SPAN = "span_id"  # in the metadata of steps that are calls of a trace


def relation(pool: Pool, whole: WholeTrajectory, found: Trajectory) -> Relation:
    """What `whole` is to a trajectory of the pool: `earlier` where it is a part of that, `later` where that is a part
    of it, `other` where it is neither. Where both have the same steps it is `earlier` if it ends before the other does,
    or says nothing beside them that the other does not, and less of it.

    The other is read page by page: its prompts are never all in memory.
    """
    mine, after = whole.steps, _after(whole.new.metadata)
    missing, its_missing = set(after), set(_after(found.metadata))
    within = at = 0
    is_later = True
    said: list[Said] = []
    for step, is_last in _marked(_steps(pool, found.trajectory_id)):
        said.append(_said_of(step))
        if within < len(mine) and _same(mine[within], step, within == len(mine) - 1):
            within += 1
        if missing:
            missing.difference_update(step.prompt_messages or (), (step.response_message,))
        if is_later:
            at = next((n for n in range(at, len(mine)) if _same(step, mine[n], is_last)), len(mine)) + 1
            is_later = at <= len(mine)
    missing.difference_update(_after(found.metadata))
    is_earlier = within == len(mine) and not missing
    is_later = is_later and _are_in(its_missing, whole)
    if is_earlier and is_later:
        ends_before = whole.created_at == found.created_at and whole.completed_at < (found.completed_at or 0.0)
        return "earlier" if ends_before or _says_less(whole, found, said) else "later"
    return "earlier" if is_earlier else "later" if is_later else "other"


def has_all(pool: Pool, whole: WholeTrajectory, found: Trajectory) -> bool:
    """Whether a trajectory of the pool has all steps of `whole`, in any order: files may have branches elsewhere."""
    missing = Counter(map(_key, whole.steps))
    for step in _steps(pool, found.trajectory_id):
        missing[_key(step)] -= 1
    return all(count <= 0 for count in missing.values())


def _key(step: Step) -> int:
    """What both sides of a step say, as a hash."""
    shown, said = step.prompt_messages, step.response_message
    asked = tuple(shown) if shown is not None else tuple(step.prompt_ids or ())
    return hash((asked, said if said is not None else tuple(step.response_ids or ())))


def is_other_part(pool: Pool, whole: WholeTrajectory, trajectory_id: str) -> bool:
    """Whether both have calls of one trace, and not one that is the same: traces may come in several files."""
    mine = _spans(whole.steps)
    if not mine:
        return False
    its: set[str] = set()
    cursor = None
    while True:
        page = pool.list_steps(trajectory_id=trajectory_id, cursor=cursor, limit=_PAGE, include=())
        its |= _spans(page.items)
        cursor = page.next_cursor
        if cursor is None or its & mine:
            return bool(its) and not its & mine


def _spans(steps: Sequence[Step]) -> set[str]:
    return {span for step in steps if isinstance(span := step.metadata.get(SPAN), str)}


def _says_less(whole: WholeTrajectory, found: Trajectory, its_steps: list[Said]) -> bool:
    """Whether its metadata, rewards and labels are some of the other's, and not all. Both have the same steps."""
    by_step: dict[str | None, Said] = {}
    for reward in whole.rewards:
        by_step.setdefault(reward.step_id, {})["reward", reward.name] = reward.value
    for said in whole.feedback:
        if said.kind != "label" or said.name is None:
            return False
        by_step.setdefault(said.step_id, {})["label", said.name] = said.value
    metadata = {name: value for name, value in found.metadata.items() if name != IMPORT}
    its = [metadata, _said_of(found), *its_steps]
    mine = [whole.new.metadata, by_step.get(None, {}), *(by_step.get(step.step_id, {}) for step in whole.steps)]
    for less, more in zip(mine, its, strict=True):
        if not all(key in more and more[key] == value for key, value in less.items()):
            return False
    return sum(map(len, mine)) < sum(map(len, its))


def _said_of(record: Step | Trajectory) -> Said:
    rewards: Said = {("reward", name): value for name, value in record.rewards.items()}
    return rewards | {("label", name): value for name, value in record.labels.items()}


def _are_in(messages: set[Message], whole: WholeTrajectory) -> bool:
    for step in reversed(whole.steps):
        if not messages:
            return True
        messages.difference_update(step.prompt_messages or (), (step.response_message,))
    messages.difference_update(_after(whole.new.metadata))
    return not messages


def _steps(pool: Pool, trajectory_id: str) -> Iterator[Step]:
    cursor = None
    while True:
        page = pool.list_steps(trajectory_id=trajectory_id, cursor=cursor, limit=_PAGE, include=("messages", "tokens"))
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _marked(steps: Iterator[Step]) -> Iterator[tuple[Step, bool]]:
    """The steps, each with whether it is the last."""
    before = next(steps, None)
    for step in steps:
        assert before is not None
        yield before, False
        before = step
    if before is not None:
        yield before, True


def _same(part: Step, whole: Step, may_be_broken_off: bool) -> bool:
    if part.prompt_messages != whole.prompt_messages:
        return False
    if part.prompt_messages is None and part.prompt_ids != whole.prompt_ids:
        return False
    mine, its = part.response_message, whole.response_message
    if mine is None and its is None:
        ids, all_ids = part.response_ids or [], whole.response_ids or []
        return ids == (all_ids[: len(ids)] if may_be_broken_off else all_ids)
    return mine == its or (may_be_broken_off and mine is not None and its is not None and _begins(its, mine))


def _begins(message: Message, part: Message) -> bool:
    """Whether a reply begins with what is there of it."""
    calls = len(part.tool_calls)
    return (
        part.role == message.role
        and (message.reasoning or "").startswith(part.reasoning or "")
        and part.tool_calls == message.tool_calls[:calls]
        and _parts_begin(message.content, part.content)
    )


Content = str | tuple[TextPart | MediaPart, ...] | None


def _parts_begin(content: Content, part: Content) -> bool:
    if not part:
        return True
    if isinstance(part, str):
        first = content if isinstance(content, str) else content[0] if content else ""
        return (first.text if isinstance(first, TextPart) else first if isinstance(first, str) else "").startswith(part)
    return isinstance(content, tuple) and content[: len(part)] == part


def _after(metadata: dict[str, Any]) -> Sequence[Message]:
    """What comes after the last step; see wholes.py."""
    try:
        return msgspec.convert(metadata.get("trailing") or [], list[Message])
    except msgspec.ValidationError:  # somebody else's metadata under this name
        return []
