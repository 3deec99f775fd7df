"""From a request to a call: which trajectory, which model, which step it continues, and in token-in which prompt."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from agentworld.capture.call import Call
from agentworld.capture.sessions import Session, Sessions, message_keys
from agentworld.dialects.exchange import Request
from agentworld.engines.base import explicit
from agentworld.errors import ConflictError, NotFoundError
from agentworld.forest import Match, match, tools_digest
from agentworld.gateway.identity import Identity, PrefixIndex
from agentworld.gateway.models import Models, ServedModel
from agentworld.gateway.state import SharedState
from agentworld.pool.protocol import Pool
from agentworld.records import LogprobSpace, TokenSource, digest, new_id

_SPACES: dict[str, LogprobSpace] = {"builtin": "processed"}
"""The log-probability space of each driver that differs from raw, where the engine does not say."""


class Admitted(NamedTuple):
    """A call that may go to its engine."""

    call: Call
    session: Session
    model: ServedModel
    identity: Identity


class Admission:
    """Admits calls to one gateway."""

    def __init__(
        self, pool: Pool, models: Models, sessions: Sessions, prefixes: PrefixIndex, state: SharedState
    ) -> None:
        self._pool = pool
        self._models = models
        self._sessions = sessions
        self._prefixes = prefixes
        self._state = state

    async def admit(self, request: Request, identity: Identity, body: bytes) -> Admitted:
        """The call; raises what the caller has to be told."""
        model = self._models.find(request.model)
        state = await self._state.admit()
        keys = message_keys(request.messages)
        session = await self._session(identity, keys)
        group = self._group(session, identity)
        tools = list(request.tools)
        if model.token_in is not None and request.sampling.tool_choice == "none":
            tools = []  # The renderer leaves tools out that may not be called, as the model then never sees them.
        tools_key = tools_digest(tools)
        known = await self._match(session, request, keys, tools_key)
        source: TokenSource = model.mode
        there = session.trajectory
        call = Call(
            trajectory_id=session.trajectory_id,
            request=request,
            model=model.settings.name,
            policy=self._state.policy(state, model.settings.name),
            sampling=explicit(request.sampling) if model.settings.driver != "openai" else request.sampling,
            keys=keys,
            tools_key=tools_key,
            group_id=group,
            channel=model.settings.channel or identity.channel or (there.channel if there else "train"),
            agent=identity.agent or (there.agent if there else None),
            tools=tools,
            match=known,
            source=source,
            demand_ids=model.settings.tokens in ("engine", "token-in"),
            vocabulary=model.vocabulary,
            space=_SPACES.get(model.settings.driver, "raw"),
            body_digest=digest(request.dialect.encode(), body).hex(),
            retry_count=identity.retry_count,
        )
        if model.token_in is not None:
            await model.token_in.prepare(call, session)
        return Admitted(call, session, model, identity)

    async def _session(self, identity: Identity, keys: list[bytes]) -> Session:
        if identity.trajectory_id is not None:
            return await self._sessions.get(identity.trajectory_id)
        # Only a path that holds a reply of ours is in the index, so a shared opening leads nowhere.
        found = self._prefixes.find(identity.key, keys[:-1])
        if found is not None and await self._is_open(found):
            return await self._sessions.get(found)
        return self._sessions.fresh(new_id("trj"))

    async def _is_open(self, trajectory_id: str) -> bool:
        try:
            return (await asyncio.to_thread(self._pool.get_trajectory, trajectory_id)).status == "open"
        except NotFoundError:
            return False

    @staticmethod
    def _group(session: Session, identity: Identity) -> str | None:
        there = session.trajectory
        if there is None or there.group_id is None:
            return identity.group_id
        if identity.group_id is not None and identity.group_id != there.group_id:
            raise ConflictError(
                f"trajectory {there.trajectory_id!r} is in group {there.group_id!r}, not {identity.group_id!r}",
                path="group",
                hint="Use the base URL that came with the trajectory",
            )
        return there.group_id

    async def _match(self, session: Session, request: Request, keys: list[bytes], tools_key: bytes) -> Match | None:
        """The step that is continued. Another worker may have served it: a reply not known here is looked up."""
        messages = request.messages
        found = match(session.tips, messages, keys, tools_key)
        replies = [position for position, message in enumerate(messages) if message.role == "assistant"]
        if replies and (found is None or replies[-1] >= found.depth) and await self._sessions.refresh(session):
            found = match(session.tips, messages, keys, tools_key)
        return found
