"""`agentworld feedback`: what people say of trajectories and steps."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from agentworld.cli.source import PoolOption, UrlOption, source

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="Give feedback, and list it.")


class Kind(StrEnum):
    """The kinds of feedback."""

    rating = "rating"
    label = "label"
    correction = "correction"
    comparison = "comparison"
    comment = "comment"


@app.callback()
def _group() -> None:
    """Give feedback, and list it."""


@app.command()
def add(
    trajectory: Annotated[str, typer.Argument(help="The trajectory's id.", metavar="TRAJECTORY")],
    kind: Annotated[Kind, typer.Argument(help="rating, label, correction, comparison or comment.", metavar="KIND")],
    value: Annotated[
        str | None, typer.Option(help="A rating's number, a label's value, a correction: JSON, or else a text.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of a label or rating.")] = None,
    comment: Annotated[str | None, typer.Option(help="In words.")] = None,
    other: Annotated[str | None, typer.Option(help="What it is preferred to, for a comparison.")] = None,
    step: Annotated[str | None, typer.Option(help="Id of a step, where it is about that step.")] = None,
    source_name: Annotated[str, typer.Option("--source", help="Who says so.")] = "cli",
    feedback_id: Annotated[str | None, typer.Option("--id", help="Its id; sent again it is the same.")] = None,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """Give feedback. A label without a value is taken away. What is not there is waited for."""
    from agentworld.records import Feedback

    sent = Feedback(
        kind=kind.value,
        feedback_id=feedback_id,
        trajectory_id=trajectory,
        step_id=step,
        other_id=other,
        name=name,
        value=_value(value),
        comment=comment,
        source=source_name,
    )
    with source(pool, url) as opened:
        result = opened.add_signals([sent])
    place = f"step {step}" if step else f"trajectory {trajectory}"
    note = f"; it waits, as there is no {place} yet" if result.waiting else ""
    typer.echo(f"{kind.value} on {place}" + ("" if result.changed else " (it was there already)") + note)


@app.command("list")
def list_(
    trajectory: Annotated[str | None, typer.Option(help="Only on this trajectory itself.")] = None,
    step: Annotated[str | None, typer.Option(help="Only on this step.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only of this kind.")] = None,
    limit: Annotated[int, typer.Option(help="How many, at most.", min=1, max=1000)] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON record a line.")] = False,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """List feedback in the order in which it came."""
    from agentworld.cli.output import clip, moment, plain, table
    from agentworld.records import exact_json

    with source(pool, url) as opened:
        page = opened.list_feedback(
            trajectory_id=trajectory, step_id=step, kind=kind.value if kind is not None else None, limit=limit
        )
    if as_json:
        for one in page.items:
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
        ]
        for one in page.items
    ]
    table(["when", "kind", "on", "name", "value", "preferred to", "comment", "source"], rows, whole=["on"])
    if page.next_cursor is not None:
        typer.echo(f"The first {limit}; see --limit")


def _value(text: str | None) -> Any:
    import msgspec

    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
