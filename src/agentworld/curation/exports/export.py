"""Exporting a dataset version: each split into files of its own, a card beside them, all there or nothing."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from agentworld.curation.datasets.provenance import PROVENANCE
from agentworld.curation.exports.card import card, check_license, split_name
from agentworld.curation.exports.columns import Kind, NotPlain
from agentworld.curation.exports.options import ExportOptions, FileFormat, check_options
from agentworld.curation.exports.place import Place
from agentworld.curation.exports.registry import VALUES, Row, Work, layout_of
from agentworld.curation.exports.report import ExportedSplit, ExportReport, reasons
from agentworld.curation.exports.source import PoolRecords, Records, VersionSource
from agentworld.curation.exports.writing import DocumentWriter, JsonlWriter, ParquetWriter, Writer
from agentworld.errors import ConfigError, InvalidRequestError, NotFoundError
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.protocol import Pool

_NAMED = 20  # values that are named where none of the name that was asked for is there

SHARD_BYTES = 500 << 20


@runtime_checkable
class Elsewhere(Protocol):
    """What reads versions by other means than the methods of a pool, as a client of a server does."""

    def dataset_records(self) -> Records:
        """What an export reads."""


def export_dataset(
    pool: Pool | Elsewhere,
    version: str,
    layout: str,
    folder: str | Path,
    *,
    split: str | Sequence[str] | None = None,
    file_format: FileFormat | None = None,
    license: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress = no_progress,
    stopped: Callable[[], bool] = lambda: False,
    **options: Any,
) -> ExportReport:
    """Write a frozen version in a layout into a folder that is not there yet, in the files of Hugging Face `datasets`.

    `pool`: a pool, or a client of a server (`agentworld.connect`). `version`: any of its names. `split`: one or several
    of its splits; all where nothing is said. `file_format`: the
    layout's own where nothing is said. `options`: those of ExportOptions that the layout takes. Rows go out as they
    are made, into a private folder beside it, which becomes the folder once all is in it; ConfigError where that cannot
    be written, or is there by then. InvalidRequestError, with the reasons, where not a single row comes out.
    """
    found = layout_of(layout)
    chosen = options_from(options)
    check_options(layout, chosen, found.takes, found.styles)
    file_format = found.files[0] if file_format is None else file_format
    if file_format not in found.files:
        raise ConfigError(
            f"the layout {layout} is not written as {file_format!r}",
            path="file_format",
            hint=f"Use {' or '.join(found.files)}",
        )
    if chosen.images and file_format == "jsonl":
        raise ConfigError("lines of JSON hold no images", path="file_format", hint="Export as parquet")
    if type(shard_bytes) is not int or shard_bytes < 1:
        raise ConfigError("a shard must be 1 byte or more", path="shard_bytes", hint="Give a whole number of bytes")
    if license is not None:
        check_license(license)
    columns: dict[str, Kind] = {**found.columns(chosen), PROVENANCE: "about"}
    records = pool.dataset_records() if isinstance(pool, Elsewhere) else PoolRecords(pool)
    manifest = records.get_dataset(version)
    splits = _splits(manifest.splits, split)
    place = Place(Path(folder))
    partial = place.inside
    stack = ExitStack()
    stack.callback(place.leave)
    try:
        with place.writing():
            (partial / "data").mkdir()
        source = VersionSource(records, manifest, found.reads)
        total = sum(manifest.splits[name].rows for name in splits)
        count = _Count(progress, total, stopped)
        written: dict[str, ExportedSplit] = {}
        shared: dict[str, Any] = {}
        for name, label in splits.items():
            left_out: Counter[str] = Counter()
            writer: Writer
            if file_format == "json":
                writer = DocumentWriter(partial / "data", label)
            elif file_format == "jsonl":
                writer = JsonlWriter(partial / "data", label, columns, shard_bytes)
            else:
                writer = ParquetWriter(partial / "data", label, columns, shard_bytes, left_out)
            stack.callback(_stop, writer)
            work = Work(chosen, source, left_out, shared)
            stack.callback(work.close)
            rows = found.make(work)
            for frozen in source.read(name, left_out):
                _add_all(place, writer, rows.rows(frozen), manifest.version, left_out)
                count.one()
            _add_all(place, writer, rows.rest(), manifest.version, left_out)
            work.close()
            with place.writing():
                files = writer.close() if file_format == "json" else _numbered(writer.close())
            written[label] = ExportedSplit(
                rows=writer.rows,
                files=[file.relative_to(partial).as_posix() for file in files],
                left_out=dict(sorted((+left_out).items())),
            )
        report = ExportReport(
            folder=str(folder),
            version=manifest.version,
            layout=layout,
            file_format=file_format,
            rows=sum(each.rows for each in written.values()),
            size=sum(file.stat().st_size for file in (partial / "data").rglob("*") if file.is_file()),
            columns=list(columns),
            splits=written,
        )
        if not report.rows:
            raise _empty(report, shared.get(VALUES))
        text = card(report, manifest, chosen, columns, license, found.as_it_is)
        with place.writing():
            (partial / "README.md").write_text(text, encoding="utf-8")
        place.arrive()
    finally:
        stack.close()
    return report


def options_from(options: Mapping[str, Any]) -> ExportOptions:
    """The options by their names; ConfigError names the nearest of one that is none."""
    known = ExportOptions.__struct_fields__
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}"
            raise ConfigError(f"exports have no option {name!r}", path=name, hint=hint)
    try:
        return msgspec.convert(dict(options), ExportOptions)
    except msgspec.ValidationError as error:
        raise ConfigError(f"an option of the export is wrong: {error}", path="options") from None


class _Count:
    """Tells of progress, and ends the export where somebody wants that."""

    def __init__(self, progress: Progress, total: int, stopped: Callable[[], bool]) -> None:
        self._progress, self._total, self._stopped = progress, total, stopped
        self._done = 0

    def one(self) -> None:
        self._done += 1
        self._progress("trajectories", self._done, self._total)
        if self._stopped():
            raise KeyboardInterrupt


def _stop(writer: Writer) -> None:
    with suppress(OSError):  # What it holds is thrown away.
        writer.stop()


def _add_all(place: Place, writer: Writer, rows: Any, version: str, left_out: Counter[str]) -> None:
    row: Row
    for row in rows:
        origin = row[PROVENANCE]
        about = {"version": version, "trajectory_id": origin.trajectory_id, "step_ids": origin.step_ids}
        try:
            with place.writing():
                writer.add({**row, PROVENANCE: about})
        except NotPlain as reason:
            left_out[str(reason)] += 1


def _splits(there: Mapping[str, Any], asked: str | Sequence[str] | None) -> dict[str, str]:
    """The splits that are wanted, with the names that their files get."""
    wanted = list(there) if asked is None else [asked] if isinstance(asked, str) else list(dict.fromkeys(asked))
    for name in wanted:
        if name not in there:
            raise NotFoundError(f"the version has no split {name!r}", path="split", hint=f"It has: {', '.join(there)}")
    found = {name: split_name(name) for name in wanted}
    if len(set(found.values())) < len(found):
        raise ConfigError("two splits would have files of one name", path="split", hint="Export one of them at a time")
    return found


def _numbered(files: Sequence[Path]) -> list[Path]:
    """Files under names that say of how many each is one."""
    renamed = []
    for number, file in enumerate(files):
        split = file.name.rpartition("-")[0]
        renamed.append(file.rename(file.with_name(f"{split}-{number:05d}-of-{len(files):05d}{file.suffix}")))
    return renamed


def _empty(report: ExportReport, values: Counter[str] | None) -> InvalidRequestError:
    why = "; ".join(f"{count} {reason} ({means})" for reason, count, means in reasons(report.left_out))
    if values is not None:
        named = ", ".join(f"{name} ({count})" for name, count in values.most_common(_NAMED))
        why += f". Values that trajectories have: {named}" if named else ". No trajectory has any value"
    return InvalidRequestError(
        f"{report.version} gives no row in the layout {report.layout}",
        path="format",
        hint=f"Left out: {why}" if why else "Nothing in it is of that kind",
    )
