"""What runs need of the factory's HTTP client, and what an agent hands back.

`agents` stands before `client` in the import order, so it names here what it uses of it;
`agentworld.client.AsyncFactory` is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentworld.pool.protocol import GatewayState, Page
from agentworld.records import Exchange, Message, NewTrajectory, Reward, Step, TerminalStatus, Trajectory


class Started(Protocol):
    """A trajectory that was created, and how its agent reaches the gateway (`base_url` ends in /v1)."""

    @property
    def trajectory_id(self) -> str:
        """The id."""

    @property
    def base_url(self) -> str | None:
        """None where the server serves no models."""

    @property
    def api_key(self) -> str | None:
        """None where the server uses no keys."""


class Reply(Protocol):
    """One reply of a model."""

    @property
    def message(self) -> Message:
        """What it said."""

    @property
    def finish_reason(self) -> str | None:
        """Why it ended."""


class FactoryClient(Protocol):
    """The part of the HTTP client that runs need. Errors are subclasses of AgentWorldError."""

    async def start_trajectory(self, new: NewTrajectory) -> Started:
        """Create a trajectory."""

    async def complete_trajectory(
        self, trajectory_id: str, status: TerminalStatus, reward: float | None = None
    ) -> Trajectory:
        """End it."""

    async def get_trajectory(self, trajectory_id: str) -> Trajectory:
        """Read it."""

    async def list_exchanges(self, trajectory_id: str) -> list[Exchange]:
        """Its calls, failed ones too."""

    async def list_trajectories(self, **parameters: Any) -> Page[Trajectory]:
        """One page; parameters as in Pool.list_trajectories."""

    async def list_steps(self, *, include: Sequence[str] = (), **parameters: Any) -> Page[Step]:
        """One page; parameters as in Pool.list_steps."""

    async def gateway_state(self) -> GatewayState:
        """Which policies speak."""

    async def add_rewards(self, rewards: Sequence[Reward]) -> int:
        """Set rewards."""

    async def chat(
        self,
        base_url: str,
        api_key: str | None,
        messages: Sequence[Message | Mapping[str, Any]],
        *,
        model: str = "default",
        tools: Sequence[Mapping[str, Any]] = (),
        **sampling: Any,
    ) -> Reply:
        """One chat completion under `base_url`, recorded by the gateway; fields of `sampling` go into the body."""


@dataclass(slots=True)
class Play:
    """How one attempt of an agent at a task went.

    `answer`: its final text, None where it gave none. `stopped`: why it ended other than by answering (`max_turns`,
    `length`, `context`, `timeout`). `calls`, `messages`: model calls and conversation, where the agent is ours.
    """

    answer: str | None = None
    stopped: str | None = None
    calls: int = 0
    messages: list[Message] = field(default_factory=list)


Notify = Callable[[str], None]


def ignore(text: str) -> None:
    """A Notify that nobody listens to."""


class AgentFailure(Exception):
    """The attempt is void, for a reason that is not the policy's; the text says why."""
