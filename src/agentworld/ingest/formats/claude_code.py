"""Session files of Claude Code: JSON lines that follow each other by uuid, with rewinds, compactions and sub-agents.

Files of one session, of sessions that go on from it, and of its sub-agents are read together. What `claude -p
--output-format stream-json` prints is read too. Signatures of thinking are left out.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from agentworld.ingest.entry import Entry
from agentworld.ingest.files import StreamEntry
from agentworld.ingest.format import Head, Notes
from agentworld.ingest.formats import claude_code_parts, values
from agentworld.ingest.formats.claude_code_bundles import bundles, look
from agentworld.ingest.formats.claude_code_lines import META, Line, Session
from agentworld.ingest.formats.claude_code_turns import Turn, Turns, first_text, lineage
from agentworld.ingest.formats.values import (
    TOO_MANY,
    bounded,
    count_of,
    is_unique,
    name_of,
    object_of,
    picked,
    text_of,
    usage_of,
)
from agentworld.ingest.run import Part, Run
from agentworld.records import Step, Usage
from agentworld.records.step import ForkReason
from agentworld.records.trajectory import TerminalStatus

AGENT = "claude-code"
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
_BESIDE = frozenset(
    {
        "agent-name", "ai-title", "attachment", "custom-title", "file-history-snapshot", "last-prompt", "mode",
        "permission-mode", "pr-link", "progress", "queue-operation", "tag", "worktree-state",
    }
)  # fmt: skip


class ClaudeCode:
    """See Format."""

    name = "claude-code"
    title = "Claude Code session files"

    def claims(self, head: Head) -> bool:
        """Lines with a message and a session, or lines that only Claude Code has."""
        documents = [document for document in head.documents if isinstance(document, dict)]
        if head.name.endswith(META) and head.shape == "json":
            return any(isinstance(document.get("agentType"), str) for document in documents)
        return head.shape in ("jsonl", "json") and any(_is_line(document) for document in documents)

    def look(self, entry: StreamEntry) -> None:
        """See Format."""
        look(entry)

    def bundles(self, entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
        """A session, those that were resumed from it, and its sub-agents."""
        return bundles(entries)

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """See Format."""
        large = len(bundle) == 1 and bundle[0].size >= claude_code_parts.LARGE
        for part in claude_code_parts.parts(bundle[0]) if large else (None,):
            session = Session(note)
            session.read(bundle if part is None else (part,))
            yield from _Runs(Turns(session)).runs()


FORMAT = ClaudeCode()


def _is_line(line: dict[str, Any]) -> bool:
    session = isinstance(line.get("sessionId"), str) or isinstance(line.get("session_id"), str)
    kind, message = text_of(line.get("type")), line.get("message")
    if kind == "summary":
        return isinstance(line.get("leafUuid"), str)
    if kind in ("user", "assistant") and isinstance(message, dict) and "content" in message:
        return session or isinstance(line.get("uuid"), str)
    if kind == "system":
        return session and isinstance(line.get("subtype"), str)
    return kind in _BESIDE and (session or "messageId" in line)


class _Runs:
    """Turns -> runs: one for each session with those that go on from it."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._session = turns.session
        self._root: dict[str, str] = {}
        self._types: dict[str, str] = {}
        self._begin_agents()
        for one, other in turns.linked:
            first, second = self._main(one), self._main(other)
            if first != second:
                self._root[second] = first

    def _main(self, session: str) -> str:
        while session in self._root:
            session = self._root[session]
        return session

    def runs(self) -> Iterator[Run]:
        by_session: dict[str, list[Turn]] = {}
        for turn in self._turns.all:
            by_session.setdefault(self._main(turn.first.session), []).append(turn)
        for session, turns in by_session.items():
            yield self._run(session, turns)

    def _begin_agents(self) -> None:
        """Find the reply that began each sub-agent."""
        seen: set[str] = set()
        used: set[str] = set()
        for turn in self._turns.all:
            agent = turn.first.agent
            if agent is None or agent in seen or turn.parent is not None:
                continue
            seen.add(agent)
            told = text_of(self._session.agents.get(agent, {}).get("toolUseId"))
            call = self._turns.begun.get(agent) or told or (agent if agent in self._turns.of_call else None)
            if call is None:
                same = self._turns.prompts.get(first_text(turn), deque())
                while same and call is None:
                    call = next((each for each in (same.popleft(),) if each not in used), None)
            if call is not None and (reply := self._turns.of_call.get(call)) is not None:
                used.add(call)
                if (kind := name_of(self._turns.kinds.get(call))) is not None:
                    self._types[agent] = kind
                if reply.first.agent != agent and turn not in lineage(reply):
                    turn.before = reply
                    turn.notes["call"] = bounded(call, 200)
                    self._turns.linked.append((reply.first.session, turn.first.session))

    def _run(self, session: str, turns: list[Turn]) -> Run:
        told: set[int] = set()  # turns that a reply's prompt holds
        branches = _Branches()
        steps: list[Step] = []
        shown, left = 0, list[Turn]()
        for turn in _in_order(turns):
            if turn.reply is None:
                continue
            if shown > values.MAX_PROMPTS:
                left.append(turn)
                continue
            turn.step = str(len(steps))
            steps.append(self._step(turn, session, branches))
            shown += len(steps[-1].prompt_messages or ())
            each: Turn | None = turn
            while each is not None:
                told.update(map(id, each.again))
                each = each.parent
                if each is None or id(each) in told:
                    break
                told.add(id(each))
        trailing = [message for turn in turns if id(turn) not in told for message in turn.untold()]
        if left:
            self._session.say(left[0].first, TOO_MANY)
            trailing += [message for turn in left for message in turn.messages]
        if any(turn.replaced for turn in turns):
            # Another result stands in the place of some: those that no prompt holds are told at the end.
            held = {id(message) for step in steps for message in step.prompt_messages or ()}
            trailing += [m for turn in turns if id(turn) in told for m in turn.results if id(m) not in held]
        times = [at for turn in turns for at in (turn.first.at, turn.last.at) if at]
        alone = {turn.first.agent for turn in turns}
        agent = next(iter(alone)) if len(alone) == 1 else None
        named = f"{session}/{agent}" if agent else session
        media = self._turns.media
        if media:
            said = [message for step in steps for message in step.prompt_messages or ()] + trailing
            used = {part.digest for message in said for part in message.media}
            media = {digest: medium for digest, medium in media.items() if digest in used}
        return Run(
            native_id=named if is_unique(session) else None,
            file=turns[0].first.file,
            session=named if session and not is_unique(session) else None,
            steps=steps,
            status=self._status(session),
            media=media,
            trailing=trailing,
            parent_run=session or None if agent else None,
            parts=_parts(turns, named),
            agent=self._type_of(agent) if agent else AGENT,
            metadata=self._metadata(session, turns),
            created_at=min(times, default=0.0),
            completed_at=max(times, default=0.0),
        )

    def _step(self, turn: Turn, session: str, branches: _Branches) -> Step:
        line, reply, message = turn.first, turn.reply, turn.first.message
        assert reply is not None
        came = _until_reply(turn)
        before = came[-1] if came and came[-1].reply is not None else None
        reason = branches.reason(turn, before, any(each.compaction for each in came))
        notes = dict(turn.notes)
        for each in came:
            if each.compaction:
                notes["compaction"] = each.notes
            elif each.notes.get("call"):
                notes["call"] = each.notes["call"]
        if reply.others:
            notes["blocks"] = reply.others
        if reply.redacted:
            notes["redacted_thinking"] = reply.redacted
        for name in ("id", "requestId", "uuid", "service_tier"):
            said = line.data.get(name, message.get(name))
            if said is not None:
                notes[name] = bounded(said, 200)
        if line.session != session:
            notes["session"] = bounded(line.session, 200)
        last = turn.said.message
        stop = text_of(last.get("stop_reason")) or text_of(message.get("stop_reason"))
        return Step(
            step_id=turn.step or "",
            trajectory_id="",
            parent_step_id=before.step if before is not None else None,
            fork_reason=reason,
            agent=self._type_of(line.agent) if line.agent else None,
            model=name_of(message.get("model")),
            dialect="anthropic",
            prompt_messages=turn.context(),
            response_message=turn.messages[0],
            usage=_usage(last) or _usage(message),
            finish_reason=_FINISH.get(stop, name_of(stop)) if stop else None,
            created_at=line.at,
            metadata=notes,
        )

    def _type_of(self, agent: str) -> str | None:
        told = self._session.agents.get(agent, {}).get("agentType")
        return name_of(told) or self._types.get(agent) or name_of(agent)

    def _status(self, session: str) -> TerminalStatus:
        results = [told for each, told in self._session.results.items() if self._main(each) == session]
        if any(told.get("subtype") == "error_max_turns" for told in results):
            return "truncated"
        failed = any(self._main(each) == session for each in self._turns.failed)
        return "failed" if failed or any(told.get("is_error") is True for told in results) else "finished"

    def _metadata(self, session: str, turns: list[Turn]) -> dict[str, Any]:
        first: Line = turns[0].first
        found = picked(first.data, ("cwd", "gitBranch", "version", "entrypoint", "slug"))
        others = sorted({turn.first.session for turn in turns} - {session})
        if others:
            found["sessions"] = [bounded(each, 200) for each in others[:100]]
        errors = [error for error in self._turns.errors if self._main(str(error["session"])) == session]
        mine = list(dict.fromkeys([session, *others]))
        skipped = sum((self._session.skipped.get(each, Counter()) for each in mine), Counter[str]())
        named = {turn.first.agent for turn in turns}
        missing = [agent for agent in self._session.agents if agent not in named]
        said = {
            "api_errors": errors,
            "titles": [title for each in mine for title in self._session.titles.get(each, ())],
            "skipped": dict(skipped.most_common(50)),
            "copied_lines": sum(self._session.copies[each] for each in mine),
            "result": next((self._session.results[each] for each in mine if each in self._session.results), None),
            "agents": {name: picked(meta, ("agentType", "description"), 200) for name, meta in self._agents(named)},
            "agents_without_a_transcript": missing[:100],
        }
        return found | {name: value for name, value in said.items() if value}

    def _agents(self, named: set[str | None]) -> Iterator[tuple[str, dict[str, Any]]]:
        return islice(((name, meta) for name, meta in self._session.agents.items() if name in named), 100)


class _Branches:
    """Tells why a step does not go on from the one before it."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str | None, str | None], set[int]] = {}  # turns that replies follow
        self._spoke: set[str | None] = set()

    def reason(self, turn: Turn, before: Turn | None, compacted: bool) -> ForkReason | None:
        """`before`: the reply that it comes from."""
        agent = turn.first.agent
        key = (before.step if before is not None else None, agent)
        taken = self._taken.setdefault(key, set())
        reason: ForkReason | None = None
        if before is not None and before.first.agent != agent:
            reason = "subagent"
        elif compacted:
            reason = "compaction"
        elif taken:
            reason = "parallel" if id(turn.parent) in taken else "history_rewritten"
        elif before is None and agent in self._spoke:
            reason = "history_rewritten"
        elif before is None and agent is not None and self._spoke:
            reason = "subagent"
        taken.add(id(turn.parent))
        self._spoke.add(agent)
        return reason


def _parts(turns: list[Turn], own: str) -> list[Part]:
    """The runs that files of its sub-agents, and of other sessions in it, are by themselves."""
    found: dict[str, list[Part]] = {}
    for turn in turns:
        session, agent = turn.first.session, turn.first.agent
        name = f"{session}/{agent}" if agent else session
        if turn.step is None or not session or name == own or name in found:
            continue
        # A session that goes on from another begins with copies, by itself.
        begins = (turn.step,) if agent else ("0", turn.step)
        unique = is_unique(session)
        found[name] = [Part(native_id=name)] if unique else [Part(session=name, step=step) for step in begins]
    return [part for parts in found.values() for part in parts]


def _until_reply(turn: Turn) -> list[Turn]:
    """The turns before it up to the reply that it comes from."""
    found: list[Turn] = []
    for each in lineage(turn):
        found.append(each)
        if each.reply is not None:
            break
    return found


def _in_order(turns: list[Turn]) -> Iterator[Turn]:
    """The turns, each behind those that it came from."""
    done: set[int] = set()
    for turn in turns:
        if id(turn) in done:
            continue
        before = turn.parent or turn.before
        if before is None or id(before) in done:  # as nearly always
            done.add(id(turn))
            yield turn
            continue
        chain = [turn]
        for each in lineage(turn):
            if id(each) in done:
                break
            chain.append(each)
        for each in reversed(chain):
            done.add(id(each))
            yield each


def _usage(message: dict[str, Any]) -> Usage | None:
    told = object_of(message.get("usage"))
    if not told:
        return None
    prompt = count_of(told.get("input_tokens"))
    prompt += count_of(told.get("cache_creation_input_tokens")) + count_of(told.get("cache_read_input_tokens"))
    return usage_of(min(prompt, 2**31 - 1), count_of(told.get("output_tokens")))
