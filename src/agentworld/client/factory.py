"""A factory over HTTP: the pool's surface, for any thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from agentworld.client import calls, wire
from agentworld.client.absent import absent
from agentworld.client.attempts import Attempt, attempts
from agentworld.client.batches import BatchMethods
from agentworld.client.connection import Connection
from agentworld.client.curation import CurationMethods
from agentworld.client.datasets import DatasetMethods
from agentworld.client.evaluations import EvaluationMethods
from agentworld.client.following import follow
from agentworld.client.keeping import KeepingMethods
from agentworld.client.keys import KeyMethods
from agentworld.client.merging import MergeMethods
from agentworld.client.session import TrajectorySession, new_trajectory
from agentworld.pool import draining
from agentworld.pool.arguments import check_event_kinds
from agentworld.pool.arrays import StepArrays, check_selection, steps_as_arrays
from agentworld.pool.base import check_after
from agentworld.pool.protocol import (
    AppendResult,
    Awaited,
    DeadLetter,
    Drain,
    GatewayState,
    GatewayWorker,
    Page,
    PoolStats,
    SignalsResult,
)
from agentworld.query import Explanation, Subject
from agentworld.records import (
    Annotation,
    Event,
    Exchange,
    Feedback,
    FeedbackKind,
    Group,
    Metrics,
    NewTrajectory,
    Policy,
    Reward,
    Step,
    TerminalStatus,
    Trajectory,
)

T = TypeVar("T")


class Factory(
    BatchMethods, KeyMethods, KeepingMethods, CurationMethods, EvaluationMethods, DatasetMethods, MergeMethods
):
    """The pool's surface over HTTP; what each method does is said there (agentworld.pool.protocol.Pool).

    Faults of the server are raised as the AgentWorldError that it raised. `api_key`: by default that of
    AGENTWORLD_API_KEY. `timeout`: seconds for a control call; `chat_timeout`: seconds for one reply of a model.
    """

    def __init__(
        self, url: str, *, api_key: str | None = None, timeout: float = 60.0, chat_timeout: float = 600.0
    ) -> None:
        headers = self._headers = wire.key_headers(api_key)
        self._connection = Connection(url, timeout=timeout, headers=headers)
        self._chat_timeout = chat_timeout
        self.url = self._connection.url

    def _send(self, call: calls.Call[T]) -> T:
        return call.read(self._body(call), self.url)

    def _read(self, call: calls.Call[T]) -> T | None:
        body = self._body(call)
        return call.read(body, self.url) if body else None

    def _fetch(self, path: str) -> bytes:
        return self._body(calls.Call("GET", path, object))

    def _body(self, call: calls.Call[Any]) -> bytes:
        reply = self._connection.request(call.method, call.path, call.body, retry=call.idempotent, timeout=call.timeout)
        if reply.status >= 300:
            raise wire.control_error(reply.status, reply.body, self.url, call.path)
        return reply.body

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise absent(name)

    # --- trajectories -----------------------------------------------------------------------------------------
    def trajectory(
        self, *, task: dict[str, Any] | None = None, group: str | None = None, **fields: Any
    ) -> TrajectorySession:
        """A trajectory to work in, as a context manager; `fields` are those of NewTrajectory."""
        new = new_trajectory(task, group, fields)
        return TrajectorySession(self, new, chat_timeout=self._chat_timeout)

    def attempts(
        self, times: int = 3, *, task: dict[str, Any] | None = None, group: str | None = None, **fields: Any
    ) -> Iterator[Attempt]:
        """See EmbeddedPool.attempts."""
        new = new_trajectory(task, group, fields)
        return attempts(lambda each: Attempt(self, each, chat_timeout=self._chat_timeout), new, times)

    def start_trajectory(self, new: NewTrajectory) -> wire.StartedTrajectory:
        """Create a trajectory; the reply says how its agent reaches the gateway."""
        return self._send(calls.start_trajectory(new))

    def create_trajectory(self, new: NewTrajectory) -> Trajectory:
        """See Pool."""
        return self.start_trajectory(new).trajectory

    def complete_trajectory(
        self, trajectory_id: str, status: TerminalStatus, reward: float | None = None
    ) -> Trajectory:
        """See Pool."""
        return self._send(calls.complete_trajectory(trajectory_id, status, reward))

    def get_trajectory(self, trajectory_id: str) -> Trajectory:
        """See Pool."""
        return self._send(calls.get_trajectory(trajectory_id))

    def list_trajectories(
        self,
        *,
        where: str | None = None,
        trajectory_id: str | None = None,
        group_id: str | None = None,
        channel: str | None = None,
        order: calls.Order = "oldest",
        sort: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Trajectory]:
        """See Pool."""
        return self._send(
            calls.list_trajectories(
                where=where,
                trajectory_id=trajectory_id,
                group_id=group_id,
                channel=channel,
                order=order,
                sort=sort,
                cursor=cursor,
                limit=limit,
            )
        )

    def list_exchanges(self, trajectory_id: str, *, limit: int = 1000) -> list[Exchange]:
        """See Pool."""
        return self._send(calls.list_exchanges(trajectory_id, limit)).items

    # --- steps ------------------------------------------------------------------------------------------------
    def append_steps(self, steps: Sequence[Step]) -> list[AppendResult]:
        """See Pool."""
        return self._send(calls.append_steps(steps)).results

    def get_step(self, step_id: str, *, include: Sequence[str] = ("tokens", "messages", "logprobs")) -> Step:
        """See Pool."""
        return self._send(calls.get_step(step_id, include))

    def list_steps(
        self,
        *,
        where: str | None = None,
        trajectory_id: str | None = None,
        group_id: str | None = None,
        channel: str | None = None,
        order: calls.Order = "oldest",
        cursor: str | None = None,
        limit: int = 100,
        include: Sequence[str] = (),
    ) -> Page[Step]:
        """See Pool."""
        return self._send(
            calls.list_steps(
                include=include,
                where=where,
                trajectory_id=trajectory_id,
                group_id=group_id,
                channel=channel,
                order=order,
                cursor=cursor,
                limit=limit,
            )
        )

    def sequences(
        self,
        *,
        trajectory_id: str | None = None,
        step_ids: Sequence[str] | None = None,
        where: str | None = None,
        channel: str | None = None,
    ) -> Iterator[StepArrays]:
        """See Pool. Over HTTP ids travel as JSON: for much, open the pool itself."""
        check_selection(step_ids, (trajectory_id, where, channel))
        if step_ids is not None:
            return steps_as_arrays(self.get_step(step_id, include=("tokens", "logprobs")) for step_id in step_ids)
        return steps_as_arrays(
            self.all_steps(
                include=("tokens", "logprobs"), trajectory_id=trajectory_id, where=where, channel=channel, limit=100
            )
        )

    def explain(self, where: str, subject: Subject = "trajectories") -> Explanation:
        """See Pool."""
        return self._send(calls.explain(where, subject))

    def dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """See Pool."""
        return self._send(calls.dead_letters(after, limit)).items

    # --- signals and state ------------------------------------------------------------------------------------
    def add_rewards(self, rewards: Sequence[Reward]) -> int:
        """See Pool."""
        return self._send(calls.add_signals("rewards", rewards)).changed

    def add_feedback(self, feedback: Sequence[Feedback]) -> int:
        """See Pool."""
        return self._send(calls.add_signals("feedback", feedback)).changed

    def add_annotations(self, annotations: Sequence[Annotation]) -> int:
        """See Pool."""
        return self._send(calls.add_signals("annotations", annotations)).changed

    def add_signals(self, sent: Sequence[Reward | Feedback | Annotation]) -> SignalsResult:
        """See Pool; the signals of one call are of one kind here."""
        return self._send(calls.add_mixed(sent))

    def list_feedback(
        self,
        *,
        trajectory_id: str | None = None,
        step_id: str | None = None,
        kind: FeedbackKind | None = None,
        source: str | None = None,
        name: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Feedback]:
        """See Pool."""
        return self._send(
            calls.list_feedback(
                trajectory_id=trajectory_id,
                step_id=step_id,
                kind=kind,
                source=source,
                name=name,
                cursor=cursor,
                limit=limit,
            )
        )

    def rewards_on(self, *, trajectory_ids: Sequence[str] = (), step_ids: Sequence[str] = ()) -> list[Reward]:
        """See Pool."""
        return [one for call in calls.rewards_on(trajectory_ids, step_ids) for one in self._send(call).items]

    def get_annotations(
        self,
        *,
        step_ids: Sequence[str] | None = None,
        trajectory_id: str | None = None,
        names: Sequence[str] | None = None,
    ) -> list[Annotation]:
        """See Pool."""
        found: list[Annotation] = []
        for some in calls.few_at_once(step_ids):
            found += self._send(calls.get_annotations(some, trajectory_id, names)).items
        return calls.with_arrays(found)

    def awaited(self, *, cursor: str | None = None, limit: int = 100) -> Page[Awaited]:
        """See Pool."""
        return self._send(calls.awaited(cursor, limit))

    def get_group(self, group_id: str) -> Group:
        """See Pool."""
        return self._send(calls.get_group(group_id))

    def list_groups(
        self,
        *,
        state: Literal["open", "closed"] | None = None,
        channel: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Group]:
        """See Pool."""
        return self._send(calls.list_groups(state=state, channel=channel, cursor=cursor, limit=limit))

    def events(
        self, after: int = 0, limit: int = 1000, *, trajectory_id: str | None = None, channel: str | None = None
    ) -> list[Event]:
        """See Pool."""
        return self._send(calls.events(after, limit, trajectory_id, channel)).items

    def follow(
        self, after: int = 0, *, timeout: float | None = None, kinds: Sequence[str] | None = None
    ) -> Iterator[Event]:
        """See Pool. A stream that breaks is taken up again where it broke; ServerUnreachableError where the server does
        not answer for a minute.
        """
        return follow(self.url, self._headers, check_after(after), timeout, check_event_kinds(kinds))

    def add_metrics(self, metrics: Sequence[Metrics]) -> int:
        """See Pool."""
        return self._send(calls.add_metrics(metrics)).added

    def set_policy(self, policy: Policy) -> Policy:
        """See Pool."""
        return self._send(calls.set_policy(policy))

    def set_paused(self, paused: bool) -> None:
        """See Pool."""
        self._send(calls.set_paused(paused))

    def gateway_state(self) -> GatewayState:
        """See Pool."""
        return self._send(calls.gateway_state())

    def gateway_workers(self) -> list[GatewayWorker]:
        """See Pool."""
        return self._send(calls.gateway_workers()).workers

    def drain(self, timeout: float = 0.0) -> Drain:
        """See Pool."""
        return draining.wait(lambda: self._send(calls.gateway_workers()).drain, timeout)

    def stats(self) -> PoolStats:
        """See Pool."""
        return self._send(calls.stats())

    # --- walking ----------------------------------------------------------------------------------------------
    def all_steps(self, **filters: Any) -> Iterator[Step]:
        """Every step of a listing, page by page."""
        return _walk(self.list_steps, filters)

    def all_trajectories(self, **filters: Any) -> Iterator[Trajectory]:
        """Every trajectory of a listing, page by page."""
        return _walk(self.list_trajectories, filters)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def __enter__(self) -> Factory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _walk(listing: Callable[..., Page[T]], filters: Mapping[str, Any]) -> Iterator[T]:
    cursor: str | None = None
    while True:
        page = listing(**filters, cursor=cursor)
        yield from page.items
        if (cursor := page.next_cursor) is None:
            return
