"""`agentworld feedback`: what people say of trajectories and steps, and what is made of it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentworld.cli.source import PoolOption, UrlOption, source
from agentworld.cli.usage import CommandLineError

if TYPE_CHECKING:
    from agentworld.client.factory import Factory
    from agentworld.factory import EmbeddedPool
    from agentworld.records import Feedback

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Give feedback, list it, and make training data and measures of it.",
)


MOST_PAGES = 100
"""That one list looks through; each looks at a bounded number of rows itself."""


class Kind(StrEnum):
    """The kinds of feedback."""

    rating = "rating"
    label = "label"
    correction = "correction"
    comparison = "comparison"
    comment = "comment"


class Layout(StrEnum):
    """What a correction is written as."""

    pairs = "pairs"
    targets = "targets"


class Judgement(StrEnum):
    """What annotators say of one target under one name."""

    label = "label"
    rating = "rating"


class Scale(StrEnum):
    """What values of annotators are."""

    nominal = "nominal"
    ordinal = "ordinal"
    interval = "interval"


class Implicit(StrEnum):
    """The implicit signals."""

    regenerate = "regenerate"
    edit = "edit"
    abandon = "abandon"


NameOption = Annotated[str, typer.Option("--name", help="Name of the label or rating.")]
JudgementOption = Annotated[Judgement, typer.Option("--kind", help="label or rating.")]
SourcesOption = Annotated[
    list[str] | None,
    typer.Option("--source", help="Only this annotator; repeatable. Otherwise all that are not machines."),
]
StepsOption = Annotated[str | None, typer.Option("--where", help="Only steps that match.")]


@app.callback()
def _group() -> None:
    """Give feedback, list it, and make training data and measures of it."""


@app.command()
def add(
    trajectory: Annotated[str, typer.Argument(help="The trajectory's id.", metavar="TRAJECTORY")],
    kind: Annotated[Kind, typer.Argument(help="rating, label, correction, comparison or comment.", metavar="KIND")],
    value: Annotated[
        str | None,
        typer.Option(
            help="A rating's number; a label's value, JSON or else a text; a correction, a text or a JSON message; of a"
            " comparison by how much, where 0 takes it back."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of a label or rating.")] = None,
    comment: Annotated[str | None, typer.Option(help="In words.")] = None,
    other: Annotated[str | None, typer.Option(help="What it is preferred to, for a comparison.")] = None,
    step: Annotated[str | None, typer.Option(help="Id of a step, where it is about that step.")] = None,
    source_name: Annotated[str, typer.Option("--source", help="Who says so.")] = "cli",
    feedback_id: Annotated[str | None, typer.Option("--id", help="Its id; sent again it is the same.")] = None,
    content: Annotated[str | None, typer.Option(help="SHA-256 of the reply that was seen.")] = None,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """Give feedback. A label without a value is taken away. What is not there is waited for."""
    from agentworld.records import Feedback, new_id

    sent = Feedback(
        kind=kind.value,
        feedback_id=feedback_id or new_id("fbk"),
        trajectory_id=trajectory,
        step_id=step,
        other_id=other,
        name=name,
        value=_correction(value) if kind is Kind.correction else _value(value),
        comment=comment,
        source=source_name,
        content=content,
    )
    with source(pool, url) as opened:
        result = opened.add_signals([sent])
    place = f"step {step}" if step else f"trajectory {trajectory}"
    note = f"; it waits, as there is no {place} yet" if result.waiting else ""
    known = "" if result.changed else " (it was there already)"
    typer.echo(f"{kind.value} {sent.feedback_id} on {place}{known}{note}")


@app.command("list")
def list_(
    trajectory: Annotated[str | None, typer.Option(help="Only on this trajectory itself.")] = None,
    step: Annotated[str | None, typer.Option(help="Only on this step.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only of this kind.")] = None,
    of_source: Annotated[str | None, typer.Option("--source", help="Only of this source.")] = None,
    name: Annotated[str | None, typer.Option(help="Only labels or ratings of this name.")] = None,
    limit: Annotated[int, typer.Option(help="How many, at most.", min=1, max=1000)] = 100,
    cursor: Annotated[str | None, typer.Option(help="Go on where an earlier list says that it ended.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON record a line.")] = False,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """List feedback in the order in which it came. `seen`: whether the reply that was seen is the one there now."""
    from agentworld.cli.output import clip, moment, plain, table
    from agentworld.feedback.content import seen_of
    from agentworld.records import exact_json

    with source(pool, url) as opened:
        chosen = {"trajectory_id": trajectory, "step_id": step, "kind": kind.value if kind is not None else None}
        chosen |= {"source": of_source, "name": name}
        found, cursor = _found(opened, chosen, cursor, limit)
        seen = ["" if as_json or one.content is None else seen_of(opened, one) for one in found]
    if cursor is not None:
        some = f"The first {limit}" if len(found) == limit else f"After a look at much, {len(found)}"
        typer.echo(f"agentworld: {some}; `--cursor {cursor}` goes on", err=True)
    if as_json:
        for one in found:
            typer.echo(exact_json.encode(one).decode())
        return
    rows = [
        [
            moment(one.created_at),
            one.kind,
            f"step {one.step_id}" if one.step_id else f"trajectory {one.trajectory_id}",
            plain(one.name or ""),
            "" if one.value is None else plain(clip(exact_json.encode(one.value).decode(), 60)),
            one.other_id or "",
            plain(clip(one.comment or "", 60)),
            plain(one.source),
            standing,
        ]
        for one, standing in zip(found, seen, strict=True)
    ]
    table(["when", "kind", "on", "name", "value", "preferred to", "comment", "source", "seen"], rows, whole=["on"])


def _found(
    opened: EmbeddedPool | Factory, chosen: dict[str, Any], cursor: str | None, limit: int
) -> tuple[list[Feedback], str | None]:
    """The first ones that match, and where to go on; fewer where that takes too many pages."""
    found: list[Feedback] = []
    for _ in range(MOST_PAGES):
        page = opened.list_feedback(**chosen, cursor=cursor, limit=limit - len(found))
        found += page.items
        cursor = page.next_cursor
        if len(found) == limit or cursor is None:
            break
    return found, cursor


@app.command()
def corrections(
    out: Annotated[Path | None, typer.Option(help="File of JSON lines; otherwise standard output.")] = None,
    layout: Annotated[
        Layout, typer.Option("--as", help="pairs (prompt, chosen, rejected) or targets (messages).")
    ] = Layout.pairs,
    where: StepsOption = None,
    of_source: Annotated[str | None, typer.Option("--source", help="Only corrections of this source.")] = None,
    excluded: Annotated[bool, typer.Option("--excluded", help="Also of steps that curation excludes.")] = False,
    store: Annotated[
        bool, typer.Option("--store", help="Put them into the pool instead, as text-only steps and comparisons.")
    ] = False,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """Write corrections as preference pairs or as targets of supervised training."""
    from agentworld.cli import feedback_data

    if not store:
        feedback_data.export_corrections(
            out,
            targets=layout is Layout.targets,
            where=where,
            of_source=of_source,
            excluded=excluded,
            pool=pool,
            url=url,
        )
        return
    if out is not None or url is not None:
        raise CommandLineError("--store does not go with --out or --url", hint="It writes into the pool of --pool")
    feedback_data.store_corrections(where=where, of_source=of_source, excluded=excluded, pool=pool)


@app.command()
def pairs(
    name: Annotated[str, typer.Option("--name", help="Name of the rating.")],
    margin: Annotated[float, typer.Option(help="By how much two have to differ.")] = 1.0,
    most: Annotated[int, typer.Option(help="Pairs of one prompt or group, the widest first.", min=1)] = 8,
    sources: SourcesOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    pool: PoolOption = None,
) -> None:
    """Make comparisons of ratings: of steps with one prompt, and of rollouts of one group."""
    from agentworld.cli.feedback_data import make_pairs

    make_pairs(name, margin, most, sources or [], pool, dry_run=dry_run)


@app.command()
def implicit(
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until it is stopped.")] = False,
    again: Annotated[bool, typer.Option("--again", help="From the first event on.")] = False,
    channel: Annotated[str | None, typer.Option(help="Only this channel.")] = None,
    signals: Annotated[
        list[Implicit] | None, typer.Option("--signal", help="Only regenerate, edit or abandon; repeatable.")
    ] = None,
    least_similar: Annotated[
        float, typer.Option(help="An edit keeps at least so much of the text.", min=0, max=1)
    ] = 0.5,
    longest: Annotated[int, typer.Option(help="Characters of a text that is compared.", min=1)] = 20_000,
    most_edited: Annotated[
        float, typer.Option(help="Where more of the replies came back changed, none is an edit.", min=0, max=1)
    ] = 0.5,
    pool: PoolOption = None,
) -> int:
    """Derive feedback from use: replies regenerated, edited, abandoned. Stopped anywhere, it goes on there."""
    from agentworld.cli.feedback_data import run_implicit
    from agentworld.feedback.implicit import SIGNALS, Thresholds

    wanted = {each.value for each in signals} if signals else set(SIGNALS)
    thresholds = Thresholds(
        signals=tuple(each for each in SIGNALS if each in wanted),
        least_similar=least_similar,
        longest=longest,
        most_edited=most_edited,
    )
    return run_implicit(thresholds, channel, pool, again=again, follow=follow)


@app.command()
def agreement(
    name: NameOption,
    kind: JudgementOption = Judgement.label,
    level: Annotated[
        Scale | None, typer.Option(help="nominal, ordinal or interval; otherwise by kind: nominal, interval.")
    ] = None,
    sources: SourcesOption = None,
    where: StepsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """Say how far annotators agree: percent, Cohen's and Fleiss' kappa, Krippendorff's alpha."""
    from agentworld.cli.feedback_data import show_agreement

    show_agreement(
        name,
        kind.value,
        level.value if level is not None else None,
        sources or [],
        where,
        pool,
        url,
        as_json=as_json,
    )


@app.command()
def disagreements(
    name: NameOption,
    kind: JudgementOption = Judgement.label,
    sources: SourcesOption = None,
    where: StepsOption = None,
    least: Annotated[float, typer.Option(help="Only what is worth more, from 0 to 1.", min=0, max=1)] = 0.0,
    tolerance: Annotated[float, typer.Option(help="Numbers no further apart agree.", min=0)] = 0.0,
    review: Annotated[bool, typer.Option("--review", help="Put them into the review queue.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON record a line.")] = False,
    pool: PoolOption = None,
) -> None:
    """List targets on which annotators disagree, the most first."""
    from agentworld.cli.feedback_data import show_disagreements

    show_disagreements(name, kind.value, sources or [], where, least, tolerance, pool, review=review, as_json=as_json)


def _value(text: str | None) -> Any:
    import msgspec

    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _correction(text: str | None) -> Any:
    """A message where it is a JSON object; anything else is the text that should have been said, as it was typed."""
    found = _value(text)
    return found if isinstance(found, dict) else text
