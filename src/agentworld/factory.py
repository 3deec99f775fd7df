"""Ways into a factory: a pool in this process, or a server over HTTP."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from agentworld.client.attempts import Attempt, attempts
from agentworld.client.factory import Factory
from agentworld.client.session import TrajectorySession, new_trajectory
from agentworld.client.wire import StartedTrajectory
from agentworld.curation.datasets.surface import DatasetSurface
from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.merge.surface import MergeSurface
from agentworld.pool.protocol import Pool
from agentworld.records import NewTrajectory

if TYPE_CHECKING:
    import ray.data

    _Surface = Pool
else:
    _Surface = object


class EmbeddedPool(DatasetSurface, MergeSurface, _Surface):
    """A store in this process, so with all methods of a pool (`help(agentworld.Pool)`), and with `trajectory`,
    `attempts`, `start_trajectory`, `to_ray`, and those of datasets: `create_dataset`, `read_dataset`, `diff_datasets`,
    `verify_dataset` and `trace_row`; and `merge_stats` and `merge_tree`. `address`: the URL by which other processes
    open it, secrets included; by default the store's own.
    """

    def __init__(self, store: Pool, address: str | None = None) -> None:
        self.store = store
        self.url = store.url
        self._address = address or store.url

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self.store, name)

    def trajectory(
        self, *, task: dict[str, Any] | None = None, group: str | None = None, **fields: Any
    ) -> TrajectorySession:
        """A trajectory to work in, as a context manager; `fields` are those of NewTrajectory.

        Its base_url is None: steps come in by `step`, as no gateway listens in this process.
        """
        return TrajectorySession(self, new_trajectory(task, group, fields))

    def attempts(
        self, times: int = 3, *, task: dict[str, Any] | None = None, group: str | None = None, **fields: Any
    ) -> Iterator[Attempt]:
        """Up to `times` attempts at one rollout, each a trajectory to work in, until the `with` block of one does not
        raise; the error of the last is raised. The next attempt begins before the failed one ends, so that the group
        waits for it.

            for attempt in pool.attempts(3, group="g", group_size=8, rollout_index=0):
                with attempt as trajectory:
                    ...
        """
        new = new_trajectory(task, group, fields)
        return attempts(lambda each: Attempt(self, each), new, times)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self.store)})

    def start_trajectory(self, new: NewTrajectory) -> StartedTrajectory:
        """Create a trajectory."""
        trajectory = self.store.create_trajectory(new)
        return StartedTrajectory(trajectory.trajectory_id, trajectory)

    def to_ray(
        self,
        *,
        where: str | None = None,
        channel: str | None = None,
        include: Sequence[str] = ("tokens", "logprobs"),
        blocks: int | None = None,
    ) -> ray.data.Dataset:
        """The steps that match as a Ray dataset, a row a step, excluded ones too, but for `where`.

        Columns are those of agentworld.pool.arrow_tables.steps_table; `include`: tokens, logprobs, messages. Each of
        up to `blocks` tasks (by default as many as Ray chooses) opens the pool in its worker and streams a range of
        the steps that are there now. A SQLite file must be at the same path for every worker, on its own disk: so for
        more than one machine, PostgreSQL. ConfigError where Ray is missing, or the pool is in memory.
        """
        if not self._address.startswith(("sqlite:", "postgres")):
            raise ConfigError(
                f"workers of Ray cannot open {self.url}",
                path="pool",
                hint="Use a pool on PostgreSQL, or on SQLite for a cluster on this machine",
            )
        if any(importlib.util.find_spec(module) is None for module in ("ray", "pyarrow")):
            raise ConfigError("to_ray needs Ray Data", path="pool", hint='Install it: pip install "agentworld[ray]"')
        from agentworld.pool.intake import check_include
        from agentworld.pool.ray_source import dataset
        from agentworld.query import parse

        check_include(include)
        if where is not None:
            parse(where, "steps")
        if blocks is not None and blocks < 1:
            raise InvalidRequestError(f"blocks must be at least 1, not {blocks}", path="blocks")
        store: Any = self.store
        return dataset(store, self._address, where=where, channel=channel, include=include, blocks=blocks)

    def __enter__(self) -> EmbeddedPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()


def open_pool(url: str) -> EmbeddedPool:
    """The pool at `url` (`sqlite:///pool.db`, `memory://`), made and migrated where needed; ConfigError where no store
    takes the URL.
    """
    from agentworld.pool import open_store
    from agentworld.pool.urls import is_postgres

    store = open_store(url)
    # A file's own URL is absolute; a server's has lost its password.
    address = url if is_postgres(url) else None
    # The methods that the type checker misses are the store's, by __getattr__.
    return EmbeddedPool(store, address)  # type: ignore[abstract]


def connect(url: str, *, api_key: str | None = None, timeout: float = 60.0) -> Factory:
    """The server at `url`, with the surface of a pool. Nothing is sent before the first call."""
    return Factory(url, api_key=api_key, timeout=timeout)
