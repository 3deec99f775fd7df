"""Checks over a pool: what is stored first, then what events tell, resumable at any point.

Where a run is, and what its checks remember, is saved as a follower once the labels before that are durable. What was
checked since then is checked again after a kill, which writes nothing twice, as only labels that differ are written.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from agentworld.curation.checks import CheckContext, Finding, run_checks, run_group_checks
from agentworld.curation.checks.reading import Run
from agentworld.curation.checks.registry import FAILED
from agentworld.curation.running.labels import Labels
from agentworld.curation.running.memory import Freshness, MemoryChecks
from agentworld.curation.running.others import Others
from agentworld.curation.running.reading import PAGE, Reading
from agentworld.curation.running.report import Progress, RunReport, no_progress
from agentworld.curation.running.settings import Plan
from agentworld.curation.running.uncertainty import Doubts
from agentworld.pool.protocol import Pool
from agentworld.records import Event, Policy, Trajectory

EVENTS = 500
SAVE_SECONDS = 2.0
SAVE_SHARE = 30  # a save that takes a second comes every 30 seconds at most
IDLE_EVENTS = 5_000  # events that change nothing, after which a run saves all the same
LOOK_SECONDS = 1.0
OTHERS_SHARE = 20  # a relabelling of others that takes a second comes every 20 seconds at most
MOST_OTHERS = 50_000


class Place(msgspec.Struct, frozen=True):
    """Where a run is. `stage`: what of the stored is being listed, then `events`. `doubts`: of evaluations."""

    stage: str = "trajectories"
    cursor: str | None = None
    event: int = 0
    doubts: str | None = None


class Saved(msgspec.Struct):
    """What the follower keeps: the place, states of checks over the pool, who is not stale yet, and what is still to be
    said of others than those that were looked at.
    """

    place: Place
    checks: dict[str, bytes] = {}
    fresh: bytes | None = None
    others: bytes | None = None


class _Told(NamedTuple):
    """What events ask for. The order is that of the events."""

    trajectories: dict[str, None]
    groups: dict[str, None]
    gone: dict[str, None]
    policies: list[Policy]

    @property
    def anything(self) -> bool:
        return any(self)


def follower_name(plan: Plan) -> str:
    """The name under which a run saves where it is: other checks, thresholds or channels are another run."""
    return f"curate:{(plan.channel or '*')[:128]}:{plan.digest}"


def run_curation(
    pool: Pool,
    plan: Plan,
    *,
    follow: bool = False,
    again: bool = False,
    progress: Progress = no_progress,
    say: Callable[[str], None] = lambda line: None,
    stop: threading.Event | None = None,
) -> RunReport:
    """Check all that is new, and write labels; with `follow`, go on until `stop` is set.

    `again`: everything, as if for the first time. `say` gets a line for people. ConflictError where another process
    goes on under the same name; PoolError where the pool cannot be read or written.
    """
    return _Worker(pool, plan, again, progress, say, stop or threading.Event()).run(follow)


class _Worker:
    def __init__(
        self,
        pool: Pool,
        plan: Plan,
        again: bool,
        progress: Progress,
        say: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        self._pool = pool
        self._plan = plan
        self._progress = progress
        self._stop = stop
        self._report = RunReport()
        self._reading = Reading(pool, plan.channel)
        self._labels = Labels(pool, self._report)
        self._name = follower_name(plan)
        there = pool.load_follower(self._name)
        self._revision = 0 if there is None else there.revision
        saved = None
        if there is not None and there.state is not None and not again:
            saved = msgspec.msgpack.decode(there.state, type=Saved)
        if saved is None:
            saved = Saved(Place(event=pool.stats().last_event))
        self._place = saved.place
        self._memory = MemoryChecks(plan.context, saved.checks, say)
        self._fresh = Freshness(plan.context, saved.fresh)
        self._others = Others(pool, self._report, saved.others)
        self._others_next = 0.0
        self._doubts = Doubts(pool, plan.reviews, plan.channel)
        self._policies = pool.gateway_state().policies
        self._contexts: dict[Policy | None, CheckContext] = {}
        self._dirty = False
        self._saved_event = saved.place.event
        self._save_next = time.monotonic() + SAVE_SECONDS

    def run(self, follow: bool) -> RunReport:
        """The whole run."""
        self._stored()
        self._told(follow)
        if not self._stop.is_set():  # Otherwise what is left is kept for the next run.
            self._doubt()
            self._say_of_others()
        if self._dirty or self._place.event - self._saved_event >= IDLE_EVENTS:
            self._save()
        return self._report

    # --- what is to be checked --------------------------------------------------------------------------------
    def _stored(self) -> None:
        """What there was when the run began, page by page."""
        if self._place.stage == "trajectories":
            total = sum(self._pool.stats().trajectories.values())
            for records, cursor in self._reading.trajectories(self._place.cursor):
                self._check(records)
                self._passed("groups" if cursor is None else "trajectories", cursor)
                self._progress("checking", self._report.trajectories, max(total, self._report.trajectories))
                if self._stop.is_set():
                    return
            self._say_of_others()
        if self._place.stage == "groups":
            if self._plan.of_groups:
                for groups, cursor in self._reading.groups(self._place.cursor):
                    self._check_groups(each.group_id for each in groups)
                    self._passed("groups", cursor)
                    if self._stop.is_set() and cursor is not None:
                        return
            self._passed("events", None)

    def _passed(self, stage: str, cursor: str | None) -> None:
        self._place = msgspec.structs.replace(self._place, stage=stage, cursor=cursor)
        self._dirty = True
        self._look_after()

    def _told(self, follow: bool) -> None:
        """What events tell, up to the last one of now, or for as long as nobody stops it."""
        last = None if follow else self._pool.stats().last_event
        woken = threading.Event()
        unwatch = self._pool.watch(woken.set)
        try:
            while not self._stop.is_set():
                woken.clear()
                events = self._pool.events(self._place.event, EVENTS, channel=self._plan.channel)
                if last is not None:
                    events = [each for each in events if each.sequence <= last]
                told = self._read_events(events)
                if told.anything:
                    self._answer(told)
                    if self._stop.is_set():
                        return  # Perhaps in the middle: these events are read again.
                    self._dirty = True
                if events:
                    self._place = msgspec.structs.replace(self._place, event=events[-1].sequence)
                    self._look_after()
                    self._progress("checking", self._report.trajectories, None)
                elif last is not None:
                    # Events of other channels are passed too.
                    self._place = msgspec.structs.replace(self._place, event=max(last, self._place.event))
                    return
                else:
                    self._doubt()
                    if time.monotonic() >= self._others_next:
                        self._say_of_others()
                    self._look_after()
                    woken.wait(min(self._pool.poll_seconds, LOOK_SECONDS))
        finally:
            unwatch()

    def _read_events(self, events: Iterable[Event]) -> _Told:
        told = _Told({}, {}, {}, [])
        for event in events:
            name, data = event.trajectory_id, event.data
            if event.kind == "policy.set":
                told.policies.append(msgspec.convert(data, Policy))
            elif event.kind == "group.closed":
                told.groups[str(data["group_id"])] = None
            elif name is None:
                continue
            elif event.kind == "trajectory.deleted":
                told.gone[name] = None
                told.trajectories.pop(name, None)
            elif event.kind in ("trajectory.completed", "reward.set") or (
                event.kind == "step.appended" and data.get("outcome") == "late"
            ):
                told.trajectories[name] = None
        return told

    def _answer(self, told: _Told) -> None:
        for name in told.gone:
            self._memory.forget(name, self._plan.channel or "")
            self._fresh.forget(name)
        if told.gone:
            self._check(())
        due = dict(told.trajectories)
        for policy in told.policies:
            self._policies = {**self._policies, policy.model: policy}
            self._contexts = {}
            due |= dict.fromkeys(self._fresh.due(policy))
        groups = dict(told.groups)
        names = list(due)
        for start in range(0, len(names), PAGE):
            found = (self._reading.trajectory(name) for name in names[start : start + PAGE])
            records = [each for each in found if each is not None]
            groups |= dict.fromkeys(each.group_id for each in records if each.group_id is not None)
            self._check(records)
            if self._stop.is_set():
                return
        if self._plan.of_groups:
            self._check_groups(groups)

    # --- checking ---------------------------------------------------------------------------------------------
    def _check(self, records: Sequence[Trajectory]) -> None:
        """Check some trajectories, and make durable what follows."""
        findings: dict[str, list[Finding]] = {}
        failed: dict[str, dict[str, str]] = {}
        for record in records:
            whole = self._reading.whole(record)
            name = record.trajectory_id
            self._labels.read(whole)
            run = Run(whole)
            findings[name] = run_checks(run, self._context(run))
            failed[name] = self._memory.add(run)
            self._fresh.note(run, stale=any(each.check == "stale" for each in findings[name]))
            self._report.trajectories += 1
            self._report.steps += len(whole.steps)
        of_pool, errors = self._memory.results()
        self._report.errors.update(errors)
        for each in (finding for found in of_pool.values() for finding in found):
            if each.trajectory_id in findings:
                findings[each.trajectory_id].append(each)
            else:
                self._others.add(each)
        ran = {**self._plan.of_trajectories, **self._plan.of_pool}
        for name, found in findings.items():
            told = {**failed[name], **errors}
            self._labels.put(name, ran, [*found, _failed(name, told)] if told else found)
            self._labels.mark(name, self._plan.digest)
            self._others.drop(name)
        self._labels.write()
        if len(self._others) > MOST_OTHERS:
            self._say_of_others()

    def _context(self, run: Run) -> CheckContext:
        """With the policy that speaks now for the model that a trajectory was sampled from."""
        own = next((turn.step.policy for turn in run.turns if turn.step.policy is not None), None)
        current = self._policies.get(own.model) if own is not None else None
        if current not in self._contexts:
            self._contexts = {**self._contexts, current: dataclasses.replace(self._plan.context, current=current)}
        return self._contexts[current]

    def _check_groups(self, group_ids: Iterable[str]) -> None:
        for group_id in group_ids:
            members = self._reading.group(group_id, steps=self._plan.groups_with_steps)
            if not members:
                continue
            found: dict[str, list[Finding]] = {each.trajectory.trajectory_id: [] for each in members}
            for finding in run_group_checks(members, self._plan.context):
                found[finding.trajectory_id].append(finding)
            for member in members:
                self._labels.read(member)
                name = member.trajectory.trajectory_id
                self._labels.put(name, self._plan.of_groups, found[name])
            self._report.groups += 1
        self._labels.write()

    def _doubt(self) -> None:
        """Ask people to look at what judges are unsure of."""
        cursor, asked = self._doubts.go_on(self._place.doubts)
        self._report.reviews += asked
        if cursor != self._place.doubts:
            self._place = msgspec.structs.replace(self._place, doubts=cursor)
            self._dirty = True

    def _say_of_others(self) -> None:
        """Label those that were not looked at, of which something else follows now: once for many that changed it."""
        begun = time.monotonic()
        if self._others.write():
            self._dirty = True
        now = time.monotonic()
        self._others_next = now + OTHERS_SHARE * (now - begun)

    # --- where it is ------------------------------------------------------------------------------------------
    def _look_after(self) -> None:
        """Save where the run is, once in a while."""
        if time.monotonic() >= self._save_next:
            if self._dirty or self._place.event - self._saved_event >= IDLE_EVENTS:
                self._save()
            else:
                self._save_next = time.monotonic() + SAVE_SECONDS

    def _save(self) -> None:
        begun = time.monotonic()
        state = msgspec.msgpack.encode(Saved(self._place, self._memory.save(), self._fresh.save(), self._others.save()))
        saved = self._pool.save_follower(self._name, self._place.event, state, revision=self._revision)
        self._revision = saved.revision
        self._dirty, self._saved_event = False, self._place.event
        now = time.monotonic()
        self._save_next = now + max(SAVE_SECONDS, SAVE_SHARE * (now - begun))


def _failed(trajectory_id: str, errors: dict[str, str]) -> Finding:
    """The finding of checks over the pool that failed on a trajectory."""
    names = " ".join(sorted(errors))
    return Finding(check=FAILED, version="1", trajectory_id=trajectory_id, value=names, evidence={"errors": errors})
