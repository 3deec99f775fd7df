"""Codex: rollout files of all versions, with compactions, roll-backs, forks and sub-agents, and what `codex exec
--json` prints. Threads that began one another are read together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from agentworld.ingest.entry import Entry
from agentworld.ingest.format import Head, Notes
from agentworld.ingest.formats.codex_exec import Stream
from agentworld.ingest.formats.codex_items import KINDS
from agentworld.ingest.formats.codex_thread import Thread
from agentworld.ingest.formats.values import is_unique, name_of, object_of, picked, text_of
from agentworld.ingest.run import Part, Run

AGENT = "codex"
_LINES = frozenset(
    {
        "compacted", "event_msg", "inter_agent_communication_metadata", "response_item", "session_meta",
        "turn_context", "world_state",
    }
)  # fmt: skip
_META = ("cli_version", "cwd", "git", "model_provider", "originator", "source", "thread_source")
_LOOKED_AT = 8


class Codex:
    """See Format."""

    name = "codex"
    title = "Codex rollout files and `codex exec --json` streams"

    def claims(self, head: Head) -> bool:
        """Lines with a type and a payload; lines of a stream; or bare items behind a line that tells of the session."""
        lines = [document for document in head.documents if isinstance(document, dict)]
        if head.shape not in ("jsonl", "json") or not lines:
            return False
        if any(text_of(line.get("type")) in _LINES and isinstance(line.get("payload"), dict) for line in lines):
            return True
        return _is_stream(lines) or _is_first_version(lines)

    def bundles(self, entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
        """Threads with those that they began or were forked into."""
        owner: dict[str, int] = {}
        group = list(range(len(entries)))

        def root(index: int) -> int:
            while group[index] != index:
                group[index] = group[group[index]]
                index = group[index]
            return index

        for index, entry in enumerate(entries):
            for name in _names(entry):
                first, mine = root(owner.setdefault(name, index)), root(index)
                group[max(first, mine)] = min(first, mine)
        bundles: dict[int, list[Entry]] = {}
        for index, entry in enumerate(entries):
            bundles.setdefault(root(index), []).append(entry)
        return bundles.values()

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """See Format."""
        threads: list[Thread] = []
        for entry in bundle:
            head = [line for _, line in islice(entry.documents(), _LOOKED_AT) if isinstance(line, dict)]
            if _is_stream(head):
                yield Stream(entry, note).run()
            else:
                threads.append(Thread(entry, note))
        yield from _Family(threads).runs()


FORMAT = Codex()


def _is_stream(lines: list[dict[str, Any]]) -> bool:
    return any(
        (line.get("type") == "thread.started" and isinstance(line.get("thread_id"), str))
        or (line.get("type") in ("item.started", "item.completed") and isinstance(line.get("item"), dict))
        for line in lines
    )


def _is_first_version(lines: list[dict[str, Any]]) -> bool:
    first = lines[0]
    told = "type" not in first and isinstance(first.get("id"), str) and "instructions" in first
    state = any(isinstance(line.get("record_type"), str) for line in lines)
    return (told or state) and (len(lines) == 1 or any(text_of(line.get("type")) in KINDS for line in lines))


def _names(entry: Entry) -> Iterator[str]:
    """The ids of the thread and of those that it comes from."""
    for _, line in islice(entry.documents(), _LOOKED_AT):
        if isinstance(line, dict) and line.get("type") == "session_meta":
            told = object_of(line.get("payload"))
            spawn = object_of(object_of(object_of(told.get("source")).get("subagent")).get("thread_spawn"))
            ids = [told.get(name) for name in ("id", "parent_thread_id", "forked_from_id")]
            yield from (each for each in [*ids, spawn.get("parent_thread_id")] if isinstance(each, str))
            return


class _Family:
    """Threads that came from one another -> runs."""

    def __init__(self, threads: list[Thread]) -> None:
        self._threads = threads
        self._by_id = {thread.thread_id: thread for thread in reversed(threads) if thread.thread_id is not None}
        self._children: dict[int, list[Thread]] = {}
        self._roots: list[Thread] = []
        for thread in threads:
            source = self._source(thread)
            if source is None or self._is_before(thread, source):
                self._roots.append(thread)
            else:
                self._children.setdefault(id(source), []).append(thread)

    def _source(self, thread: Thread) -> Thread | None:
        for name in (thread.parent, thread.forked):
            found = self._by_id.get(name or "")
            if found is not None and found is not thread:
                return found
        return None

    def _is_before(self, thread: Thread, source: Thread | None) -> bool:
        """Whether the thread is one of those that `source` comes from."""
        seen: set[int] = set()
        while source is not None and id(source) not in seen:
            seen.add(id(source))
            source = self._source(source)
            if source is thread:
                return True
        return source is not None

    def runs(self) -> Iterator[Run]:
        for root in self._roots:
            run = self._run(root)
            if run.steps or run.trailing:
                yield run

    def _run(self, root: Thread) -> Run:
        threads = list(self._family(root))
        for thread in threads:
            self._build(thread, root, sum(len(other.steps) for other in threads))
        times = [at for thread in threads for at in thread.times]
        metadata = picked(root.meta, _META) | root.notes
        others = {thread.thread_id or thread.file: thread.notes for thread in threads[1:]}
        if others:
            metadata["threads"] = dict(list(others.items())[:100])
        parent = root.parent or root.forked
        if root.forked is not None:
            metadata["forked_from"] = name_of(root.forked)
        return Run(
            native_id=root.thread_id if is_unique(root.thread_id) else None,
            file=root.file,
            session=None if is_unique(root.thread_id) else root.thread_id,
            steps=[step for thread in threads for step in thread.steps],
            status=root.status,
            media={digest: medium for thread in threads for digest, medium in thread.media.found.items()},
            trailing=[message for thread in threads for message in thread.trailing],
            parent_run=parent if root.is_sub_agent else None,
            held_by=parent,
            parts=[part for thread in threads[1:] if (part := _part(thread)) is not None],
            agent=root.agent if root.is_sub_agent and root.agent else AGENT,
            metadata=metadata,
            created_at=min(times, default=0.0),
            completed_at=max(times, default=0.0),
        )

    def _family(self, thread: Thread) -> Iterator[Thread]:
        """A thread and those that come from it, without depth of recursion."""
        waiting = [thread]
        while waiting:
            each = waiting.pop()
            yield each
            waiting += reversed(self._children.get(id(each), []))

    def _build(self, thread: Thread, root: Thread, first: int) -> None:
        source = self._source(thread) if thread is not root else None
        if source is None:
            thread.build(first)
        else:
            forked = self._by_id.get(thread.forked or "")
            shared = thread.shared_with(forked) if forked is not None and forked is not thread else 0
            thread.build(first, shared, forked.replies if forked is not None else ())
            self._begin(thread, source)
        if thread.is_sub_agent:
            for step in thread.steps:
                step.agent = thread.agent or name_of(thread.thread_id)

    def _begin(self, thread: Thread, source: Thread) -> None:
        """Say where the first step of a thread comes from."""
        if not thread.steps:
            return
        first = thread.steps[0]
        if not thread.is_sub_agent:
            first.fork_reason = "history_rewritten" if first.parent_step_id is not None else first.fork_reason
            return
        name = thread.thread_id or ""
        call = source.spawned.get(name)
        if call is None and name:
            call = next((each for each, said in source.told if each in source.spawning and name in said), None)
        first.fork_reason = "subagent"
        if call is not None and call in source.step_of_call:
            first.parent_step_id = source.step_of_call[call]
            first.metadata["call"] = text_of(call)


def _part(thread: Thread) -> Part | None:
    """The run that a thread is by itself."""
    if is_unique(thread.thread_id):
        return Part(native_id=thread.thread_id)
    return Part(session=thread.thread_id, step=thread.steps[0].step_id) if thread.thread_id and thread.steps else None
