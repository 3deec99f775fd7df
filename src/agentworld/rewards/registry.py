"""Evaluators from configuration: tables of TOML, each with its `kind`, in the order in which they have to run."""

from __future__ import annotations

import difflib
import graphlib
import importlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentworld.config import blamed, convert, read_toml
from agentworld.errors import ConfigError, InvalidRequestError, QueryError
from agentworld.query import parse
from agentworld.records.depth import check_depth
from agentworld.rewards.composition import Composition, for_groups
from agentworld.rewards.functions import address_of, facts_of, find_function, known_names
from agentworld.rewards.plugin import Plugin
from agentworld.rewards.protocol import Evaluator, EvaluatorKind, RolloutGroup, Verdict, with_values

KINDS: dict[str, tuple[str, str]] = {
    "exact": ("rules.answer", "Exact"),
    "normalised": ("rules.answer", "Normalised"),
    "numeric": ("rules.answer", "Numeric"),
    "regex": ("rules.patterns", "Regex"),
    "format": ("rules.patterns", "Format"),
    "length": ("rules.patterns", "Length"),
    "math": ("rules.math", "Math"),
    "json_schema": ("rules.schema", "JsonSchema"),
    "tool_calls": ("rules.calls", "ToolCalls"),
    "expression": ("expression", "ExpressionReward"),
    "program": ("program", "Program"),
    "http": ("http_model", "HttpModel"),
    "judge": ("judges.single", "Judge"),
    "judge_pairwise": ("judges.pairwise", "PairwiseJudge"),
    "judge_ranking": ("judges.ranking", "RankingJudge"),
    "judge_rubric": ("judges.rubric", "RubricJudge"),
    "steps": ("steps", "Steps"),
    "sum": ("composition", "WeightedSum"),
    "gate": ("composition", "Gate"),
    "clip": ("composition", "Clip"),
    "normalise": ("composition", "Normalise"),
}
"""Kinds by name: the module within this package, and the class, which is also its settings."""


def kind_class(kind: str) -> type[EvaluatorKind]:
    """The class of a built-in kind, loaded when it is asked for."""
    module, name = KINDS[kind]
    found: type[EvaluatorKind] = getattr(importlib.import_module(f"agentworld.rewards.{module}"), name)
    return found


def make_evaluator(fields: Mapping[str, Any], source: str, folder: Path | None = None) -> Evaluator:
    """The evaluator of one table; ConfigError names it and the field. `folder`: where relative paths start."""
    with blamed(source):
        return _made(fields, source, folder)


def _made(fields: Mapping[str, Any], source: str, folder: Path | None) -> Evaluator:
    kind = fields.get("kind")
    if not isinstance(kind, str) or not kind:
        raise ConfigError(f"{source}: an evaluator needs a kind", path="kind", hint=f"Use {', '.join(KINDS)}")
    _check_finite(fields, source)
    _check_where(fields.get("where"), source)
    settings = {name: value for name, value in _placed(fields, folder).items() if name != "kind"}
    settings.setdefault("name", kind)
    if kind in KINDS:
        return convert(settings, kind_class(kind), source)
    function = find_function(kind)
    if function is None:
        known = [*KINDS, *known_names()]
        near = difflib.get_close_matches(kind, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f'Use "module:function" or one of {", ".join(known)}'
        raise ConfigError(f"{source}: no evaluator is called {kind!r}", path="kind", hint=hint)
    settings.setdefault("version", facts_of(function).version)
    settings.setdefault("needs", facts_of(function).needs)
    if ":" in kind:
        settings["name"] = fields.get("name") or facts_of(function).name
    return convert({**settings, "function": address_of(function)}, Plugin, source)


def evaluators_from(
    tables: Sequence[Mapping[str, Any]], source: str = "evaluators", folder: Path | None = None
) -> list[Evaluator]:
    """The evaluators of these tables, each after those whose rewards it needs.

    ConfigError where two have one name, where two give one reward and the first has no `where`, where one needs what
    nobody gives, or needs itself.
    """
    return _in_order(_made_of(tables, source, folder))


def _made_of(tables: Sequence[Mapping[str, Any]], source: str, folder: Path | None) -> list[tuple[Evaluator, str]]:
    """Evaluators as they stand in a file, each with the file."""
    return [
        (make_evaluator(table, f"{source}: evaluator[{place}]", folder), source) for place, table in enumerate(tables)
    ]


def _in_order(made: Sequence[tuple[Evaluator, str]]) -> list[Evaluator]:
    """Each after those whose rewards it needs, and after earlier ones that give one of its rewards."""
    givers: dict[str, list[str]] = {}
    by_name: dict[str, Evaluator] = {}
    files: dict[str, str] = {}
    for each, source in made:
        if each.name in by_name:
            beside = "" if files[each.name] == source else f", one of them in {files[each.name]}"
            raise ConfigError(f"{source}: two evaluators are called {each.name!r}{beside}", hint="Set `name` of one")
        by_name[each.name], files[each.name] = each, source
        for reward in each.gives or ():
            for before in givers.setdefault(reward, []):
                if getattr(by_name[before], "where", None) is None:
                    raise ConfigError(
                        f"{source}: {before} and {each.name} both give {reward!r}",
                        path="reward",
                        hint='Set reward = "..." of those that are parts; `reward` is the primary one. Of those that '
                        "are for different trajectories, set `where` of the first",
                    )
            givers[reward].append(each.name)
    wanted = {each.name: _sources(each, givers, by_name, source) for each, source in made}
    earlier = {
        each.name: {name for reward in each.gives or () for name in givers[reward][: givers[reward].index(each.name)]}
        for each, _ in made
    }
    try:
        order = list(graphlib.TopologicalSorter({name: wanted[name] | earlier[name] for name in wanted}).static_order())
    except graphlib.CycleError as error:
        circle = error.args[1][::-1]
        raise ConfigError(
            f"{files[circle[0]]}: evaluators need each other in a circle: {' needs '.join(circle)}"
        ) from None
    ordered: list[Evaluator] = []
    groups: set[str] = set()
    for name in order:
        each = by_name[name]
        if isinstance(each, Composition) and wanted[name] & groups:
            each = for_groups(each)
        if each.scope == "group":
            groups.add(name)
        ordered.append(each)
    return ordered


def read_evaluators(*paths: str | Path, other: Iterable[str] = ()) -> list[Evaluator]:
    """The evaluators of the `[[evaluator]]` tables of one or several TOML files, which are taken as if they were one.

    `other`: further names that the files may have.
    """
    return _in_order([each for path in paths for each in _read(Path(path), other)])


def _read(path: Path, other: Iterable[str]) -> list[tuple[Evaluator, str]]:
    fields = read_toml(path)
    known = ["evaluator", *other]
    for name in fields.keys() - set(known):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}"
        raise ConfigError(f"{path}: there is no {name!r} in a file of evaluators", path=name, hint=hint)
    tables = fields.get("evaluator")
    if not isinstance(tables, list) or not tables or not all(isinstance(each, dict) for each in tables):
        raise ConfigError(f"{path} defines no evaluators", path="evaluator", hint="Write tables [[evaluator]]")
    return _made_of(tables, str(path), path.parent)


def after(subject: Any, evaluator: Evaluator, verdicts: Mapping[str, Verdict]) -> Any:
    """`subject` with what `evaluator` gave its trajectories set on it, for the evaluators that come next."""
    if evaluator.scope == "step":
        return subject
    if isinstance(subject, RolloutGroup):
        members = tuple(
            with_values(member, verdicts[member.trajectory.trajectory_id].values)
            if member.trajectory.trajectory_id in verdicts
            else member
            for member in subject.members
        )
        return RolloutGroup(group_id=subject.group_id, members=members)
    own = verdicts.get(subject.trajectory.trajectory_id)
    return subject if own is None else with_values(subject, own.values)


def _check_finite(fields: Mapping[str, Any], source: str) -> None:
    """ConfigError for a number that no setting can mean; TOML has words for infinity and for no number."""
    try:
        check_depth(dict(fields), source)
    except InvalidRequestError as error:
        raise ConfigError(f"{source}: {error.message}", hint="Give a finite number") from None


def _check_where(where: Any, source: str) -> None:
    """ConfigError with the position of what cannot be read in the `where` of an evaluator."""
    if where is None:
        return
    try:
        parse(where, "trajectories")
    except QueryError as error:
        raise ConfigError(f"{source}: {error.message}", path="where", hint=error.hint) from None


def _placed(fields: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """The table with its folders behind `folder`, those of a table within it too."""
    placed = dict(fields)
    if folder is not None and isinstance(placed.get("folder"), str):
        placed["folder"] = str(folder / placed["folder"])
    if isinstance(placed.get("of"), dict):
        placed["of"] = _placed(placed["of"], folder)
    return placed


def _sources(
    each: Evaluator, givers: Mapping[str, Sequence[str]], by_name: Mapping[str, Evaluator], source: str
) -> set[str]:
    """Names of the evaluators that have to run before this one."""
    found = set()
    stored: tuple[str, ...] = getattr(each, "stored", each.needs)
    for need in each.needs:
        of_others = [giver for giver in givers.get(need, ()) if not (giver == each.name and need in stored)]
        for giver in of_others:
            if by_name[giver].scope == "step":
                raise ConfigError(f"{source}: {each.name} needs {need!r}, which {giver} gives to steps", path="kind")
            found.add(giver)
        if not of_others and need not in stored:
            near = difflib.get_close_matches(need, [*givers], n=1)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise ConfigError(
                f"{source}: {each.name} needs the reward {need!r}, which no evaluator here gives",
                path="needs",
                hint=f'{hint}A reward that the record has already is named in stored = ["{need}"]',
            )
    return found
