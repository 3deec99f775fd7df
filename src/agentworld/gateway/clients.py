"""Sessions of known clients: headers by which they name a conversation without having been told of us."""

from __future__ import annotations

import re
from typing import NamedTuple

from agentworld.gateway.http import Http

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{7,99}")


class ClientSession(NamedTuple):
    """What a client says: the trajectory that its session is, and which of its agents calls. None for unsaid."""

    trajectory_id: str | None = None
    agent: str | None = None


def read_client(http: Http) -> ClientSession:
    """The session in the headers of Claude Code. A value that is no id is ignored, as it was not meant for us.

    Sub-agents share the session of their parent and name themselves.
    """
    session = http.header("x-claude-code-session-id") or ""
    agent = http.header("x-claude-code-agent-id") or ""
    return ClientSession(
        f"claude-code-{session}" if _SAFE.fullmatch(session) else None,
        agent if _SAFE.fullmatch(agent) else None,
    )
