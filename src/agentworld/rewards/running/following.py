"""Where a run is, saved in the pool as a follower."""

from __future__ import annotations

import msgspec

from agentworld.pool.protocol import Pool
from agentworld.pool.review_rules import overtaken
from agentworld.rewards.running.plan import Plan
from agentworld.rewards.running.report import Tally
from agentworld.rewards.running.settings import RunSettings


class Place(msgspec.Struct, frozen=True):
    """A place in the work: `stage` says what of the stored is being listed, `cursor` how far; then `events`.

    `event`: the last one that it is done with; of those before it the listing tells. `since`: when it began, in the
    pool's time; 0 where it has not.
    """

    stage: str = "trajectories"
    cursor: str | None = None
    event: int = 0
    since: float = 0.0


class Saved(msgspec.Struct):
    """What the follower keeps: the place, the tallies of all processes under its name, and who rests, with why."""

    place: Place
    tallies: dict[str, Tally] = {}
    resting: dict[str, str] = {}


def follower_name(plan: Plan, settings: RunSettings) -> str:
    """The name under which a run saves where it is: another configuration, or another part, is another run."""
    again = ":again" if settings.again == "all" else ""
    return f"reward:{settings.name[:128]}@{plan.digest(settings)}{again}"


def read_saved(state: bytes | None) -> Saved:
    """What a follower's state says."""
    return Saved(Place()) if state is None else msgspec.json.decode(state, type=Saved)


class Bookmark:
    """Loads and saves the place of one run. One that saves nothing begins at the beginning each time."""

    def __init__(self, pool: Pool, name: str, *, saves: bool) -> None:
        self._pool = pool
        self._name = name
        self._saves = saves
        self._revision = 0
        self._last: bytes | None = None
        self._earlier: dict[str, Tally] = {}

    def load(self) -> Place:
        """Where an earlier process under the name was, or the beginning; from here on another process is overtaken."""
        found = self._pool.load_follower(self._name) if self._saves else None
        if found is not None:
            saved = read_saved(found.state)
            self._revision, self._earlier = found.revision, saved.tallies
            if saved.place.since:
                self.save(saved.place, {}, saved.resting)
                return saved.place
        place = Place(event=self._pool.stats().last_event)
        if not self._saves:
            return place
        # The pool's clock says when it began, as it says when an evaluation was kept.
        begun = self._pool.save_follower(
            self._name, place.event, _encoded(place, self._earlier), revision=self._revision
        )
        self._revision = begun.revision
        return msgspec.structs.replace(place, since=begun.at)

    def save(self, place: Place, tallies: dict[str, Tally], resting: dict[str, str]) -> None:
        """Save, where that is something else than the last time: a slow evaluator that holds the place holds no counts
        of others. ConflictError where another process has saved.
        """
        whole = {name: each.plus(self._earlier.get(name)) for name, each in tallies.items()} or self._earlier
        state = _encoded(place, whole, resting)
        if not self._saves or state == self._last:
            return
        self._revision = self._pool.save_follower(self._name, place.event, state, revision=self._revision).revision
        self._last = state

    def check(self) -> None:
        """ConflictError where another process has saved under the name, before anything is paid for twice."""
        found = self._pool.load_follower(self._name) if self._saves else None
        if found is not None and found.revision != self._revision:
            raise overtaken(self._name)


def _encoded(place: Place, tallies: dict[str, Tally], resting: dict[str, str] | None = None) -> bytes:
    return msgspec.json.encode(Saved(place, tallies, resting or {}))
