"""`agentworld dataset`: versions of what was selected, what is in them, and where it comes from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from agentworld.cli import dataset_export, dataset_text, output
from agentworld.cli.progress import progress_bar
from agentworld.cli.source import PoolOption, UrlOption, source
from agentworld.cli.stopping import broken_off
from agentworld.cli.usage import CommandLineError
from agentworld.cli.who import ByOption, name_of
from agentworld.errors import NotFoundError

if TYPE_CHECKING:
    from agentworld.client.factory import Factory
    from agentworld.curation.datasets.results import RowOrigin
    from agentworld.factory import EmbeddedPool
    from agentworld.records import Splits

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Freeze selections as versions, compare, verify and trace them."
)

Version = Annotated[str, typer.Argument(help="NAME, or NAME@ and digits of its digest.", metavar="VERSION")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
FRACTIONS = "train=0.9,test=0.1"


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Of the dataset; its version is called NAME@DIGEST.", metavar="NAME")],
    where: Annotated[
        str | None, typer.Option(help="Only trajectories (or steps) for which this holds, e.g. 'reward >= 0.5'.")
    ] = None,
    channel: Annotated[str, typer.Option(help="Of this channel.")] = "train",
    all_channels: Annotated[bool, typer.Option("--all-channels", help="Of all channels.")] = False,
    unit: Annotated[
        str, typer.Option(help="What --where reads: trajectory, or step for single steps of them.")
    ] = "trajectory",
    unrewarded: Annotated[
        bool, typer.Option("--unrewarded", help="Also what has no reward, which is otherwise not ready.")
    ] = False,
    split: Annotated[
        str | None,
        typer.Option(
            help="Divide into splits, and keep together what is of one task, group or trajectory.", show_default=False
        ),
    ] = None,
    fractions: Annotated[
        str | None,
        typer.Option(help=f"The splits and their shares. [default with --split: {FRACTIONS}]", show_default=False),
    ] = None,
    near_duplicates: Annotated[
        str, typer.Option(help="Also keep together tasks whose texts are so similar (0 to 1); none: do not look.")
    ] = "0.8",
    seed: Annotated[int, typer.Option(help="Decides what goes where.")] = 0,
    parent: Annotated[
        list[str] | None,
        typer.Option(help="A version that this one goes on from: what it divided stays in its split; repeatable."),
    ] = None,
    note: Annotated[str | None, typer.Option(help="A line to remember it by.")] = None,
    by: ByOption = None,
    as_json: JsonOption = False,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """Freeze what is selected now as a version. What is frozen is kept from retention, and never changes."""
    from agentworld.records import Selection
    from agentworld.records.dataset import DatasetUnit

    selection = Selection(
        where=where,
        channel=None if all_channels else channel,
        unit=_choice(unit, DatasetUnit, "--unit"),
        unrewarded=unrewarded,
        splits=_splits(split, fractions, near_duplicates, seed),
    )
    who = name_of(by)
    lines: list[str] = []
    with broken_off(), source(pool, url) as opened, progress_bar() as show:
        made = opened.create_dataset(
            name, selection, parents=parent or [], note=note, created_by=who, progress=show, say=lines.append
        )
    for line in lines:
        typer.echo(f"agentworld: {output.plain(line)}", err=True)
    if as_json:
        output.emit_json(made)
        return
    dataset_text.show_splits(made)
    typer.echo(f"\n{output.plain(made.version)}")


@app.command("list")
def list_(
    name: Annotated[str | None, typer.Argument(help="Only of this dataset.", metavar="NAME")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many, the latest first.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON record a line.")] = False,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """List versions, the latest first."""
    with source(pool, url) as opened:
        found: list[Any] = []
        cursor: str | None = None
        while len(found) < limit:
            page = opened.list_datasets(name=name, cursor=cursor, limit=min(limit - len(found), 1000))
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
    if as_json:
        for one in found:
            output.emit_json(one)
    elif found:
        dataset_text.show_versions(found)
    else:
        typer.echo("There are no versions." if name is None else f"There is no version of {output.plain(name)}.")


@app.command()
def show(
    version: Version,
    rows: Annotated[int, typer.Option(min=0, help="Show so many rows too.")] = 0,
    split: Annotated[str | None, typer.Option(help="Only rows of this split.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The manifest as JSON, or with --rows one row a line.")
    ] = False,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """Show a version: what was selected, by which policies, how it is divided; and some of its rows."""
    with source(pool, url) as opened:
        manifest = opened.get_dataset(version)
        found: list[Any] = []
        while len(found) < rows:
            after = found[-1].position if found else -1
            limit = min(rows - len(found), 100)
            some = opened.dataset_rows(manifest.version, after=after, limit=limit, split=split)
            found += some
            if len(some) < limit:
                break
    if as_json:
        for one in found if rows else [manifest]:
            output.emit_json(one)
        return
    dataset_text.show_manifest(manifest)
    if found:
        typer.echo()
        dataset_text.show_rows(found)


@app.command()
def diff(
    version: Version,
    other: Annotated[str, typer.Argument(help="The version to compare with.", metavar="OTHER")],
    samples: Annotated[int, typer.Option(min=0, max=1000, help="Rows of each change that are named.")] = 5,
    as_json: JsonOption = False,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """Say what OTHER has that VERSION has not, the reverse, and what both have otherwise."""
    with source(pool, url) as opened, progress_bar() as progress:
        found = opened.diff_datasets(version, other, samples=samples, progress=progress)
    if as_json:
        output.emit_json(found)
    else:
        dataset_text.show_diff(found)


@app.command()
def verify(
    version: Version,
    allow_deleted: Annotated[
        bool, typer.Option("--allow-deleted", help="End with 0 also where rows were deleted on request.")
    ] = False,
    problems: Annotated[int, typer.Option(min=0, max=1000, help="Rows that are named, at most.")] = 20,
    as_json: JsonOption = False,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> int:
    """Compute every digest of a version again: of its steps from what the pool holds now, of its rows and its manifest.

    Ends with 1 where something is not what it was, or was deleted on request.
    """
    with source(pool, url) as opened, progress_bar() as progress:
        found = opened.verify_dataset(version, problems=problems, progress=progress)
    if as_json:
        output.emit_json(found)
    else:
        dataset_text.show_verification(found)
    return 0 if found.is_ok or (allow_deleted and found.is_intact) else 1


@app.command()
def trace(
    version: Annotated[
        str | None, typer.Argument(help="NAME, or NAME@ and digits; rows of exports name it.", metavar="VERSION")
    ] = None,
    target_id: Annotated[str | None, typer.Argument(help="Id of a trajectory or of a step.", metavar="ID")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A file of an export, and --row the row in it.")] = None,
    row: Annotated[int, typer.Option("--row", min=0, help="Counted from 0.")] = 0,
    as_json: JsonOption = False,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """Say where a row comes from: its trajectory and the calls of its steps, the file that it was imported from, its
    rewards and who set them, and what let it in.
    """
    if (file is None) == (target_id is None) or (file is None and version is None):
        raise CommandLineError("a row is missing", hint="Give VERSION and ID, or --file FILE and --row NUMBER")
    with source(pool, url) as opened:
        if file is not None:
            from agentworld.curation.datasets.exported import exported_row

            found = opened.trace_row(version, exported=exported_row(file, row))
        else:
            found = _trace(opened, str(version), str(target_id))
    if as_json:
        output.emit_json(found)
    else:
        dataset_text.show_origin(found)


dataset_export.register(app)


@app.command()
def delete(
    version: Annotated[str, typer.Argument(help="The whole name, NAME@DIGEST.", metavar="VERSION")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """Delete a version. Its trajectories stay until retention takes them."""
    with source(pool, url) as opened:
        manifest = opened.get_dataset(version)
        if not yes:
            if not sys.stdin.isatty():
                raise CommandLineError("this would be deleted for good", hint="Give --yes where nobody can be asked")
            typer.confirm(f"Delete {output.plain(manifest.version)} with {manifest.rows:,} rows?", abort=True, err=True)
        opened.delete_dataset(version)
    typer.echo(f"Deleted {output.plain(manifest.version)}")


def _choice(value: str, known: Any, option: str) -> Any:
    """`value`, where the literal type knows it."""
    if value not in get_args(known):
        raise CommandLineError(f"{value!r} is none of {', '.join(get_args(known))}", path=option)
    return value


def _splits(split: str | None, fractions: str | None, near_duplicates: str, seed: int) -> Splits:
    from agentworld.curation.datasets.splits import check_splits
    from agentworld.records import Splits
    from agentworld.records.dataset import SplitBy

    by = _choice(split or Splits().by, SplitBy, "--split")
    alike: float | None = None
    if near_duplicates.lower() != "none":
        alike = _number(near_duplicates, "--near-duplicates")
    if fractions is None:
        fractions = "train=1" if split is None else FRACTIONS
    shares: dict[str, float] = {}
    for part in fractions.split(","):
        name, equals, share = part.strip().partition("=")
        if not equals or name in shares:
            raise CommandLineError(f"{part.strip()!r} gives no split its share", path="--fractions", hint=FRACTIONS)
        shares[name] = _number(share, "--fractions")
    return check_splits(Splits(fractions=shares, by=by, near_duplicates=alike, seed=seed))


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CommandLineError(f"{text!r} is no number", path=option) from None


def _trace(opened: EmbeddedPool | Factory, version: str, target_id: str) -> RowOrigin:
    """Of a trajectory of this id, or else of a step."""
    try:
        return opened.trace_row(version, trajectory_id=target_id)
    except NotFoundError as error:
        if error.path != "row":
            raise
    try:
        return opened.trace_row(version, step_id=target_id)
    except NotFoundError:
        manifest = opened.get_dataset(version)
        raise NotFoundError(
            f"{manifest.version} has no trajectory and no step {target_id!r}",
            hint="`agentworld dataset show VERSION --rows 10` shows some of its rows",
        ) from None
