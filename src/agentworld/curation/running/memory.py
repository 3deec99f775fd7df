"""What a run of checks keeps from one pass to the next: the states of checks over a pool, and who may become stale."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import zstandard

from agentworld.curation.checks import CheckContext, Finding, PoolCheck, pool_checks
from agentworld.curation.checks.private_rules import excerpt
from agentworld.curation.checks.reading import Run
from agentworld.curation.checks.saved import StateError
from agentworld.errors import ConfigError
from agentworld.pool.review_rules import MAX_STATE
from agentworld.records import BatchTrajectory, Policy, Trajectory

_ROOM = 8 * 2**20  # bytes of a state that are left for all else that is kept


class MemoryChecks:
    """The checks over the pool. The state of one is read when something comes to it, and kept as it is otherwise."""

    def __init__(self, context: CheckContext, states: Mapping[str, bytes], say: Callable[[str], None]) -> None:
        self._context = context
        self._makers = pool_checks(context)
        self._states = {name: state for name, state in states.items() if name in self._makers}
        self._checks: dict[str, PoolCheck] = {}
        self._say = say

    def add(self, run: Run) -> dict[str, str]:
        """Take in a trajectory; returns the errors of checks that could not."""
        failed: dict[str, str] = {}
        for name in self._makers:
            try:
                self._check(name).add(run)
            except Exception as error:
                failed[name] = _told(error)
        return failed

    def forget(self, trajectory_id: str, channel: str) -> None:
        """Take a trajectory out that is no longer there."""
        nothing = Trajectory(trajectory_id=trajectory_id, channel=channel, status="abandoned")
        self.add(Run(BatchTrajectory(trajectory=nothing, steps=[])))

    def results(self) -> tuple[dict[str, list[Finding]], dict[str, str]]:
        """By check, what follows from what was added since the last call; and the errors of checks that failed."""
        found: dict[str, list[Finding]] = {}
        failed: dict[str, str] = {}
        for name, check in self._checks.items():
            try:
                found[name] = check.result()
            except Exception as error:
                failed[name] = _told(error)
        return found, failed

    def save(self) -> dict[str, bytes]:
        """The states, compressed; ConfigError where they are more than a follower can keep."""
        for name, check in self._checks.items():
            self._states[name] = zstandard.ZstdCompressor(level=3).compress(check.save())
        size = sum(map(len, self._states.values()))
        if size > MAX_STATE - _ROOM:
            raise ConfigError(
                f"the checks remember {size:,} bytes, more than {MAX_STATE:,}",
                path="checks.remembered",
                hint="Set a lower `remembered` under [checks], or run fewer checks",
            )
        return self._states

    def _check(self, name: str) -> PoolCheck:
        there = self._checks.get(name)
        if there is not None:
            return there
        make: Any = self._makers[name]
        state = self._states.get(name)
        if state is None:
            made: PoolCheck = make(self._context.settings)
        else:
            try:
                made = make.load(zstandard.ZstdDecompressor().decompress(state), self._context.settings)
            except (StateError, zstandard.ZstdError):
                self._say(f"what {name} remembered cannot be read: it begins anew; `--again` goes over everything")
                made = make(self._context.settings)
        self._checks[name] = made
        return made


class _Fresh(msgspec.Struct):
    """`oldest`: of trajectories that are not stale yet, model, run and oldest version."""

    oldest: dict[str, tuple[str, str, int]] = {}


class Freshness:
    """Which trajectories become stale as other weights speak, so that these alone are checked then."""

    def __init__(self, context: CheckContext, state: bytes | None) -> None:
        self._most = context.settings.max_staleness if context.runs("stale") else None
        self._room = context.settings.remembered
        self._oldest: dict[str, tuple[str, str, int]] = {}
        if self._most is not None and state is not None:
            kept = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(state), type=_Fresh)
            self._oldest = kept.oldest

    def note(self, run: Run, *, stale: bool) -> None:
        """A trajectory was checked, and is stale or may become so."""
        self._oldest.pop(run.trajectory.trajectory_id, None)
        if self._most is None or stale:
            return
        found: tuple[str, str, int] | None = None
        for turn in run.kept:
            policy = turn.step.policy
            if policy is None:
                continue
            version = min([policy.version, *(span.version for span in turn.step.version_spans)])
            if found is None or ((policy.model, policy.run) == found[:2] and version < found[2]):
                found = policy.model, policy.run, version
        if found is not None:
            self._oldest[run.trajectory.trajectory_id] = found
            if len(self._oldest) > self._room:
                del self._oldest[next(iter(self._oldest))]

    def forget(self, trajectory_id: str) -> None:
        """A trajectory is no longer there."""
        self._oldest.pop(trajectory_id, None)

    def due(self, current: Policy) -> list[str]:
        """Those that have become stale now that these weights speak."""
        if self._most is None:
            return []
        return [
            name
            for name, (model, run, version) in self._oldest.items()
            if model == current.model and (run != current.run or current.version - version > self._most)
        ]

    def save(self) -> bytes | None:
        """The state; None where there is nothing to keep."""
        if not self._oldest:
            return None
        return zstandard.ZstdCompressor(level=3).compress(msgspec.msgpack.encode(_Fresh(self._oldest)))


def _told(error: Exception) -> str:
    # What a check raises may quote what it read.
    return excerpt(f"{type(error).__name__}: {error}")
