"""What use of an agent says of its replies without anybody being asked: regenerate, edit, abandon. Pure.

All is read from how the calls of one trajectory continue one another, and is a guess; docs/feedback.md tells when it
is wrong. Ids are digests of what is said, so that saying it again changes nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.feedback.content import reply_digest
from agentworld.forest.messages import canonical_arguments, chain, match_key, tools_digest
from agentworld.records import Feedback, Message, Step, Trajectory, digest, exact_json

Signal = Literal["regenerate", "edit", "abandon"]
SIGNALS: tuple[Signal, ...] = ("regenerate", "edit", "abandon")
LABEL = "implicit.abandoned"


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """What counts. `least_similar`: an edit keeps at least so much of the text (0 to 1, difflib's ratio). `longest`:
    characters of a text that is compared. `most_edited`: where more than this share of three or more replies came back
    changed, the client rewrites its history by itself, and none is an edit.
    """

    signals: tuple[Signal, ...] = SIGNALS
    least_similar: float = 0.5
    longest: int = 20_000
    most_edited: float = 0.5

    def __post_init__(self) -> None:
        for name in ("least_similar", "most_edited"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidRequestError(f"{name} must be from 0 to 1", path=name)
        if self.longest < 1:
            raise InvalidRequestError("longest must be 1 or more", path="longest")
        if unknown := set(self.signals) - set(SIGNALS):
            raise InvalidRequestError(
                f"no signal {sorted(unknown)[0]!r}", path="signals", hint=f"Known: {', '.join(SIGNALS)}"
            )


class _Returned(NamedTuple):
    """A reply as it came back: the first call that holds it, and the sampled ones that it may be."""

    by: Step
    message: Message
    key: bytes
    branches: list[Step]


def implied(trajectory: Trajectory, steps: Sequence[Step], thresholds: Thresholds | None = None) -> list[Feedback]:
    """What the calls of a trajectory imply. `steps`: all of it, with messages, in commit order."""
    thresholds = thresholds or Thresholds()
    seen = [step for step in steps if _was_seen(step)]
    keys = _keys(seen)
    returned = _returned(seen, keys)
    found: list[Feedback] = []
    if "regenerate" in thresholds.signals:
        found += _regenerated(returned, keys)
    if "edit" in thresholds.signals:
        found += _edited(returned, keys, thresholds)
    if "abandon" in thresholds.signals:
        found += _abandoned(trajectory, seen)
    return found


def _was_seen(step: Step) -> bool:
    """Whether a client got this reply: one that a retry took the place of, it did not."""
    if step.prompt_messages is None or step.response_message is None:
        return False
    return "superseded" not in (step.excluded_reason or "")


def _keys(steps: Sequence[Step]) -> dict[str, list[bytes]]:
    """By step, match keys of the prompt's messages and the reply; they begin with the tools."""
    found: dict[str, list[bytes]] = {}
    known: tuple[bytes, list[Message], list[bytes]] = (b"", [], [])
    for step in steps:
        assert step.prompt_messages is not None
        assert step.response_message is not None
        root, messages = tools_digest(step.tools), [*step.prompt_messages, step.response_message]
        # Most prompts go on from the one before, whose keys are not made again.
        same = 0
        if root == known[0]:
            pairs = enumerate(zip(known[1], messages, strict=False))
            same = next((number for number, (one, other) in pairs if one != other), min(len(known[1]), len(messages)))
        keys = chain(root, messages, match_key, known[2][:same])
        found[step.step_id] = keys
        known = root, messages, keys
    return found


def _returned(steps: Sequence[Step], keys: dict[str, list[bytes]]) -> list[_Returned]:
    """Each reply that came back in the prompt of a later call, once a prompt and wording."""
    by_prompt: dict[bytes, list[Step]] = {}
    for step in steps:
        if len(own := keys[step.step_id]) > 1:
            by_prompt.setdefault(own[-2], []).append(step)
    order = {step.step_id: number for number, step in enumerate(steps)}
    found: dict[bytes, _Returned] = {}
    for number, step in enumerate(steps):
        prompt = step.prompt_messages or []
        own = keys[step.step_id]
        for place in range(1, len(prompt)):
            if prompt[place].role != "assistant" or own[place] in found:
                continue
            branches = [each for each in by_prompt.get(own[place - 1], ()) if order[each.step_id] < number]
            if branches:
                found[own[place]] = _Returned(step, prompt[place], own[place], branches)
    return list(found.values())


def _regenerated(returned: Sequence[_Returned], keys: dict[str, list[bytes]]) -> Iterator[Feedback]:
    continued: dict[bytes, int] = {}
    for one in returned:
        if any(keys[step.step_id][-1] == one.key for step in one.branches):
            parent = keys[one.branches[0].step_id][-2]
            continued[parent] = continued.get(parent, 0) + 1
    for one in returned:
        chosen = [step for step in one.branches if keys[step.step_id][-1] == one.key]
        if not chosen or continued[keys[chosen[0].step_id][-2]] > 1:
            continue  # None of these, or several are gone on with: a search, which prefers none yet.
        better = chosen[-1]
        for worse in one.branches:
            if keys[worse.step_id][-1] != one.key:
                yield _signal(
                    "regenerate",
                    better,
                    worse.step_id.encode(),
                    kind="comparison",
                    other_id=worse.step_id,
                    comment=f"gone on with by {one.by.step_id}",
                )


def _edited(returned: Sequence[_Returned], keys: dict[str, list[bytes]], by: Thresholds) -> Iterator[Feedback]:
    changed = [one for one in returned if all(keys[step.step_id][-1] != one.key for step in one.branches)]
    if len(changed) >= 3 and len(changed) > by.most_edited * len(returned):
        return
    for one in changed:
        near = [(_similarity(step, one.message, by), step) for step in one.branches]
        similar, step = max(near, key=lambda each: each[0])
        if similar < by.least_similar or similar == 0:
            continue
        value = msgspec.structs.replace(one.message, reasoning=None)
        yield _signal(
            "edit",
            step,
            exact_json.encode(value),
            kind="correction",
            value=exact_json.decode(exact_json.encode(value)),
            comment=f"sent back by {one.by.step_id}, {similar:.3f} of it as it was",
        )


def _similarity(step: Step, sent: Message, by: Thresholds) -> float:
    """How much of the reply's text is in what was sent back; 0 where it is no edit of it."""
    reply = step.response_message
    assert reply is not None
    mine, yours = " ".join(reply.text.split()), " ".join(sent.text.split())
    if not mine or not yours or max(len(mine), len(yours)) > by.longest or _calls(reply) != _calls(sent):
        return 0.0
    if reply.media != sent.media or yours in mine:
        return 0.0  # The same, or cut, which clients do by themselves.
    return difflib.SequenceMatcher(None, mine, yours, autojunk=False).ratio()


def _calls(message: Message) -> list[tuple[str, str]]:
    return [(call.function.name, canonical_arguments(call.function.arguments)) for call in message.tool_calls]


def _abandoned(trajectory: Trajectory, steps: Sequence[Step]) -> Iterator[Feedback]:
    if not steps or trajectory.status != "abandoned":
        return
    last = steps[-1]
    assert last.response_message is not None
    value = "in_tool_call" if last.response_message.tool_calls else "after_reply"
    label = _signal("abandon", last, value.encode(), kind="label", name=LABEL, value=value)
    yield msgspec.structs.replace(label, step_id=None, trajectory_id=trajectory.trajectory_id)


def _signal(signal: Signal, step: Step, what: bytes, **fields: object) -> Feedback:
    named = digest(b"implicit", signal.encode(), step.step_id.encode(), what)
    assert step.response_message is not None
    return Feedback(
        feedback_id=f"fbk_implicit_{named.hex()}",
        step_id=step.step_id,
        source=f"implicit:{signal}",
        content=reply_digest(step.response_message),
        **fields,  # type: ignore[arg-type]  # Those of Feedback, each of its type.
    )
