"""Pairs from ratings: of branches that answer one prompt, and of rollouts of one group, the better over the worse.

A comparison is of two replies to one prompt: steps that fork there, or rollouts that begin with it. Comparisons of
people are in the pool as they were given; those that ratings imply are made here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.feedback.annotators import Said, said
from agentworld.forest.messages import chain, match_key, tools_digest
from agentworld.pool.protocol import Pool
from agentworld.records import Feedback, Step, digest

SOURCE = "ratings:"
"""The source of a comparison that ratings imply is this and the name of the ratings."""
_AT_ONCE = 500


def prompt_key(step: Step) -> bytes:
    """The same for steps that answer one prompt with the same tools, however the client spelled it; 16 bytes."""
    keys = chain(tools_digest(step.tools), step.prompt_messages or [], match_key)
    return keys[-1] if keys else tools_digest(step.tools)


def rating_pairs(
    pool: Pool, name: str, *, margin: float = 1.0, sources: Sequence[str] = (), most: int = 8
) -> Iterator[Feedback]:
    """Comparisons that ratings of one name imply; the mean of each target's annotators counts.

    Two steps with one prompt, or two trajectories of one group, are a pair where they differ by `margin` or more;
    `value` of the comparison is by how much. Of each prompt or group at most `most` pairs, the widest first.
    """
    if not margin > 0:
        raise InvalidRequestError("margin must be over 0", path="margin")
    rated = said(pool, name, kind="rating", sources=sources)
    for members in _together(pool, rated):
        apart = []
        for one, other in combinations(members, 2):
            better, worse = (one, other) if _mean(one) >= _mean(other) else (other, one)
            if _mean(better) - _mean(worse) >= margin:
                apart.append((_mean(better) - _mean(worse), better, worse))
        apart.sort(key=lambda pair: -pair[0])
        for by, better, worse in apart[:most]:
            is_step = better.target == "step"
            named = digest(b"ratings", name.encode(), better.target_id.encode(), worse.target_id.encode())
            yield Feedback(
                kind="comparison",
                feedback_id=f"fbk_ratings_{named.hex()}",
                other_id=worse.target_id,
                step_id=better.target_id if is_step else None,
                trajectory_id=None if is_step else better.target_id,
                value=by,
                source=SOURCE + name,
            )


def store_pairs(pool: Pool, pairs: Iterator[Feedback]) -> tuple[int, int]:
    """Put comparisons into the pool that are not there, either way around; how many are new, and how many were
    decided before, which ratings that came since do not change."""
    new: list[Feedback] = []
    decided = 0
    for pair in pairs:
        if _is_decided(pool, pair):
            decided += 1
        else:
            new.append(pair)
    for start in range(0, len(new), _AT_ONCE):
        pool.add_feedback(new[start : start + _AT_ONCE])
    return len(new), decided


def _together(pool: Pool, rated: Sequence[Said]) -> list[list[Said]]:
    """Those that may be compared: steps of one prompt, trajectories of one group."""
    found: dict[tuple[str, bytes | str], list[Said]] = {}
    for one in rated:
        try:
            if one.target == "step":
                step = pool.get_step(one.target_id, include=("messages",))
                if step.prompt_messages is not None:
                    key = f"step {step.channel}", prompt_key(step)
                    found.setdefault(key, []).append(one)
            elif (group_id := pool.get_trajectory(one.target_id).group_id) is not None:
                found.setdefault(("group", group_id), []).append(one)
        except NotFoundError:
            continue  # It was rated before it came, or is gone.
    return list(found.values())


def _mean(one: Said) -> float:
    return sum(float(value) for value in one.values.values()) / len(one.values)


def _is_decided(pool: Pool, pair: Feedback) -> bool:
    better, worse = pair.step_id or pair.trajectory_id or "", pair.other_id or ""
    return any(_is_there(pool, pair, one, other) for one, other in ((better, worse), (worse, better)))


def _is_there(pool: Pool, pair: Feedback, better: str, worse: str) -> bool:
    cursor: str | None = None
    while True:
        if pair.step_id is not None:
            page = pool.list_feedback(step_id=better, kind="comparison", cursor=cursor)
        else:
            page = pool.list_feedback(trajectory_id=better, kind="comparison", cursor=cursor)
        if any(one.other_id == worse and one.source == pair.source for one in page.items):
            return True
        if page.next_cursor is None:
            return False
        cursor = page.next_cursor
