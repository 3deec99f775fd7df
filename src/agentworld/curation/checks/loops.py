"""Loops and repeated actions: the same calls over and over, alone or in cycles of up to four."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from agentworld.curation.checks.finding import Found
from agentworld.curation.checks.private_rules import excerpt
from agentworld.curation.checks.reading import Run, Turn
from agentworld.curation.checks.registry import check
from agentworld.curation.checks.settings import CheckContext

LONGEST_CYCLE = 4


@check(
    "loop",
    scope="trajectory",
    gates=True,
    values="how often the cycle came in a row",
    says="One action, or a cycle of up to four, came `repeats` times in a row or oftener. An action is a reply's calls "
    "with their arguments, or its text where it has none.",
    fails="Takes polling (waiting for a job by the same call) for a loop, since results are not compared. Overlooks "
    "loops that change an argument each time, such as a counter or a time.",
)
def loop(run: Run, context: CheckContext) -> Iterator[Found]:
    best: tuple[int, int, int, list[Turn]] | None = None
    for turns in _by_agent(run):
        actions = [_action(turn) for turn in turns]
        times, period, end = longest_cycle(actions)
        if times >= context.settings.repeats and (best is None or times > best[0]):
            best = times, period, end, turns
    if best is not None:
        times, period, end, turns = best
        first, last = turns[end - times * period + 1], turns[end]
        evidence = {
            "step": first.step.step_id,
            "message": "reply",
            "last": last.step.step_id,
            "cycle": period,
            "excerpt": excerpt(_shown(first)),
        }
        yield Found(times, evidence)


@check(
    "repeated_action",
    scope="trajectory",
    values="how often it came",
    says="The same call with the same arguments was made `total_repeats` times or oftener in the trajectory, in a row "
    "or not.",
    fails="Takes calls that are meant to be repeated (running the tests after each change) for aimless ones.",
)
def repeated_action(run: Run, context: CheckContext) -> Iterator[Found]:
    if sum(len(turn.calls) for turn in run.kept) < context.settings.total_repeats:
        return
    counts: Counter[tuple[str, str]] = Counter()
    last: dict[tuple[str, str], Turn] = {}
    for turn in run.kept:
        for call in turn.calls:
            counts[call.key] += 1
            last[call.key] = turn
    (key, times) = counts.most_common(1)[0]
    if times >= context.settings.total_repeats:
        evidence = {"step": last[key].step.step_id, "message": "reply", "excerpt": excerpt(f"{key[0]} {key[1]}")}
        yield Found(times, evidence)


def longest_cycle(actions: Sequence[Hashable | None]) -> tuple[int, int, int]:
    """(times, period, place of its last action) of the cycle that came most often in a row; None is never repeated.

    Periods from 1 to 4; of cycles that came equally often, the shortest. (1, 1, 0) where nothing was repeated.
    """
    best = (1, 1, 0)
    for period in range(1, LONGEST_CYCLE + 1):
        run = 0
        for place in range(period, len(actions)):
            same = actions[place] is not None and actions[place] == actions[place - period]
            run = run + 1 if same else 0
            times = run // period + 1
            if times > best[0] and run % period == 0:
                best = (times, period, place)
    return best


def _by_agent(run: Run) -> list[list[Turn]]:
    found: dict[str | None, list[Turn]] = {}
    for turn in run.kept:
        # Choices of one call stand beside each other: they repeat nothing.
        if turn.step.choice_index == 0 and turn.step.fork_reason not in ("parallel", "retry"):
            found.setdefault(turn.step.agent, []).append(turn)
    return list(found.values())


def _action(turn: Turn) -> Hashable | None:
    if turn.calls:
        return tuple(call.key for call in turn.calls)
    reply = turn.reply
    return reply.text.strip() or None if reply is not None else None


def _shown(turn: Turn) -> str:
    if turn.calls:
        return " ".join(f"{call.name} {call.raw}" for call in turn.calls)
    return turn.reply.text if turn.reply is not None else ""
