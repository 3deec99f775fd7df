"""What a trace is made of, whatever system wrote it: calls of models, tools, agents, and what holds them together."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from agentworld.records import Message, Sampling, Tool, Usage

_OF_NODE = 500
NodeKind = Literal["llm", "tool", "agent", "other"]


class Say(Protocol):
    """Tells of something in a document that cannot be read as it is; `place` is within the document."""

    def __call__(self, place: str, why: str, *, hint: str | None = None, lost: bool = True) -> None: ...


class Span(msgspec.Struct, kw_only=True):
    """One span, free of the encoding that it came in. Ids are lower-case hex, "" where there is none; times are
    seconds since the epoch, 0 where unknown; `error`: its status message where it failed.
    """

    trace_id: str = ""
    span_id: str = ""
    parent_id: str = ""
    name: str = ""
    start: float = 0.0
    end: float = 0.0
    error: str | None = None
    attributes: dict[str, Any] = {}
    events: list[SpanEvent] = []
    resource: dict[str, Any] = {}
    scope: str = ""
    place: str = "$"


class SpanEvent(msgspec.Struct, kw_only=True):
    """Something that happened within a span. `body`: of a log record."""

    name: str
    at: float = 0.0
    attributes: dict[str, Any] = {}
    body: Any = None


class CallReply(msgspec.Struct, kw_only=True):
    """One choice of a call."""

    message: Message
    finish_reason: str | None = None


class Call(msgspec.Struct, kw_only=True):
    """One call of a model: what it was shown and what it said."""

    prompt: list[Message] = []
    replies: list[CallReply] = []
    tools: list[Tool] = []
    model: str | None = None
    requested_model: str | None = None
    usage: Usage | None = None
    sampling: Sampling | None = None
    response_id: str | None = None
    media: dict[str, tuple[bytes, str]] = {}
    metadata: dict[str, Any] = {}


class ToolRun(msgspec.Struct, kw_only=True):
    """One execution of a tool. `result`: None where it is not on record."""

    name: str
    call_id: str | None = None
    arguments: str | None = None
    result: str | None = None


class Score(msgspec.Struct, kw_only=True, frozen=True):
    """A judgement of a call or of a whole trace: a number, or a label. `node`: "" for the whole trace."""

    name: str
    value: Any
    node: str = ""
    comment: str | None = None


class Node(msgspec.Struct, kw_only=True):
    """One piece of a trace; `agent`: the name of the agent that it is the run of, for kind agent."""

    id: str
    parent: str = ""
    kind: NodeKind = "other"
    name: str = ""
    start: float = 0.0
    end: float = 0.0
    error: str | None = None
    call: Call | None = None
    tool: ToolRun | None = None
    agent: str | None = None
    place: str = "$"


class Trace(msgspec.Struct, kw_only=True):
    """Nodes that belong together, and what is said of them as a whole. `part`: where a trace had to be taken before all
    of it was there, the number of this piece. `size`: about how many characters it holds; what several prompts show is
    there once.
    """

    trace_id: str
    part: int = 1
    nodes: dict[str, Node] = {}
    scores: list[Score] = []
    user: str | None = None
    session: str | None = None
    agent: str | None = None
    group_id: str | None = None
    task: dict[str, Any] | None = None
    metadata: dict[str, Any] = {}
    size: int = 0
    shared: dict[Message, Message] = {}
    tools: list[Tool] = []

    def add(self, node: Node) -> None:
        """Add a node; one that is there is replaced."""
        self.nodes[node.id] = node
        self.size += _OF_NODE
        if node.tool is not None:
            self.size += len(node.tool.result or "")
        if node.call is not None:
            # Most calls of a trace have the same tools as the one before.
            self.tools = node.call.tools = self.tools if node.call.tools == self.tools else node.call.tools
            node.call.prompt = [self._share(message) for message in node.call.prompt]
            for reply in node.call.replies:
                reply.message = self._share(reply.message)
            self.size += sum(len(data) for data, _ in node.call.media.values())

    def _share(self, message: Message) -> Message:
        known = self.shared.setdefault(message, message)
        if known is message:
            self.size += len(message.text) + len(message.reasoning or "") + _OF_NODE
        return known
