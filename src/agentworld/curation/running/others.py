"""What follows for trajectories that were not looked at, as where another rollout makes their task easier."""

from __future__ import annotations

import zstandard

from agentworld.curation.checks import Finding
from agentworld.curation.running.labels import Labels
from agentworld.curation.running.report import RunReport
from agentworld.errors import NotFoundError
from agentworld.pool.protocol import Pool
from agentworld.records import exact_json

_AT_ONCE = 1_000


class Others:
    """The latest finding of each check on each of these, until they are written together."""

    def __init__(self, pool: Pool, report: RunReport, state: bytes | None) -> None:
        self._pool = pool
        self._labels = Labels(pool, report)
        self._findings: dict[str, dict[str, Finding]] = {}
        if state is not None:
            for each in exact_json.decode(zstandard.ZstdDecompressor().decompress(state), list[Finding]):
                self.add(each)

    def __len__(self) -> int:
        return len(self._findings)

    def add(self, finding: Finding) -> None:
        """What follows for one; it takes the place of what followed before."""
        self._findings.setdefault(finding.trajectory_id, {})[finding.check] = finding

    def drop(self, trajectory_id: str) -> None:
        """One was looked at itself since."""
        self._findings.pop(trajectory_id, None)

    def write(self) -> bool:
        """Label those that are still there, and forget them; whether there were any."""
        there = bool(self._findings)
        for number, (name, findings) in enumerate(self._findings.items(), 1):
            try:
                record = self._pool.get_trajectory(name)
            except NotFoundError:
                continue
            for finding in findings.values():
                self._labels.put_alone(record, finding)
            if number % _AT_ONCE == 0:
                self._labels.write()
        self._labels.write()
        self._findings = {}
        return there

    def save(self) -> bytes | None:
        """The state; None where there is nothing to keep."""
        findings = [each for found in self._findings.values() for each in found.values()]
        if not findings:
            return None
        return zstandard.ZstdCompressor(level=3).compress(exact_json.encode(findings))
