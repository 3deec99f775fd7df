"""Trajectories that are much longer or shorter than those of their channel."""

from __future__ import annotations

import math

import msgspec

from agentworld.curation.checks.finding import Finding
from agentworld.curation.checks.reading import Run
from agentworld.curation.checks.registry import check
from agentworld.curation.checks.saved import pack, unpack
from agentworld.curation.checks.settings import CheckSettings
from agentworld.records import BatchTrajectory

_NAME = "length_outlier"
_VERSION = "1"
_LAYOUT = f"{_NAME}@2"
_PER_E = 50  # classes a factor of e: one is 2 % wide
_LEAST_SPREAD = 5.0  # classes, so that where nearly all are equally long, 10 % is no outlier
_NORMAL = 0.6745  # the median absolute deviation of a normal distribution, in standard deviations


class _State(msgspec.Struct):
    """`counts`: channel and unit -> class of length -> how many. `places`: trajectory -> its two, the oldest first."""

    counts: dict[str, dict[int, int]] = {}
    places: dict[str, tuple[str, int]] = {}


@check(
    _NAME,
    scope="pool",
    version=_VERSION,
    values="robust z-score, negative for short ones",
    says="The replies' length together (tokens, else characters) lies `outlier` robust standard deviations or more "
    "from the channel's median: 0.6745 (log length - median) / MAD, as Iglewicz and Hoaglin (1993) propose.",
    fails="Says nothing until a channel has had `outlier_from` lengths, and judges by those that came before or with "
    "it; what was judged is judged again only where it changes. Channels of mixed tasks have several usual lengths. "
    "One that changes after `remembered` others counts twice.",
)
class LengthOutliers:
    """Counts lengths in classes of 2 %."""

    def __init__(self, settings: CheckSettings | None = None) -> None:
        self._settings = settings or CheckSettings()
        self._state = _State()
        self._new: dict[str, tuple[str, int, int]] = {}

    @classmethod
    def load(cls, state: bytes, settings: CheckSettings | None = None) -> LengthOutliers:
        """Go on from a saved state."""
        loaded = cls(settings)
        loaded._state = unpack(_LAYOUT, state, _State)
        return loaded

    def add(self, run: BatchTrajectory | Run) -> None:
        """Take in one trajectory; again under its id replaces it."""
        name = run.trajectory.trajectory_id
        self._drop(name)
        turns = Run.of(run).kept
        length, unit = sum(turn.step.response_length or 0 for turn in turns), "tokens"
        if not length:
            length, unit = sum(len(turn.said) for turn in turns), "characters"
        if not turns:
            return
        key = f"{unit} {run.trajectory.channel}"
        place = round(math.log1p(length) * _PER_E)
        counts = self._state.counts.setdefault(key, {})
        counts[place] = counts.get(place, 0) + 1
        self._new[name] = (key, place, length)
        self._state.places[name] = (key, place)
        if len(self._state.places) > self._settings.remembered:
            del self._state.places[next(iter(self._state.places))]

    def _drop(self, name: str) -> None:
        self._new.pop(name, None)
        before = self._state.places.pop(name, None)
        if before is None:
            return
        key, place = before
        counts = self._state.counts[key]
        counts[place] -= 1
        if not counts[place]:
            del counts[place]

    def result(self) -> list[Finding]:
        """The outliers among those added since the last call."""
        new, self._new = self._new, {}
        summaries = {key: self._summary(key) for key in {key for key, _, _ in new.values()}}
        found = []
        for name, (key, place, length) in new.items():
            count, median, spread = summaries[key]
            if count < self._settings.outlier_from:
                continue
            score = _NORMAL * (place - median) / max(spread, _LEAST_SPREAD)
            if abs(score) >= self._settings.outlier:
                usual = round(math.expm1(median / _PER_E))
                evidence = {"length": length, "unit": key.partition(" ")[0], "median": usual, "of": count}
                found.append(
                    Finding(check=_NAME, version=_VERSION, trajectory_id=name, value=round(score, 2), evidence=evidence)
                )
        return found

    def _summary(self, key: str) -> tuple[int, float, float]:
        counts = self._state.counts[key]
        median = weighted_median(counts)
        away: dict[float, int] = {}
        for place, count in counts.items():
            distance = abs(place - median)
            away[distance] = away.get(distance, 0) + count
        return sum(counts.values()), median, weighted_median(away)

    def save(self) -> bytes:
        """The state: a few kilobytes for each channel, and about 50 bytes for each trajectory."""
        return pack(_LAYOUT, self._state)


def weighted_median(counts: dict[int, int] | dict[float, int]) -> float:
    """The median of values that came so often; the mean of the two in the middle of an even number."""
    total = sum(counts.values())
    low, high = (total - 1) // 2, total // 2
    seen = 0
    first: float | None = None
    for value in sorted(counts):
        seen += counts[value]  # type: ignore[index]
        if first is None and seen > low:
            first = value
        if first is not None and seen > high:
            return (first + value) / 2
    raise ValueError("there is no median of nothing")
