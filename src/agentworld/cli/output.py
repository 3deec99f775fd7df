"""What commands print: stored text as data, never as markup or terminal control."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

WIDEST = 1_000_000


def plain(text: str) -> str:
    """`text` on one line, characters that a terminal would obey or hide shown as escapes."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text.replace("\n", " ").replace("\t", " ")
    )


def lines(text: str) -> str:
    """As `plain`, but keeps the lines."""
    return "\n".join(plain(line) for line in text.split("\n"))


def clip(text: str, width: int) -> str:
    """At most `width` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def moment(seconds: float | None) -> str:
    """A time in this machine's zone."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S") if seconds else ""


def number(value: float | None) -> str:
    """A reward: short, and `-` where there is none."""
    return "-" if value is None else f"{value:.4g}"


def count(number: int, one: str, several: str | None = None) -> str:
    """A number of things: "1 step", "2 steps", "3 trajectories"."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    spare: Sequence[str] = (),
    wide: bool = False,
) -> list[str]:
    """Print a table; columns without content are left out.

    `right`: columns of numbers. `whole`: columns that are never wrapped, such as ids. `spare`: columns that a terminal
    which is too narrow does without, those first that come first; the ones left out are returned. Away from a
    terminal, or where `wide`, nothing is left out or wrapped.
    """
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    texts = [[plain(str(cell)) for cell in row] for row in rows]
    kept = [index for index in range(len(columns)) if any(row[index] for row in texts)]
    narrow = console.is_terminal and not wide
    free = console.options.update(max_width=WIDEST)
    left_out: list[str] = []
    while True:
        shown = _drawn(columns, texts, kept, right, whole)
        needed = console.measure(shown, options=free)
        droppable = [name for name in spare if any(columns[index] == name for index in kept)]
        if not narrow or needed.maximum <= console.width or not droppable:
            break
        left_out.append(droppable[0])
        kept = [index for index in kept if columns[index] != droppable[0]]
    # What cannot be wrapped is rather too long for the terminal than cut.
    console.width = max(console.width, needed.minimum) if narrow else needed.maximum
    console.print(shown)
    return left_out


def _drawn(
    columns: Sequence[str],
    texts: Sequence[Sequence[str]],
    kept: Sequence[int],
    right: Sequence[str],
    whole: Sequence[str],
) -> Table:
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index in kept:
        column = columns[index]
        longest = max(cell_len(text) for text in (column, *(row[index] for row in texts)))
        shown.add_column(
            Text(column),
            justify="right" if column in right else "left",
            no_wrap=column in whole,
            min_width=longest if column in whole else None,
        )
    for row in texts:
        shown.add_row(*(Text(row[index]) for index in kept))
    return shown


def emit_json(value: Any) -> None:
    """One line of JSON; a lone surrogate in it is an escape."""
    from agentworld.records import exact_json

    typer.echo(exact_json.encode(value).decode())
