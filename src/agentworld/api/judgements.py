"""What was said of trajectories: labels with how many have them, and how far annotators agree."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from litestar import get
from litestar.datastructures import State
from litestar.params import FromQuery, QueryParameter

from agentworld.api.access import reach
from agentworld.api.scanning import MOST_ROWS, MOST_SECONDS, Rows, Scan
from agentworld.api.trajectories import Where
from agentworld.client.wire import API
from agentworld.errors import InvalidRequestError
from agentworld.feedback.agreement import Level
from agentworld.feedback.annotators import Agreement, Kind, Said, measure, said
from agentworld.pool.protocol import Page, Pool
from agentworld.records import Feedback, exact_json

MOST_NAMES = 200
MOST_VALUES = 8
EXAMPLES = 3
MOST_DISAGREEMENTS = 50
MOST_DIFFERENT = 1_000
"""Different values of one name that are compared with each other, which takes a table of each with each."""
MOST_WORK = 20_000_000
"""Cells of such tables, and looks at targets by each two annotators, together."""
_PAIR = 1_000
"""What two annotators take beside that, in cells."""
_LONGEST = 120
"""Characters of a value that are shown."""

Name = Annotated[str, QueryParameter(min_length=1, description="The label's or the rating's name")]
OfLevel = Annotated[Level | None, QueryParameter(description="nominal, ordinal or interval; by the kind without it")]


class LabelValue(msgspec.Struct, frozen=True):
    """A value as JSON, how many trajectories have it, and ids of some of them."""

    value: str
    count: int
    examples: list[str]


class LabelCount(msgspec.Struct, frozen=True):
    """A label: how many trajectories have it, and its most frequent values. `others`: values beside these."""

    name: str
    count: int
    values: list[LabelValue]
    others: int


class LabelsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Labels of the newest trajectories. `looked`: at how many; `whole`: whether these are all; `names_left`: how many
    names are left out, the rarest.
    """

    looked: int
    whole: bool
    labels: list[LabelCount]
    names_left: int = 0


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """A step or trajectory of which annotators said different things, by source, as JSON."""

    target: str
    target_id: str
    values: dict[str, str]


class AgreementReport(msgspec.Struct, frozen=True, kw_only=True):
    """How far the annotators of one name agree, and some of what they do not agree on. `whole`: whether all that was
    said is in it.
    """

    whole: bool
    agreement: Agreement
    disagreements: list[Disagreement]


@get(f"{API}/labels", sync_to_thread=True)
def labels(
    state: State, where: Where = None, channel: FromQuery[str | None] = None, limit: Rows = MOST_ROWS
) -> LabelsReport:
    """Which labels the newest trajectories have, by checks and by people, with values and examples."""
    return count_labels(reach(state), where, channel, limit)


@get(f"{API}/agreement", sync_to_thread=True)
def agreement(state: State, name: Name, kind: FromQuery[Kind] = "label", level: OfLevel = None) -> AgreementReport:
    """How far annotators agree on a label or a rating. What checks and implicit signals said does not count. Too many
    annotators or different values, such as free texts, are refused.
    """
    return measure_agreement(reach(state), name, kind, level)


def count_labels(pool: Pool, where: str | None, channel: str | None, limit: int = MOST_ROWS) -> LabelsReport:
    """Look at up to `limit` trajectories, the newest first."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    examples: dict[tuple[str, str], list[str]] = defaultdict(list)
    scan = Scan(pool, where, channel, limit)
    for item in scan:
        for name, value in item.labels.items():
            told = _told(value)
            counts[name][told] += 1
            if len(examples[name, told]) < EXAMPLES:
                examples[name, told].append(item.trajectory_id)
    ranked = sorted(counts.items(), key=lambda each: (-each[1].total(), each[0]))
    found = []
    for name, values in ranked[:MOST_NAMES]:
        shown = values.most_common(MOST_VALUES)
        items = [LabelValue(value, count, examples[name, value]) for value, count in shown]
        found.append(LabelCount(name, values.total(), items, len(values) - len(items)))
    return LabelsReport(looked=scan.looked, whole=scan.whole, labels=found, names_left=len(ranked) - len(found))


def measure_agreement(pool: Pool, name: str, kind: Kind, level: Level | None) -> AgreementReport:
    """Read what was said under `name` for as long as the budget lasts; InvalidRequestError where comparing it would
    take too much.
    """
    reading = _Bounded(pool, name)
    found = said(reading, name, kind=kind)  # type: ignore[arg-type]  # It reads feedback alone where nothing is asked.
    _check_work(name, found)
    return AgreementReport(
        whole=reading.whole,
        agreement=measure(name, found, kind, level),
        disagreements=[_disagreement(one) for one in found if len({_told(each) for each in one.values.values()}) > 1][
            :MOST_DISAGREEMENTS
        ],
    )


class _Bounded:
    """Feedback of one name, page by page until the time is over."""

    def __init__(self, pool: Pool, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool, self._name, self._clock = pool, name, clock
        self._until = clock() + MOST_SECONDS
        self.whole = True

    def list_feedback(self, **asked: Any) -> Page[Feedback]:
        """See Pool."""
        page = self._pool.list_feedback(**asked, name=self._name)
        if page.next_cursor is not None and self._clock() > self._until:
            self.whole = False
            return msgspec.structs.replace(page, next_cursor=None)
        return page


def _check_work(name: str, found: list[Said]) -> None:
    """InvalidRequestError where each two annotators, or each two values, are too many to be compared."""
    annotators = len({source for one in found for source in one.values})
    different = len({exact_json.encode(value) for one in found for value in one.values.values()})
    pairs = annotators * (annotators - 1) // 2
    work = pairs * (_PAIR + len(found) + different**2) + len(found) * different
    if different > MOST_DIFFERENT or work > MOST_WORK:
        raise InvalidRequestError(
            f"{name[:60]!r} has {different} different values by {annotators} annotators on {len(found)} targets, "
            "which are too many to compare here",
            path="?name",
            hint="Measure some of it with `agentworld feedback agreement --source`",
        )


def _disagreement(one: Said) -> Disagreement:
    return Disagreement(
        target=one.target,
        target_id=one.target_id,
        values={source: _told(value) for source, value in one.values.items()},
    )


def _told(value: Any) -> str:
    text = exact_json.encode(value).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


ROUTES = [labels, agreement]
