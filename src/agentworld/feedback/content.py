"""Which reply feedback was given on, and whether that is still the one that is there."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.forest.messages import canonical_arguments
from agentworld.pool.results import Page
from agentworld.records import Feedback, FeedbackKind, Message, Step, Trajectory

Seen = Literal["current", "outdated", "unknown"]
_CALL, _ARGUMENTS = b"\x1e", b"\x1f"  # what separates tool calls and their arguments from the text
PAGE = 200
_EXCHANGE = re.compile(r"exc_([0-9a-z]+)")


class Reading(Protocol):
    """What is read of a pool, in this process or over HTTP."""

    def get_step(self, step_id: str, *, include: Sequence[str] = ("tokens", "messages", "logprobs")) -> Step:
        """See Pool."""

    def get_trajectory(self, trajectory_id: str) -> Trajectory:
        """See Pool."""

    def list_steps(
        self,
        *,
        where: str | None = None,
        trajectory_id: str | None = None,
        order: Literal["oldest", "newest"] = "oldest",
        cursor: str | None = None,
        limit: int = 100,
        include: Sequence[str] = (),
    ) -> Page[Step]:
        """See Pool."""

    def list_feedback(
        self, *, kind: FeedbackKind | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[Feedback]:
        """See Pool."""


def reply_digest(reply: Message) -> str:
    """SHA-256, in hex, of what a person sees of a reply: its text in UTF-8, and after it each tool call as 0x1E, name,
    0x1F, arguments (sorted JSON without spaces, where they are JSON). Of a reply without calls it is the hash of the
    text alone, which a page can compute. Reasoning and media are not in it.
    """
    seen = hashlib.sha256(reply.text.encode("utf-8", "surrogatepass"))
    for call in reply.tool_calls:
        arguments = canonical_arguments(call.function.arguments).encode("utf-8", "surrogatepass")
        seen.update(_CALL + call.function.name.encode("utf-8", "surrogatepass") + _ARGUMENTS + arguments)
    return seen.hexdigest()


def step_of_reply(reply_id: str) -> str:
    """The id of the step that a reply of the gateway became, by the `id` in its body or in its stream: of several
    choices the first one's. InvalidRequestError where the id is none of the gateway's.
    """
    found = _EXCHANGE.search(reply_id)
    if found is None:
        raise InvalidRequestError(
            f"{reply_id[:100]!r} is no id of a reply of the gateway", path="reply_id", hint="Take `id` of the reply"
        )
    return f"stp_{found[1]}"


def seen_of(pool: Reading, one: Feedback) -> Seen:
    """Whether the reply that was seen is the one that is there now: the step's, or of a trajectory the last one's.

    unknown: the feedback does not say what was seen, or there is no reply.
    """
    if one.content is None:
        return "unknown"
    step = target_step(pool, one)
    if step is None or step.response_message is None:
        return "unknown"
    return "current" if reply_digest(step.response_message) == one.content else "outdated"


def target_step(pool: Reading, one: Feedback) -> Step | None:
    """The step that feedback is about, with messages: its own, or the trajectory's last one that is not excluded."""
    if one.step_id is not None:
        try:
            return pool.get_step(one.step_id, include=("messages",))
        except NotFoundError:
            return None
    assert one.trajectory_id is not None
    return last_step(pool, one.trajectory_id)


def last_step(pool: Reading, trajectory_id: str) -> Step | None:
    """The newest step of a trajectory that is not itself excluded, with messages."""
    cursor: str | None = None
    while True:
        page = pool.list_steps(
            trajectory_id=trajectory_id, order="newest", cursor=cursor, limit=8, include=("messages",)
        )
        for step in page.items:
            if step.excluded_reason is None and step.response_message is not None:
                return step
        if page.next_cursor is None:
            return None
        cursor = page.next_cursor


def all_feedback(pool: Reading, kind: FeedbackKind) -> Iterator[Feedback]:
    """All feedback of a kind in the order in which it came."""
    cursor: str | None = None
    while True:
        page = pool.list_feedback(kind=kind, cursor=cursor, limit=PAGE)
        yield from page.items
        if page.next_cursor is None:
            return
        cursor = page.next_cursor


def matching_step(pool: Reading, step_id: str, where: str | None) -> Step | None:
    """The step with its messages, where it is there and matches."""
    condition = f"step_id == '{step_id}'"
    if where is not None:
        condition = f"{condition} and ({where})"
    cursor: str | None = None
    while True:
        page = pool.list_steps(where=condition, cursor=cursor, limit=1, include=("messages",))
        if page.items:
            return page.items[0]
        if page.next_cursor is None:
            return None
        cursor = page.next_cursor
