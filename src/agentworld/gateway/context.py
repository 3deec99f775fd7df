"""What a context leaves for the reply, for callers whose `max_tokens` is the most that may come and no less will do.

Anthropic's clients send the largest reply that their model knows, far over what many open models' contexts hold.
"""

from __future__ import annotations

import msgspec

from agentworld.capture.call import Call

LOWER_LIMIT = 8192


def cap_limit(call: Call, context: int, length: int) -> None:
    """Lower `max_tokens` to what `context` leaves beside a prompt of `length` tokens, where the caller lets us."""
    wanted, room = call.sampling.max_tokens, context - length
    if call.request.fit_context and wanted is not None and 0 < room < wanted:
        _note(call, wanted)
        call.sampling = msgspec.structs.replace(call.sampling, max_tokens=room)


def drop_limit(call: Call) -> bool:
    """Ask for the rest of the context, whatever that is, after the engine refused `max_tokens`; whether that may be.

    The engine said that prompt and `max_tokens` exceed its context, so the rest of the context is less. An API that
    demands a limit gets half of it, and at most `LOWER_LIMIT`.
    """
    wanted = call.sampling.max_tokens
    if not call.request.fit_context or wanted is None:
        return False
    _note(call, wanted)
    call.sampling = msgspec.structs.replace(call.sampling, max_tokens=None)
    sampling = msgspec.structs.replace(call.request.sampling, max_tokens=None)
    raw = call.request.raw
    if raw is not None and raw.get("max_tokens") is not None:
        # Drivers of the caller's own API send its body, and that API demands a limit.
        raw = {**raw, "max_tokens": max(min(wanted // 2, LOWER_LIMIT), 1)}
    call.request = msgspec.structs.replace(call.request, sampling=sampling, raw=raw)
    return True


def _note(call: Call, wanted: int) -> None:
    call.metadata = {**call.metadata, "max_tokens_asked": wanted}
