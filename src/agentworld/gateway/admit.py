"""From a request to a call: which trajectory, which model, which step it continues, and in token-in which prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from agentworld.capture.call import Call
from agentworld.capture.media import shown_under, with_bytes
from agentworld.capture.sessions import Session, Sessions, ids_key, message_keys
from agentworld.dialects.exchange import Request
from agentworld.dialects.media import media_of
from agentworld.engines.base import engine_space, explicit
from agentworld.errors import ConflictError, ForbiddenError, InvalidRequestError
from agentworld.forest import Match, match, tools_digest
from agentworld.gateway import completion
from agentworld.gateway.conversations import Conversations
from agentworld.gateway.identity import Identity
from agentworld.gateway.large import PER_MESSAGE, apart
from agentworld.gateway.mixing import Draws, turn_of
from agentworld.gateway.models import Models, ServedModel
from agentworld.gateway.overrides import Overrides
from agentworld.gateway.retries import Retries
from agentworld.gateway.rewritten_calls import knows_all, restored
from agentworld.gateway.state import SharedState
from agentworld.pool.bounds import check_name
from agentworld.pool.protocol import Pool
from agentworld.records import Message, TokenSource, digest, new_id


class Admitted(NamedTuple):
    """A call that may go to its engine."""

    call: Call
    session: Session
    model: ServedModel
    identity: Identity


class Admission:
    """Admits calls to one gateway."""

    def __init__(
        self,
        models: Models,
        sessions: Sessions,
        retries: Retries,
        state: SharedState,
        overrides: Overrides,
        pool: Pool,
    ) -> None:
        self._models = models
        self._sessions = sessions
        self._conversations = Conversations(pool, retries)
        self._retries = retries
        self._state = state
        self._overrides = overrides
        self._draws = Draws(pool)
        self._pool = pool

    async def admit(self, request: Request, identity: Identity, body: bytes, size: int) -> Admitted:
        """The call; raises what the caller has to be told. `size`: about how many bytes the request is, be it that its
        body only refers to them.
        """
        if request.model:
            check_name(request.model, "model")
        model = self._models.find(request.model)
        prompt = request.prompt
        if isinstance(prompt, tuple):
            completion.check_length(prompt, model.settings)
        state = await self._state.admit()
        body_digest = (await apart(len(body), digest, request.dialect.encode(), body)).hex()
        session = await self._session(identity, request, body_digest)
        if isinstance(prompt, str):
            said = await completion.placed(prompt, session, self._sessions)
            request = msgspec.structs.replace(request, messages=said)
        size = max(size, PER_MESSAGE * len(request.messages))
        sent, rewritten = await self._as_sampled(session, request, identity, size)
        messages, known_keys = await apart(size, session.recall, sent)
        request = msgspec.structs.replace(request, messages=tuple(messages))
        if isinstance(prompt, tuple):
            keys = [await apart(size, ids_key, prompt)]
        else:
            keys = await apart(size, message_keys, messages, known_keys)
        _check_group(session, identity)
        there = session.trajectory
        mix, drawn = self._models.mix(request.model), {}
        if mix is not None:
            version = self._state.policy(state, mix.base).version
            place, retry = (session.trajectory_id, turn_of(messages)), identity.retry_count > 0
            draw = await self._draws.draw(mix, *place, version, body_digest, retry=retry)
            model, drawn = self._models.by_name[draw.model], draw.facts(mix.name)
        own_channel = model.settings.channel if mix is None else None  # A mixed turn belongs to its trajectory.
        channel = own_channel or identity.channel or (there.channel if there else "train")
        _check_channel(identity, model, channel, there.channel if there else channel)
        request = self._overrides.apply(request, channel)
        token_in, vocabulary, facts = model.token_in, model.vocabulary, drawn
        source: TokenSource = model.mode
        if shown := media_of(messages):
            _check_media(model)
            request = await with_bytes(request, self._pool)
            vocabulary = shown_under(vocabulary, shown)
            if token_in is not None:
                # Only the engine turns images into what the model sees, so it renders what shows some.
                token_in, source = None, "engine" if model.engine.capabilities.ids else "none"
                facts = {**drawn, "prompt": "media"}
        if token_in is not None and request.sampling.tool_choice not in (None, "auto", "none"):
            # What is sampled under a demand is held to the engine's own grammar of calls, which only it can read back.
            _check_demand(model)
            token_in, source = None, "engine"
            facts = {**drawn, "prompt": "tool_choice"}
        if request.continue_final:
            _check_continuation(model, rendered=token_in is not None)
            facts = {**facts, "continues": True}
        if rewritten:
            facts = {**facts, "restored_calls": rewritten}
        tools = list(request.tools)
        if token_in is not None and request.sampling.tool_choice == "none":
            tools = []  # The renderer leaves tools out that may not be called, as the model then never sees them.
        tools_key = tools_digest(tools)
        agent = identity.agent or (there.agent if there else None)
        if isinstance(prompt, tuple):
            known = await apart(size, completion.match_ids, list(session.tips), prompt)
        else:
            known = await self._match(session, request, keys, tools_key, agent, size)
        call = Call(
            trajectory_id=session.trajectory_id,
            request=request,
            model=model.settings.name,
            policy=self._state.policy(state, model.settings.name),
            sampling=explicit(request.sampling) if model.engine.capabilities.pins else request.sampling,
            keys=keys,
            tools_key=tools_key,
            group_id=there.group_id if there is not None and there.group_id is not None else identity.group_id,
            only_group=identity.group_id,
            only_channel=identity.only_channel,
            channel=channel,
            agent=agent,
            tools=tools,
            match=known,
            source=source,
            demand_ids=model.settings.tokens in ("engine", "token-in"),
            vocabulary=vocabulary,
            space=engine_space(model.engine, request.sampling),
            metadata={**request.notes, **facts},
            body_digest=body_digest,
            size=size,
            retry_count=identity.retry_count,
            anonymous=identity.key if identity.trajectory_id is None else None,
        )
        if prompt is not None:
            await completion.prepare(call, model.engine, model.token_in)
        elif token_in is not None:
            await token_in.prepare(call, session)
        _check_group(session, identity)  # Another call may have come in between.
        if identity.retry_count > 0:
            call.after_failure = session.take_failure(body_digest)
            if call.after_failure is None and await self._conversations.failed_elsewhere(session, body_digest):
                call.after_failure = {}
        session.claimed_group = session.claimed_group or identity.group_id
        return Admitted(call, session, model, identity)

    async def _session(self, identity: Identity, request: Request, body_digest: str) -> Session:
        if identity.trajectory_id is not None:
            return await self._sessions.get(identity.trajectory_id)
        session = await self._anonymous(identity, request, body_digest)
        self._retries.asked(identity.key, body_digest, session.trajectory_id)
        return session

    async def _anonymous(self, identity: Identity, request: Request, body_digest: str) -> Session:
        """The session of a call that names no trajectory."""
        if identity.retry_count > 0:
            found = await self._conversations.asked_before(identity.key, body_digest)
            # The first call may still be on its way, so the pool need not have the trajectory yet.
            if found is not None and (session := await self._sessions.get(found)) and _is_open(session, missing=True):
                return session
        before = request.messages if request.continue_final else request.messages[:-1]
        found = await self._conversations.continued(identity.key, before)
        if found is not None and _is_open(session := await self._sessions.get(found), missing=False):
            return session
        return self._sessions.fresh(new_id("trj"))

    async def _as_sampled(
        self, session: Session, request: Request, identity: Identity, size: int
    ) -> tuple[Sequence[Message], int]:
        """The request's messages, with our replies' calls as they were sampled where the client rewrites them."""
        messages = request.messages
        if not identity.rewrites_calls:
            return messages, 0
        if not await apart(size, knows_all, list(session.tips), messages):
            await self._sessions.refresh(session)
        return await apart(size, restored, list(session.tips), messages)

    async def _match(
        self, session: Session, request: Request, keys: list[bytes], tools_key: bytes, agent: str | None, size: int
    ) -> Match | None:
        """The step that is continued. Another worker may have served it: a reply not known here is looked up."""
        messages = request.messages
        found = await apart(size, match, list(session.tips), messages, keys, tools_key, agent)
        replies = [position for position, message in enumerate(messages) if message.role == "assistant"]
        if replies and (found is None or replies[-1] >= found.depth):
            # What was lacking may also have come with another call's look meanwhile.
            await self._sessions.refresh(session)
            found = await apart(size, match, list(session.tips), messages, keys, tools_key, agent)
        return found


def _check_channel(identity: Identity, model: ServedModel, channel: str, trajectory: str) -> None:
    """ForbiddenError where the caller's key is for another channel than this step, or its trajectory, is in."""
    only = identity.only_channel
    if only is None or (channel == only and trajectory == only):
        return
    what = (
        f"the trajectory is in {trajectory!r}" if trajectory != only else f"{model.settings.name} writes to {channel!r}"
    )
    raise ForbiddenError(
        f"this key is for the channel {only!r}, and {what}",
        path="channel",
        hint="Use a key for that channel, or one that is bound to none",
    )


def _is_open(session: Session, *, missing: bool) -> bool:
    """Whether a trajectory takes calls; `missing`: what holds of one that the pool does not have."""
    return missing if session.trajectory is None else session.trajectory.status == "open"


def _check_media(model: ServedModel) -> None:
    """InvalidRequestError where the model sees no images."""
    allowed = model.settings.media
    if not (model.engine.capabilities.media if allowed is None else allowed):
        raise InvalidRequestError(
            f"{model.settings.name} takes text only, and the conversation shows an image",
            path="messages",
            hint="Leave images out, or call a model that sees them",
        )


def _check_demand(model: ServedModel) -> None:
    """InvalidRequestError where no tool call can be demanded of the model's engine with its ids on record."""
    able = model.engine.capabilities
    if not (able.tool_choice and able.ids):
        raise InvalidRequestError(
            f"the engine of {model.settings.name} takes no tool_choice required or named function",
            path="tool_choice",
            hint="Use auto",
        )


def _check_continuation(model: ServedModel, *, rendered: bool) -> None:
    """InvalidRequestError where nobody can write a reply on from the last message."""
    if not rendered and not model.engine.capabilities.continues:
        raise InvalidRequestError(
            f"the engine of {model.settings.name} does not go on with a message of the assistant",
            path="messages",
            hint="End with a user or tool message, or serve the model with its tokenizer",
        )


def _check_group(session: Session, identity: Identity) -> None:
    """ConflictError where the trajectory is, or is about to be, in another group than the call says."""
    there = session.trajectory
    group = session.claimed_group if there is None else there.group_id
    if identity.group_id is not None and group is not None and identity.group_id != group:
        raise ConflictError(
            f"trajectory {session.trajectory_id!r} is in group {group!r}, not {identity.group_id!r}",
            path="group",
            hint="Use the base URL that came with the trajectory",
        )
