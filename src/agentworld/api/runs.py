"""How runs go: agents by task sets, and rewards along the versions of the policy and along time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Annotated, TypeVar

import msgspec
from litestar import get
from litestar.datastructures import State
from litestar.params import FromQuery, QueryParameter

from agentworld.api.access import reach
from agentworld.api.scanning import MOST_ROWS, Rows, Scan
from agentworld.client.wire import API
from agentworld.errors import InvalidRequestError
from agentworld.pool.protocol import Pool
from agentworld.records import Trajectory

SUCCESS = 0.5
"""A primary reward from here on is a success, where nobody says another."""
MOST_RUNS = 100
MOST_CELLS = 400
MOST_VERSIONS = 500
TIMES = 40
"""Stretches of equal length that the time of a run is cut into."""

Least = Annotated[float, QueryParameter(description="The primary reward from which on a trajectory is a success")]
OfRun = Annotated[str | None, QueryParameter(description="Of this run alone, as metadata.run names it")]


class Tally(msgspec.Struct, kw_only=True):
    """Trajectories by status, and of those with a primary reward how many, their mean, and how many are successes."""

    trajectories: int = 0
    open: int = 0
    finished: int = 0
    failed: int = 0
    truncated: int = 0
    abandoned: int = 0
    excluded: int = 0
    rewarded: int = 0
    reward: float | None = None
    successes: int = 0
    steps: int = 0
    sampled_tokens: int = 0


T = TypeVar("T", bound=Tally)


class RunCell(Tally, kw_only=True):
    """One agent on one task set; null where none is named."""

    agent: str | None = None
    task_set: str | None = None


class VersionPoint(Tally, kw_only=True):
    """What was sampled by one version of one run of the policy."""

    policy_run: str
    version: int


class TimePoint(Tally, kw_only=True):
    """What began in one stretch of time, in seconds since the epoch."""

    begin: float
    end: float


class RunReport(Tally, kw_only=True):
    """One run: `run` is `metadata.run`, null for trajectories that are of none. `first_at`, `last_at`: the creation of
    the oldest and of the newest trajectory that was looked at.
    """

    run: str | None
    first_at: float
    last_at: float
    cells: list[RunCell] = []
    versions: list[VersionPoint] = []
    times: list[TimePoint] = []


class RunsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Runs over the newest trajectories, the latest first. `looked`: at how many; `whole`: whether these are all, and
    else all counts are least ones. `success`: see its parameter.
    """

    looked: int
    whole: bool
    success: float
    runs: list[RunReport]


@get(f"{API}/runs", sync_to_thread=True)
def runs(
    state: State,
    run: OfRun = None,
    channel: FromQuery[str | None] = None,
    success: Least = SUCCESS,
    limit: Rows = MOST_ROWS,
) -> RunsReport:
    """How runs go, over the newest trajectories."""
    if not math.isfinite(success):
        raise InvalidRequestError("success must be a finite number", path="?success", hint="Leave it out for 0.5")
    return count_runs(reach(state), run, channel, success, limit)


def count_runs(pool: Pool, run: str | None, channel: str | None, success: float, limit: int = MOST_ROWS) -> RunsReport:
    """Look at up to `limit` trajectories, the newest first; of one `run` where it is named."""
    where = None if run is None else f"metadata.run == {_text(run)}"
    scan = Scan(pool, where, channel, limit)
    members: dict[str | None, list[Trajectory]] = defaultdict(list)
    for item in scan:
        members[_named(item.metadata.get("run"))].append(item)
    found = [_report(name, items, success) for name, items in members.items()]
    found.sort(key=lambda each: -each.last_at)
    return RunsReport(looked=scan.looked, whole=scan.whole, success=success, runs=found[:MOST_RUNS])


def _report(name: str | None, items: list[Trajectory], success: float) -> RunReport:
    created = [item.created_at for item in items]
    report = RunReport(run=name, first_at=min(created), last_at=max(created))
    _tally(report, items, success)
    cells: dict[tuple[str | None, str | None], list[Trajectory]] = defaultdict(list)
    versions: dict[tuple[str, int], list[Trajectory]] = defaultdict(list)
    times: dict[int, list[Trajectory]] = defaultdict(list)
    width = (report.last_at - report.first_at) / TIMES
    for item in items:
        cells[item.agent, _named((item.task or {}).get("task_set"))].append(item)
        if item.policy is not None:
            versions[item.policy.run, item.policy.version].append(item)
        times[min(TIMES - 1, int((item.created_at - report.first_at) / width)) if width > 0 else 0].append(item)
    report.cells = [
        _tally(RunCell(agent=agent, task_set=task_set), one, success)
        for (agent, task_set), one in sorted(cells.items(), key=lambda each: tuple(part or "" for part in each[0]))
    ][:MOST_CELLS]
    report.versions = [
        _tally(VersionPoint(policy_run=of, version=version), one, success)
        for (of, version), one in sorted(versions.items())
    ][-MOST_VERSIONS:]
    report.times = [
        _tally(
            TimePoint(begin=report.first_at + width * place, end=report.first_at + width * (place + 1)), one, success
        )
        for place, one in sorted(times.items())
    ]
    return report


def _tally(into: T, items: Iterable[Trajectory], success: float) -> T:
    rewards = []
    for item in items:
        into.trajectories += 1
        setattr(into, item.status, getattr(into, item.status) + 1)
        into.excluded += item.readiness == "excluded"
        into.steps += item.step_count
        into.sampled_tokens += item.sampled_tokens
        if item.reward is not None:
            rewards.append(item.reward)
    into.rewarded = len(rewards)
    into.successes = sum(reward >= success for reward in rewards)
    mean = math.fsum(reward / len(rewards) for reward in rewards) if rewards else None
    into.reward = mean
    return into


def _named(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _text(value: str) -> str:
    """A text as `where` writes it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


ROUTES = [runs]
