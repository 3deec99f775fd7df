"""`agentworld trajectories`: list them, show one, end one."""

from __future__ import annotations

import math
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentworld.agents.failed_calls import failed_of, said_by
from agentworld.cli import output
from agentworld.cli.source import PoolOption, UrlOption, source
from agentworld.cli.usage import CommandLineError

if TYPE_CHECKING:
    from agentworld.client.factory import Factory
    from agentworld.factory import EmbeddedPool
    from agentworld.records import Exchange, Reward, Step, Trajectory

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="List trajectories, show one, or end one.")
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON record a line.")]
PAGE = 200
COLUMNS = ("trajectory", "status", "reward", "steps", "tokens", "agent", "created", "task", "policy", "group")
SPARE_COLUMNS = ("group", "policy", "task", "created", "agent")
LONGEST_TASK = 80
# How many failed calls `show` prints; those before are counted.
SHOWN_FAILURES = 20
SHOWN_LABELS = 5  # of each step
IMPORT = "import"
"""The key of the metadata that says which file a trajectory was read from."""
SHOWN_REWARDS = 40
# Steps that are asked about at once.
TARGETS = 1000


class Ending(StrEnum):
    """How a trajectory ended."""

    finished = "finished"
    failed = "failed"
    truncated = "truncated"
    abandoned = "abandoned"


@app.command("list")
def list_(
    pool: PoolOption = None,
    url: UrlOption = None,
    where: Annotated[str | None, typer.Option(help="Only these, e.g. 'reward >= 0.5 and complete'.")] = None,
    group: Annotated[str | None, typer.Option(help="Only this group.")] = None,
    channel: Annotated[str | None, typer.Option(help="Only this channel.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, at most.")] = 20,
    oldest: Annotated[bool, typer.Option("--oldest", help="Oldest first; otherwise newest.")] = False,
    wide: Annotated[
        bool, typer.Option("--wide", help="Every column, the channel too, however narrow the terminal.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Instead of the list: how --where is understood and answered.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List trajectories, newest first."""
    if explain:
        _explain(pool, url, where, as_json)
        return
    with source(pool, url) as opened:
        found, more = _collect(opened, limit, where=where, group_id=group, channel=channel, oldest=oldest)
    if as_json:
        for each in found:
            output.emit_json(each)
        return
    if not found:
        typer.echo("No trajectories match." if where or group or channel else "There are no trajectories yet.")
        return
    rows = [_row(each) for each in found]
    columns = (*COLUMNS, "channel") if wide else COLUMNS
    rows = [(*row, each.channel) if wide else row for row, each in zip(rows, found, strict=True)]
    left_out = output.table(
        columns, rows, right=("reward", "steps", "tokens"), whole=columns, spare=SPARE_COLUMNS, wide=wide
    )
    if left_out:
        typer.echo(f"Left out for want of room: {', '.join(left_out)}; --wide shows them.", err=True)
    if more:
        typer.echo(f"There are more; --limit {limit * 5} shows them.", err=True)


def _explain(pool: str | None, url: str | None, where: str | None, as_json: bool) -> None:
    if where is None:
        raise CommandLineError("There is nothing to explain", path="--explain", hint="Give --where EXPRESSION")
    with source(pool, url) as opened:
        found = opened.explain(where)
    if as_json:
        output.emit_json(found)
        return
    lines = [
        ("where", [found.expression]),
        ("fields", [", ".join(found.fields)]),
        ("by an index", found.indexed or ["nothing: every row is looked at"]),
        ("row by row", found.scanned or ["nothing"]),
        ("plan", found.plan),
    ]
    for name, texts in lines:
        for number, text in enumerate(texts):
            typer.echo(f"{name if number == 0 else '':<13}{output.plain(text)}")


def _collect(
    opened: EmbeddedPool | Factory,
    limit: int,
    *,
    where: str | None,
    group_id: str | None,
    channel: str | None,
    oldest: bool,
) -> tuple[list[Trajectory], bool]:
    found: list[Trajectory] = []
    cursor: str | None = None
    scanned = 0
    while True:
        page = opened.list_trajectories(
            where=where,
            group_id=group_id,
            channel=channel,
            order="oldest" if oldest else "newest",
            cursor=cursor,
            limit=min(limit, PAGE),
        )
        found.extend(page.items)
        cursor = page.next_cursor
        scanned += page.scanned or 0
        if page.partial:
            typer.echo(f"Looked at {scanned:,} rows, found {len(found):,}; looking on.", err=True)
        if cursor is None or len(found) > limit:
            return found[:limit], cursor is not None or len(found) > limit


def _row(each: Trajectory) -> tuple[Any, ...]:
    policy = f"{each.policy.model} {each.policy.run}:{each.policy.version}" if each.policy else ""
    status = each.status if each.readiness != "excluded" else f"{each.status} (excluded)"
    return (
        each.trajectory_id,
        status,
        output.number(each.reward),
        each.step_count,
        each.prompt_tokens + each.response_tokens,
        each.agent or "",
        output.moment(each.created_at),
        output.clip(_task(each), LONGEST_TASK) if sys.stdout.isatty() else _task(each),
        policy,
        each.group_id or "",
    )


def _task(each: Trajectory) -> str:
    task = each.task or {}
    named = " ".join(str(task[key]) for key in ("task_set", "task_id") if task.get(key) is not None)
    return named or str(task.get("prompt") or task or "")


@app.command()
def show(
    trajectory_id: Annotated[
        str, typer.Argument(help="Its id, as `trajectories list` shows it.", metavar="TRAJECTORY")
    ],
    pool: PoolOption = None,
    url: UrlOption = None,
    steps: Annotated[int, typer.Option(min=1, help="How many steps, at most.")] = 200,
    width: Annotated[
        int, typer.Option(min=8, help="Characters of each message, and of each call's arguments, in the tree.")
    ] = 60,
    as_json: JsonOption = False,
) -> None:
    """Show one trajectory: what it is about, its rewards and who gave each, its steps and their tree, and
    the calls that failed.

    In the tree, brackets stand around what the model sampled; a branch is indented, with the reason for the fork.
    """
    from agentworld.forest.printing import render_tree

    with source(pool, url) as opened:
        trajectory = opened.get_trajectory(trajectory_id)
        found, more = _steps(opened, trajectory_id, steps)
        failures = failed_calls(opened, trajectory_id)
        given = given_rewards(opened, trajectory_id, [step.step_id for step in found])
    if as_json:
        head = {name: getattr(trajectory, name) for name in trajectory.__struct_fields__}
        for record in ({**head, "given": given}, *found, *failures):
            output.emit_json(record)
        return
    _print_head(trajectory)
    if given:
        _print_given(given)
    if found:
        columns = ("#", "step", "parent", "prompt", "reply", "reward", "finish", "tokens from", "policy", "notes")
        rows = [_step_row(step) for step in found]
        spare = ("parent", "policy", "tokens from")
        output.table(columns, rows, right=("#", "prompt", "reply", "reward"), whole=("step",), spare=spare)
        typer.echo(output.lines(render_tree(found, width, arguments=width)))
    if failures:
        _print_failures(failures)
    elif not found:
        typer.echo("No call of a model is on record.")
    if more:
        typer.echo(f"There are more steps; --steps {trajectory.step_count} shows all.", err=True)


@app.command()
def complete(
    trajectory_id: Annotated[
        str, typer.Argument(help="Its id, as `trajectories list` shows it.", metavar="TRAJECTORY")
    ],
    status: Annotated[Ending, typer.Option(help="How it ended.")] = Ending.finished,
    reward: Annotated[float | None, typer.Option(help="Its primary reward, a finite number.")] = None,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """End a trajectory, so that it can be served. The same status again changes nothing, another is a conflict."""
    if reward is not None and not math.isfinite(reward):
        raise CommandLineError(f"a reward cannot be {reward}", path="--reward", hint="Give a finite number")
    with source(pool, url) as opened:
        ended = opened.complete_trajectory(trajectory_id, status.value, reward)
    steps = f"{ended.step_count} step{'' if ended.step_count == 1 else 's'}"
    rewarded = f", reward {output.number(ended.reward)}" if ended.reward is not None else ""
    excluded = f"; excluded: {ended.excluded_reason}" if ended.excluded_reason else ""
    typer.echo(output.plain(f"{ended.trajectory_id} {ended.status}, {steps}{rewarded}{excluded}"))


def _steps(opened: EmbeddedPool | Factory, trajectory_id: str, limit: int) -> tuple[list[Step], bool]:
    found: list[Step] = []
    cursor: str | None = None
    while len(found) < limit:
        page = opened.list_steps(
            trajectory_id=trajectory_id, cursor=cursor, limit=min(PAGE, limit - len(found)), include=("messages",)
        )
        found.extend(page.items)
        cursor = page.next_cursor
        if cursor is None:
            break
    return found, cursor is not None


def failed_calls(opened: EmbeddedPool | Factory, trajectory_id: str) -> list[Exchange]:
    """The calls of a trajectory that ended with an error, oldest first, of its first 1000 calls."""
    return failed_of(opened.list_exchanges(trajectory_id, limit=1000))


def given_rewards(opened: EmbeddedPool | Factory, trajectory_id: str, step_ids: list[str]) -> list[Reward]:
    """The rewards of each source on a trajectory and these of its steps."""
    found = opened.rewards_on(trajectory_ids=[trajectory_id])
    for begin in range(0, len(step_ids), TARGETS):
        found += opened.rewards_on(step_ids=step_ids[begin : begin + TARGETS])
    return found


def _print_given(given: list[Reward]) -> None:
    """Who gave which reward; of one name the last that was set is in force."""
    columns = ("reward", "value", "on", "given by", "at")
    rows = [
        (
            one.name,
            output.number(one.value),
            f"step {one.step_id}" if one.step_id else "trajectory",
            one.source,
            output.moment(one.created_at),
        )
        for one in given[:SHOWN_REWARDS]
    ]
    output.table(columns, rows, right=("value",), whole=("on",))
    if len(given) > SHOWN_REWARDS:
        typer.echo(f"These are the first {SHOWN_REWARDS}; --json shows all.", err=True)
    typer.echo()


def _print_failures(failures: list[Exchange]) -> None:
    """The newest of the calls that failed: when, and with what."""
    typer.echo(f"{len(failures)} call{'' if len(failures) == 1 else 's'} failed:")
    columns = ("at", "status", "code", "error")
    rows = []
    for exchange in failures[-SHOWN_FAILURES:]:
        error = exchange.error or {}
        at = output.moment(exchange.created_at)
        rows.append((at, error.get("status") or "-", error.get("code") or "-", said_by(error)))
    output.table(columns, rows, right=("status",), whole=columns[:3])
    if len(failures) > SHOWN_FAILURES:
        typer.echo(f"These are the last {SHOWN_FAILURES}; --json shows all.", err=True)


def _print_head(trajectory: Trajectory) -> None:
    tokens = f"{trajectory.prompt_tokens} prompt + {trajectory.response_tokens} reply"
    rewards = ", ".join(f"{name} {output.number(value)}" for name, value in trajectory.rewards.items()) or "none"
    excluded = f" ({trajectory.excluded_reason})" if trajectory.excluded_reason else ""
    metadata = {name: value for name, value in trajectory.metadata.items() if name != IMPORT}
    lines = [
        ("trajectory", trajectory.trajectory_id),
        ("status", f"{trajectory.status}, {trajectory.readiness}{excluded}"),
        ("agent", trajectory.agent or "-"),
        ("channel", trajectory.channel),
        ("group", trajectory.group_id or "-"),
        ("task", _json(trajectory.task, 200) if trajectory.task else "-"),
        *_imported(trajectory),
        ("metadata", _json(metadata, 200) if metadata else "-"),
        ("created", output.moment(trajectory.created_at)),
        ("completed", output.moment(trajectory.completed_at) or "-"),
        ("tokens", f"{tokens}, in {output.count(trajectory.step_count, 'step')}"),
        ("rewards", rewards),
        ("labels", ", ".join(_label(name, value) for name, value in trajectory.labels.items()) or "none"),
    ]
    for name, value in lines:
        typer.echo(f"{name:<12}{output.plain(value)}")


def _imported(trajectory: Trajectory) -> list[tuple[str, str]]:
    """The file that it was imported from, where it was."""
    origin = trajectory.metadata.get(IMPORT)
    if not isinstance(origin, dict):
        return []
    return [("imported", f"as {origin.get('format', '?')} from {origin.get('file', '?')}")]


def _json(value: Any, width: int) -> str:
    from agentworld.records import exact_json

    return output.clip(exact_json.encode(value).decode("utf-8", "replace"), width)


def _label(name: str, value: Any) -> str:
    return f"{name} {value if isinstance(value, str) else _json(value, 60)}"


def _step_row(step: Step) -> tuple[Any, ...]:
    notes = [step.fork_reason or "", f"excluded: {step.excluded_reason}" if step.excluded_reason else ""]
    notes.append("late" if step.late else "")
    notes += [_label(name, value) for name, value in list(step.labels.items())[:SHOWN_LABELS]]
    return (
        step.step_index if step.step_index is not None else "",
        step.step_id,
        (step.parent_step_id or "")[-6:],
        step.prompt_length if step.prompt_length is not None else "-",
        step.response_length if step.response_length is not None else "-",
        output.number(step.reward),
        step.finish_reason or "",
        step.token_source,
        f"{step.policy.run}:{step.policy.version}" if step.policy else "",
        ", ".join(note for note in notes if note),
    )
