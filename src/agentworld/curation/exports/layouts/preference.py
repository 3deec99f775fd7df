"""Preferences: of two answers to one prompt the better one and the worse one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentworld.curation.datasets.frozen import FrozenTrajectory
from agentworld.curation.datasets.provenance import PROVENANCE
from agentworld.curation.exports.columns import Kind, NotPlain
from agentworld.curation.exports.options import ExportOptions
from agentworld.curation.exports.pairs import Pair, Pairing, widest
from agentworld.curation.exports.registry import Origin, Row, Source, Work, layout
from agentworld.curation.exports.rendering import Renderer, check_prompt
from agentworld.curation.exports.signals import Value
from agentworld.errors import ConfigError

_KEPT = 4  # trajectories in memory, however many pairs a group has


def columns(options: ExportOptions) -> Mapping[str, Kind]:
    """`margin` is 0 where nobody said by how much."""
    images: dict[str, Kind] = {"images": "images"} if options.images else {}
    pair: dict[str, Kind] = dict.fromkeys(("prompt", "chosen", "rejected", "tools"), "objects")
    return {**pair, "margin": "real", **images}


@layout(
    "preference",
    says="Pairs of answers to one prompt: TRL's DPOTrainer and RewardTrainer.",
    columns=columns,
    takes=("thinking", "arguments", "images", "reward", "margin", "sources", "most", "whole", "truncated"),
)
class Preference:
    """Pairs of comparisons and corrections, and of rewards within a group where a margin is given."""

    def __init__(self, work: Work) -> None:
        options = work.options
        self._work = work
        self._sources = options.sources or ("comparisons", "corrections", *(("rewards",) if options.margin else ()))
        if "rewards" in self._sources and options.margin is None:
            raise ConfigError("pairs of rewards need a margin", path="margin", hint="Say how far rewards must be apart")
        self._value = Value(options.reward)
        self._pairing = Pairing(work.source, work.left_out, whole=options.whole)
        work.scratch.make(
            "groups (number INTEGER PRIMARY KEY, name BLOB UNIQUE)",
            "members (of_group INTEGER, position INTEGER, value REAL, PRIMARY KEY (of_group, position)) WITHOUT ROWID",
        )
        self._renderer = Renderer(
            thinking=options.thinking,
            arguments=options.arguments or "json",
            media=work.source.media if options.images else None,
        )

    def rows(self, frozen: FrozenTrajectory) -> Iterator[Row]:
        """See LayoutRows."""
        self._renderer.forget()
        if "comparisons" in self._sources:
            yield from self._rows(self._pairing.compared(frozen))
        if "corrections" in self._sources:
            yield from self._rows(self._pairing.corrected(frozen))
        margin = self._work.options.margin
        if "rewards" in self._sources and margin is not None:
            pairs = self._pairing.contrasted_steps(frozen, self._value, margin, self._work.options.most)
            yield from self._rows(pairs)
            value = self._value.of_trajectory(frozen)
            if frozen.trajectory.group_id is not None and value is not None:
                self._remember(frozen.trajectory.group_id, frozen.row.position, value)

    def rest(self) -> Iterator[Row]:
        """The pairs within groups; their trajectories are read again, a few of them at a time."""
        for members in self._groups():
            wanted = widest(members, self._work.options.margin or 0.0, self._work.options.most)
            if not wanted:
                self._work.left_out["group_without_contrast"] += 1
            again = _Again(self._work.source)
            for better, worse, by in wanted:
                one, other = again.at(better), again.at(worse)
                if one is None or other is None:
                    self._work.left_out["deleted"] += 1
                else:
                    self._renderer.forget()
                    yield from self._rows(self._pairing.of_trajectories(one.steps, other.steps, by))

    def _remember(self, group_id: str, position: int, value: float) -> None:
        name = group_id.encode("utf-8", "surrogatepass")
        scratch = self._work.scratch
        scratch.all("INSERT OR IGNORE INTO groups (name) VALUES (?)", (name,))
        number = scratch.one("SELECT number FROM groups WHERE name = ?", (name,))
        scratch.all("INSERT INTO members VALUES (?, ?, ?)", (number, position, value))

    def _groups(self) -> Iterator[list[tuple[float, int]]]:
        """Value and position of the members of each group, in the order in which the groups came."""
        scratch = self._work.scratch
        for number in range(1, (scratch.one("SELECT max(number) FROM groups") or 0) + 1):
            yield scratch.all("SELECT value, position FROM members WHERE of_group = ? ORDER BY position", (number,))

    def _rows(self, pairs: Iterator[Pair]) -> Iterator[Row]:
        for pair in pairs:
            if pair.is_cut_off and self._work.options.truncated == "drop":
                self._work.left_out["truncated"] += 1
                continue
            try:
                yield self._row(pair)
            except NotPlain as reason:
                self._work.left_out[str(reason)] += 1

    def _row(self, pair: Pair) -> Row:
        images: list[dict[str, Any]] | None = [] if self._work.options.images else None
        check_prompt(pair.prompt)
        row: Row = {
            "prompt": self._renderer.messages(pair.prompt, images, last=-1),
            # Loaders give the images of a row to its prompt alone.
            "chosen": self._renderer.messages(pair.chosen),
            "rejected": self._renderer.messages(pair.rejected),
            "tools": pair.tools,
            "margin": pair.margin or 0.0,
            PROVENANCE: Origin(pair.trajectory_id, pair.steps),
        }
        if images is not None:
            row["images"] = images
        return row


class _Again:
    """Rows that are read again; those that were asked for last are kept, as the widest pairs have some in common."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._kept: dict[int, FrozenTrajectory | None] = {}

    def at(self, position: int) -> FrozenTrajectory | None:
        """See Source.at."""
        found = self._kept.pop(position) if position in self._kept else self._source.at(position)
        while len(self._kept) >= _KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[position] = found
        return found
