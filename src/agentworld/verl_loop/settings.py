"""The settings file of the plug-in, which every process of a run reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from agentworld.agents.definition import Agent, CommandAgent, agent_from, read_agent
from agentworld.config import Count, Seconds, blamed, convert, read_toml
from agentworld.errors import ConfigError
from agentworld.records import check_id
from agentworld.tasks.base import TaskSet
from agentworld.tasks.definition import task_set_from

# all: every row of a trajectory, which verl's V1 trainer takes. last: the last one, which the reward follows most
# closely. refuse: an error, so that the rollout counts as failed.
Several = Literal["all", "last", "refuse"]


class LoopSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How rollouts are played, stored and handed to verl.

    `pool`: URL of the pool, the same for all processes; over several machines PostgreSQL. `model`, `run`: the policy's
    name, and the training run that its versions count in; a run that begins anew needs a new one. `consumer`: who
    leases what is trained on. `agent`: a table, or the path of a file. `task_set`: what checks answers and makes
    environments; without it verl's reward function judges, unless the agent or an evaluator has set a reward by the
    end. `tokenizer`: unset, that of verl's model. `attempts`: most attempts at one rollout. `several`: what becomes of
    trajectories of which more than one row comes; unset, `all` in verl's V1 trainer and `refuse` in its former one.
    `lease_seconds`: how long a trajectory stays leased until the checkpoint that contains it. `lease_wait`: seconds
    that curation may take to let a trajectory through. `held_out`: values of `extra_info.split` whose rows go to the
    channel `val`, and are not leased.
    """

    pool: str
    agent: dict[str, Any] | str = msgspec.field(default_factory=lambda: {"kind": "loop"})
    task_set: dict[str, Any] | None = None
    model: str = "policy"
    run: str = "verl"
    consumer: str = "verl"
    tokenizer: str | None = None
    renderer: dict[str, Any] = {}
    attempts: Count = 3
    several: Several | None = None
    lease_seconds: Annotated[float, msgspec.Meta(gt=0, le=604_800)] = 86_400.0
    lease_wait: Seconds = 30.0
    held_out: tuple[str, ...] = ("val", "test", "heldout")
    call_seconds: Seconds = 600.0
    folder: str = "."
    """Where relative paths start: that of the file."""

    def the_agent(self) -> Agent:
        """The agent; ConfigError where it cannot be had, or serves many rollouts by lines, which needs a run."""
        if isinstance(self.agent, str):
            agent = read_agent(Path(self.folder, self.agent))
        else:
            agent = agent_from({"name": "agent", **self.agent}, "agent", Path(self.folder))
        if isinstance(agent, CommandAgent) and agent.lines:
            raise ConfigError(
                "an agent that takes lines is for `agentworld run`", path="agent.lines", hint="Set lines = false"
            )
        return agent

    def the_task_set(self) -> TaskSet | None:
        """The task set, None where verl judges."""
        return None if self.task_set is None else task_set_from(self.task_set, "task_set", Path(self.folder))


def read_settings(path: str | Path) -> LoopSettings:
    """The settings in a TOML file; ConfigError names the field and what to do."""
    path = Path(path)
    with blamed(str(path)):
        settings = convert({"folder": str(path.parent.resolve()), **read_toml(path)}, LoopSettings, str(path))
        check_id(settings.consumer, "consumer")
        settings.the_agent()
    return settings
