"""Lines of Claude Code's session files: each once, with the line that it follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from agentworld.ingest.entry import BadDocument, Entry
from agentworld.ingest.format import Notes
from agentworld.ingest.formats.values import bounded, name_of, object_of, picked, seconds_of, text_of
from agentworld.ingest.run import Note

META = ".meta.json"
_TITLES = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
_KEPT = 50
_RESULT_NOTES = (
    "agentId", "agentType", "exitCode", "interrupted", "isAsync", "isImage", "returnCodeInterpretation", "runId",
    "status", "taskId", "totalDurationMs", "totalTokens", "totalToolUseCount", "truncated",
)  # fmt: skip


class Line:
    """One line. `kind`: assistant, user, call, result, queued (what the user typed while the agent worked), compaction,
    or other for what says nothing to the model. `parent`: the line that it follows. `agent`: the sub-agent it is of.
    `at`: when it was written, in seconds since the epoch; 0 where it does not say. `told`: of what the tool told Claude
    Code, what is no copy of its result. `message`: the one that it holds. `said_agent`: the sub-agent that it names.
    """

    __slots__ = (
        "agent", "at", "data", "file", "kind", "logical", "message", "parent", "place", "said_agent", "session", "told",
        "uuid",
    )  # fmt: skip

    def __init__(self, file: str, place: str, data: dict[str, Any]) -> None:
        self.file = file
        self.place = place
        self.data = data
        self.uuid = text_of(data.get("uuid"))
        self.session = text_of(data.get("sessionId")) or text_of(data.get("session_id")) or ""
        self.message = message = object_of(data.get("message"))
        kind = data.get("type")
        self.kind: str = kind if kind in ("assistant", "user") else _kind(data, message)  # as most are
        self.said_agent: str | None = None
        if "agentId" in data or "parent_tool_use_id" in data:
            self.said_agent = name_of(data.get("agentId")) or name_of(data.get("parent_tool_use_id"))
        self.parent: Line | None = None
        self.logical: Line | None = None
        self.agent: str | None = None
        self.at = seconds_of(data.get("timestamp"))
        # Most of it says the result once more, and files hold megabytes of it.
        told = data.pop("toolUseResult", None)
        self.told: dict[str, Any] = {}
        if isinstance(told, dict):
            self.told = {name: told[name] for name in _RESULT_NOTES if name in told}


def _kind(data: dict[str, Any], message: dict[str, Any]) -> str:
    kind = data.get("type")
    if kind in ("tool_use", "tool_result"):
        return "call" if kind == "tool_use" else "result"
    if kind == "attachment":
        return "queued" if object_of(data.get("attachment")).get("type") == "queued_command" else "other"
    if kind == "system":
        return "compaction" if data.get("subtype") == "compact_boundary" else "other"
    # A line of a type that is not known is what its message says.
    role = message.get("role")
    return str(role) if role in ("user", "assistant") else "other"


class Session:
    """All lines of the files that belong together, in an order in which each comes after the one that it follows."""

    def __init__(self, note: Notes) -> None:
        self._note = note
        self.lines: list[Line] = []
        self.agents: dict[str, dict[str, Any]] = {}
        self.skipped: dict[str, Counter[str]] = {}  # by session, as the two below
        self.titles: dict[str, list[str]] = {}
        self.results: dict[str, dict[str, Any]] = {}
        self.copies: Counter[str] = Counter()
        self._known: dict[str, Line] = {}
        self._of_file: dict[tuple[str, str], Line] = {}  # where a file means another line by a uuid

    def say(self, line: Line, why: str, *, place: str | None = None, lost: bool = True) -> None:
        """A note on a line, or on a place in it."""
        self._note(Note(file=line.file, place=place or line.place, why=why, lost=lost))

    def read(self, bundle: Sequence[Entry]) -> None:
        """Read the files."""
        files: list[tuple[bool, float, list[Line]]] = []
        for entry in bundle:
            if entry.name.endswith(META):
                self._meta(entry)
                continue
            lines = list(self._lines(entry))
            named = next((line.session for line in lines if line.session), "")
            for line in lines:
                line.session = line.session or named
            of_agent = bool(lines) and all(line.data.get("agentId") or line.kind == "other" for line in lines)
            files.append((of_agent, min((line.at for line in lines if line.at), default=0.0), lines))
        # A session that goes on with another comes after it, whatever the files are called; sub-agents come last.
        for _, _, lines in sorted(files, key=lambda file: file[:2]):
            self.lines += [line for line in lines if not self._copied(line)]
        self._progress()
        self._link()
        self.lines = list(self._parents_first())
        for line in self.lines:
            line.agent = self._agent(line)

    def _meta(self, entry: Entry) -> None:
        name = entry.name.rpartition("/")[2].removesuffix(META).removeprefix("agent-")
        try:
            found = entry.document()
        except BadDocument as bad:
            self._note(Note(file=entry.name, place=bad.place, why=bad.why))
            return
        self.agents[name] = object_of(found)

    def _lines(self, entry: Entry) -> Iterator[Line]:
        for place, data in entry.documents():
            if isinstance(data, BadDocument):
                self._note(Note(file=entry.name, place=data.place, why=data.why))
            elif not isinstance(data, dict):
                self._note(Note(file=entry.name, place=place, why=f"a line is no object: {type(data).__name__}"))
            else:
                yield Line(entry.name, place, data)

    def _copied(self, line: Line) -> bool:
        """Whether the line is there already, as sessions that were resumed begin with the lines of the first one."""
        if line.uuid is None:
            return False
        first = self._known.setdefault(line.uuid, line)
        if first is line:
            return False
        if all(first.data.get(name) == line.data.get(name) for name in ("type", "message", "attachment")):
            self.copies[first.session] += 1
            return True
        self.say(line, f"another line has its uuid {bounded(line.uuid, 60)}; both are read", lost=False)
        return False

    def named(self, line: Line, uuid: Any) -> Line | None:
        """The line that a line means by a uuid."""
        if not isinstance(uuid, str):
            return None
        return self._of_file.get((line.file, uuid)) or self._known.get(uuid)

    def _progress(self) -> None:
        """Turns of sub-agents that only lines of progress tell."""
        telling = [line for line in self.lines if line.data.get("type") == "progress"]
        if not telling:
            return
        present = {text_of(line.data.get("agentId")) for line in self.lines if line.kind != "other"}
        for line in telling:
            told = object_of(line.data.get("data"))
            agent, inner = told.get("agentId"), object_of(told.get("message"))
            if not isinstance(agent, str) or inner.get("type") not in ("user", "assistant") or agent in present:
                continue
            data = {**inner, "agentId": agent, "isSidechain": True, "sessionId": line.session}
            data.pop("parentUuid", None)
            found = Line(line.file, line.place, data)
            if found.uuid is None or found.uuid not in self._known:
                self.lines.append(found)
                if found.uuid is not None:
                    self._known[found.uuid] = found

    def _link(self) -> None:
        """Find the line that each follows."""
        last: dict[tuple[str, str, Any], Line] = {}
        for line in self.lines:
            data = line.data
            stream = (line.file, line.session, line.said_agent or bool(data.get("isSidechain")))
            before = last.get(stream)
            parent = data.get("parentUuid")
            if isinstance(parent, str):
                line.parent = self.named(line, parent)
                if line.parent is None:
                    line.parent = before
                    after = f"it is read as following {before.place}" if before else "it is read as the beginning"
                    self.say(line, f"no line has the uuid of its parent {bounded(parent, 60)}; {after}", lost=False)
            elif "parentUuid" not in data:
                line.parent = before
            if line.kind == "compaction" or data.get("isCompactSummary") is True:
                logical = data.get("logicalParentUuid")
                line.logical = self.named(line, logical) or line.parent or before
            if line.uuid is not None or line.kind != "other":
                last[stream] = line
            if line.uuid is not None and self._known.get(line.uuid) is not line:
                self._of_file[line.file, line.uuid] = line

    def _parents_first(self) -> Iterator[Line]:
        done: set[int] = set()
        for line in self.lines:
            if line.parent is None or id(line.parent) in done:
                if id(line) not in done:
                    done.add(id(line))
                    yield line
                continue
            chain: list[Line] = []
            within: set[int] = set()
            each: Line | None = line
            while each is not None and id(each) not in done:
                if id(each) in within:
                    self.say(chain[-1], "it follows itself; it is read as the beginning", lost=False)
                    chain[-1].parent = None
                    break
                within.add(id(each))
                chain.append(each)
                each = each.parent
            for each in reversed(chain):
                done.add(id(each))
                yield each

    def _agent(self, line: Line) -> str | None:
        told = line.said_agent
        if told is not None or line.data.get("isSidechain") is not True:
            return told
        if line.parent is not None and line.parent.agent is not None:
            return line.parent.agent
        return f"sidechain {name_of(line.uuid) or line.place}"

    def skip(self, line: Line) -> None:
        """Take note of a line that says nothing to the model."""
        data = line.data
        kind, subtype = text_of(data.get("type")), data.get("subtype")
        if data.get("type") == "attachment":
            subtype = object_of(data.get("attachment")).get("type")
        named = "/".join(str(bounded(part, 60)) for part in (kind, subtype) if isinstance(part, str))
        self.skipped.setdefault(line.session, Counter())[named or "without a type"] += 1
        titles = self.titles.setdefault(line.session, [])
        if kind is not None and kind in _TITLES and len(titles) < _KEPT:
            title = text_of(data.get(_TITLES[kind]))
            if title is not None and bounded(title) not in titles:
                titles.append(bounded(title))
        if kind == "result":
            names = ("subtype", "is_error", "num_turns", "duration_ms", "duration_api_ms", "total_cost_usd")
            self.results[line.session] = picked(data, names)
