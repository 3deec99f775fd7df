"""Whether a trajectory holds text of the sets that the model will be measured on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from agentworld.curation.checks.finding import Found
from agentworld.curation.checks.private_rules import excerpt
from agentworld.curation.checks.reading import Place, Run
from agentworld.curation.checks.registry import check
from agentworld.curation.checks.settings import CheckContext
from agentworld.curation.checks.words import BARRIER, LONGEST


@check(
    "contaminated",
    scope="trajectory",
    gates=True,
    optional=True,
    values="share of the item's runs that are there, from 0 to 1",
    says="A run of `ngram` words (13 unless set otherwise) of an item of the given evaluation sets stands in a message "
    "of the trajectory, whoever wrote it. Runs that over 10 items have are left out.",
    fails="Takes quotations that many texts share (licences, well-known passages) for contamination. Overlooks "
    "rewordings, translations, and items shorter than a run; their number is told when the sets are read.",
)
def contaminated(run: Run, context: CheckContext) -> Iterator[Found]:
    sets = context.evaluation
    if sets is None or not len(sets):
        return
    best: Found | None = None
    for text, starts, places in _pieces(run):
        matches = sets.matches(text)
        if matches and (best is None or matches[0].share > best.value):
            match = matches[0]
            at = bisect_right(starts, match.start) - 1
            step, message, whole, begin, length = places[at]
            # Small letters of some characters are two: then the place in the text is about that.
            start, end = (
                min(begin + min(place - starts[at], length), len(whole)) for place in (match.start, match.end)
            )
            evidence = {
                "step": step,
                "message": message,
                "set": match.set,
                "item": match.item,
                "runs": match.runs,
                "items": len(matches),
                "excerpt": excerpt(whole, start, end),
            }
            best = Found(round(match.share, 3), evidence)
    if best is not None:
        yield best


class _Source(NamedTuple):
    """Where a part of a piece is from: the step, the message, its whole text, where the part begins, how long it is."""

    step_id: str
    message: Place
    text: str
    begin: int
    length: int


def _pieces(run: Run) -> Iterator[tuple[str, list[int], list[_Source]]]:
    """The trajectory's texts joined to pieces of at most a million characters, with where each begins and is from."""
    parts: list[str] = []
    starts: list[int] = []
    places: list[_Source] = []
    length = 0
    for turn in run.turns:
        for at, whole in turn.texts():
            for begin in range(0, len(whole), LONGEST // 2):
                text = whole[begin : begin + LONGEST // 2].lower().replace(BARRIER, " ")
                if length + len(text) + 1 > LONGEST and parts:
                    yield BARRIER.join(parts), starts, places
                    parts, starts, places, length = [], [], [], 0
                parts.append(text)
                starts.append(length)
                places.append(_Source(turn.step.step_id, at, whole, begin, len(text)))
                length += len(text) + 1
    if parts:
        yield BARRIER.join(parts), starts, places
