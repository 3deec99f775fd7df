"""Turns a call and its reply into an exchange with steps, plans their place, and waits until they are durable."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from agentworld.capture.call import Call
from agentworld.capture.collect import Collector
from agentworld.capture.landing import Landings
from agentworld.capture.marks import call_mark, marks_of
from agentworld.capture.media import keep_media
from agentworld.capture.sessions import Session, Sessions
from agentworld.dialects.exchange import RUNS, Choice, Ids, listed
from agentworld.dialects.responses import NOTES
from agentworld.dialects.responses_entries import ENTRIES, packed
from agentworld.engines.base import logprob_space
from agentworld.errors import AgentWorldError, EngineError, InvalidRequestError, PoolError
from agentworld.forest import TokenArray, fork_reason, joined_ids, token_array
from agentworld.pool.misplaced import told
from agentworld.pool.protocol import Pool
from agentworld.pool.rules import joined_reasons
from agentworld.records import Exchange, Policy, Step, Usage

ANNOUNCE_SECONDS = 0.5
ROUNDING = 1e-3
DRAWN = ("mixed_from", "mixed_probability")
"""What a call's metadata says of how its model was drawn: on record also where it failed, for its retry."""


class Recorder:
    """Writes exchanges of one gateway."""

    def __init__(self, pool: Pool, sessions: Sessions | None = None) -> None:
        self._pool = pool
        self._sessions = sessions
        self._landings = Landings()

    async def commit(self, call: Call, session: Session, collector: Collector, choices: list[Choice]) -> list[Step]:
        """`look`, `plan` and `store` in one."""
        await self.look(call, session)
        return await self.store(self.plan(call, session, collector, choices), call, session)

    async def look(self, call: Call, session: Session) -> None:
        """Take in what other workers stored meanwhile, where the call may be a retry of theirs, or they may have served
        a retry of it. No client asks again sooner than `ANNOUNCE_SECONDS`.
        """
        is_slow = time.monotonic() - call.started >= ANNOUNCE_SECONDS
        if self._sessions is not None and (call.retry_count > 0 or is_slow):
            await self._sessions.refresh(session)

    async def announce(self, call: Call) -> None:
        """Mark a call that names no trajectory and takes long, so that its retry finds the trajectory anywhere."""
        if call.anonymous is None:
            return
        await asyncio.sleep(ANNOUNCE_SECONDS)
        mark = call_mark(call.anonymous, call.body_digest)
        await asyncio.to_thread(self._pool.mark_call, call.trajectory_id, mark)

    def plan(self, call: Call, session: Session, collector: Collector, choices: list[Choice]) -> Exchange:
        """The exchange with its steps. EngineError where the reply is none that can be stored; nothing has changed."""
        prompt_ids = call.prompt_ids if call.prompt_ids is not None else collector.prompt_ids
        quarantine = _faults(call, collector, choices)
        exchange = _exchange(call)
        try:
            steps = [_step(call, session, exchange, collector, choice, prompt_ids, quarantine) for choice in choices]
        except InvalidRequestError as error:
            raise _not_storable(error) from error
        exchange.choices = steps
        exchange.policy = steps[0].policy if steps else call.policy
        exchange.marks = marks_of(call, choices)
        exchange.only_group, exchange.only_channel = call.only_group, call.only_channel
        return exchange

    async def store(self, exchange: Exchange, call: Call, session: Session) -> list[Step]:
        """Put a planned exchange, which is the pool's from then on, there; returns its steps once they are durable.

        PoolError where the pool would not take one, ConflictError where the trajectory is another's by now, EngineError
        where it cannot take what the engine said.
        """
        steps = exchange.choices
        if call.request.media:
            await keep_media(self._pool, call)
        # Known before it is durable, so that a call which commits at the same time is planned beside it. No request
        # can continue it yet: its reply is shown only after the commit.
        for step in steps:
            session.add(step, call.keys, call.sequences.get(step.step_id), call.tools_key)
        own = {step.step_id for step in steps}
        session.on_their_way |= own
        try:
            for result in await self._landings.of(self._pool.submit_exchange(exchange)):
                if result.outcome in ("rejected", "conflict"):
                    if (misplaced := told(result)) is not None:
                        raise misplaced
                    raise PoolError(
                        f"the pool did not take step {result.step_id}: {result.reason or result.outcome}",
                        hint="The reply is not on record; send the request again",
                    )
        except BaseException as error:
            for step in steps:
                session.discard(step.step_id)
            if isinstance(error, InvalidRequestError):
                raise _not_storable(error) from error
            raise
        finally:
            session.on_their_way -= own
        return steps

    async def fail(self, call: Call, error: AgentWorldError) -> None:
        """Store a call that got no reply, with the error."""
        exchange = _exchange(call)
        drawn = {name: call.metadata[name] for name in DRAWN if name in call.metadata}
        exchange.error = {**error.to_dict()["error"], "status": error.status, **drawn}
        exchange.marks = marks_of(call, None)
        await self._landings.of(self._pool.submit_exchange(exchange))


def _step(
    call: Call,
    session: Session,
    exchange: Exchange,
    collector: Collector,
    choice: Choice,
    prompt_ids: Ids | None,
    quarantine: str | None,
) -> Step:
    """The step that a choice becomes, as the pool takes it with the least work: whole, and with arrays for lists."""
    step_id, index, matched = call.step_id(choice.index), choice.index, call.match
    prompt: Any = None
    reply: Any = None
    has_ids = call.source != "none" and choice.ids is not None and prompt_ids is not None
    if has_ids and prompt_ids is not None and choice.ids is not None:
        # One array for all who need it: the plan, the session and the pool.
        whole = collector.whole
        if whole is not None and call.prompt_ids is None:
            sequence = whole.sequence
        else:
            sequence = _sequence(prompt_ids, choice.ids)
        call.sequences[step_id] = sequence
        prompt, reply = sequence[: len(prompt_ids)], sequence[len(prompt_ids) :]
    logprobs: Any = choice.logprobs if has_ids else None
    overtaken = session.overtaken_by(call.body_digest, index, call.retry_count, call.created_at)
    retries = call.retry_count > 0 and overtaken is None
    if call.after_failure is not None:
        supersedes = call.after_failure.get(index)
    else:
        supersedes = session.repeated(call.body_digest, index) if retries else None
    is_retry = supersedes is not None or overtaken is not None
    reason = fork_reason(
        session.tips, matched, exchange.messages, call.keys, call.tools_key, prompt, is_retry=is_retry, agent=call.agent
    )
    if reason is None and index > 0:
        reason = "parallel"
    return Step(
        step_id=step_id,
        trajectory_id=call.trajectory_id,
        exchange_id=exchange.exchange_id,
        choice_index=index,
        group_id=exchange.group_id,
        channel=exchange.channel,
        parent_step_id=matched.tip.step_id if matched is not None else None,
        supersedes=supersedes,
        fork_reason=reason,
        agent=call.agent,
        model=exchange.model,
        requested_model=exchange.requested_model,
        policy=_policy(call, collector, choice),
        version_spans=choice.version_spans if len(choice.version_spans) > 1 else (),
        dialect=exchange.dialect,
        token_source=call.source if has_ids else "none",
        vocabulary=call.vocabulary if has_ids else None,
        prompt_ids=prompt,
        response_ids=reply,
        response_logprobs=logprobs,
        logprob_space=None if logprobs is None else logprob_space(collector.logprobs_mode, call.space),
        response_message=choice.message,
        prompt_messages=exchange.messages,
        tools=call.tools or None,
        sampling=call.sampling,
        finish_reason=choice.finish_reason,
        usage=_usage(collector, choice),
        excluded_reason=_excluded(quarantine, overtaken),
        created_at=call.created_at,
        latency_ms=exchange.latency_ms,
        metadata=_metadata(call, choice, overtaken),
    )


def _not_storable(error: InvalidRequestError) -> EngineError:
    """The caller's request was found good at admission, so what is wrong with the record is the reply's."""
    return EngineError(f"the engine's reply cannot be stored: {error.message}")


def _sequence(prompt: Ids, reply: Ids) -> TokenArray:
    if isinstance(prompt, list) and isinstance(reply, list):
        return joined_ids(prompt, reply)
    return token_array([*prompt, *reply])


def _exchange(call: Call) -> Exchange:
    return Exchange(
        exchange_id=call.exchange_id,
        trajectory_id=call.trajectory_id,
        dialect=call.request.dialect,
        model=call.model,
        requested_model=call.request.model or call.model,
        messages=list(call.request.messages),
        tools=call.tools,
        sampling=call.sampling,
        group_id=call.group_id,
        channel=call.channel,
        agent=call.agent,
        policy=call.policy,
        retry_count=call.retry_count,
        body_digest=call.body_digest,
        created_at=call.created_at,
        latency_ms=round((time.monotonic() - call.started) * 1000, 3),
    )


def _policy(call: Call, collector: Collector, choice: Choice) -> Policy:
    """The policy stamped at dispatch; what the engine says of its weights wins, as it knows what spoke."""
    policy = call.policy
    if choice.version_spans:
        policy = msgspec.structs.replace(policy, version=choice.version_spans[0].version)
    if collector.policy_run is not None:
        policy = msgspec.structs.replace(policy, run=collector.policy_run)
    return policy


def _usage(collector: Collector, choice: Choice) -> Usage | None:
    """The engine's counts for this choice. Of several choices it reports the sum only, which `_faults` checks."""
    usage = collector.usage
    if usage is None or collector.count <= 1 or choice.ids is None:
        return usage if collector.count <= 1 else None
    return Usage(usage.prompt_tokens, len(choice.ids))


def _metadata(call: Call, choice: Choice, overtaken: str | None) -> dict[str, Any]:
    metadata = {**call.metadata, **choice.metadata, "body_digest": call.body_digest}
    if choice.runs:
        metadata[RUNS] = [list(run) for run in choice.runs]
    if choice.entries and NOTES in metadata:
        metadata[NOTES] = {**metadata[NOTES], ENTRIES: packed(choice.entries)}
    if call.renderer is not None:
        metadata["renderer"] = call.renderer
    if call.retry_count > 0:
        metadata["retry_count"] = call.retry_count
    if call.after_failure is not None:
        metadata["after_failure"] = True
    if overtaken is not None:
        metadata["superseded_by"] = overtaken
    return metadata


def _impossible(logprobs: list[float | None]) -> bool:
    """Whether one is of a probability over 1, by more than an engine may have rounded."""
    return max(filter(None, logprobs), default=0.0) > ROUNDING


def _excluded(quarantine: str | None, overtaken: str | None) -> str | None:
    """A retry that was stored before the call that it repeats supersedes that call when it comes."""
    if quarantine is None and overtaken is None:
        return None
    return joined_reasons(reason for reason in (quarantine, "superseded" if overtaken else None) if reason)


def _faults(call: Call, collector: Collector, choices: list[Choice]) -> str | None:
    """Why the exchange cannot be trusted token for token; counts within a step are the pool's to compare."""
    faults, whole = [*collector.faults], collector.whole
    if (
        whole is not None
        and not faults
        and call.prompt_ids is None
        and whole.highest <= ROUNDING
        and collector.logprobs_mode is None
    ):
        return None
    if call.demand_ids and any(choice.ids is None for choice in choices):
        faults.append("the engine gave no token ids")
    if call.prompt_ids is not None and listed(collector.prompt_ids) not in (None, call.prompt_ids):
        faults.append("the engine took another prompt than the one sent")
    ids = [choice.ids for choice in choices if choice.ids is not None]
    if len(choices) > 1 and collector.usage is not None and len(ids) == len(choices):
        total = sum(len(item) for item in ids)
        if total != collector.usage.completion_tokens:
            faults.append(f"usage says {collector.usage.completion_tokens} tokens, the replies hold {total}")
    if ids and any(choice.ids is not None and len(choice.ids) and choice.logprobs is None for choice in choices):
        faults.append("the engine gave ids without log-probabilities")
    if any(_impossible(listed(choice.logprobs) or []) for choice in choices):
        faults.append("the engine gave log-probabilities over 0")
    known = logprob_space(collector.logprobs_mode, call.space) is not None
    if not known and any(choice.logprobs is not None for choice in choices):
        faults.append(f"the log-probabilities are {(collector.logprobs_mode or '')[:40]!r}, a mode not known here")
    return "quarantined: " + ", ".join(faults) if faults else None
