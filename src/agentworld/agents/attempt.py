"""One attempt: a trajectory is opened, the agent plays, the checker judges, the trajectory is ended. Always ended."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from agentworld.agents.command import play_command, play_line, task_for
from agentworld.agents.definition import CommandAgent, LoopAgent
from agentworld.agents.environment_server import EnvironmentServer
from agentworld.agents.failed_calls import failed_of, told
from agentworld.agents.lines import LineProcess
from agentworld.agents.loop import play_loop
from agentworld.agents.plan import Rollout
from agentworld.agents.ports import AgentFailure, FactoryClient, Notify, Play, Started, ignore
from agentworld.agents.report import RolloutResult
from agentworld.errors import AgentWorldError, ConflictError
from agentworld.records import NewTrajectory, Reward, Sampling, TerminalStatus, Trajectory, digest
from agentworld.tasks.base import Environment, JudgingEnvironment

CLEANUP_SECONDS = 5.0


class Stage:
    """What every attempt of one run shares."""

    def __init__(
        self,
        client: FactoryClient,
        *,
        run: str,
        model: str,
        channel: str,
        sampling: Sampling,
        environments: EnvironmentServer,
        lines: Mapping[str, LineProcess],
        metadata: Mapping[str, Any],
        notify: Notify = ignore,
    ) -> None:
        self.client = client
        self.run = run
        self.model = model
        self.channel = channel
        self.sampling = sampling
        self.environments = environments
        self.lines = lines
        self.metadata = metadata
        self.notify = notify

    async def attempt(
        self, rollout: Rollout, started: Started | None = None, again: bool = False
    ) -> tuple[RolloutResult, Started | None]:
        """Play once. Whatever goes wrong is in the result; only cancelling gets out.

        `started`: the attempt's trajectory where it is open already. `again`: a failed attempt is followed by another,
        whose trajectory is opened before the failed one is ended and returned, so that the group does not close between
        the two.
        """
        began = time.monotonic()
        try:
            started = started or await self._open(rollout)
            play, reward = await self._play(rollout, started)
            status: TerminalStatus = "truncated" if play.stopped else "finished"
            ended = await self.client.complete_trajectory(started.trajectory_id, status)
            return self._result(rollout, started, ended, began, reward=reward, stopped=play.stopped), None
        except asyncio.CancelledError:
            await self.end(started, "abandoned")
            raise
        except AgentFailure as failure:
            error = str(failure)
        except AgentWorldError as fault:
            error = fault.one_line()
        except Exception as fault:  # A task set or an agent is somebody's code: its fault is this attempt's.
            error = f"{type(fault).__name__}: {fault}"
        following = None
        try:
            if again:
                following = await self._open_next(rollout if started is None else replace(rollout, leftovers=()))
            ended_as = await self.end(started, "failed")
        except asyncio.CancelledError:
            await self.end(started, "failed")
            await self.end(following, "abandoned")
            raise
        return self._result(rollout, started, ended_as, began, error=error), following

    async def _open(self, rollout: Rollout) -> Started:
        """The trajectory of an attempt; what an earlier process left open of its rollout is then abandoned.

        Where that goes wrong or is cancelled, the trajectory is abandoned: one that nobody knows of would stay open.
        """
        opening = asyncio.ensure_future(self.client.start_trajectory(self._new(rollout)))
        try:
            started = await asyncio.shield(opening)
            for trajectory_id in rollout.leftovers:
                with contextlib.suppress(ConflictError):  # Its agent ended it just now.
                    await self.client.complete_trajectory(trajectory_id, "abandoned")
        except BaseException:
            await self._take_back(opening)
            raise
        return started

    async def _take_back(self, opening: asyncio.Future[Started]) -> None:
        """Abandon a trajectory that is being opened, once the server says that it is."""
        try:
            await asyncio.wait([opening], timeout=CLEANUP_SECONDS)
        finally:
            opening.cancel()  # Does nothing where it is done.
        if opening.done() and not opening.cancelled() and opening.exception() is None:
            await self.end(opening.result(), "abandoned")

    async def _open_next(self, rollout: Rollout) -> Started | None:
        """The trajectory of the attempt after this one; None where the server does not answer in time."""
        try:
            async with asyncio.timeout(CLEANUP_SECONDS):
                return await self._open(replace(rollout, attempt=rollout.attempt + 1))
        except (AgentWorldError, TimeoutError):
            return None

    async def _play(self, rollout: Rollout, started: Started) -> tuple[Play, float]:
        """Let the agent play, judge what came of it, and set the reward."""
        play = Play()
        environment = rollout.task_set.environment(rollout.task)
        try:
            await self._drive(rollout, started, environment, play)
            if play.answer is None or isinstance(rollout.agent, CommandAgent):
                await self._look_at_last_reply(started.trajectory_id, play)
            # A checker may run tests for minutes; the other rollouts go on.
            if isinstance(environment, JudgingEnvironment):
                score = await asyncio.to_thread(environment.check, play.answer)
            else:
                score = await asyncio.to_thread(rollout.task_set.check, rollout.task, play.answer)
        finally:
            if environment is not None:
                environment.close()
        reward = Reward(
            value=score.value, trajectory_id=started.trajectory_id, source="checker", details=score.details or None
        )
        await self.client.add_rewards([reward])
        return play, score.value

    async def _drive(self, rollout: Rollout, started: Started, environment: Environment | None, play: Play) -> None:
        agent, task = rollout.agent, rollout.task
        sampling = self._sampling(rollout)
        if isinstance(agent, LoopAgent):
            try:
                async with asyncio.timeout(agent.timeout):
                    await play_loop(
                        agent,
                        self.client,
                        started,
                        task.messages,
                        environment,
                        model=self.model,
                        sampling=sampling,
                        play=play,
                        notify=self.notify,
                    )
            except TimeoutError:
                play.stopped = "timeout"
            if not play.calls:
                raise AgentFailure(f"no reply within {agent.timeout:g} s")
            return
        async with contextlib.AsyncExitStack() as stack:
            address = None
            if environment is not None:
                address = await stack.enter_async_context(self.environments.serving(environment))
            tools = environment.tools if environment is not None else []
            brief = task_for(agent, task.messages, tools, address, self.model, sampling)
            if agent.lines:
                try:
                    async with asyncio.timeout(agent.timeout):
                        await play_line(self.lines[agent.name], started, brief, play)
                except TimeoutError:
                    play.stopped = "timeout"
            else:
                await play_command(agent, started, brief, play)
        if (await self.client.get_trajectory(started.trajectory_id)).step_count == 0:
            if failures := failed_of(await self.client.list_exchanges(started.trajectory_id)):
                raise AgentFailure(told(failures, 0))
            raise AgentFailure(
                f"no call came through the gateway within {agent.timeout:g} s"
                if play.stopped
                else "no call came through the gateway: the agent does not use OPENAI_BASE_URL or ANTHROPIC_BASE_URL"
                ", or not its API key"
            )

    async def _look_at_last_reply(self, trajectory_id: str, play: Play) -> None:
        """Take from the newest reply that the pool holds what the agent did not tell: its text, and whether it was cut
        off, which is the last word on a command as it is in our loop.
        """
        page = await self.client.list_steps(trajectory_id=trajectory_id, order="newest", limit=1, include=("messages",))
        if not page.items:
            return
        last = page.items[0]
        if play.answer is None and last.response_message is not None:
            play.answer = last.response_message.text
        if play.stopped is None and last.finish_reason == "length":
            play.stopped = "length"

    def _new(self, rollout: Rollout) -> NewTrajectory:
        return NewTrajectory(
            group_id=rollout.group_id,
            group_size=rollout.group_size,
            rollout_index=rollout.index,
            attempt=rollout.attempt,
            task=rollout.task.payload(),
            agent=rollout.agent.name,
            channel=self.channel,
            metadata={**self.metadata, "run": self.run},
        )

    def _sampling(self, rollout: Rollout) -> dict[str, Any]:
        """The run's sampling with the agent's over it; a seed becomes one for each rollout and attempt."""
        fields: dict[str, Any] = {
            **msgspec.to_builtins(self.sampling),
            **msgspec.to_builtins(rollout.agent.sampling),
        }
        if "seed" in fields:
            key = f"{fields['seed']}:{rollout.group_id}:{rollout.index}:{rollout.attempt}"
            fields["seed"] = int.from_bytes(digest(key.encode())[:4], "big") >> 1
        if isinstance(rollout.agent, LoopAgent):
            fields.update(rollout.agent.extra_body)
        return fields

    async def end(self, started: Started | None, status: TerminalStatus) -> Trajectory | None:
        """End the trajectory as well as that can be done; where the server is gone, nobody is left to tell."""
        if started is None:
            return None
        try:
            async with asyncio.timeout(CLEANUP_SECONDS):
                return await self.client.complete_trajectory(started.trajectory_id, status)
        except (AgentWorldError, TimeoutError):
            return None

    def _result(
        self,
        rollout: Rollout,
        started: Started | None,
        ended: Trajectory | None,
        began: float,
        *,
        reward: float | None = None,
        stopped: str | None = None,
        error: str | None = None,
    ) -> RolloutResult:
        return RolloutResult(
            task_set=rollout.task_set.name,
            task_id=rollout.task.task_id,
            agent=rollout.agent.name,
            group_id=rollout.group_id,
            rollout_index=rollout.index,
            attempt=rollout.attempt,
            trajectory_id=started.trajectory_id if started is not None else None,
            status="failed" if error is not None else ("truncated" if stopped else "finished"),
            reward=reward,
            stopped=stopped,
            error=error,
            steps=ended.step_count if ended is not None else 0,
            prompt_tokens=ended.prompt_tokens if ended is not None else 0,
            response_tokens=ended.response_tokens if ended is not None else 0,
            seconds=time.monotonic() - began,
        )
