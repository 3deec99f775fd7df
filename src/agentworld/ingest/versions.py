"""What a pool has already of runs that are imported again: where it is, and which of its versions stands.

A version takes the place of older ones of its channel only, so that nobody's file excludes what is in another channel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from agentworld.errors import NotFoundError
from agentworld.ingest.wholes import SOURCE
from agentworld.pool.protocol import Pool
from agentworld.records import Decision, Trajectory, WholeTrajectory

_BECAUSE = "imported again as "


def version(name: str, number: int) -> str:
    """The id of a version of a run, the first of which has the run's own."""
    return name if number == 1 else f"{name}.{number}"


def step_ids(trajectory_id: str, key: Any) -> tuple[str, ...]:
    """The ids that the step of a key may have in an imported trajectory; see wholes.renamed."""
    name, number = _parsed(trajectory_id)
    return f"{trajectory_id}.{key}", f"{name}~{number}.{key}"


def _parsed(trajectory_id: str) -> tuple[str, int]:
    name, _, number = trajectory_id.rpartition(".")
    return (name, int(number)) if name and number.isdecimal() else (trajectory_id, 1)


def there(pool: Pool, names: Sequence[str]) -> dict[str, Trajectory]:
    """Those of the trajectories that are in the pool."""
    found: dict[str, Trajectory] = {}
    for name in names:
        with suppress(NotFoundError):
            found[name] = pool.get_trajectory(name)
    return found


def _versions(pool: Pool, name: str) -> Iterator[tuple[int, Trajectory]]:
    """The versions of a run from the second on that are in the pool, in the order of their storing."""
    cursor = None
    while True:
        page = pool.list_trajectories(where=f'trajectory_id like "{name}.%"', cursor=cursor)
        for one in page.items:
            of, number = _parsed(one.trajectory_id)
            if of == name:
                yield number, one
        cursor = page.next_cursor
        if cursor is None:
            return


def is_same(found: Trajectory, whole: WholeTrajectory) -> bool:
    """Whether a trajectory was read from the same run."""
    origin = found.metadata.get(SOURCE)
    return isinstance(origin, dict) and origin.get("digest") == whole.origin["digest"]


def versions(pool: Pool, name: str) -> list[Trajectory]:
    """All versions of a run that are in the pool, the oldest first."""
    first = there(pool, [name]).values()
    return [*first, *(one for _, one in sorted(_versions(pool, name), key=lambda found: found[0]))]


def exclude_older(pool: Pool, older: Sequence[str], newer: str, channel: str) -> bool:
    """Decide by hand that those of the channel are excluded, each that has no manual decision, so that what people
    decided stands. Returns whether any is of the channel.
    """
    own = [name for name, one in there(pool, older).items() if one.channel == channel]
    undecided = [name for name in own if not any(said.by == "manual" for said in pool.decisions(trajectory_id=name))]
    if undecided:
        reason = f"{_BECAUSE}{newer}"
        decide = [Decision(verdict="exclude", trajectory_id=n, reason=reason, source=SOURCE) for n in undecided]
        pool.decide(decide)
    return bool(own)


def take_back(pool: Pool, known: Trajectory) -> bool:
    """Take back that a trajectory is excluded for a newer one, where no newer one is there any more."""
    name, number = _parsed(known.trajectory_id)
    if known.excluded_reason is None or _BECAUSE not in known.excluded_reason:
        return False
    if any(later > number and one.channel == known.channel for later, one in _versions(pool, name)):
        return False
    newer = known.excluded_reason.partition(_BECAUSE)[2].split()[:1]
    if any(one.channel == known.channel for one in there(pool, newer).values()):
        return False  # What took its place was another run, which it is a part of.
    manual = [said for said in pool.decisions(trajectory_id=known.trajectory_id) if said.by == "manual"]
    own = (said for said in manual if said.source == SOURCE and said.step_id is None)
    if decided := any((said.reason or "").startswith(_BECAUSE) for said in own):
        pool.decide([Decision(verdict=None, trajectory_id=known.trajectory_id, source=SOURCE)])
    return decided
