"""Dataset versions as text: manifests, rows, and what was found of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from agentworld.cli import output

if TYPE_CHECKING:
    from agentworld.curation.datasets.results import DatasetDiff, RowOrigin, StepOrigin, Verification
    from agentworld.records import DatasetRow, DatasetVersion


def show_splits(version: DatasetVersion) -> None:
    """The splits, with what was asked for beside what there is."""
    fractions = version.selection.splits.fractions
    rows = [
        (name, f"{one.rows:,}", share(one.rows, version.rows), f"{fractions.get(name, 0):.1%}", f"{one.steps:,}",
         f"{one.response_tokens:,}")
        for name, one in version.splits.items()
    ]  # fmt: skip
    columns = ("split", "rows", "share", "wanted", "steps", "reply tokens")
    output.table(columns, rows, right=columns[1:], whole=columns[:1])


def share(count: int, total: int) -> str:
    """A part of a whole in percent."""
    return f"{count / total:.1%}" if total else "-"


def show_versions(versions: Sequence[DatasetVersion]) -> None:
    """A line a version."""
    rows = [
        (
            one.version,
            f"{one.rows:,}",
            f"{one.steps:,}",
            ", ".join(f"{name} {count.rows:,}" for name, count in one.splits.items()),
            one.selection.channel or "all",
            one.selection.where or "",
            one.created_by or "",
            output.moment(one.created_at),
            output.clip(one.note or "", 60),
        )
        for one in versions
    ]
    columns = ("version", "rows", "steps", "splits", "channel", "where", "by", "at", "note")
    output.table(columns, rows, right=("rows", "steps"), whole=("version",), spare=("note", "by", "splits"))


def show_manifest(version: DatasetVersion) -> None:
    """Everything of a manifest."""
    asked = version.selection
    alike = asked.splits.near_duplicates
    lines = [
        ("version", version.version),
        ("made", f"{output.moment(version.created_at)} by {version.created_by or 'nobody named'}"),
        ("note", version.note or ""),
        ("selected", "steps" if asked.unit == "step" else "trajectories"),
        ("where", asked.where or ""),
        ("channel", asked.channel or "all"),
        ("unrewarded", "too" if asked.unrewarded else ""),
        ("together", f"by {asked.splits.by}" + ("" if alike is None else f", and texts that are {alike:g} alike")),
        ("seed", str(asked.splits.seed)),
        *(("policy", f"{one.name} ({one.digest}) for {one.channel}") for one in version.policies),
        *(("parent", parent) for parent in version.parents),
        ("format", f"{version.format}, made by agentworld {version.code_version}"),
        ("manifest", version.manifest_digest),
    ]
    _show(lines)
    typer.echo()
    show_splits(version)


def show_rows(rows: Sequence[DatasetRow]) -> None:
    """A line a row."""
    cells = [
        (
            row.position,
            row.split,
            row.trajectory_id,
            len(row.steps),
            output.number(row.reward),
            output.clip(row.task_key or "", 40),
            row.cluster if row.cluster != row.trajectory_id else "",
            len(row.feedback) or "",
        )
        for row in rows
    ]
    columns = ("row", "split", "trajectory", "steps", "reward", "task", "together with", "feedback")
    output.table(
        columns,
        cells,
        right=("row", "steps", "reward", "feedback"),
        whole=("trajectory",),
        spare=("feedback", "together with", "task"),
    )


def show_diff(found: DatasetDiff) -> None:
    """How two versions differ."""
    typer.echo(f"{output.plain(found.version)}\n{output.plain(found.other)}\n")
    for change in ("added", "removed", "changed", "same"):
        what = ""
        if change == "changed" and found.what:
            what = "  " + ", ".join(f"{name} {count:,}" for name, count in sorted(found.what.items()))
        typer.echo(f"{getattr(found, change):>9,}  {change}{what}")
    for moved, count in found.moved.items():
        typer.echo(f"{count:>9,}  {output.plain(moved)}")
    names = list(dict.fromkeys([*found.splits, *found.other_splits]))
    rows = []
    for name in names:
        before, after = (one[name].rows if name in one else 0 for one in (found.splits, found.other_splits))
        rows.append((name, f"{before:,}", f"{after:,}"))
    typer.echo()
    output.table(("split", "rows", "rows of the other"), rows, right=("rows", "rows of the other"))
    if found.samples:
        typer.echo()
        cells = [
            (one.change, one.trajectory_id, one.split or "", one.new_split or "", ", ".join(one.what))
            for one in found.samples
        ]
        output.table(("change", "trajectory", "split", "of the other", "differs in"), cells, whole=("trajectory",))


def show_verification(found: Verification) -> None:
    """What became of rows."""
    typer.echo(output.plain(found.version))
    for state in ("ok", "changed", "missing", "reduced", "deleted"):
        count = getattr(found, state)
        if count or state == "ok":
            typer.echo(f"{count:>9,}  {state}{' on request' if state == 'deleted' else ''}")
    for problem in found.manifest:
        typer.echo(f"manifest: {output.plain(problem)}")
    if found.problems:
        typer.echo()
        cells = [
            (
                one.position,
                one.split,
                one.trajectory_id,
                one.state,
                output.clip("; ".join(one.what), 300) or one.reason or "",
                output.moment(one.at),
            )
            for one in found.problems
        ]
        output.table(("row", "split", "trajectory", "is", "why", "at"), cells, right=("row",), whole=("trajectory",))
    if found.is_ok:
        typer.echo(f"All {found.rows:,} rows with {found.steps:,} steps are what was frozen.")


def show_origin(found: RowOrigin) -> None:
    """Where a row comes from."""
    named = found.task or {}
    task = " ".join(str(named[key]) for key in ("task_set", "task_id") if named.get(key) is not None)
    imported = ", ".join(f"{name} {value}" for name, value in (found.imported or {}).items())
    _show(
        [
            ("version", found.version),
            ("row", f"{found.position}, of split {found.split}"),
            ("digest", found.digest),
            ("trajectory", found.trajectory_id),
            ("state", _state(found)),
            ("task", task or found.task_key or ""),
            ("cluster", found.cluster if found.cluster not in (None, found.trajectory_id) else ""),
            ("group", found.group_id or ""),
            ("agent", found.agent or ""),
            ("channel", found.channel or ""),
            ("status", found.status or ""),
            ("ran", _span(found.created_at, found.completed_at)),
            ("imported", imported),
            *(("policy", f"{one.name} ({one.digest}) was in force for {one.channel}") for one in found.policies),
            *_decisions(found),
            *(("evaluated", f"{one.evaluator}: {one.state}") for one in found.evaluations),
        ]
    )
    if found.rewards:
        typer.echo()
        rewards = [
            (one.step_id or "trajectory", one.name, output.number(one.value), one.source, output.moment(one.at))
            for one in found.rewards
        ]
        output.table(("rewarded", "name", "value", "by", "at"), rewards, right=("value",), whole=("rewarded",))
    if found.steps:
        typer.echo()
        columns = ("step", "call", "dialect", "model", "policy", "tokens from", "at", "ms", "digest")
        output.table(
            columns,
            [_step(one) for one in found.steps],
            right=("ms",),
            whole=("step",),
            spare=("digest", "tokens from", "call"),
        )


def _step(one: StepOrigin) -> tuple[str, ...]:
    spoke = one.policy
    return (
        one.step_id,
        one.exchange_id or "",
        one.dialect or "",
        one.model or "",
        "" if spoke is None else f"{spoke.model} {spoke.run} {spoke.version}",
        one.token_source or "",
        output.moment(one.created_at),
        "" if one.latency_ms is None else f"{one.latency_ms:,.0f}",
        one.digest or "",
    )


def _decisions(found: RowOrigin) -> Iterator[tuple[str, str]]:
    for one in found.decisions:
        of = f"step {one.step_id}: " if one.step_id else ""
        by = f"{one.source}, by hand" if one.by == "manual" else f"policy {one.policy}, rule {one.rule}"
        reason = f" ({one.reason})" if one.reason else ""
        yield "decided", f"{of}{one.verdict or 'labels alone'}{reason}, by {by}"


def _state(found: RowOrigin) -> str:
    if found.state == "deleted":
        why = f": {found.reason}" if found.reason else ""
        return f"deleted on request at {output.moment(found.deleted_at)}{why}"
    return "is not there" if found.state == "missing" else ""


def _span(begun: float | None, ended: float | None) -> str:
    return f"{output.moment(begun)} to {output.moment(ended) or 'now'}" if begun else ""


def _show(lines: Sequence[tuple[str, str | None]]) -> None:
    for name, value in lines:
        if value:
            typer.echo(f"{name:<12}{output.plain(value)}")
