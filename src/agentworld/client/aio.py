"""The HTTP client for event loops: the calls that a runner of many agents makes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar

import aiohttp

from agentworld.client import calls, wire
from agentworld.client.connection import BACKOFF, TRY_AGAIN, Reply, check_url, unreachable
from agentworld.client.curation import AsyncCurationMethods
from agentworld.client.datasets import AsyncDatasetMethods
from agentworld.client.evaluations import AsyncEvaluationMethods
from agentworld.client.keeping import AsyncKeepingMethods
from agentworld.client.merging import AsyncMergeMethods
from agentworld.client.session import build_step, new_trajectory
from agentworld.pool.protocol import AppendResult, GatewayState, Page, PoolStats
from agentworld.query import Explanation, Subject
from agentworld.records import (
    Annotation,
    Exchange,
    Feedback,
    FeedbackKind,
    Group,
    Message,
    Metrics,
    NewTrajectory,
    Policy,
    Reward,
    Step,
    TerminalStatus,
    Trajectory,
)

T = TypeVar("T")


class AsyncFactory(
    AsyncKeepingMethods, AsyncCurationMethods, AsyncEvaluationMethods, AsyncDatasetMethods, AsyncMergeMethods
):
    """A factory over HTTP for asyncio; use it as `async with AsyncFactory(url) as factory`.

    Errors are the AgentWorldError that the server raised. `api_key`: by default that of AGENTWORLD_API_KEY. `timeout`:
    seconds for a control call; `chat_timeout`: seconds for one reply of a model.
    """

    def __init__(
        self, url: str, *, api_key: str | None = None, timeout: float = 60.0, chat_timeout: float = 600.0
    ) -> None:
        check_url(url)
        self.url = url.rstrip("/")
        self._headers = wire.key_headers(api_key)
        self._timeout = timeout
        self._chat_timeout = chat_timeout
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> AsyncFactory:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    # --- trajectories ---------------------------------------------------------------------------------------------
    async def start_trajectory(self, new: NewTrajectory) -> wire.StartedTrajectory:
        """Create a trajectory; the reply says how its agent reaches the gateway."""
        return await self._send(calls.start_trajectory(new))

    async def complete_trajectory(
        self, trajectory_id: str, status: TerminalStatus, reward: float | None = None
    ) -> Trajectory:
        """See Pool.complete_trajectory."""
        return await self._send(calls.complete_trajectory(trajectory_id, status, reward))

    async def get_trajectory(self, trajectory_id: str) -> Trajectory:
        """See Pool.get_trajectory."""
        return await self._send(calls.get_trajectory(trajectory_id))

    async def list_trajectories(self, **parameters: Any) -> Page[Trajectory]:
        """See Pool.list_trajectories."""
        return await self._send(calls.list_trajectories(**parameters))

    async def list_exchanges(self, trajectory_id: str, *, limit: int = 1000) -> list[Exchange]:
        """See Pool.list_exchanges."""
        return (await self._send(calls.list_exchanges(trajectory_id, limit))).items

    @asynccontextmanager
    async def trajectory(
        self, *, task: dict[str, Any] | None = None, group: str | None = None, **fields: Any
    ) -> AsyncIterator[AsyncTrajectory]:
        """A trajectory that is completed on exit: finished, or failed where the block raised.

        `fields` are those of NewTrajectory.
        """
        new = new_trajectory(task, group, fields)
        started = await self.start_trajectory(new)
        session = AsyncTrajectory(self, started, new)
        try:
            yield session
        except BaseException:
            await session.complete("failed")
            raise
        await session.complete("finished")

    # --- steps, signals, state --------------------------------------------------------------------------------
    async def append_steps(self, steps: Sequence[Step]) -> list[AppendResult]:
        """See Pool.append_steps."""
        return (await self._send(calls.append_steps(steps))).results

    async def list_steps(self, *, include: Sequence[str] = (), **parameters: Any) -> Page[Step]:
        """See Pool.list_steps."""
        return await self._send(calls.list_steps(include=include, **parameters))

    async def get_step(self, step_id: str, *, include: Sequence[str] = ("tokens", "messages", "logprobs")) -> Step:
        """See Pool.get_step."""
        return await self._send(calls.get_step(step_id, include))

    async def add_rewards(self, rewards: Sequence[Reward]) -> int:
        """See Pool.add_rewards."""
        return (await self._send(calls.add_signals("rewards", rewards))).changed

    async def add_feedback(self, feedback: Sequence[Feedback]) -> int:
        """See Pool.add_feedback."""
        return (await self._send(calls.add_signals("feedback", feedback))).changed

    async def add_annotations(self, annotations: Sequence[Annotation]) -> int:
        """See Pool.add_annotations."""
        return (await self._send(calls.add_signals("annotations", annotations))).changed

    async def list_feedback(self, **parameters: Any) -> Page[Feedback]:
        """See Pool.list_feedback."""
        return await self._send(calls.list_feedback(**parameters))

    async def rewards_on(self, *, trajectory_ids: Sequence[str] = (), step_ids: Sequence[str] = ()) -> list[Reward]:
        """See Pool.rewards_on."""
        return [one for call in calls.rewards_on(trajectory_ids, step_ids) for one in (await self._send(call)).items]

    async def get_annotations(
        self,
        *,
        step_ids: Sequence[str] | None = None,
        trajectory_id: str | None = None,
        names: Sequence[str] | None = None,
    ) -> list[Annotation]:
        """See Pool.get_annotations."""
        found: list[Annotation] = []
        for some in calls.few_at_once(step_ids):
            found += (await self._send(calls.get_annotations(some, trajectory_id, names))).items
        return calls.with_arrays(found)

    async def get_group(self, group_id: str) -> Group:
        """See Pool.get_group."""
        return await self._send(calls.get_group(group_id))

    async def list_groups(self, **parameters: Any) -> Page[Group]:
        """See Pool.list_groups."""
        return await self._send(calls.list_groups(**parameters))

    async def add_metrics(self, metrics: Sequence[Metrics]) -> int:
        """See Pool.add_metrics."""
        return (await self._send(calls.add_metrics(metrics))).added

    async def set_policy(self, policy: Policy) -> Policy:
        """See Pool.set_policy."""
        return await self._send(calls.set_policy(policy))

    async def gateway_state(self) -> GatewayState:
        """See Pool.gateway_state."""
        return await self._send(calls.gateway_state())

    async def explain(self, where: str, subject: Subject = "trajectories") -> Explanation:
        """See Pool.explain."""
        return await self._send(calls.explain(where, subject))

    async def stats(self) -> PoolStats:
        """See Pool.stats."""
        return await self._send(calls.stats())

    # --- models -----------------------------------------------------------------------------------------------
    async def chat(
        self,
        base_url: str,
        api_key: str | None,
        messages: Sequence[Message | Mapping[str, Any]],
        *,
        model: str = "default",
        tools: Sequence[Mapping[str, Any]] = (),
        **sampling: Any,
    ) -> wire.ChatReply:
        """One chat completion under `base_url`; not retried, as each sent call is a step of its own."""
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        url = f"{base_url}/chat/completions"
        body = calls.chat_body(model, messages, tools, sampling)
        reply = await self._request("POST", url, body, headers, self._chat_timeout, retry=False)
        if reply.status >= 300:
            raise wire.error_from(reply.status, reply.body, url)
        return wire.chat_reply(reply.body)

    async def _send(self, call: calls.Call[T]) -> T:
        return call.read(await self._body(call), self.url)

    async def _read(self, call: calls.Call[T]) -> T | None:
        body = await self._body(call)
        return call.read(body, self.url) if body else None

    async def _fetch(self, path: str) -> bytes:
        return await self._body(calls.Call("GET", path, object))

    async def _body(self, call: calls.Call[Any]) -> bytes:
        url = f"{self.url}{call.path}"
        limit = call.timeout or self._timeout
        reply = await self._request(call.method, url, call.body, self._headers, limit, retry=call.idempotent)
        if reply.status >= 300:
            raise wire.control_error(reply.status, reply.body, self.url, call.path)
        return reply.body

    async def _request(
        self, method: str, url: str, body: bytes | None, headers: dict[str, str], timeout: float, *, retry: bool
    ) -> Reply:
        if self._session is None:
            # A limit of connections would make the agents of a large run wait for each other.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), headers={"Accept": "application/json"}
            )
        if body is not None:
            headers = {**headers, "Content-Type": "application/json"}
        limit = aiohttp.ClientTimeout(total=timeout)
        reply: Reply | None = None
        reason: object = ""
        for pause in (0.0, *BACKOFF):
            await asyncio.sleep(pause)
            try:
                async with self._session.request(method, url, data=body, headers=headers, timeout=limit) as response:
                    reply = Reply(response.status, await response.read())
            except aiohttp.ClientConnectorError as error:
                reason = error.strerror or error
                continue
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                reason = str(error) or type(error).__name__
                if not retry:
                    break
                continue
            if retry and reply.status in TRY_AGAIN:
                continue
            return reply
        if reply is not None:
            return reply
        raise unreachable(self.url if url.startswith(self.url) else url.partition("?")[0], reason)


class AsyncTrajectory:
    """One running trajectory: `base_url` and `api_key` for its agent, rewards and steps for its writer."""

    def __init__(self, factory: AsyncFactory, started: wire.StartedTrajectory, new: NewTrajectory) -> None:
        self._factory = factory
        self._new = new
        self.trajectory_id = started.trajectory_id
        self.base_url = started.base_url
        self.api_key = started.api_key
        self.page_key = started.page_key
        self._completed = False

    async def chat(
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
        return await self._factory.chat(self.base_url, self.api_key, messages, model=model, tools=tools, **sampling)

    async def step(self, **fields: Any) -> AppendResult:
        """Submit one step (white-box); `fields` are those of Step, the ids are filled in."""
        step = build_step(self.trajectory_id, self._new, fields)
        return wire.check_stored((await self._factory.append_steps([step]))[0])

    async def reward(self, value: float, *, name: str = "reward", step_id: str | None = None, **fields: Any) -> None:
        """Set a reward on this trajectory, or on one of its steps."""
        trajectory_id = None if step_id else self.trajectory_id
        reward = Reward(value=value, name=name, trajectory_id=trajectory_id, step_id=step_id, **fields)
        await self._factory.add_rewards([reward])

    async def feedback(self, kind: FeedbackKind, *, step_id: str | None = None, **fields: Any) -> None:
        """Give feedback on this trajectory, or on one of its steps; `fields` are those of Feedback."""
        sent = Feedback(kind=kind, trajectory_id=self.trajectory_id, step_id=step_id, **fields)
        await self._factory.add_feedback([sent])

    async def annotate(self, name: str, values: Any, *, step_id: str | None = None, **fields: Any) -> None:
        """Put a named array on this trajectory, or on one of its steps; `fields` are those of Annotation."""
        sent = Annotation(name=name, values=values, trajectory_id=self.trajectory_id, step_id=step_id, **fields)
        await self._factory.add_annotations([sent])

    async def complete(self, status: TerminalStatus = "finished", reward: float | None = None) -> None:
        """End the trajectory; only the first call counts, so that the context manager does not end it twice."""
        if not self._completed:
            await self._factory.complete_trajectory(self.trajectory_id, status, reward)
            self._completed = True
