"""Prompts that go on from sampled ids: bridges to the next turn, and replies that are written on where they ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from agentworld.engines.tokenizer import TokenizerAdapter
from agentworld.errors import InvalidRequestError
from agentworld.forest import Tip
from agentworld.gateway.rendering import RENDERING_FAULTS, Rendering

THINK_END = "</think>"
_ASKED: list[dict[str, Any]] = [{"role": "user", "content": "."}]


class Prompt(NamedTuple):
    """Ids and how they came about: `bridged`, `rendered` or `continued`. `lead`: so many of the last ids begin the
    reply that is asked for.
    """

    ids: list[int]
    how: str
    lead: int = 0


def bridge(
    rendering: Rendering, tokenizer: TokenizerAdapter, tip: Tip, added: list[dict[str, Any]], tools: Any
) -> list[int] | None:
    """The step's ids and the new messages, or None where they cannot be joined."""
    assert tip.ids is not None
    before: list[int] = tip.ids.tolist()
    prompt, completion = before[: tip.prompt_length], before[tip.prompt_length :]
    closed = any(token in rendering.stop_ids for token in completion)
    if closed and completion[-1] not in rendering.stop_ids:
        # The reply went on after its close. Another close keeps the bridge from cutting it back to the first.
        completion = [*completion, rendering.stop_ids[0]]
    ids = _join(rendering, prompt, completion, added, tools)
    if ids is None and closed:
        ids = _join_unfinished_thought(rendering, tokenizer, prompt, completion, added, tools)
    # Trust, but compare: the whole promise of token-in hangs on it.
    return ids if ids is not None and ids[: len(before)] == before else None


def _join(
    rendering: Rendering, prompt: list[int], completion: list[int], added: list[dict[str, Any]], tools: Any
) -> list[int] | None:
    """The renderer's own bridge; None where it makes none."""
    try:
        joined = rendering.renderer.bridge_to_next_turn(prompt, completion, added, tools=tools)
    except RENDERING_FAULTS:
        return None
    return None if joined is None else list(joined.token_ids)


def _join_unfinished_thought(
    rendering: Rendering,
    tokenizer: TokenizerAdapter,
    prompt: list[int],
    completion: list[int],
    added: list[dict[str, Any]],
    tools: Any,
) -> list[int] | None:
    """The bridge over a reply that closed its turn inside a thought, which renderers refuse.

    What comes after a closed turn does not depend on what is in it. So the new messages are taken from the bridge
    over the same reply with its thought closed, and put after the reply as it is.
    """
    close = tokenizer.convert_tokens_to_ids(THINK_END)
    if not isinstance(close, int):
        return None
    end = next(at for at, token in enumerate(completion) if token in rendering.stop_ids)
    stand_in = [*completion[:end], close, completion[end]]
    ids = _join(rendering, prompt, stand_in, added, tools)
    length = len(prompt) + len(stand_in)
    if ids is None or ids[:length] != [*prompt, *stand_in]:
        return None
    return [*prompt, *completion, *ids[length:]]


def written_on(rendering: Rendering, tip: Tip, lead: int) -> Prompt | None:
    """The prompt that goes on inside the step's reply, whose own prompt ended with `lead` ids of it. None where the
    reply went on after its close.

    A reply that ended by itself is opened again: its close goes, and the step is no plain continuation.
    """
    assert tip.ids is not None
    ids: list[int] = tip.ids.tolist()
    if len(ids) > tip.prompt_length and ids[-1] in rendering.stop_ids:
        ids.pop()
    if any(token in rendering.stop_ids for token in ids[tip.prompt_length :]):
        return None
    return Prompt(ids, "continued", len(ids) - tip.prompt_length + lead)


def begun(
    rendering: Rendering,
    tokenizer: TokenizerAdapter,
    prompt: Sequence[int],
    how: str,
    reply: dict[str, Any],
    model: str,
) -> Prompt:
    """`prompt`, which opens an assistant turn, with the beginning of a reply that the caller wrote.

    The beginning is rendered as the format writes a last message and cut before its close. Thinking without content
    stays open, as a reply that was cut inside a thought is.
    """
    try:
        render = rendering.renderer.render_ids
        opened = list(render(_ASKED, add_generation_prompt=True))
        whole = list(render([*_ASKED, reply], add_generation_prompt=False))
    except RENDERING_FAULTS as error:
        raise _cannot(model, str(error)) from error
    shared = next(
        (at for at, (one, other) in enumerate(zip(opened, whole, strict=False)) if one != other),
        min(len(opened), len(whole)),
    )
    # Formats that open a thought with the turn write it together with what follows, so the seam may lie before it.
    kept = len(prompt) - (len(opened) - shared)
    end = max((at for at, token in enumerate(whole) if token in rendering.stop_ids), default=-1)
    if list(prompt[kept:]) != opened[shared:] or end < shared:
        raise _cannot(model, "its chat format shows no end of a reply to cut off")
    lead = whole[shared:end]
    if reply.get("reasoning_content") and not reply.get("content"):
        lead = _open_thought(tokenizer, lead)
    return Prompt([*prompt[:kept], *lead], how, len(lead))


def _open_thought(tokenizer: TokenizerAdapter, lead: list[int]) -> list[int]:
    """The thought without its close and the line ends before that."""
    close = tokenizer.convert_tokens_to_ids(THINK_END)
    if close not in lead:
        return lead
    thought = lead[: lead.index(close)]
    while thought and tokenizer.token_bytes(thought[-1]).endswith(b"\n"):
        # The line end may be one token with the last character of the thought.
        rest = tokenizer.decode(thought.pop()).rstrip("\n")
        if rest:
            thought.extend(tokenizer.encode(rest))
    return thought


def _cannot(model: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"a reply of {model} cannot be begun by the caller: {reason}",
        path="messages",
        hint="End with a user or tool message",
    )
