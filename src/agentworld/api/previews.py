"""What a list tells of its trajectories beside their records: how each begins, and what became of its review."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import msgspec
from litestar import get
from litestar.datastructures import State
from litestar.params import QueryParameter

from agentworld.api.access import reach
from agentworld.api.scanning import MOST_SECONDS
from agentworld.client.wire import API
from agentworld.errors import InvalidRequestError
from agentworld.pool.protocol import Page, Pool
from agentworld.pool.values import REVIEWED
from agentworld.records import Message, TextPart, check_id

MOST = 100
"""Trajectories in one call."""
MOST_CHARACTERS = 240
_READ = 4_000  # characters of a text that are looked at
_BLOCK = re.compile(r"\s*<([A-Za-z][\w-]*)[^<>]*>.*</\1>\s*", re.DOTALL)
_SPACE = re.compile(r"\s+")

_NAMED = 25  # in one expression, which has a bounded length

Ids = Annotated[str, QueryParameter(description=f"Comma-separated ids, {MOST} at most")]


class TrajectoryPreview(msgspec.Struct, frozen=True, kw_only=True):
    """`prompt`: the first text that a user said in it, else the `prompt` of its task, in one line and cut; null where
    there is none. `review`: waiting, skipped, accepted or rejected; null where nobody asked for one.
    """

    trajectory_id: str
    prompt: str | None
    review: str | None


@get(f"{API}/previews", sync_to_thread=True)
def previews(state: State, trajectory_ids: Ids) -> Page[TrajectoryPreview]:
    """How trajectories begin and what became of their reviews. Those that are not there, and those that no time is
    left for, are left out.
    """
    ids = [check_id(one.strip(), "?trajectory_ids") for one in trajectory_ids.split(",") if one.strip()]
    if len(ids) > MOST:
        raise InvalidRequestError(f"{len(ids)} ids are over {MOST}", path="?trajectory_ids", hint="Ask in portions")
    return Page(preview(reach(state), list(dict.fromkeys(ids))))


def preview(pool: Pool, ids: Sequence[str], clock: Callable[[], float] = time.monotonic) -> list[TrajectoryPreview]:
    """Previews of the trajectories that are there, as far as the time reaches."""
    begun = clock()
    reviews = _reviews(pool, ids)
    found: list[TrajectoryPreview] = []
    for one in ids:
        if found and clock() - begun > MOST_SECONDS:
            break
        steps = pool.list_steps(trajectory_id=one, limit=1, include=("messages",)).items
        said = opening(steps[0].prompt_messages or ()) if steps else None
        if said is None:
            there = pool.list_trajectories(trajectory_id=one, limit=1).items
            if not there:
                continue
            said = _of_task(there[0].task)
        found.append(TrajectoryPreview(trajectory_id=one, prompt=said, review=reviews.get(one)))
    return found


def opening(messages: Iterable[Message]) -> str | None:
    """The first text of a user in one line, at most MOST_CHARACTERS and a mark of what is cut off. What agents put
    around it, blocks such as `<system-reminder>...</system-reminder>`, counts only where nothing else is said.
    """
    texts = [text for message in messages if message.role == "user" for text in _texts(message) if text.strip()]
    chosen = next((text for text in texts if _BLOCK.fullmatch(text[:_READ]) is None), texts[0] if texts else None)
    return None if chosen is None else _line(chosen)


def _reviews(pool: Pool, ids: Sequence[str]) -> dict[str, str]:
    """What became of the reviews, by trajectory."""
    found: dict[str, str] = {}
    for begin in range(0, len(ids), _NAMED):
        listed = _of(ids[begin : begin + _NAMED])
        asked = pool.list_trajectories(where=f"has review and {listed}", limit=_NAMED).items
        # Most have none, and each question is a statement of its own.
        for state in REVIEWED if asked else ():
            named = _of([each.trajectory_id for each in asked])
            page = pool.list_trajectories(where=f"review == '{state}' and {named}", limit=_NAMED)
            found.update((each.trajectory_id, state) for each in page.items)
    return found


def _of(ids: Sequence[str]) -> str:
    """A condition that these trajectories alone fulfil; no id holds what a text would have to escape."""
    return "trajectory_id in (" + ", ".join(f"'{one}'" for one in ids) + ")"


def _texts(message: Message) -> list[str]:
    if isinstance(message.content, str):
        return [message.content]
    return [part.text for part in message.content or () if isinstance(part, TextPart)]


def _of_task(task: dict[str, Any] | None) -> str | None:
    said = (task or {}).get("prompt")
    return _line(said) if isinstance(said, str) and said.strip() else None


def _line(text: str) -> str:
    line = _SPACE.sub(" ", text[:_READ]).strip()
    cut = len(line) > MOST_CHARACTERS or len(text) > _READ
    return f"{line[:MOST_CHARACTERS]}…" if cut else line


ROUTES = [previews]
