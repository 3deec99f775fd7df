"""What `agentworld feedback` makes of feedback: corrections, pairs, implicit signals, agreement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from agentworld.cli import output
from agentworld.cli.progress import progress_bar
from agentworld.cli.source import DEFAULT_POOL, check_given, open_existing, source
from agentworld.cli.stopping import stopping
from agentworld.cli.usage import CommandLineError

if TYPE_CHECKING:
    from agentworld.factory import EmbeddedPool
    from agentworld.feedback.agreement import Level
    from agentworld.feedback.annotators import Agreement, Kind
    from agentworld.feedback.content import Reading
    from agentworld.feedback.implicit import Thresholds

MOST_NAMES = 20  # that are listed where an unknown one was given


@contextmanager
def opened(pool: str | None) -> Iterator[EmbeddedPool]:
    """The pool that the option names, else the one in this folder."""
    check_given("--pool", pool)
    found = open_existing(pool or DEFAULT_POOL)
    try:
        yield found
    finally:
        found.close()


def export_corrections(
    out: Path | None,
    *,
    targets: bool,
    where: str | None,
    of_source: str | None,
    excluded: bool,
    pool: str | None,
    url: str | None,
) -> None:
    """Corrections as lines of JSON, into a file that is there only once all is in it, or to standard output."""
    from agentworld.feedback.corrections import corrections, jsonl, pair_row, target_row

    left_out: Counter[str] = Counter()
    with source(pool, url) as opened_source:
        found = corrections(opened_source, where=where, source=of_source, excluded=excluded, left_out=left_out)
        rows = (jsonl(target_row(one) if targets else pair_row(one)) for one in found)
        if out is None:
            count = _write(rows, lambda row: typer.echo(row, nl=False))
        else:
            part = out.with_name(out.name + ".part")
            try:
                with part.open("w", encoding="utf-8") as file:
                    count = _write(rows, file.write)
                part.replace(out)
            except OSError as error:
                raise CommandLineError(f"{out} cannot be written: {error.strerror}", path="--out") from None
            finally:
                part.unlink(missing_ok=True)
        there = _sources(opened_source) if of_source is not None and not count else None
    _say_corrections(count, f"in {out}" if out is not None else "", left_out)
    if of_source is not None and there is not None:
        _say_unknown(of_source, there, "corrected anything as")


def _write(rows: Iterator[str], write: Callable[[str], object]) -> int:
    count = 0
    for row in rows:
        write(row)
        count += 1
    return count


def store_corrections(*, where: str | None, of_source: str | None, excluded: bool, pool: str | None) -> None:
    """Corrections as text-only steps of the pool, each preferred to its original."""
    from agentworld.feedback.corrections import corrections
    from agentworld.feedback.corrections import store_corrections as store

    left_out: Counter[str] = Counter()
    with opened(pool) as found:
        rows = list(corrections(found, where=where, source=of_source, excluded=excluded, left_out=left_out))
        new = store(found, iter(rows))
        there = _sources(found) if of_source is not None and not rows else None
    _say_corrections(len(rows), f"in the pool, {new} of them new", left_out)
    if of_source is not None and there is not None:
        _say_unknown(of_source, there, "corrected anything as")


def _sources(found: Reading) -> dict[str | None, int]:
    """Who corrected anything, and how often."""
    from agentworld.feedback.content import all_feedback

    return Counter(one.source for one in all_feedback(found, "correction"))


def _judged(found: Reading, kind: Kind) -> dict[str | None, int]:
    """The names of labels or ratings that annotators gave, None for those without one, and how often."""
    from agentworld.feedback.annotators import is_annotator
    from agentworld.feedback.content import all_feedback

    return Counter(one.name for one in all_feedback(found, kind) if is_annotator(one.source, ()))


def _say_unknown(given: str, there: Mapping[str | None, int], what: str) -> None:
    """Where nothing has the name that was asked for: the names that there are, the most frequent first."""
    if given in there:
        return
    counts = dict(there)
    nameless = counts.pop(None, 0)
    names = sorted((name for name in counts if name is not None), key=lambda name: -counts[name])
    more = ", ..." if len(names) > MOST_NAMES else ""
    known = f"There are {', '.join(names[:MOST_NAMES])}{more}" if names else "Nobody has at all"
    if nameless:
        known = f"{known if names else 'There are'}{' and ' if names else ' '}{nameless} without a name"
    typer.echo(f"agentworld: nobody has {what} {output.plain(f'{given!r}. {known}')}", err=True)


def _say_corrections(count: int, place: str, left_out: Counter[str]) -> None:
    reasons = ", ".join(f"{number} {reason}" for reason, number in sorted((+left_out).items()))
    where = f" {place}" if place else ""
    why = f"; left out: {reasons}" if reasons else ""
    typer.echo(f"agentworld: {output.count(count, 'correction')}{where}{why}", err=True)


def make_pairs(name: str, margin: float, most: int, sources: list[str], pool: str | None, *, dry_run: bool) -> None:
    """Comparisons that ratings imply."""
    from agentworld.feedback.comparisons import rating_pairs, store_pairs

    with opened(pool) as found:
        pairs = list(rating_pairs(found, name, margin=margin, sources=sources, most=most))
        if not pairs:
            _say_unknown(name, _judged(found, "rating"), "rated under the name")
        if not dry_run:
            new, decided = store_pairs(found, iter(pairs))
            typer.echo(f"{output.count(new, 'comparison')} from ratings {output.plain(name)}, {decided} decided before")
            return
    rows = [(one.step_id or one.trajectory_id or "", one.other_id or "", f"{one.value:g}") for one in pairs]
    output.table(("preferred", "to", "by"), rows, right=("by",), whole=("preferred", "to"))


def run_implicit(thresholds: Thresholds, channel: str | None, pool: str | None, *, again: bool, follow: bool) -> int:
    """Derive implicit feedback; 130 where it was stopped before its end."""
    from agentworld.feedback.following import derive

    with opened(pool) as found, stopping() as stop, progress_bar() as show:
        derived = derive(found, thresholds, channel=channel, again=again, follow=follow, stop=stop, progress=show)
    signals = ", ".join(f"{count} {name}" for name, count in sorted((+derived.signals).items())) or "nothing new"
    typer.echo(f"{output.count(derived.trajectories, 'trajectory', 'trajectories')}: {signals}")
    if derived.too_long:
        long = output.count(derived.too_long, "trajectory is", "trajectories are")
        typer.echo(f"agentworld: {long} too long to be looked at", err=True)
    if stop.is_set():
        typer.echo("agentworld: stopped; the same command goes on", err=True)
        return 0 if follow else 130
    return 0


def show_agreement(
    name: str,
    kind: Kind,
    level: Level | None,
    sources: list[str],
    where: str | None,
    pool: str | None,
    url: str | None,
    *,
    as_json: bool,
) -> None:
    """How far annotators agree."""
    import msgspec

    from agentworld.feedback.annotators import measure, said

    with source(pool, url) as opened_source:
        found = measure(name, said(opened_source, name, kind=kind, sources=sources, where=where), kind, level)
        there = _judged(opened_source, kind) if not found.targets else None
    if as_json:
        output.emit_json(msgspec.to_builtins(found))
    elif there is None:
        _draw_agreement(found)
    elif name in there:
        typer.echo(f"agentworld: no {kind} {output.plain(name)} is among what was asked for", err=True)
    else:
        _say_unknown(name, there, f"given a {kind} of the name")


def _draw_agreement(found: Agreement) -> None:
    targets = output.count(found.targets, "target")
    typer.echo(
        f"{found.kind} {output.plain(found.name)} ({found.level}): {targets}, {found.compared} judged by two or more,"
        f" {found.disagreed} of those with more than one value"
    )
    fleiss = " with ".join(
        (output.count(found.fleiss_targets, "target"), output.count(found.fleiss_annotators, "annotator"))
    )
    rows: list[tuple[str, str, str]] = [
        ("percent agreement", output.number(found.percent), output.count(found.compared, "target")),
        ("Krippendorff's alpha", output.number(found.alpha), output.count(found.compared, "target")),
        ("Fleiss' kappa", output.number(found.fleiss), fleiss),
    ]
    for first, second, common, kappa in found.cohen:
        pair = f"{output.plain(first)} and {output.plain(second)}"
        rows.append((f"Cohen's kappa, {pair}", output.number(kappa), output.count(common, "target")))
    output.table(("measure", "value", "of"), rows, right=("value",), whole=("measure",))
    judged = ", ".join(f"{output.plain(source)} {count}" for source, count in found.annotators.items())
    typer.echo(f"targets judged: {judged}")


def show_disagreements(
    name: str,
    kind: Kind,
    sources: list[str],
    where: str | None,
    least: float,
    tolerance: float,
    pool: str | None,
    *,
    review: bool,
    as_json: bool,
) -> None:
    """The targets on which annotators disagree, and asking for their review."""
    from agentworld.feedback.annotators import ask_for_reviews, disagreements, said

    with opened(pool) as found:
        values = said(found, name, kind=kind, sources=sources, where=where)
        wanted = sorted(disagreements(name, values, least=least, tolerance=tolerance), key=lambda one: -one.worth)
        asked, missing = ask_for_reviews(found, wanted) if review else (0, 0)
    if as_json:
        for one in wanted:
            ids: dict[str, Any] = {"step_id": one.step_id} if one.step_id else {"trajectory_id": one.trajectory_id}
            output.emit_json({**ids, "worth": one.worth, "reason": one.reason})
    else:
        rows = [
            (
                f"step {one.step_id}" if one.step_id else f"trajectory {one.trajectory_id}",
                f"{one.worth:.2f}",
                output.plain(output.clip(one.reason, 120)),
            )
            for one in wanted
        ]
        output.table(("on", "worth", "who said what"), rows, right=("worth",), whole=("on",))
    if review:
        note = f"; {output.count(missing, 'target is', 'targets are')} not there" if missing else ""
        typer.echo(f"agentworld: {output.count(asked, 'review')} asked for or changed{note}", err=True)
