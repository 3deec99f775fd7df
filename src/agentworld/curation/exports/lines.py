"""One split of a version in a layout as lines of JSON, made as they are asked for: what is sent to a browser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from agentworld.curation.datasets.provenance import PROVENANCE
from agentworld.curation.exports.export import options_from
from agentworld.curation.exports.options import check_options
from agentworld.curation.exports.registry import Row, Work, layout_of
from agentworld.curation.exports.source import PoolRecords, VersionSource
from agentworld.curation.exports.writing import jsonable
from agentworld.errors import ConfigError, NotFoundError
from agentworld.pool.protocol import Pool
from agentworld.records import exact_json


def export_lines(
    pool: Pool, version: str, layout: str, split: str, left_out: Counter[str], **options: Any
) -> Iterator[bytes]:
    """The rows of a split, as `export_dataset` writes them to JSONL, each with its newline. `left_out` counts by reason
    what gives no row. What is asked for wrongly is an error at once, before the first row is asked for.
    """
    found = layout_of(layout)
    chosen = options_from(options)
    check_options(layout, chosen, found.takes, found.styles)
    if "jsonl" not in found.files:
        raise ConfigError(
            f"the layout {layout} is not written as lines of JSON",
            path="format",
            hint=f"`agentworld dataset export VERSION --format {layout} --out FOLDER` writes it",
        )
    if chosen.images:
        raise ConfigError("lines of JSON hold no images", path="images", hint="Export as parquet")
    records = PoolRecords(pool)
    manifest = records.get_dataset(version)
    if split not in manifest.splits:
        there = ", ".join(manifest.splits)
        raise NotFoundError(f"the version has no split {split!r}", path="split", hint=f"It has: {there}")
    columns = [*found.columns(chosen), PROVENANCE]
    source = VersionSource(records, manifest, found.reads)

    def line(row: Row) -> bytes:
        origin = row[PROVENANCE]
        about = {"version": manifest.version, "trajectory_id": origin.trajectory_id, "step_ids": origin.step_ids}
        told = {**row, PROVENANCE: about}
        return exact_json.encode({name: jsonable(told.get(name)) for name in columns}) + b"\n"

    def lines() -> Iterator[bytes]:
        with closing(Work(chosen, source, left_out, {})) as work:
            made = found.make(work)
            for frozen in source.read(split, left_out):
                yield from map(line, made.rows(frozen))
            yield from map(line, made.rest())

    return lines()
