"""Calls that are refused before they are placed: a field that is not taken, a pause, a model that is not there.

Whoever looks for the reason of a run without a reply looks at its trajectory. So where the call names one that is
there, and its caller may write to it, the refusal goes on record as an exchange with its error, without messages.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import Any

import msgspec
import structlog

from agentworld.capture.landing import Landings
from agentworld.errors import AgentWorldError, ForbiddenError, GoneError, NotFoundError
from agentworld.gateway import metrics
from agentworld.gateway.http import Http
from agentworld.gateway.identity import Identity, read_identity
from agentworld.gateway.large import apart
from agentworld.gateway.log_context import about
from agentworld.gateway.routes import Route
from agentworld.pool.bounds import check_name
from agentworld.pool.protocol import Pool
from agentworld.records import Exchange, Trajectory, digest, new_id

log = structlog.get_logger("agentworld.gateway")
MOST = 100
"""So many refusals of one trajectory go on record, as a client in a loop sends them without end."""
REMEMBERED = 10_000
"""Of so many trajectories the refusals are counted."""
LONGEST = 1000
"""So many characters of an error's text go on record."""


class Asked(msgspec.Struct, kw_only=True):
    """What is known of a call by the time it is refused."""

    route: Route
    dialect: str
    body: bytes = b""
    decoded: dict[str, Any] = {}
    identity: Identity | None = None
    created_at: float = msgspec.field(default_factory=time.time)
    started: float = msgspec.field(default_factory=time.monotonic)


class Refusals:
    """Writes the refused calls of one gateway."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._landings = Landings()
        self._counts: OrderedDict[str, int] = OrderedDict()

    async def record(self, http: Http, asked: Asked, error: Exception) -> None:
        """Put the refusal into the log and, where its trajectory is known, on record. Raises nothing of its own."""
        known = error if isinstance(error, AgentWorldError) else AgentWorldError(f"internal: {type(error).__name__}")
        name = asked.identity.trajectory_id if asked.identity is not None else _named(http, asked)
        if name is not None:
            about(trajectory=name)
        log.warning("call_failed", code=known.code, status=known.status)
        if name is None or isinstance(known, ForbiddenError):
            return
        try:
            trajectory = await self._trajectory(http, name)
            if trajectory is None or not self._counted(trajectory.trajectory_id):
                return
            metrics.unanswered(known.code)
            exchange = await self._exchange(trajectory, asked, known)
            http.facts = {"trajectory": trajectory.trajectory_id, "exchange": exchange.exchange_id}
            await self._landings.of(self._pool.submit_exchange(exchange))
            http.add_header("x-agentworld-trajectory", trajectory.trajectory_id)
        except AgentWorldError as failure:
            metrics.CAPTURE_FAILURES.labels(failure.code).inc()
            log.error("failure_not_recorded", code=failure.code)

    async def _trajectory(self, http: Http, name: str) -> Trajectory | None:
        """The trajectory, where it is there and the caller may write to it."""
        try:
            found = await asyncio.to_thread(self._pool.get_trajectory, name)
        except (NotFoundError, GoneError):
            return None
        return found if http.grant.covers(found) else None

    def _counted(self, trajectory_id: str) -> bool:
        """Count one refusal more; False where enough of them are on record."""
        count = self._counts.pop(trajectory_id, 0) + 1
        self._counts[trajectory_id] = count
        if len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)
        return count <= MOST

    async def _exchange(self, trajectory: Trajectory, asked: Asked, error: AgentWorldError) -> Exchange:
        said = error.to_dict()["error"]
        said = {name: value[:LONGEST] if isinstance(value, str) else value for name, value in said.items()}
        model = _model(asked.decoded)
        identity = asked.identity
        return Exchange(
            exchange_id=new_id("exc"),
            trajectory_id=trajectory.trajectory_id,
            dialect=asked.dialect,
            model=model,
            requested_model=model,
            messages=[],
            group_id=trajectory.group_id,
            channel=trajectory.channel,
            agent=(identity.agent if identity is not None else None) or trajectory.agent,
            retry_count=identity.retry_count if identity is not None else 0,
            # As that of a call that was placed, so that its retry is known as one.
            body_digest=(await apart(len(asked.body), digest, asked.dialect.encode(), asked.body)).hex(),
            created_at=asked.created_at,
            latency_ms=round((time.monotonic() - asked.started) * 1000, 3),
            error={**said, "status": error.status},
        )


def _named(http: Http, asked: Asked) -> str | None:
    """The trajectory that a call names whose body could not be read."""
    try:
        return read_identity(http, asked.route, asked.decoded).trajectory_id
    except ForbiddenError:
        return None
    except AgentWorldError:  # A header that is no id: it is what is refused.
        return asked.route.trajectory


def _model(body: dict[str, Any]) -> str:
    """The model that was asked for, "" where none was, or none that could be."""
    model = body.get("model")
    if not isinstance(model, str):
        return ""
    try:
        check_name(model, "model")
    except AgentWorldError:
        return ""
    return model
