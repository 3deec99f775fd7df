"""`agentworld curate`: what is served, why, and decisions by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentworld.cli import curate_policy, curate_run, output
from agentworld.cli.source import PoolOption, UrlOption, source
from agentworld.cli.who import ByOption, name_of
from agentworld.errors import NotFoundError

if TYPE_CHECKING:
    from agentworld.client.factory import Factory
    from agentworld.factory import EmbeddedPool
    from agentworld.records import Decision, Standing, Verdict

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="Decide what is served, and see why.")
app.add_typer(curate_policy.app, name="policy")
curate_run.register(app)

Target = Annotated[str, typer.Argument(help="Id of a trajectory or of a step.", metavar="ID")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
MOST_STEPS = 1000  # that are counted as excluded
LONGEST_ERROR = 500  # characters shown of why an evaluator failed


@app.command()
def explain(target_id: Target, pool: PoolOption = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Say why a trajectory or a step is served or not: which rule decided, how each rule stands, what people decided,
    and which evaluators failed on it.
    """
    with source(pool, url) as opened:
        found = standing_of(opened, target_id)
        missing = [] if as_json else list(_missing(opened, found))
    if as_json:
        output.emit_json(found)
    else:
        _show(found, missing)


@app.command()
def exclude(
    target_id: Target,
    reason: Annotated[str, typer.Argument(help="Why, in one line.", metavar="REASON")],
    by: ByOption = None,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """Keep a trajectory or a step back, from the next batch on, whatever the policy says."""
    _decide(target_id, "exclude", reason, by, pool, url)


@app.command()
def include(
    target_id: Target,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, in one line.")] = None,
    by: ByOption = None,
    pool: PoolOption = None,
    url: UrlOption = None,
) -> None:
    """Let a trajectory or a step pass that the policy keeps back. What is excluded for how it came to be stays so."""
    _decide(target_id, "ready", reason, by, pool, url)


@app.command()
def undo(target_id: Target, by: ByOption = None, pool: PoolOption = None, url: UrlOption = None) -> None:
    """Take back what was decided by hand; the policy decides again."""
    _decide(target_id, None, None, by, pool, url)


def standing_of(opened: EmbeddedPool | Factory, target_id: str) -> Standing:
    """How a trajectory, or else a step, of this id stands; NotFoundError where there is neither."""
    try:
        return opened.explain_standing(trajectory_id=target_id)
    except NotFoundError:
        pass
    try:
        return opened.explain_standing(step_id=target_id)
    except NotFoundError:
        raise NotFoundError(
            f"there is no trajectory and no step {target_id!r}",
            hint="`agentworld trajectories list` shows what there is",
        ) from None


def place(found: Standing) -> str:
    """What a standing is of."""
    return f"step {found.step_id}" if found.step_id is not None else f"trajectory {found.trajectory_id}"


def stands(found: Standing) -> str:
    """One line: what it is, how it stands, and what keeps it back."""
    why = f": {'; '.join(found.reasons)}" if found.reasons else ""
    return output.plain(f"{place(found)} is {found.readiness}{why}")


def _decide(
    target_id: str, verdict: Verdict | None, reason: str | None, by: str | None, pool: str | None, url: str | None
) -> None:
    from agentworld.records import Decision

    who = name_of(by)
    with source(pool, url) as opened:
        there = standing_of(opened, target_id)
        decision = Decision(
            verdict=verdict,
            reason=reason,
            source=who,
            step_id=there.step_id,
            trajectory_id=there.trajectory_id if there.step_id is None else None,
        )
        changed = opened.decide([decision])
        found = standing_of(opened, target_id)
    typer.echo(stands(found) + ("" if changed else " (nothing has changed)"))


def _missing(opened: EmbeddedPool | Factory, found: Standing) -> Iterator[tuple[str, str]]:
    """What no reason says: a reward that has not come, and steps of a trajectory that are kept back by themselves."""
    if found.readiness == "complete" and not found.reasons:
        yield "because", "it has no primary reward yet, which methods that train on rewards need"
    if found.step_id is not None or found.readiness == "excluded":
        return
    record = opened.get_trajectory(found.trajectory_id)
    page = opened.list_steps(trajectory_id=found.trajectory_id, where="excluded", limit=MOST_STEPS)
    if page.items:
        more = " at least" if page.next_cursor is not None else ""
        first = page.items[0]
        said = f"{more} {len(page.items)} of {record.step_count} are excluded, such as {first.step_id}"
        none = "; nothing of it is left to serve" if len(page.items) == record.step_count else ""
        yield "steps", f"{said.strip()}: {first.excluded_reason}{none}"


def _show(found: Standing, missing: Sequence[tuple[str, str]]) -> None:
    lines = [
        ("trajectory", found.trajectory_id),
        ("step", found.step_id or ""),
        ("readiness", found.readiness),
        ("because", "; ".join(found.reasons)),
        *missing,
        *_who_decided(found),
        ("policy", found.policy or "none is in force for its channel"),
    ]
    for name, value in lines:
        if value:
            typer.echo(f"{name:<12}{output.plain(value)}")
    if found.rules:
        typer.echo()
        columns = ("#", "about", "holds", "rule")
        output.table(columns, [(one.number, one.subject, _holds(one), one.rule) for one in found.rules], right=("#",))
    if found.decisions:
        typer.echo()
        heads = ("decided on", "verdict", "by", "rule", "reason", "tags", "weight", "at")
        output.table(heads, [_decision_row(one) for one in found.decisions], right=("rule", "weight"))
    if found.failures:
        typer.echo()
        rows = [(name, output.clip(output.plain(why), LONGEST_ERROR)) for name, why in found.failures.items()]
        output.table(("evaluator that failed", "with"), rows)


def _who_decided(found: Standing) -> Iterator[tuple[str, str]]:
    """Each verdict on the target and, for a step, on its trajectory; a person's stands over the policy's."""
    for step_id in dict.fromkeys((found.step_id, None)):
        there = {one.by: one for one in found.decisions if one.step_id == step_id and one.verdict is not None}
        if (manual := there.get("manual")) is not None:
            reason = f" ({manual.reason})" if manual.reason else ""
            yield "decided by", f"{manual.source}, by hand: {manual.verdict}{reason}"
        elif (ruled := there.get("policy")) is not None:
            subject = "trajectories" if step_id is None else "steps"
            rule = next((one for one in found.rules if (one.number, one.subject) == (ruled.rule, subject)), None)
            default = f"the policy's default: {ruled.verdict}"
            yield "decided by", default if rule is None else f"rule {rule.number}: {rule.rule}"


def _holds(one: Any) -> str:
    if one.holds is None:
        return "not read"
    return ("yes, decides" if one.decided else "yes") if one.holds else "no"


def _decision_row(one: Decision) -> tuple[Any, ...]:
    return (
        f"step {one.step_id}" if one.step_id else f"trajectory {one.trajectory_id}",
        one.verdict or "",
        one.source if one.by == "manual" else "policy",
        "" if one.rule is None else one.rule,
        one.reason or "",
        ", ".join(one.tags),
        "" if one.weight is None else f"{one.weight:g}",
        output.moment(one.at),
    )
