"""What commands print: stored text as data, never as markup or terminal control."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import typer


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


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Sequence[str] = (), whole: Sequence[str] = ()
) -> None:
    """Print a table; columns without content are left out.

    `right`: columns of numbers. `whole`: columns that are never cut, such as ids. Away from a terminal nothing is cut.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = 10_000
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    texts = [[plain(str(cell)) for cell in row] for row in rows]
    kept = [index for index in range(len(columns)) if any(row[index] for row in texts)]
    for index in kept:
        column = columns[index]
        shown.add_column(column, justify="right" if column in right else "left", no_wrap=column in whole)
    for row in texts:
        shown.add_row(*(Text(row[index]) for index in kept))
    console.print(shown)


def emit_json(value: Any) -> None:
    """One line of JSON."""
    import msgspec

    typer.echo(msgspec.json.encode(value).decode())
