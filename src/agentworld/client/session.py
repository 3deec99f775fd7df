"""One running trajectory, over a pool in this process or over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from agentworld.client import calls, wire
from agentworld.client.connection import Connection
from agentworld.errors import InvalidRequestError
from agentworld.pool.protocol import AppendResult
from agentworld.records import (
    Annotation,
    Feedback,
    FeedbackKind,
    Message,
    NewTrajectory,
    Reward,
    Step,
    TerminalStatus,
    Trajectory,
    new_id,
)


class TrajectoryStore(Protocol):
    """What a trajectory needs of a pool or of a factory."""

    def start_trajectory(self, new: NewTrajectory) -> wire.StartedTrajectory:
        """Create it."""

    def complete_trajectory(
        self, trajectory_id: str, status: TerminalStatus, reward: float | None = None
    ) -> Trajectory:
        """See Pool."""

    def append_steps(self, steps: Sequence[Step]) -> list[AppendResult]:
        """See Pool."""

    def add_rewards(self, rewards: Sequence[Reward]) -> int:
        """See Pool."""

    def add_feedback(self, feedback: Sequence[Feedback]) -> int:
        """See Pool."""

    def add_annotations(self, annotations: Sequence[Annotation]) -> int:
        """See Pool."""


class TrajectorySession:
    """A trajectory that is completed when its `with` block ends: finished, or failed where the block raised.

    `base_url` and `api_key` are for an agent on the gateway, `page_key` for a page that lets people rate it; all are
    None on a pool in this process.
    """

    def __init__(self, store: TrajectoryStore, new: NewTrajectory, *, chat_timeout: float = 600.0) -> None:
        self._store = store
        self._chat_timeout = chat_timeout
        self._connection: Connection | None = None
        self._completed = False
        started = store.start_trajectory(new)
        self.trajectory_id = started.trajectory_id
        self.base_url = started.base_url
        self.api_key = started.api_key
        self.page_key = started.page_key
        self._new = new

    def step(self, **fields: Any) -> AppendResult:
        """Submit one step (white-box). `fields` are those of Step; messages may be dicts, ids and group are filled in,
        and `policy_version` is a shorthand for `policy`. A step that is refused raises.
        """
        step = build_step(self.trajectory_id, self._new, fields)
        return wire.check_stored(self._store.append_steps([step])[0])

    def reward(
        self,
        value: float,
        *,
        name: str = "reward",
        step_id: str | None = None,
        source: str = "client",
        details: dict[str, Any] | None = None,
    ) -> None:
        """Set a reward on this trajectory, or on one of its steps."""
        target = None if step_id else self.trajectory_id
        reward = Reward(value=value, name=name, trajectory_id=target, step_id=step_id, source=source, details=details)
        self._store.add_rewards([reward])

    def feedback(self, kind: FeedbackKind, *, step_id: str | None = None, **fields: Any) -> None:
        """Give feedback on this trajectory, or on one of its steps; `fields` are those of Feedback."""
        sent = Feedback(kind=kind, trajectory_id=self.trajectory_id, step_id=step_id, **fields)
        self._store.add_feedback([sent])

    def annotate(self, name: str, values: Any, *, step_id: str | None = None, **fields: Any) -> None:
        """Put a named array on this trajectory, or on one of its steps; `fields` are those of Annotation."""
        sent = Annotation(name=name, values=values, trajectory_id=self.trajectory_id, step_id=step_id, **fields)
        self._store.add_annotations([sent])

    def chat(
        self,
        messages: Sequence[Message | Mapping[str, Any]],
        *,
        model: str = "default",
        tools: Sequence[Mapping[str, Any]] = (),
        **sampling: Any,
    ) -> wire.ChatReply:
        """One call of the model on the gateway, recorded as a step of this trajectory."""
        if self.base_url is None:
            raise wire.no_gateway()
        if self._connection is None:
            headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
            self._connection = Connection(self.base_url, timeout=self._chat_timeout, headers=headers)
        body = calls.chat_body(model, messages, tools, sampling)
        # Not retried: each call that was sent is a step of its own.
        reply = self._connection.request("POST", "/chat/completions", body, retry=False)
        if reply.status >= 300:
            raise wire.error_from(reply.status, reply.body, f"{self.base_url}/chat/completions")
        return wire.chat_reply(reply.body)

    def complete(self, status: TerminalStatus = "finished", reward: float | None = None) -> None:
        """End the trajectory; the end of the `with` block then changes nothing."""
        if not self._completed:
            self._store.complete_trajectory(self.trajectory_id, status, reward)
            self._completed = True

    @property
    def ended(self) -> bool:
        """Whether this session has ended its trajectory."""
        return self._completed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._connection is not None:
            self._connection.close()
        self.complete("finished" if kind is None else "failed")
        return None


def new_trajectory(task: dict[str, Any] | None, group: str | None, fields: Mapping[str, Any]) -> NewTrajectory:
    """The settings of a trajectory from loose fields; InvalidRequestError names the one that is not there."""
    given = {"task": task, **fields}
    if group is not None and given.setdefault("group_id", group) != group:
        raise InvalidRequestError("group and group_id differ", path="group_id", hint="They mean the same; give one")
    for name in given:
        if name not in NewTrajectory.__struct_fields__:
            hint = wire.nearest_field(f"unknown field `{name}`", NewTrajectory)
            raise InvalidRequestError(f"a trajectory has no field {name!r}", path=name, hint=hint)
    return NewTrajectory(**given)


def build_step(trajectory_id: str, new: NewTrajectory, fields: Mapping[str, Any]) -> Step:
    """A step of the trajectory from loose fields; InvalidRequestError names the one that is wrong."""
    given = {
        "step_id": new_id("stp"),
        "group_id": new.group_id,
        "channel": new.channel,
        "agent": new.agent,
        **fields,
        "trajectory_id": trajectory_id,
    }
    return wire.step_from(given)
