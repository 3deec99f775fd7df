"""OpenHands: V0 event lists and V1 event folders, and the rows of its resolver and its evaluations, which hold either.

Keys are never read from a state file. Metadata takes the patch and the metrics of a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentworld.ingest.entry import BadDocument, Entry
from agentworld.ingest.format import Head, Notes
from agentworld.ingest.formats import openhands_v0, openhands_v1
from agentworld.ingest.formats.noted import as_finite
from agentworld.ingest.formats.openhands_history import Steps, counted
from agentworld.ingest.formats.values import (
    TOO_MANY,
    Media,
    bounded,
    name_of,
    object_of,
    picked,
    seconds_of,
    text_of,
)
from agentworld.ingest.run import Note, Run, RunFeedback, RunReward
from agentworld.records import Sampling
from agentworld.records.trajectory import TerminalStatus

AGENT = "openhands"
_PATCH = 64 * 1024  # characters
_PART = 16 * 1024 * 1024  # bytes of one event in a file of its own
_SCORES = ("resolved", "success", "result", "score", "reward", "passed")
_STATES: dict[str, TerminalStatus] = {
    "error": "failed",
    "stuck": "failed",
    "stopped": "abandoned",
    "paused": "abandoned",
    "rejected": "failed",
    "running": "abandoned",
    "waiting_for_confirmation": "abandoned",
    "awaiting_user_confirmation": "abandoned",
}
_EVENT_FILE = re.compile(r"(^|/)event-\d+[^/]*\.json$")
_NUMBERS = re.compile(r"\d+")


class OpenHands:
    """See Format."""

    name = "openhands"
    title = "OpenHands trajectories, V0 and V1"

    def claims(self, head: Head) -> bool:
        """Events, the state of a conversation, or rows with a history of events."""
        documents = [document for document in head.documents if isinstance(document, dict)]
        if head.shape == "json" and len(documents) == 1 and _is_state(documents[0]):
            return True
        if any((row := _events_of(document)) is not None and row[1] for document in documents):
            return True
        if head.shape == "json" and not head.documents and _EVENT_FILE.search(head.name):
            return True  # An event that is broken off is told as such.
        events = [document for document in documents if openhands_v0.is_event(document)]
        said = [document for document in events if "source" in document or "args" in document or "extras" in document]
        return any(_is_v1(document) for document in documents) or (bool(said) and len(events) == len(documents))

    def bundles(self, entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
        """Events in files of their own, with the state beside them, folder by folder; anything else alone."""
        folders: dict[str, list[Entry]] = {}
        for number, entry in enumerate(entries):
            folder, _, name = entry.name.rpartition("/")
            folder = folder.removesuffix("/events")
            own = _is_part(entry)
            folders.setdefault(folder if own and (folder or name) else f"/{number}", []).append(entry)
        return folders.values()

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """See Format."""
        if len(bundle) > 1 or _is_part(bundle[0]):
            yield from self._folder(sorted(bundle, key=_in_order), note)
        else:
            yield from self._file(bundle[0], note)

    def _folder(self, parts: Sequence[Entry], note: Notes) -> Iterator[Run]:
        state: dict[str, Any] = {}
        reader: _Reader | None = None
        before: int | None = None
        for entry in parts:
            _, number, _ = _in_order(entry)
            if before is not None and number > before + 1:
                missing = f"{before + 1}" if number == before + 2 else f"{before + 1} to {number - 1}"
                note(Note(file=entry.name, place="$", why=f"no file has event {missing} before it", lost=False))
            before = number if _NUMBERS.search(entry.name.rpartition("/")[2]) else before
            try:
                value = entry.document()
            except BadDocument as bad:
                note(Note(file=entry.name, place=bad.place, why=bad.why))
                continue
            if _is_state(value):
                state = value
                continue
            reader = reader or _Reader(note)
            reader.read(value, entry.name, "$")
        if reader is not None:
            reader.state(state)
            yield from reader.runs()
        elif state:
            note(Note(file=parts[0].name, place="$", why="a state without events beside it", lost=False))

    def _file(self, entry: Entry, note: Notes) -> Iterator[Run]:
        events = _Reader(note)
        for place, value in entry.documents():
            if isinstance(value, BadDocument):
                note(Note(file=entry.name, place=value.place, why=value.why))
                continue
            row = _events_of(value)
            if row is None:
                events.read(value, entry.name, place)
                continue
            reader = _Reader(note)
            name, given = row
            if not given:
                note(Note(file=entry.name, place=place, why="a row has no events"))
            reader.row(object_of(value), entry.name, place)
            for position, event in enumerate(_flat(given)):
                reader.read(event, entry.name, f"{place}, {name}[{position}]")
            yield from reader.runs()
        yield from events.runs()


FORMAT = OpenHands()


def _is_v1(value: Any) -> bool:
    return openhands_v1.is_event(value) and str(value["kind"]).rpartition(".")[2].endswith(
        ("Event", "Observation", "Condensation", "CondensationRequest")
    )


def _is_event(value: Any) -> bool:
    return _is_v1(value) or openhands_v0.is_event(value)


def _is_state(value: Any) -> bool:
    told = object_of(value)
    return "execution_status" in told and isinstance(told.get("agent"), dict)


def _flat(value: list[Any]) -> Iterator[Any]:
    """Events; the first versions had them in pairs of an action and its observation."""
    for each in value:
        yield from each if isinstance(each, list) else (each,)


def _events_of(value: Any) -> tuple[str, list[Any]] | None:
    """The list of events that a row has, and its name."""
    told = object_of(value)
    for name in ("history", "trajectory", "events"):
        given = told.get(name)
        if not isinstance(given, list):
            continue
        found = [each for each in _flat(given[:8]) if _is_event(each)]
        # Other tools have events with an action, too; only the first versions say nothing of who acted, in a history.
        if found and (name == "history" or any("source" in event for event in found)):
            return name, given
    if told.get("history") == [] and ("instance_id" in told or "issue" in told):
        return "history", []
    return None


def _is_part(entry: Entry) -> bool:
    """Whether an entry is one event, or the state of a conversation."""
    if getattr(entry, "shape", "json") != "json" or entry.size > _PART:
        return False
    try:
        value = entry.document()
    except BadDocument:
        return _EVENT_FILE.search(entry.name) is not None
    return _is_state(value) or (_is_event(value) and _events_of(value) is None)


def _in_order(entry: Entry) -> tuple[bool, int, str]:
    name = entry.name.rpartition("/")[2]
    found = _NUMBERS.search(name)
    return found is None, int(found[0][:18]) if found else 0, name


class _Reader:
    """One conversation while it is read."""

    def __init__(self, note: Notes) -> None:
        self._note = note
        self._file = ""
        self._steps = Steps()
        self._media = Media(self._say)
        self._events: openhands_v0.Events | openhands_v1.Events | None = None
        self._known: set[str] = set()
        self._times: list[float] = []
        self._metadata: dict[str, Any] = {}
        self._task: dict[str, Any] | None = None
        self._rewards: list[RunReward] = []
        self._feedback: list[RunFeedback] = []
        self._status: TerminalStatus = "finished"
        self._sampling: Sampling | None = None
        self._native_id: str | None = None
        self._is_row = False

    def _say(self, place: str, why: str, *, hint: str | None = None, lost: bool = True) -> None:
        self._note(Note(file=self._file, place=place, why=why, hint=hint, lost=lost))

    def read(self, event: Any, file: str, place: str) -> None:
        """Read one event."""
        self._file = file
        if not _is_event(event):
            kind = type(event).__name__ if not isinstance(event, dict) else f"with the keys {', '.join(event)[:100]}"
            self._say(place, f"it is no event: {kind}")
            return
        is_v1 = _is_v1(event)
        if self._events is None:
            reader = openhands_v1.Events if is_v1 else openhands_v0.Events
            self._events = reader(self._steps, self._say, self._media)
        if isinstance(self._events, openhands_v1.Events) != is_v1:
            self._say(place, "an event of another version than those before it")
            return
        name = event.get("id")
        if isinstance(name, (int, str)) and not isinstance(name, bool):
            if f"{name!r}" in self._known:
                self._say(place, f"event {bounded(name, 60)} is there already", lost=False)
                return
            self._known.add(f"{name!r}")
        if at := seconds_of(event.get("timestamp")):
            self._times.append(at)
        self._events.read(event, place)

    def state(self, state: dict[str, Any]) -> None:
        """What the state of a conversation says of it; its keys and secrets are not read."""
        self._native_id = name_of(state.get("id"))
        llm = object_of(object_of(state.get("agent")).get("llm"))
        self._steps.model = name_of(llm.get("model"))
        numbers = {name: as_finite(llm.get(name)) for name in ("temperature", "top_p")}
        if any(number is not None for number in numbers.values()):
            self._sampling = Sampling(**numbers)  # type: ignore[arg-type]
        for metrics in object_of(object_of(state.get("stats")).get("usage_to_metrics")).values():
            counted(object_of(metrics), self._steps)
        status = text_of(state.get("execution_status"))
        self._status = _STATES.get(status or "", "finished")
        self._metadata |= picked(state, ("execution_status", "max_iterations"))
        self._metadata |= picked(llm, ("reasoning_effort",))

    def row(self, row: dict[str, Any], file: str, place: str) -> None:
        """What a row of the resolver or of an evaluation says beside its events."""
        self._file = file
        self._is_row = True
        issue, metrics = object_of(row.get("issue")), object_of(row.get("metrics"))
        task_id = name_of(row.get("instance_id"))
        if task_id is None and issue:
            owner, repo, number = (bounded(issue.get(name), 80) for name in ("owner", "repo", "number"))
            task_id = name_of(f"{owner}/{repo}#{number}")
        if task_id is not None:
            self._task = {"task_id": task_id}
        counted(metrics, self._steps)
        told = object_of(row.get("metadata"))
        self._steps.model = name_of(object_of(told.get("llm_config")).get("model"))
        self._metadata |= picked(row, ("issue_type", "base_commit", "comment_success", "error", "attempt"))
        self._metadata |= picked(told, ("agent_class", "dataset", "eval_note"))
        cost = as_finite(metrics.get("accumulated_cost"))
        if cost is not None:
            self._metadata["accumulated_cost"] = cost
        result = object_of(row.get("test_result"))
        patch = text_of(row.get("git_patch")) or text_of(result.get("git_patch"))
        if patch:
            self._metadata["git_patch"] = patch[:_PATCH]
            if len(patch) > _PATCH:
                self._say(place, f"the patch is cut after {_PATCH} characters")
        if row.get("error"):
            self._status = "failed"
        explanation = text_of(row.get("result_explanation"))
        if explanation:
            self._feedback.append(RunFeedback(kind="comment", comment=explanation))
        for source in (row, row.get("report"), result, result.get("report")):
            self._scores(object_of(source))

    def _scores(self, source: dict[str, Any]) -> None:
        for name in _SCORES:
            value = source.get(name)
            number = float(value) if isinstance(value, bool) else as_finite(value)
            if number is not None and all(reward.name != name for reward in self._rewards):
                self._rewards.append(RunReward(name=name, value=number))

    def runs(self) -> Iterator[Run]:
        """What was read, if anything was."""
        events = self._events
        if events is None:
            return
        events.end()
        steps = self._steps
        if steps.too_many:
            self._say("$", TOO_MANY)
        for step in steps.all:
            step.model = step.model or steps.model
            step.usage = step.usage or steps.usage.get(str(step.metadata.get("response_id")))
            step.sampling = self._sampling
            if step.latency_ms is None:
                step.latency_ms = steps.latency.get(str(step.metadata.get("response_id")))
        metadata = self._metadata
        if events.skipped:
            metadata["skipped"] = dict(events.skipped.most_common(50))
        if events.errors:
            metadata["errors"] = events.errors[:50]
        status = self._status
        if isinstance(events, openhands_v0.Events) and status == "finished":
            status = _STATES.get(events.state or "", "finished")
        if events.failed:
            status = "failed"
        metadata["version"] = "V0" if isinstance(events, openhands_v0.Events) else "V1"
        if not steps.all and not steps.untold:
            return
        yield Run(
            native_id=self._native_id,
            grows_as=None if self._is_row else "",
            steps=steps.all,
            status=status,
            rewards=self._rewards,
            feedback=self._feedback,
            media=self._media.found,
            trailing=steps.untold,
            task=self._task,
            agent=AGENT,
            metadata=metadata,
            created_at=min(self._times, default=0.0),
            completed_at=max(self._times, default=0.0),
        )
