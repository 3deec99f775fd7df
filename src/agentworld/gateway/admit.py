"""From a request to a call: which trajectory, which model, which step it continues, and in token-in which prompt."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentworld.capture.call import Call
from agentworld.capture.keys import LateKeys
from agentworld.capture.media import shown_under, with_bytes
from agentworld.capture.sessions import Session, Sessions, ids_key, message_keys
from agentworld.dialects import chat
from agentworld.dialects.exchange import KeptTools, Request
from agentworld.dialects.fields import decode_object
from agentworld.dialects.media import media_of
from agentworld.engines.base import engine_space, explicit
from agentworld.errors import ConflictError, ForbiddenError, InvalidRequestError
from agentworld.forest import Match, match, tools_digest
from agentworld.gateway import completion
from agentworld.gateway.conversations import Conversations
from agentworld.gateway.identity import Identity
from agentworld.gateway.large import INLINE_BYTES, PER_MESSAGE, apart
from agentworld.gateway.mixing import Draws, turn_of
from agentworld.gateway.models import Models, ServedModel
from agentworld.gateway.overrides import Overrides
from agentworld.gateway.retries import Retries
from agentworld.gateway.rewritten_calls import knows_all, restored
from agentworld.gateway.state import SharedState
from agentworld.pool.bounds import check_name
from agentworld.pool.protocol import Pool
from agentworld.records import Message, TokenSource, Tool, digest, new_id

_NO_TOOLS = tools_digest(())


class Admitted(msgspec.Struct, frozen=True):
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
        dialect = request.dialect.encode()
        body_digest = (
            digest(dialect, body) if len(body) <= INLINE_BYTES else await apart(len(body), digest, dialect, body)
        ).hex()
        if identity.trajectory_id is not None:
            session = await self._sessions.get(identity.trajectory_id)
        else:
            session = await self._anonymous(identity, request, body_digest)
            self._retries.asked(identity.key, body_digest, session.trajectory_id)
        if isinstance(prompt, str):
            said = await completion.placed(prompt, session, self._sessions)
            request = msgspec.structs.replace(request, messages=said)
        size = max(size, PER_MESSAGE * len(request.messages))
        messages: list[Message] | tuple[Message, ...] = request.messages
        known_keys: list[bytes] = []
        keys: Sequence[bytes]
        rewritten, at_once = 0, size <= INLINE_BYTES
        if identity.rewrites_calls:
            messages, rewritten = await self._as_sampled(session, messages, size)
        if session.tips or not at_once:
            messages, known_keys = session.recall(messages) if at_once else await apart(size, session.recall, messages)
            request = msgspec.structs.replace(request, messages=tuple(messages))
        if isinstance(prompt, tuple):
            keys = [await apart(size, ids_key, prompt)]
        elif at_once:
            keys = message_keys(messages, known_keys) if session.tips else LateKeys(messages)
        else:
            keys = await apart(size, message_keys, messages, known_keys)
        if identity.group_id is not None:
            _check_group(session, identity)
        there = session.trajectory
        mix, drawn = self._models.mixes.get(request.model), {}
        if mix is not None:
            version = self._state.policy(state, mix.base).version
            place, retry = (session.trajectory_id, turn_of(messages)), identity.retry_count > 0
            draw = await self._draws.draw(mix, *place, version, body_digest, retry=retry)
            model, drawn = self._models.by_name[draw.model], draw.facts(mix.name)
        own_channel = model.settings.channel if mix is None else None  # A mixed turn belongs to its trajectory.
        channel = own_channel or identity.channel or (there.channel if there else "train")
        if identity.only_channel is not None:
            _check_channel(identity, model, channel, there.channel if there else channel)
        engine = model.engine
        if request.raw is None and request.dialect == chat.DIALECT and not engine.capabilities.pins:
            # Read without it, as engines alone need it that get the caller's own body.
            request = msgspec.structs.replace(request, raw=decode_object(body))
        request = self._overrides.apply(request, channel)
        token_in, vocabulary, facts = model.token_in, model.vocabulary, drawn
        source: TokenSource = model.mode
        if shown := media_of(messages):
            _check_media(model)
            request = await with_bytes(request, self._pool)
            vocabulary = shown_under(vocabulary, shown)
            if token_in is not None:
                # Only the engine turns images into what the model sees, so it renders what shows some.
                token_in, source = None, "engine" if engine.capabilities.ids else "none"
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
        tools_key = _tools_key(request.tools) if tools else _NO_TOOLS
        agent = identity.agent or (there.agent if there else None)
        if isinstance(prompt, tuple):
            known = await apart(size, completion.match_ids, list(session.tips), prompt)
        else:
            last = _last_reply(messages)
            known = None
            if last >= 0 or session.tips:
                known = await self._match(session, messages, last, keys, tools_key, agent, size)
        call = Call(
            trajectory_id=session.trajectory_id,
            request=request,
            model=model.settings.name,
            policy=self._state.policy(state, model.settings.name),
            sampling=explicit(request.sampling) if engine.capabilities.pins else request.sampling,
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
            space=engine_space(engine, request.sampling),
            metadata={**request.notes, **facts},
            body_digest=body_digest,
            size=size,
            retry_count=identity.retry_count,
            anonymous=identity.key if identity.trajectory_id is None else None,
        )
        if prompt is not None:
            await completion.prepare(call, engine, model.token_in)
        elif token_in is not None:
            await token_in.prepare(call, session)
        if identity.group_id is not None:
            _check_group(session, identity)  # Another call may have come in between.
        if identity.retry_count > 0:
            call.after_failure = session.take_failure(body_digest)
            if call.after_failure is None and await self._conversations.failed_elsewhere(session, body_digest):
                call.after_failure = {}
        session.claimed_group = session.claimed_group or identity.group_id
        return Admitted(call, session, model, identity)

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

    async def _as_sampled(self, session: Session, messages: Sequence[Message], size: int) -> tuple[list[Message], int]:
        """The messages of a client that rewrites calls, with our replies' calls as they were sampled."""
        if not await apart(size, knows_all, list(session.tips), messages):
            await self._sessions.refresh(session)
        return await apart(size, restored, list(session.tips), messages)

    async def _match(
        self,
        session: Session,
        messages: Sequence[Message],
        last: int,
        keys: Sequence[bytes],
        tools_key: bytes,
        agent: str | None,
        size: int,
    ) -> Match | None:
        """The step that is continued. Another worker may have served it: a reply not known here is looked up. `last`:
        the place of the last reply among the messages, -1 without one.
        """
        found = await apart(size, match, list(session.tips), messages, keys, tools_key, agent)
        if last >= 0 and (found is None or last >= found.depth):
            # What was lacking may also have come with another call's look meanwhile.
            await self._sessions.refresh(session)
            found = await apart(size, match, list(session.tips), messages, keys, tools_key, agent)
        return found


def _last_reply(messages: Sequence[Message]) -> int:
    """The place of the last message of the assistant, or -1."""
    place = len(messages) - 1
    while place >= 0 and messages[place].role != "assistant":
        place -= 1
    return place


def _tools_key(tools: tuple[Tool, ...]) -> bytes:
    """The digest of a request's tools."""
    if not isinstance(tools, KeptTools):
        return tools_digest(tools)
    if tools.digest is None:
        tools.digest = tools_digest(tools)
    return tools.digest


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
