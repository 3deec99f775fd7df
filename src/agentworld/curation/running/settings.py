"""What a run of checks is configured with: which checks, their thresholds, evaluation sets, and reviews."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from agentworld.config import convert, read_toml
from agentworld.curation.checks import CheckContext, CheckSettings, EvaluationSets, chosen, known, read_evaluation_sets
from agentworld.errors import ConfigError
from agentworld.records import check_id, digest

_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class ReviewSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`uncertainty`: from which `uncertainty` in an evaluation's details people are asked to look.

    `judges`: evaluators that are compared where they gave the same value to one target; `disagreement`: from which
    difference between them people are asked.
    """

    uncertainty: _Share = 0.5
    judges: tuple[str, ...] = ()
    disagreement: Annotated[float, msgspec.Meta(gt=0)] = 0.5


class CurateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of `agentworld curate run --config`.

    `run`: names of checks, or all. `channel`: only this one. `evaluation_sets`: files that `contaminated` looks for,
    from the file's folder on. `checks`: thresholds. `reviews`: when people are asked because judges are unsure.
    """

    run: tuple[str, ...] = ("all",)
    channel: str | None = None
    evaluation_sets: tuple[str, ...] = ()
    checks: CheckSettings = CheckSettings()
    reviews: ReviewSettings = ReviewSettings()


_REVIEWS = ReviewSettings()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run goes by. `digest`: 16 hex digits, other ones for other checks, versions, thresholds and sets."""

    context: CheckContext
    names: frozenset[str]
    digest: str
    channel: str | None = None
    reviews: ReviewSettings = _REVIEWS

    @functools.cached_property
    def of_trajectories(self) -> dict[str, str]:
        """The checks of steps and trajectories that are run, with their versions."""
        return self._of("step", "trajectory")

    @functools.cached_property
    def of_groups(self) -> dict[str, str]:
        """The checks of groups that are run, with their versions."""
        return self._of("group")

    @functools.cached_property
    def of_pool(self) -> dict[str, str]:
        """The checks of the pool that are run, with their versions."""
        optional = {name for name in self.names if known()[name].optional}
        return {name: version for name, version in self._of("pool").items() if name not in optional}

    @functools.cached_property
    def groups_with_steps(self) -> bool:
        """Whether a check of groups reads the steps of the members."""
        return any(known()[name].reads_steps for name in self.of_groups)

    def _of(self, *scopes: str) -> dict[str, str]:
        there = known()
        return {name: there[name].version for name in sorted(self.names) if there[name].scope in scopes}


def read_curate_settings(path: str | Path) -> CurateSettings:
    """The settings of a TOML file; ConfigError names the field, and the nearest one that is known."""
    return convert(read_toml(path), CurateSettings, str(path))


def plan_of(settings: CurateSettings, folder: Path | None = None, *, source: str = "settings") -> Plan:
    """The plan of these settings; ConfigError for unknown checks and for sets that cannot be read."""
    names = chosen(settings.run)
    if not names:
        raise ConfigError(f"{source}: no check is named", path="run", hint='Name checks, or write run = ["all"]')
    if settings.channel is not None:
        check_id(settings.channel, "channel")
    paths = [Path(each) if folder is None else folder / each for each in settings.evaluation_sets]
    sets = read_evaluation_sets(paths, settings.checks.ngram) if paths else None
    names = names if sets is not None else frozenset(each for each in names if not known()[each].optional)
    if not names:
        raise ConfigError(
            f"{source}: {', '.join(settings.run)} runs only with evaluation sets",
            path="evaluation_sets",
            hint="Name the files of what must not be trained on",
        )
    return Plan(
        context=CheckContext(settings=settings.checks, evaluation=sets, checks=names),
        names=names,
        digest=_digest(names, settings.checks, paths, sets),
        channel=settings.channel,
        reviews=settings.reviews,
    )


def _digest(names: Iterable[str], thresholds: CheckSettings, paths: Iterable[Path], sets: EvaluationSets | None) -> str:
    there = known()
    versions = [(name, there[name].version) for name in sorted(names)]
    texts = [path.read_bytes() for path in paths] if sets is not None else []
    return digest(msgspec.json.encode((versions, thresholds)), *texts).hex()[:16]
