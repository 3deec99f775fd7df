"""`agentworld keys`: the API keys of a pool."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from agentworld.cli import output
from agentworld.cli.durations import seconds
from agentworld.cli.source import PoolOption, UrlOption, source
from agentworld.pool.keys import SCOPES, ApiKey, NewKey

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="Make, list and revoke the API keys of a pool.")

Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


@app.command()
def create(
    name: Annotated[str, typer.Option(help="Who uses it, such as trainer-1.")],
    scope: Annotated[list[str], typer.Option(help=f"What it may do, repeatable: {', '.join(SCOPES)}.")],
    channel: Annotated[str | None, typer.Option(help="The only channel that it sees and writes.")] = None,
    trajectory: Annotated[str | None, typer.Option(help="The only trajectory that it sees and writes.")] = None,
    expires: Annotated[
        str | None, typer.Option(help="How long it holds, such as 30d or 12h. [default: until it is revoked]")
    ] = None,
    pool: PoolOption = None,
    url: UrlOption = None,
    as_json: Json = False,
) -> None:
    """Make a key and print its secret, which is shown this once and kept nowhere."""
    scopes: Any = tuple(scope)
    new = NewKey(
        name=name,
        scopes=scopes,
        channel=channel,
        trajectory_id=trajectory,
        expires_in=None if expires is None else seconds(expires, "--expires"),
    )
    with source(pool, url, make=True) as opened:
        issued = opened.create_key(new)
    if as_json:
        output.emit_json(issued)
        return
    typer.echo(issued.secret)
    typer.echo(
        f"This is the key {issued.key.key_id} ({_what(issued.key)}), shown this once. Hand it to clients as"
        " AGENTWORLD_API_KEY.",
        err=True,
    )


@app.command(name="list")
def list_(pool: PoolOption = None, url: UrlOption = None, as_json: Json = False) -> None:
    """List the keys, revoked and expired ones too. Secrets are not kept, so they cannot be shown."""
    with source(pool, url) as opened:
        keys = opened.list_keys()
    if as_json:
        output.emit_json(keys)
        return
    rows = [
        (
            key.key_id,
            key.name,
            " ".join(key.scopes),
            key.channel or "",
            key.trajectory_id or "",
            output.moment(key.created_at),
            output.moment(key.expires_at),
            _state(key),
        )
        for key in keys
    ]
    columns = ("key", "name", "scopes", "channel", "trajectory", "created", "expires", "state")
    output.table(columns, rows, whole=("key",), spare=("created", "expires"))


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id, as `keys list` shows it.", metavar="KEY_ID")],
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """End a key for good, and with it the session keys that were made by it. Servers follow within two seconds."""
    with source(pool, url) as opened:
        key = opened.revoke_key(key_id)
    typer.echo(f"{key.key_id} ({output.plain(key.name)}) is revoked")


def _what(key: ApiKey) -> str:
    bound = [f"channel {key.channel}"] if key.channel else []
    bound += [f"trajectory {key.trajectory_id}"] if key.trajectory_id else []
    until = [f"until {output.moment(key.expires_at)}"] if key.expires_at else []
    return ", ".join([" and ".join(key.scopes), *bound, *until])


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "valid" if key.lives(time.time()) else "expired"
