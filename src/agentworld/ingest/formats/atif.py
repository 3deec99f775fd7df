"""ATIF, the Agent Trajectory Interchange Format, of all versions from 1.0 to 1.8.

A document is one agent's run. Sub-agents, within it or in files beside it, and continuations after the context was
compacted become branches of one trajectory. Steps that were copied from another document are context, not replies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentworld.ingest.entry import BadDocument, Entry
from agentworld.ingest.format import Head, Notes
from agentworld.ingest.formats.atif_document import Document, is_document
from agentworld.ingest.formats.atif_forest import Forest
from agentworld.ingest.formats.atif_trial import is_result, is_trial, tell, with_results
from agentworld.ingest.formats.beside import beside
from agentworld.ingest.formats.noted import Values
from agentworld.ingest.run import Run

_REFERENCE = b"trajectory_ref"  # of a continuation, and of sub-agents
_ROW = re.compile(r"\$\[|line |document ")


class Atif:
    """See Format."""

    name = "atif"
    title = "ATIF trajectories (Harbor and others)"

    def claims(self, head: Head) -> bool:
        """By the schema's version, or by what only its steps have; and results of Harbor's trials."""
        return any(is_document(value) or _holds_documents(value) or is_trial(value) for value in head.documents)

    def bundles(self, entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
        """Files of one folder that name one another, each of the others alone; with the result of their trial."""
        results = [entry for entry in entries if is_result(entry) and is_trial(_first(entry))]
        folders: dict[str, list[Entry]] = {}
        for entry in entries:
            if not any(entry is result for result in results):
                folders.setdefault(entry.name.rpartition("/")[0], []).append(entry)
        bundles: list[list[Entry]] = []
        for folder in folders.values():
            if len(folder) == 1 or not any(map(_refers, folder)):
                bundles += [[entry] for entry in folder]
            else:
                bundles += _linked(folder)
        yield from with_results(bundles, results) if results else bundles

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """One run for each document that no other one names."""
        trial: Any = None
        if len(bundle) > 1 and is_result(bundle[-1]) and is_trial(trial := _first(bundle[-1])):
            *bundle, result = bundle
            values = Values(result.name, note)
        for number, run in enumerate(self._runs(bundle, note)):
            if trial is not None and number == 0:
                tell(run, trial, values)
            yield run

    def _runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        if len(bundle) == 1:
            for place, value in bundle[0].documents():
                yield from _runs([(bundle[0], place, value)], note)
        else:
            yield from _runs([(entry, "$", _first(entry)) for entry in bundle], note)


def _first(entry: Entry) -> Any:
    return next((value for _, value in entry.documents()), None)


def _runs(values: list[tuple[Entry, str, Any]], note: Notes) -> Iterator[Run]:
    documents: list[Document] = []
    for entry, place, value in values:
        reading = Values(entry.name, note, beside(entry))
        if isinstance(value, BadDocument):
            reading.lost(value.place, value.why)
        elif is_document(value):
            documents.append(Document(value, reading, place, row=bool(_ROW.match(place))))
        elif is_trial(value):
            reading.said(place, "the result of a trial without a trajectory beside it")
        elif _holds_documents(value):
            for key, each in value.items():
                if is_document(each):
                    documents.append(Document(each, reading, f"{place}.{key}"))
                else:
                    reading.lost(f"{place}.{key}", "it is no trajectory of ATIF")
        else:
            reading.lost(place, "it is no trajectory of ATIF: it has no steps with a source")
    yield from Forest(documents).runs()


def _holds_documents(value: Any) -> bool:
    """Whether it is an object of documents, by any names."""
    return isinstance(value, dict) and 0 < len(value) <= 1000 and any(map(is_document, value.values()))


def _refers(entry: Entry) -> bool:
    """Whether a file names another, said by its bytes alone."""
    tail = b""
    for chunk in entry.chunks():
        if _REFERENCE in tail + chunk:
            return True
        tail = chunk[-len(_REFERENCE) :]
    return False


def _linked(folder: list[Entry]) -> Iterator[list[Entry]]:
    """Groups of files that name one another, in the order of the folder."""
    alone: list[Entry] = []
    named: list[tuple[Entry, Document]] = []
    for entry in folder:
        value = _first(entry)
        if is_document(value) and not _has_more(entry):
            named.append((entry, Document.links(value, entry.name)))
        else:
            alone.append(entry)
    group = list(range(len(named)))

    def root(index: int) -> int:
        while group[index] != index:
            group[index] = group[group[index]]
            index = group[index]
        return index

    forest = Forest([document for _, document in named])
    for index, (_, document) in enumerate(named):
        for other in forest.named_by(document):
            first, second = sorted((root(index), root(other)))
            group[second] = first
    bundles: dict[int, list[Entry]] = {}
    for index, (entry, _) in enumerate(named):
        bundles.setdefault(root(index), []).append(entry)
    yield from bundles.values()
    yield from ([entry] for entry in alone)


def _has_more(entry: Entry) -> bool:
    documents = entry.documents()
    next(documents, None)
    return next(documents, None) is not None


FORMAT = Atif()
