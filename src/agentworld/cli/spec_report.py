"""What the check of a spec found, as commands print it."""

from __future__ import annotations

from collections.abc import Iterator

from agentworld.cli import output
from agentworld.pool.finding_texts import share
from agentworld.pool.results import SpecReport


def report_lines(report: SpecReport) -> Iterator[str]:
    """A line on whether a batch can be had, then what keeps the rest, each with what to do, then notes."""
    verdict = {True: "can be had", False: "cannot be had", None: "was not found"}[report.satisfied]
    fits = "fits" if report.fitting == 1 else "fit"
    line = f"a batch for {report.method} {verdict}: {share(report.fitting, report.looked_at, report.unit)} {fits}"
    line += f", {report.wanted} needed"
    yield output.plain(line + (f" ({report.stopped})" if report.stopped else ""))
    for each in report.findings:
        yield output.plain(f"  {each.message}" + (f" (such as {each.example})" if each.example else ""))
        yield output.plain(f"    {each.hint}")
    for note in report.notes:
        yield output.plain(f"  note: {note}")
