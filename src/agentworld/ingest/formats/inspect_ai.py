"""Logs of Inspect: .json, and .eval archives with a file a sample, whole, unfinished, or in pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentworld.ingest.entry import BadDocument, Entry
from agentworld.ingest.format import Head, Notes
from agentworld.ingest.formats.inspect_sample import sample_run
from agentworld.ingest.formats.noted import Values
from agentworld.ingest.run import Run

# The last such name: what an archive is unpacked into may itself be called samples.
_MEMBER = re.compile(
    r"(.*[!/])?(header\.json|summaries\.json|reductions\.json|_journal/.*|samples/[^!]*_epoch_\d+[./][^!]*)"
)
_PIECE = re.compile(r"(samples/.*_epoch_\d+)/(sample|metadata|(messages|events|calls|attachments)/(\d+))\.json$")
_OF_PIECES = re.compile(r"samples/.*_epoch_\d+/")
_ASIDE = re.compile(r"_epoch_\d+/(?:skeleton|events/(?:stats|uuids))\.json$")
_SAMPLE = re.compile(r"[!/]samples/[^/]*_epoch_\d+\.json$")
_NAMED = ("summaries.json", "reductions.json")


class Inspect:
    """See Format."""

    name = "inspect"
    title = "Inspect logs (.json and .eval)"

    def claims(self, head: Head) -> bool:
        """By a log's or a sample's fields; by its name what stands beside samples in an archive."""
        if _OF_PIECES.search(head.name) and head.name.endswith(".json"):
            return True
        if head.name.endswith(_NAMED) or "_journal/summaries/" in head.name:
            return all(isinstance(each, dict) and _is_aside(each) for each in head.documents)
        if not head.documents and _SAMPLE.search(head.name):
            return True  # It is cut off, which is said when it is read.
        return any(_is_log(value) or _is_sample(value) for value in head.documents)

    def bundles(self, entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
        """The members of one archive, or of a folder like one; each other file alone."""
        found: dict[str, list[Entry]] = {}
        for entry in entries:
            member = _MEMBER.fullmatch(entry.name)
            found.setdefault(member[1] or "" if member else f"{entry.name}\0", []).append(entry)
        return found.values()

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """One run a sample."""
        if len(bundle) == 1 and not _MEMBER.fullmatch(bundle[0].name):
            yield from _file(bundle[0], note)
        else:
            yield from _archive(bundle, note)


def _is_log(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("eval"), dict):
        return False
    return "version" in value and bool({"task", "run_id", "task_id", "dataset"} & value["eval"].keys())


def _is_sample(value: Any) -> bool:
    if not isinstance(value, dict) or not {"id", "epoch", "input"} <= value.keys():
        return False
    return isinstance(value.get("messages"), list) or "events" in value or "transcript" in value


def _is_aside(value: dict[str, Any]) -> bool:
    return ("id" in value and "epoch" in value) or "scorer" in value


def _file(entry: Entry, note: Notes) -> Iterator[Run]:
    """A log in one document, or samples by themselves."""
    values = Values(entry.name, note)
    for place, value in entry.documents():
        if isinstance(value, BadDocument):
            values.lost(value.place, value.why)
        elif _is_log(value):
            samples = values.items(value, "samples", place)
            if samples is None:
                values.said(place, "the log has no samples: it is a header alone")
            for number, sample in enumerate(samples or ()):
                where = f"{place}.samples[{number}]"
                if isinstance(sample, dict):
                    yield sample_run(sample, value, values, where)
                else:
                    values.lost(where, "a sample must be an object")
        elif _is_sample(value):
            yield sample_run(value, {}, values, place)
        else:
            values.lost(place, "it is no log of Inspect: it has no eval and no samples")


def _archive(bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
    samples: dict[str, Entry] = {}
    pieces: dict[str, dict[str, list[tuple[int, Entry]]]] = {}
    header: dict[str, Any] = {}
    begun: dict[str, Any] = {}
    summaries: dict[tuple[str, str], Values] = {}
    for entry in bundle:
        member = _MEMBER.fullmatch(entry.name)
        name, values = member[2] if member else entry.name, Values(entry.name, note)
        if piece := _PIECE.search(entry.name):
            kind, number = (piece[3], int(piece[4])) if piece[3] else (piece[2], 0)
            pieces.setdefault(piece[1], {}).setdefault(kind, []).append((number, entry))
        elif _ASIDE.search(entry.name) or name == "reductions.json":
            continue  # What other parts say already.
        elif name.startswith("samples/"):
            if name in samples:
                values.said("$", "the sample is there twice; the later one is taken")
            samples[name] = entry
        elif name == "header.json":
            header = _object(entry, values)
        elif name == "_journal/start.json":
            begun = _object(entry, values)
        else:
            for _, each in entry.documents():
                if isinstance(each, dict) and "epoch" in each:
                    summaries[str(each.get("id")), str(each["epoch"])] = values
    log = header or begun
    first = Values(bundle[0].name, note)
    if not header:
        first.said("$", "the archive has no header: the evaluation was not finished" if begun else "it has no header")
    for entry in samples.values():
        values = Values(entry.name, note)
        sample = _object(entry, values)
        if sample:
            summaries.pop((str(sample.get("id")), str(sample.get("epoch"))), None)
            yield sample_run(sample, log, values, "$")
    for name, parts in pieces.items():
        values = Values(f"{bundle[0].name.rpartition('!')[0]}!{name}", note)
        sample = _joined(parts, values)
        if sample:
            summaries.pop((str(sample.get("id")), str(sample.get("epoch"))), None)
            yield sample_run(sample, log, values, "$")
    for (sample_id, epoch), values in summaries.items():
        values.lost("$", f"the sample {sample_id[:80]} of epoch {epoch[:20]} is summed up, but is not in the archive")


def _joined(parts: dict[str, list[tuple[int, Entry]]], values: Values) -> dict[str, Any]:
    """A sample that lies in pieces: a shell, and sequences whose files are named by their first element."""
    if "sample" not in parts:
        values.lost("$", "the sample has no sample.json")
        return {}
    sample = _object(parts["sample"][0][1], values)
    sequences: dict[str, list[Any]] = {}
    for kind in ("messages", "events", "attachments"):
        found = sequences[kind] = []
        for start, entry in sorted(parts.get(kind, ()), key=lambda part: part[0]):
            if start != len(found):
                values.lost(f"{kind}/{start}.json", f"the elements from {len(found)} on are not in the archive")
                found += [None] * max(0, min(start - len(found), 1_000_000))
            for place, each in entry.documents():
                if isinstance(each, BadDocument):
                    values.lost(f"{kind}/{start}.json {place}", each.why)
                else:
                    found.append(each)
    if "metadata" in parts:
        sample["metadata"] = _object(parts["metadata"][0][1], values)
    pool = sequences["messages"]
    said: list[Any] = []
    for ref in values.items(sample, "message_refs", "$") or ():
        if isinstance(ref, list) and len(ref) == 2 and all(type(end) is int and end >= 0 for end in ref):
            said += pool[ref[0] : ref[1]]
    sample["messages"] = said
    sample["events"] = sequences["events"]
    sample["events_data"] = {"messages": pool}
    sample["attachments"] = sequences["attachments"]
    return sample


def _object(entry: Entry, values: Values) -> dict[str, Any]:
    try:
        value = entry.document()
    except BadDocument as error:
        values.lost(error.place, error.why)
        return {}
    if not isinstance(value, dict):
        values.lost("$", "it must be an object")
        return {}
    return value


FORMAT = Inspect()
