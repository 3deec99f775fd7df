"""Text completions: prompts that go to the engine as they are, and which step one continues.

A prompt of text that begins with what an earlier completion of its trajectory was asked and said is on record as that
conversation and the rest, so that it is a continuation like any other. A prompt of ids has no messages; it continues
the step whose ids it begins with.

With a tokenizer, text becomes ids here, the way the engine would do it. What continues a step keeps that step's ids bit
for bit and only the rest is encoded, unless the reply's text does not show all of its ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from agentworld.capture.call import Call
from agentworld.capture.sessions import Session, Sessions
from agentworld.config import ModelSettings
from agentworld.engines.base import Engine
from agentworld.engines.tokenizer import TokenizerAdapter
from agentworld.errors import ContextLengthError, InvalidRequestError
from agentworld.forest import Match, Tip, token_array
from agentworld.gateway.large import apart
from agentworld.gateway.token_in import TokenIn
from agentworld.records import Message

INLINE_CHARACTERS = 8_000
"""Longer prompts are encoded in a thread, as that takes milliseconds."""
_COMPARED_AT_ONCE = 16
"""Texts are compared so much faster than bodies are read."""


async def placed(prompt: str, session: Session, sessions: Sessions) -> tuple[Message, ...]:
    """The messages of a text prompt: the earlier completion that it begins with, and the rest."""
    there = session.trajectory
    if there is not None and session.missing(there.step_count):
        await sessions.refresh(session)  # Another worker may have served the last completion.
    tips = [tip for tip in session.tips if tip.step_id in session.completions and tip.messages[:-1]]
    return await apart(len(prompt) * len(tips) // _COMPARED_AT_ONCE, _split, tips, prompt)


def _split(tips: list[Tip], prompt: str) -> tuple[Message, ...]:
    best: Tip | None = None
    length = 0
    for tip in tips:
        said = "".join(message.text for message in tip.messages)
        if len(said) >= length and prompt.startswith(said):
            best, length = tip, len(said)
    if best is None:
        return (Message(role="user", content=prompt),)
    rest = prompt[length:]
    return (*best.messages, Message(role="user", content=rest)) if rest else tuple(best.messages)


def check_length(prompt: Sequence[int], settings: ModelSettings) -> None:
    """ContextLengthError where the ids leave no place for a reply. Before anything is done with them, as a body holds
    millions.
    """
    if settings.context is not None and len(prompt) >= settings.context:
        raise ContextLengthError(
            f"the prompt has {len(prompt)} tokens, but the context takes {settings.context} with the reply",
            path="prompt",
            hint="Send fewer ids",
        )


def match_ids(tips: Sequence[Tip], prompt: Sequence[int]) -> Match | None:
    """The tip whose prompt and reply are the longest beginning of the ids; of equal ones the latest."""
    ids = token_array(prompt)
    found: Tip | None = None
    rank = (0, -1)
    for tip in tips:
        if tip.ids is None or not rank[0] <= len(tip.ids) <= len(ids):
            continue
        candidate = (len(tip.ids), tip.ordinal)
        if candidate > rank and np.array_equal(tip.ids, ids[: len(tip.ids)]):
            found, rank = tip, candidate
    return Match(found, 0) if found is not None and rank[0] else None


async def prepare(call: Call, engine: Engine, token_in: TokenIn | None) -> None:
    """Put the prompt's ids on the call, where they are known here; InvalidRequestError where none could take it."""
    prompt, able = call.request.prompt, engine.capabilities
    if isinstance(prompt, tuple):
        if not able.token_in:
            raise InvalidRequestError(
                f"the engine of {call.model} takes no token ids", path="prompt", hint="Send the prompt as text"
            )
        call.prompt_ids, how = list(prompt), "given"
        call.source = "token-in"
    elif token_in is not None and prompt is not None:
        if len(prompt) > INLINE_CHARACTERS:
            call.prompt_ids, how = await asyncio.to_thread(_encode, call, token_in.tokenizer)
        else:
            call.prompt_ids, how = _encode(call, token_in.tokenizer)
    elif not able.completions:
        raise InvalidRequestError(
            f"the engine of {call.model} has no text completions",
            path="prompt",
            hint="Use /v1/chat/completions",
        )
    else:
        return
    call.metadata = {**call.metadata, "prompt": how}


def _encode(call: Call, tokenizer: TokenizerAdapter) -> tuple[list[int], str]:
    """The ids of a text prompt and how they came about."""
    assert isinstance(call.request.prompt, str)
    tip = call.match.tip if call.match is not None else None
    if call.match is not None and tip is not None and tip.ids is not None:
        rest = "".join(message.text for message in call.request.messages[call.match.depth :])
        hidden = _hidden(tip, tokenizer)
        if hidden is not None and rest.startswith(hidden):
            # What the reply ended with and its text does not show (an end of turn) is what the caller put back.
            before: list[int] = tip.ids.tolist()
            return [*before, *tokenizer.encode(rest[len(hidden) :])], "bridged"
    ids = tokenizer.encode(call.request.prompt, add_special_tokens=True)
    if not ids:
        raise InvalidRequestError("prompt has no tokens", path="prompt")
    return ids, "encoded"


def _hidden(tip: Tip, tokenizer: TokenizerAdapter) -> str | None:
    """What the ids of the reply say after its text; None where they do not begin with it."""
    assert tip.ids is not None
    whole, said = tokenizer.decode(tip.ids[tip.prompt_length :].tolist()), tip.messages[-1].text
    return whole[len(said) :] if whole.startswith(said) else None
