"""Ways into a factory: a pool in this process, or a server over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentworld.client.factory import Factory
from agentworld.client.session import TrajectorySession
from agentworld.client.wire import StartedTrajectory
from agentworld.pool.protocol import Pool
from agentworld.records import NewTrajectory

if TYPE_CHECKING:
    _Surface = Pool
else:
    _Surface = object


class EmbeddedPool(_Surface):
    """A store in this process with what a factory over HTTP offers too: `trajectory` and `start_trajectory`."""

    def __init__(self, store: Pool) -> None:
        self.store = store
        self.url = store.url

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self.store, name)

    def trajectory(
        self, *, task: dict[str, Any] | None = None, group: str | None = None, **fields: Any
    ) -> TrajectorySession:
        """A trajectory to work in, as a context manager; `fields` are those of NewTrajectory.

        Its base_url is None: steps come in by `step`, as no gateway listens in this process.
        """
        return TrajectorySession(self, NewTrajectory(task=task, group_id=group, **fields))

    def start_trajectory(self, new: NewTrajectory) -> StartedTrajectory:
        """Create a trajectory."""
        trajectory = self.store.create_trajectory(new)
        return StartedTrajectory(trajectory.trajectory_id, trajectory)

    def __enter__(self) -> EmbeddedPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()


def open_pool(url: str) -> EmbeddedPool:
    """The pool at `url` (`sqlite:///pool.db`, `memory://`), made and migrated where needed; ConfigError where no store
    takes the URL.
    """
    from agentworld.pool import open_store

    # The methods that the type checker misses are the store's, by __getattr__.
    return EmbeddedPool(open_store(url))  # type: ignore[abstract]


def connect(url: str, *, api_key: str | None = None, timeout: float = 60.0) -> Factory:
    """The server at `url`, with the surface of a pool. Nothing is sent before the first call."""
    return Factory(url, api_key=api_key, timeout=timeout)
