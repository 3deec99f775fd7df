"""Rows of chat data sets: ShareGPT, role and content, Alpaca, preferences, KTO, AgentInstruct, Hermes, with images.

What columns and roles are called is known by their usual names, or by the `dataset_info.json` of LLaMA-Factory beside
the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agentworld.ingest.entry import BadDocument, Entry
from agentworld.ingest.format import Head, Notes
from agentworld.ingest.formats.beside import beside
from agentworld.ingest.formats.noted import Values, kind_of
from agentworld.ingest.formats.sharegpt_pairs import PAIRS, PROMPTS, TALKS
from agentworld.ingest.formats.sharegpt_rows import ANSWERS, Mapped, RowReader
from agentworld.ingest.formats.sharegpt_texts import dialogue_in, turns_in
from agentworld.ingest.run import Run

_INFO = "dataset_info.json"
_DESCRIBES = frozenset(("file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name"))


class ShareGPT:
    """See Format."""

    name = "sharegpt"
    title = "Rows of chat: ShareGPT, Alpaca, preferences, KTO, AgentInstruct, Hermes"
    plain_chat = True
    general = True

    def claims(self, head: Head) -> bool:
        """By the usual columns of such rows, or as the description of data sets."""
        return any(_is_row(document) or _is_info(document) for document in head.documents)

    def bundles(self, entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
        """Each file alone, or with the description of data sets in its folder."""
        infos = {_folder(entry): entry for entry in entries if _base(entry) == _INFO}
        for entry in entries:
            if _base(entry) != _INFO:
                info = infos.get(_folder(entry))
                yield [entry] if info is None else [entry, info]
            elif not any(_folder(other) == _folder(entry) and other is not entry for other in entries):
                yield [entry]  # Alone, it is said to hold no rows.

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """One run a row."""
        entry = bundle[0]
        values = Values(entry.name, note, beside(entry))
        reader = RowReader(values, _mapped(bundle))
        for place, row in values.documents(entry):
            if _is_info(row):
                values.said(place, "a description of data sets, which has no rows itself")
            elif not isinstance(row, dict):
                values.lost(place, f"a row must be an object, not {kind_of(row)}")
            else:
                run = reader.run(row, place)
                if run.steps or run.trailing:
                    yield run


def _mapped(bundle: Sequence[Entry]) -> Mapped:
    """What the description says of a file."""
    if len(bundle) == 1:
        return Mapped()
    try:
        infos = bundle[1].document()
    except BadDocument:
        return Mapped()  # It is told where it is read.
    for info in infos.values() if isinstance(infos, dict) else ():
        if isinstance(info, dict) and _file_of(info) == _base(bundle[0]):
            return Mapped(columns=_texts(info.get("columns")), tags=_texts(info.get("tags")))
    return Mapped()


def _file_of(info: Mapping[str, Any]) -> str | None:
    name = info.get("file_name")
    return name.rpartition("/")[2] if isinstance(name, str) else None


def _texts(value: Any) -> dict[str, str]:
    return {name: each for name, each in value.items() if isinstance(each, str)} if isinstance(value, dict) else {}


def _base(entry: Entry) -> str:
    return entry.name.rpartition("/")[2].rpartition("!")[2]


def _folder(entry: Entry) -> str:
    return entry.name.removesuffix(_base(entry))


def _is_info(value: Any) -> bool:
    """Whether it describes data sets: an object of objects that say where each is."""
    if not isinstance(value, dict) or not value:
        return False
    some = list(value.values())[:8]
    return all(isinstance(each, dict) and not _DESCRIBES.isdisjoint(each) for each in some)


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict):
        return False
    if any(_is_talk(row.get(name)) for name in TALKS):
        return True
    if any(turns_in(row.get(first)) and turns_in(row.get(second)) for first, second in PAIRS):
        return True
    if any(first in row and second in row for first, second in PAIRS):
        return any(name in row for name in PROMPTS) or _is_talk(row[next(p for p in PAIRS if p[0] in row)[0]])
    if isinstance(row.get("example"), str):
        return dialogue_in(row["example"]) is not None
    return any(_is_said(row.get(name)) for name in PROMPTS) and any(_is_said(row.get(name)) for name in ANSWERS)


def _is_said(value: Any) -> bool:
    return isinstance(value, str) or _is_talk(value)


def _is_talk(value: Any) -> bool:
    """Whether it is a list of messages."""
    if not isinstance(value, list) or not value:
        return False
    return all(
        isinstance(each, dict) and ("from" in each or "role" in each) and ("value" in each or "content" in each)
        for each in value[:4]
        if not (isinstance(each, dict) and "tool_calls" in each)
    ) and isinstance(value[0], dict)


FORMAT = ShareGPT()
