"""`agentworld review`: what needs a person, one after another."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from agentworld.cli import output
from agentworld.cli.curate import standing_of, stands
from agentworld.cli.durations import seconds
from agentworld.cli.source import PoolOption, UrlOption, source
from agentworld.cli.who import ByOption, name_of

if TYPE_CHECKING:
    from agentworld.client.factory import Factory
    from agentworld.factory import EmbeddedPool
    from agentworld.records import Message, Review, Step

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="Look at what needs a person.")

ReviewId = Annotated[int, typer.Argument(help="Number of the review.", metavar="REVIEW", min=1)]
ChannelOption = Annotated[str | None, typer.Option("--channel", help="Only of this channel.")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
LONGEST_REASON = 80
MOST_LINES = 60  # of one text of a message
MOST_PARTS = 12  # texts, media and calls of a message


class State(StrEnum):
    """The states of reviews."""

    open = "open"
    claimed = "claimed"
    done = "done"
    withdrawn = "withdrawn"


@app.command("next")
def next_(
    by: ByOption = None,
    channel: ChannelOption = None,
    claim: Annotated[str, typer.Option("--for", help="How long it is yours, such as 10m (s, m, h, d).")] = "10m",
    messages: Annotated[int, typer.Option("--messages", min=1, help="How many of the last messages are shown.")] = 6,
    width: Annotated[int, typer.Option("--width", min=8, help="Characters shown of each, at most.")] = 2000,
    pool: PoolOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Claim the review of the highest worth and show the last messages of what it is about. Again, the same one, until
    you accept, reject or skip it, or its time is over.
    """
    who, length = name_of(by), seconds(claim, "--for")
    with source(pool, url) as opened:
        review = opened.claim_review(who, channel=channel, seconds=length)
        step = None if review is None or as_json else _last_step(opened, review)
    if as_json:
        output.emit_json(review)
        return
    if review is None:
        typer.echo("Nothing is to be reviewed.")
        return
    _show_head(review)
    if step is None:
        typer.echo("\nNo call of a model is on record.")
    else:
        _show_messages(step, messages, width)
    typer.echo(
        f"\nSay: agentworld review accept {review.review_id} | reject {review.review_id} --reason WHY"
        f" | skip {review.review_id}",
        err=True,
    )


@app.command("list")
def list_(
    state: Annotated[State | None, typer.Option("--state", help="Only open, claimed, done or withdrawn.")] = None,
    channel: ChannelOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many, at most.")] = 50,
    pool: PoolOption = None,
    url: UrlOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON record a line.")] = False,
) -> None:
    """List reviews, the highest worth first."""
    with source(pool, url) as opened:
        page = opened.list_reviews(state=None if state is None else state.value, channel=channel, limit=limit)
    if as_json:
        for one in page.items:
            output.emit_json(one)
        return
    if not page.items:
        typer.echo("There is nothing to review.")
        return
    rows = [
        (
            one.review_id,
            f"{one.worth:g}",
            one.state,
            _subject(one),
            output.clip(output.plain(one.reason), LONGEST_REASON),
            one.origin,
            one.verdict or "",
            one.resolved_by or one.claimed_by or "",
            output.moment(one.created_at),
        )
        for one in page.items
    ]
    columns = ("review", "worth", "state", "of", "reason", "from", "verdict", "by", "asked")
    output.table(columns, rows, right=("review", "worth"), whole=("of",), spare=("asked", "from"))
    if page.next_cursor is not None:
        typer.echo(f"The first {limit}; see --limit", err=True)


@app.command()
def accept(
    review_id: ReviewId,
    comment: Annotated[str | None, typer.Option("--comment", help="In one line.")] = None,
    by: ByOption = None,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """Let what the review is about pass, whatever the policy says."""
    who = name_of(by)
    with source(pool, url) as opened:
        _tell(opened, opened.resolve_review(review_id, who, "accept", comment))


@app.command()
def reject(
    review_id: ReviewId,
    reason: Annotated[str, typer.Option("--reason", help="Why, in one line.")],
    by: ByOption = None,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """Keep what the review is about back, from the next batch on."""
    who = name_of(by)
    with source(pool, url) as opened:
        _tell(opened, opened.resolve_review(review_id, who, "reject", reason))


@app.command()
def skip(review_id: ReviewId, by: ByOption = None, pool: PoolOption = None, url: UrlOption = None) -> None:
    """Leave a review to others; you are not asked it again."""
    who = name_of(by)
    with source(pool, url) as opened:
        review = opened.skip_review(review_id, who)
    typer.echo(output.plain(f"review {review_id} is {review.state}; {who} is not asked it again"))


@app.command()
def undo(review_id: ReviewId, by: ByOption = None, pool: PoolOption = None, url: UrlOption = None) -> None:
    """Take a verdict and what it decided back; the review is open again."""
    who = name_of(by)
    with source(pool, url) as opened:
        _tell(opened, opened.undo_review(review_id, who))


def _tell(opened: EmbeddedPool | Factory, review: Review) -> None:
    target_id = review.step_id or review.trajectory_id or ""
    said = f"review {review.review_id} is {review.state}" + (f" ({review.verdict})" if review.verdict else "")
    typer.echo(f"{said}; {stands(standing_of(opened, target_id))}")


def _subject(review: Review) -> str:
    return f"step {review.step_id}" if review.step_id is not None else f"trajectory {review.trajectory_id}"


def _last_step(opened: EmbeddedPool | Factory, review: Review) -> Step | None:
    """The step that is asked about, or the last one of the trajectory, with its messages."""
    if review.step_id is not None:
        return opened.get_step(review.step_id, include=("messages",))
    page = opened.list_steps(trajectory_id=review.trajectory_id, order="newest", limit=1, include=("messages",))
    return page.items[0] if page.items else None


def _show_head(review: Review) -> None:
    lines = [
        ("review", str(review.review_id)),
        ("worth", f"{review.worth:g}"),
        ("reason", review.reason),
        ("from", review.origin),
        ("channel", review.channel),
        ("trajectory", review.trajectory_id or ""),
        ("step", review.step_id or ""),
        ("yours until", output.moment(review.claimed_until)),
    ]
    for name, value in lines:
        if value:
            typer.echo(f"{name:<13}{output.plain(value)}")


def _show_messages(step: Step, count: int, width: int) -> None:
    found = [*(step.prompt_messages or ()), *((step.response_message,) if step.response_message is not None else ())]
    if len(found) > count:
        typer.echo(f"\n({len(found) - count} messages before; --messages shows more)")
    for number, message in enumerate(found[-count:], len(found) - min(count, len(found))):
        sampled = step.response_message is not None and number == len(found) - 1
        typer.echo(f"\n[{message.role}{', sampled' if sampled else ''}]")
        for text in _texts(message)[:MOST_PARTS]:
            typer.echo(_bounded(text, width))
    if not found:
        typer.echo("\nNo messages are on record.")


def _bounded(text: str, width: int) -> str:
    """At most `width` characters in MOST_LINES lines, escaped."""
    whole = output.clip(text, width).split("\n")
    kept = whole if len(whole) <= MOST_LINES else [*whole[:MOST_LINES], f"… ({len(whole) - MOST_LINES} lines more)"]
    return output.lines("\n".join(kept))


def _texts(message: Message) -> list[str]:
    thought = [f"(thinks) {message.reasoning}"] if message.reasoning else []
    said = [message.text] if message.text else []
    media = [f"<{part.media_type} {part.digest}>" for part in message.media]
    calls = [f"-> {call.function.name}({call.function.arguments})" for call in message.tool_calls]
    return [*thought, *said, *media, *calls]
