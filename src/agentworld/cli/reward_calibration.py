"""What `agentworld reward calibrate` does: a reward beside what people said of the same trajectories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from agentworld.cli.reward_runs import opened_pool
from agentworld.errors import NotFoundError

if TYPE_CHECKING:
    from agentworld.factory import EmbeddedPool
    from agentworld.records import Trajectory

Pairs = tuple[list[float], list[float]]


def calibrated(
    reward: str,
    human: str,
    threshold: float,
    evaluator: str | None,
    where: str | None,
    channel: str | None,
    pool: str | None,
    *,
    as_json: bool,
) -> None:
    """Print how far the reward and the people agree; NotFoundError where nothing has both."""
    from agentworld.cli.output import plain
    from agentworld.rewards.calibration import calibrate, report_lines

    judged: list[float] = []
    people: list[float] = []
    criteria: dict[str, Pairs] = {}
    have_ours = have_theirs = 0
    with opened_pool(pool) as opened:
        rated = _ratings(opened, human)
        for record in _trajectories(opened, where, channel):
            theirs = _number(record.labels.get(human), rated.get(record.trajectory_id))
            evaluation = _evaluated(opened, evaluator, record.trajectory_id) if evaluator is not None else None
            ours = record.rewards.get(reward)
            if evaluator is not None:
                ours = evaluation.values.get(reward) if evaluation is not None else None
            have_ours += ours is not None
            have_theirs += theirs is not None
            if theirs is not None and ours is not None:
                judged.append(ours)
                people.append(theirs)
            for name, met in _criteria(evaluation):
                said = _number(record.labels.get(f"{human}.{name}"), None)
                if said is not None:
                    pair = criteria.setdefault(name, ([], []))
                    pair[0].append(float(met))
                    pair[1].append(float(said >= threshold))
    if not judged:
        of = f" from evaluator {evaluator!r}" if evaluator is not None else ""
        label = f"Label some: agentworld feedback add TRAJECTORY label --name {human} --value true"
        named = "Name the reward as the evaluator does (its `reward`); `trajectories show` lists what a trajectory has"
        raise NotFoundError(
            f"no trajectory has both {reward!r}{of} ({have_ours} have it) and a label or rating {human!r}"
            f" ({have_theirs} have one)",
            hint=label if have_ours else named,
        )
    truths = {
        name: ([each > 0.5 for each in ours], [each > 0.5 for each in theirs])
        for name, (ours, theirs) in criteria.items()
    }
    report = calibrate(judged, people, threshold=threshold, criteria=truths)
    if as_json:
        typer.echo(msgspec.json.encode(report).decode())
    else:
        for line in report_lines(report):
            typer.echo(plain(line))


def _trajectories(opened: EmbeddedPool, where: str | None, channel: str | None) -> Iterator[Trajectory]:
    cursor: str | None = None
    while True:
        page = opened.list_trajectories(where=where, channel=channel, cursor=cursor, limit=1000)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _ratings(opened: EmbeddedPool, name: str) -> dict[str, float]:
    """Means of the ratings of that name, the last of each source, by trajectory."""
    found: dict[str, dict[str, float | None]] = {}
    cursor: str | None = None
    while True:
        page = opened.list_feedback(kind="rating", cursor=cursor, limit=1000)
        for one in page.items:
            if one.step_id is None and one.trajectory_id is not None and (one.name or "rating") == name:
                found.setdefault(one.trajectory_id, {})[one.source] = one.value
        cursor = page.next_cursor
        if cursor is None:
            kept = {
                target: [float(value) for value in by_source.values() if value is not None]
                for target, by_source in found.items()
            }
            return {target: sum(values) / len(values) for target, values in kept.items() if values}


def _evaluated(opened: EmbeddedPool, evaluator: str, trajectory_id: str) -> Any:
    page = opened.list_evaluations(evaluator=evaluator, target="trajectory", target_id=trajectory_id, state="ok")
    return page.items[0] if page.items else None


def _criteria(evaluation: Any) -> Iterator[tuple[str, bool]]:
    """Each criterion of a rubric's details, and whether it was met."""
    details = evaluation.details if evaluation is not None else None
    listed = details.get("criteria") if isinstance(details, dict) else None
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and isinstance(each.get("id"), str) and isinstance(each.get("met"), bool):
            yield each["id"], each["met"]


def _number(label: Any, rating: float | None) -> float | None:
    """What people said as a number: true and yes are 1, false and no are 0."""
    if isinstance(label, str):
        label = {"true": True, "yes": True, "good": True, "false": False, "no": False, "bad": False}.get(label.lower())
    if isinstance(label, bool | int | float):
        return float(label)
    return rating
