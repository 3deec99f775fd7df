"""Sessions of known clients: how they name a conversation without having been told of us.

- Claude Code: `X-Claude-Code-Session-Id`, of sub-agents also `X-Claude-Code-Agent-Id`; before that `metadata.user_id`.
- Codex: `session-id` (before that `session_id`), `thread-id`, `x-codex-turn-metadata`, `x-openai-subagent`; in the body
  `client_metadata` and `prompt_cache_key`.
- OpenCode: `X-Session-Id`, of sub-agents also `X-Parent-Session-Id`. What sub-agents of sub-agents name is their
  parent, so that they begin a trajectory of their own.

Sub-agents share the session of their parent and name themselves. A value that is no id is ignored, as it was not meant
for us.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from agentworld.gateway.http import Http

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{7,99}")
_OLD_USER = re.compile(r"user_[A-Za-z0-9]+_account_[A-Za-z0-9-]*_session_(?P<session>[A-Za-z0-9-]{8,100})")
_SAYING = frozenset((b"x-claude-code-session-id", b"x-claude-code-agent-id", b"x-codex-turn-metadata"))
_SAYING |= {b"originator", b"thread-id", b"x-session-id"}
"""Headers without one of which, and without metadata in the body, no client says anything of its session."""
_MAX_JSON = 16_384
_ROOT_AGENT = "/root"


class ClientSession(NamedTuple):
    """What a client says: the trajectory that its session is, and which of its agents calls. None for unsaid.

    `rewrites_calls`: it gives tool calls back otherwise than it got them (see rewritten_calls).
    """

    trajectory_id: str | None = None
    agent: str | None = None
    rewrites_calls: bool = False


_UNSAID = ClientSession()


def read_client(http: Http, body: Mapping[str, Any]) -> ClientSession:
    """The session in headers and body."""
    if body.get("metadata") is None and _SAYING.isdisjoint(http.by_name):
        return _UNSAID
    return session_of(http, body)


def session_of(http: Http, body: Mapping[str, Any]) -> ClientSession:
    """The session, whoever says it: each known client is looked for."""
    for read in (_claude_code, _codex, _opencode):
        found = read(http, body)
        if found.trajectory_id is not None:
            return found
    return ClientSession(agent=_id(http.header("x-claude-code-agent-id")))


def _claude_code(http: Http, body: Mapping[str, Any]) -> ClientSession:
    session = _id(http.header("x-claude-code-session-id"))
    if session is None:
        user = _object(body.get("metadata")).get("user_id")
        old = _OLD_USER.fullmatch(user) if isinstance(user, str) else None
        session = _id(old["session"] if old is not None else _object(user).get("session_id"))
    agent = _id(http.header("x-claude-code-agent-id"))
    return (
        ClientSession(f"claude-code-{session}", agent, rewrites_calls=True) if session is not None else ClientSession()
    )


def _codex(http: Http, body: Mapping[str, Any]) -> ClientSession:
    """Codex is known by a header of its own; `session_id` and the like are names that others use too."""
    turn = _object(http.header("x-codex-turn-metadata"))
    known = bool(turn) or (http.header("originator") or "").lower().startswith("codex")
    if not known and http.header("thread-id") is None:
        return ClientSession()
    said = _object(body.get("client_metadata"))
    turn = turn or _object(said.get("x-codex-turn-metadata"))
    candidates = (
        turn.get("session_id"),
        http.header("session-id"),
        http.header("session_id"),
        said.get("session_id"),
        http.header("conversation_id"),
        body.get("prompt_cache_key"),
    )
    session = next((found for value in candidates if (found := _id(value)) is not None), None)
    if session is None:
        return ClientSession()
    return ClientSession(f"codex-{session}", _codex_agent(http, turn, said, session))


def _codex_agent(http: Http, turn: Mapping[str, Any], said: Mapping[str, Any], session: str) -> str | None:
    """The sub-agent: its own name, else its kind (`review`, `compact`), else its thread where that is another's."""
    name = turn.get("agent_name")
    if isinstance(name, str) and name != _ROOT_AGENT and 0 < len(name) <= 128 and name.isprintable():
        return name
    kind = http.header("x-openai-subagent")
    if kind is not None and re.fullmatch(r"[a-z0-9_-]{1,64}", kind):
        return kind
    threads = (turn.get("thread_id"), http.header("thread-id"), said.get("thread_id"))
    thread = next((found for value in threads if (found := _id(value)) is not None), None)
    return thread if thread != session else None


def _opencode(http: Http, body: Mapping[str, Any]) -> ClientSession:
    session, parent = _id(http.header("x-session-id")), _id(http.header("x-parent-session-id"))
    by_opencode = "opencode" in (http.header("user-agent") or "").lower()
    if session is None or not (by_opencode or session.startswith("ses_")):
        return ClientSession()
    return ClientSession(f"opencode-{parent or session}", session if parent is not None else None)


def _id(value: Any) -> str | None:
    return value if isinstance(value, str) and _SAFE.fullmatch(value) else None


def _object(value: Any) -> Mapping[str, Any]:
    """An object, or the JSON of one; empty for anything else."""
    if isinstance(value, str) and value.startswith("{") and len(value) <= _MAX_JSON:
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}
