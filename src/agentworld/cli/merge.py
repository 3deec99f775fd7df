"""`agentworld merge`: what merging saves on a group, a batch or a dataset, and its token tree."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentworld.cli import merge_text, output
from agentworld.cli.progress import progress_bar
from agentworld.cli.source import PoolOption, UrlOption, source
from agentworld.merge.results import MOST_IDS, MOST_NODES, MergeSource

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="What merging shared beginnings saves, and the tree of tokens."
)

GroupOption = Annotated[str | None, typer.Option("--group", help="The rollouts of this group.")]
BatchOption = Annotated[str | None, typer.Option("--batch", help="The units of this batch, by its id.")]
ConsumerOption = Annotated[
    str | None, typer.Option("--consumer", help="The units of the newest batch of this consumer.")
]
DatasetOption = Annotated[
    str | None, typer.Option("--dataset", help="The rows of a version: NAME, or NAME@ and digits of its digest.")
]
SplitOption = Annotated[str | None, typer.Option("--split", help="Of the dataset, this split alone.")]
TrajectoryOption = Annotated[str | None, typer.Option("--trajectory", help="The steps of this trajectory.")]
WhereOption = Annotated[str | None, typer.Option("--where", help="Only steps for which this holds.")]
ChannelOption = Annotated[str | None, typer.Option("--channel", help="Only of this channel.")]
MostOption = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        min=1,
        help="Tokens that are read, at most. [default: 20000000, or 5000000 from a server]",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


@app.command()
def stats(
    group: GroupOption = None,
    batch: BatchOption = None,
    consumer: ConsumerOption = None,
    dataset: DatasetOption = None,
    split: SplitOption = None,
    trajectory: TrajectoryOption = None,
    where: WhereOption = None,
    channel: ChannelOption = None,
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, help="Pack into micro-batches of so many tokens too.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", help="How much faster this model can train: a known name, or LAYERS/HIDDEN/VOCABULARY."
        ),
    ] = None,
    max_tokens: MostOption = None,
    pool: PoolOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count tokens flat and merged, say why paths fork, and which units share least. Without a choice, of all steps."""
    asked = MergeSource(
        group=group, batch=batch, consumer=consumer, dataset=dataset, split=split, trajectory=trajectory,
        where=where, channel=channel,
    )  # fmt: skip
    with source(pool, url) as opened, progress_bar() as show_progress:
        found = opened.merge_stats(asked, budget=budget, model=model, progress=show_progress, **_most(max_tokens))
    if as_json:
        output.emit_json(found)
        return
    merge_text.show_stats(found, model)


@app.command()
def show(
    group: GroupOption = None,
    batch: BatchOption = None,
    consumer: ConsumerOption = None,
    dataset: DatasetOption = None,
    split: SplitOption = None,
    trajectory: TrajectoryOption = None,
    where: WhereOption = None,
    channel: ChannelOption = None,
    depth: Annotated[int | None, typer.Option("--depth", min=1, help="Stretches below one another, at most.")] = None,
    max_nodes: Annotated[
        int, typer.Option("--max-nodes", min=1, max=MOST_NODES, help="Stretches, at most: those with most behind them.")
    ] = 100,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", help="Show text: folder, tokenizer.json or name of the tokenizer of the ids."),
    ] = None,
    width: Annotated[int, typer.Option("--width", min=8, help="Characters of text on a line.")] = 60,
    max_tokens: MostOption = None,
    pool: PoolOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the token tree: a line a stretch, with its tokens, how many sequences go through, why it forks, what ends.

    A branch is indented below what it leaves. Text is shown where the ids are of pocket's or the byte tokenizer's
    vocabulary, and with --tokenizer of any.
    """
    asked = MergeSource(
        group=group, batch=batch, consumer=consumer, dataset=dataset, split=split, trajectory=trajectory,
        where=where, channel=channel,
    )  # fmt: skip
    text = merge_text.Texts(tokenizer, width)
    with source(pool, url) as opened, progress_bar() as show_progress:
        found = opened.merge_tree(
            asked,
            max_nodes=max_nodes,
            depth=depth,
            ids=0 if as_json and tokenizer is None else min(MOST_IDS, width + 1),
            progress=show_progress,
            **_most(max_tokens),
        )
    if as_json:
        output.emit_json(found)
        return
    merge_text.show_tree(found, text)


def _most(max_tokens: int | None) -> dict[str, Any]:
    """A pool and a server have defaults of their own."""
    return {} if max_tokens is None else {"max_tokens": max_tokens}
