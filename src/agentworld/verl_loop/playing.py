"""One prompt of verl as a rollout: a trajectory in the pool, an agent on the gateway, a lease of what came of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from agentworld.agents.attempt import Stage
from agentworld.agents.definition import Agent, CommandAgent
from agentworld.agents.environment_server import EnvironmentServer
from agentworld.agents.plan import Rollout
from agentworld.agents.ports import Play, Started
from agentworld.agents.report import RolloutResult
from agentworld.client import AsyncFactory
from agentworld.errors import EngineError, InvalidRequestError
from agentworld.factory import EmbeddedPool
from agentworld.records import (
    Batch,
    BatchItem,
    BatchSpec,
    BatchTrajectory,
    Message,
    NewTrajectory,
    Sampling,
    Step,
    new_id,
)
from agentworld.tasks.base import Environment, Score, Task, TaskSet
from agentworld.verl_loop.settings import LoopSettings
from agentworld.verl_loop.station import Station

TASK = "task"
"""The key of `extra_info` under which prompt_row puts a whole task."""


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a prompt: the trajectory with the steps that are fit, its reward, and seconds in all and in calls
    of the model. `batch`: leased, but of held-out prompts, which have no batch id.
    """

    batch: Batch
    reward: float | None
    seconds: float
    model_seconds: float


class PromptTasks:
    """A task set of prompts without a checker: verl judges."""

    name = "verl"

    def tasks(self, count: int | None = None, *, split: str = "train", seed: int = 0) -> list[Task]:
        """None: they come from verl."""
        return []

    def environment(self, task: Task) -> Environment | None:
        """None."""
        return None

    def check(self, task: Task, answer: str | None) -> Score:
        """Refused: the trainer rewards."""
        raise InvalidRequestError("rollouts of verl's prompts are judged by verl")


class PromptStage(Stage):
    """Attempts at prompts of verl. `judged`: whether the task set's checker sets the reward; `known`: whether verl says
    which of a group's rollouts it is, without which all are members of an open group.
    """

    judged = True
    known = True

    def _new(self, rollout: Rollout) -> NewTrajectory:
        new = super()._new(rollout)
        if not self.known:
            new.rollout_index = new.group_size = None
        return new

    async def _play(self, rollout: Rollout, started: Started) -> tuple[Play, float]:
        if self.judged:
            return await super()._play(rollout, started)
        play = Play()
        await self._drive(rollout, started, None, play)
        if play.answer is None or isinstance(rollout.agent, CommandAgent):
            await self._look_at_last_reply(started.trajectory_id, play)
        return play, 0.0


async def play_prompt(
    settings: LoopSettings,
    station: Station,
    agent: Agent,
    task_set: TaskSet | None,
    fields: Mapping[str, Any],
    *,
    rollouts: int,
    sampling: Sampling,
    logprobs: bool,
) -> Played:
    """Play one prompt to its end, with up to `attempts` attempts. `fields`: the columns of its row in verl.

    EngineError says why no attempt came to an end.
    """
    began = time.monotonic()
    task = task_of(fields)
    held_out = _split(fields) in settings.held_out
    index = fields.get("session_id")
    rollout = Rollout(
        task_set=PromptTasks() if task_set is None else task_set,
        task=task,
        agent=agent,
        group_id=f"{settings.run}:{fields.get('uid') or new_id('grp')}",
        group_size=rollouts,
        index=0 if index is None else int(index),
    )
    # An agent's commands, waits and calls are in the station's loop, so that verl's own work delays none.
    result = await station.run(
        lambda: _attempts(
            settings, station, rollout, held_out, sampling, judged=task_set is not None, known=index is not None
        )
    )
    if result.trajectory_id is None or result.status == "failed":
        raise EngineError(f"no attempt at task {task.task_id} came to an end: {result.error}", path="agent")
    batch = await asyncio.to_thread(_take, settings, station, result.trajectory_id, held_out, logprobs)
    member = batch.items[0].trajectories[0]
    spent = sum(step.latency_ms or 0.0 for step in member.steps) / 1000
    return Played(batch, member.trajectory.reward, time.monotonic() - began, spent)


async def _attempts(
    settings: LoopSettings,
    station: Station,
    rollout: Rollout,
    held_out: bool,
    sampling: Sampling,
    *,
    judged: bool,
    known: bool,
) -> RolloutResult:
    async with AsyncFactory(station.url, chat_timeout=settings.call_seconds) as client, EnvironmentServer() as server:
        stage = PromptStage(
            client,
            run=settings.run,
            model=settings.model,
            channel="val" if held_out else "train",
            sampling=sampling,
            environments=server,
            lines={},
            metadata={"trainer": "verl"},
        )
        stage.judged, stage.known = judged, known
        started = None
        for left in reversed(range(settings.attempts)):
            result, started = await stage.attempt(rollout, started, again=left > 0)
            if result.status != "failed":
                break
            rollout = replace(rollout, attempt=rollout.attempt + 1)
        return result


def _take(settings: LoopSettings, station: Station, trajectory_id: str, held_out: bool, logprobs: bool) -> Batch:
    """Lease the trajectory, once curation lets it through; held-out ones are read without a lease."""
    require = ("tokens", "logprobs") if logprobs else ("tokens",)
    pool = station.pool
    if held_out:
        member = BatchTrajectory(trajectory=pool.get_trajectory(trajectory_id), steps=_fit_steps(pool, trajectory_id))
        item = BatchItem(key=trajectory_id, trajectories=[member])
        return Batch(batch_id="", consumer=settings.consumer, epoch=0, deadline=0.0, unit="trajectory", method="sft",
                     items=[item])  # fmt: skip
    # sft takes trajectories whose reward is still to come, too.
    spec = BatchSpec(
        method="sft",
        size=1,
        where=f"trajectory_id == '{trajectory_id}'",
        require=require,
        lease_seconds=settings.lease_seconds,
    )
    consumer = pool.consumer(settings.consumer)
    for leased in consumer.stream(spec, timeout=settings.lease_wait):
        batch: Batch = leased.batch
        return batch
    why = pool.explain_unit(settings.consumer, trajectory_id, spec)
    raise InvalidRequestError(
        f"trajectory {trajectory_id} is not handed out within {settings.lease_wait:g} s: {why.message}",
        path="lease",
        hint=f"Run agentworld pool explain {settings.consumer} {trajectory_id}",
    )


def _fit_steps(pool: EmbeddedPool, trajectory_id: str) -> list[Step]:
    found: list[Step] = []
    cursor: str | None = None
    while True:
        page = pool.list_steps(
            trajectory_id=trajectory_id, where="not excluded", cursor=cursor, include=("tokens", "logprobs")
        )
        found += page.items
        if (cursor := page.next_cursor) is None:
            return found


def task_of(fields: Mapping[str, Any]) -> Task:
    """The task of a row: the whole one that `prompt_row` put there, or one made of the prompt and its reference."""
    extra = fields.get("extra_info") or {}
    if isinstance(extra, Mapping) and isinstance(extra.get(TASK), str):
        return msgspec.json.decode(extra[TASK], type=Task)
    try:
        messages = tuple(msgspec.convert(_plain(message), Message) for message in fields["raw_prompt"])
    except msgspec.ValidationError as error:
        raise InvalidRequestError(
            f"a prompt of verl cannot be read as messages of text: {error}",
            path="raw_prompt",
            hint="Images and other media are not handed to agents from here",
        ) from None
    judged = fields.get("reward_model") or {}
    name = extra.get("task_id", extra.get("index", fields.get("index")))
    return Task(
        task_id=str(fields.get("uid") if name is None else name),
        task_set=str(fields.get("data_source") or "verl"),
        messages=messages,
        reference=_plain(judged.get("ground_truth")) if isinstance(judged, Mapping) else None,
        split="heldout" if _split(fields) not in (None, "train") else "train",
    )


def prompt_row(task: Task, index: int) -> dict[str, Any]:
    """A task as a row of verl's parquet files, from which `task_of` makes the same task again."""
    return {
        "data_source": task.task_set,
        "prompt": [{"role": message.role, "content": message.text} for message in task.messages],
        "ability": "agent",
        "reward_model": {"style": "rule", "ground_truth": _text(task.reference)},
        "extra_info": {
            "index": index,
            "split": task.split,
            "task_id": task.task_id,
            TASK: msgspec.json.encode(task).decode(),
        },
    }


def _text(reference: Any) -> str:
    return reference if isinstance(reference, str) else json.dumps(reference)


def _split(fields: Mapping[str, Any]) -> str | None:
    extra = fields.get("extra_info") or {}
    found = extra.get("split") if isinstance(extra, Mapping) else None
    return None if found is None else str(found)


def _plain(value: Any) -> Any:
    """Values of parquet columns, which come as numpy's, as Python's own, without absent fields."""
    if hasattr(value, "tolist") and not isinstance(value, str):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items() if part is not None}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
