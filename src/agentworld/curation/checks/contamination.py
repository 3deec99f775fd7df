"""Whether a trajectory holds text of the sets that the model will be measured on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from agentworld.curation.checks.evaluation_sets import Hits
from agentworld.curation.checks.finding import Found
from agentworld.curation.checks.private_rules import excerpt
from agentworld.curation.checks.reading import Place, Run
from agentworld.curation.checks.registry import check
from agentworld.curation.checks.settings import CheckContext
from agentworld.curation.checks.words import BARRIER, LONGEST, windows


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
    hits: dict[int, Hits] = {}  # in all pieces; an item may go from one into the next
    sources: list[_Source] = []
    offset = 0
    ahead: list[int] = []
    for text, starts, places in _pieces(run, sets.count):
        for item, own in sets.hits(text).items():
            here = Hits(own.runs, offset + own.start, offset + own.end)
            hits[item] = here if item not in hits else hits[item]._replace(runs=hits[item].runs | own.runs)
        ahead += [offset + start for start in starts]
        sources += places
        offset += len(text) + 1
    matches = sets.sorted_matches(hits)
    if not matches:
        return
    match = matches[0]
    at = bisect_right(ahead, match.start) - 1
    step, message, whole, begin, length = sources[at]
    # Small letters of some characters are two: then the place in the text is about that.
    start, end = (min(begin + min(place - ahead[at], length), len(whole)) for place in (match.start, match.end))
    evidence = {
        "step": step,
        "message": message,
        "set": match.set,
        "item": match.item,
        "runs": match.runs,
        "items": len(matches),
        "excerpt": excerpt(whole, start, end),
    }
    yield Found(round(match.share, 3), evidence)


class _Source(NamedTuple):
    """Where a part of a piece is from: the step, the message, its whole text, where the part begins, how long it is."""

    step_id: str
    message: Place
    text: str
    begin: int
    length: int


def _pieces(run: Run, count: int) -> Iterator[tuple[str, list[int], list[_Source]]]:
    """The trajectory's texts joined to pieces of at most a million characters, with where each begins and is from. A
    text that is cut is cut so that each run of `count` words is whole in one of its parts.
    """
    parts: list[str] = []
    starts: list[int] = []
    places: list[_Source] = []
    length = 0
    for turn in run.turns:
        for at, whole in turn.texts():
            for begin, end in windows(whole.replace(BARRIER, " "), LONGEST // 2, count):
                text = whole[begin:end].lower().replace(BARRIER, " ")
                if length + len(text) + 1 > LONGEST and parts:
                    yield BARRIER.join(parts), starts, places
                    parts, starts, places, length = [], [], [], 0
                parts.append(text)
                starts.append(length)
                places.append(_Source(turn.step.step_id, at, whole, begin, len(text)))
                length += len(text) + 1
    if parts:
        yield BARRIER.join(parts), starts, places
