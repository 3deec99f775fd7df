"""What is appended, checked before it waits for the writing thread."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from agentworld.errors import AgentWorldError, InvalidRequestError
from agentworld.pool.exact_text import stored_json
from agentworld.pool.intake import ABORTED, Prepared, choices_of, prepare
from agentworld.pool.media import read_digest
from agentworld.pool.protocol import Rejected
from agentworld.pool.rejections import rejection
from agentworld.pool.usual_steps import exchange_text, kept_of
from agentworld.records import Exchange, Step, check_id
from agentworld.records.ids import framed_digest

_LENGTH = struct.Struct(">Q").pack  # how `framed` writes the length before each part
# Without either of these bytes JSON is stored as it is spoken.
_BACKSLASH, _FIRST_MAPPED = 0x5C, 0xF4


class PreparedExchange:
    """An exchange that was checked before it waits for the writer."""

    def __init__(self, exchange: Exchange) -> None:
        check_id(exchange.exchange_id, "exchange_id")
        check_id(exchange.trajectory_id, "trajectory_id")
        self.exchange = exchange
        self.marks = [(read_digest(mark.digest), mark.said) for mark in exchange.marks] if exchange.marks else []
        text = exchange_text(exchange)
        self.content = framed_digest(b"".join((_LENGTH(len(text)), text)))  # As digest(text) is.
        # What needs no other spelling is stored as it is digested; without a time, it gets that of its transaction.
        is_odd = not exchange.created_at or _BACKSLASH in text or _FIRST_MAPPED in text
        self.record = None if is_odd else text.decode()
        self.steps = prepare_all(choices_of(exchange))
        self.status = "error" if exchange.error is not None else "ok"
        if self.status == "ok" and not ABORTED.isdisjoint([choice.finish_reason for choice in exchange.choices]):
            self.status = "aborted"

    def record_at(self, now: float) -> str:
        """What is stored of the exchange."""
        if self.record is not None:
            return self.record
        kept = kept_of(self.exchange, self.exchange.policy, self.exchange.sampling)
        if not kept.created_at:
            kept.created_at = now
        return stored_json(kept).decode()


Intake = Prepared | Rejected
Payload = PreparedExchange | Sequence[Intake]


def prepare_all(steps: Sequence[Step | Rejected]) -> list[Intake]:
    """Each step prepared, or with the reason why it is rejected."""
    taken: list[Intake] = []
    for step in steps:
        if isinstance(step, Rejected):
            taken.append(step)
            continue
        try:
            taken.append(prepare(step))
        except InvalidRequestError as error:
            taken.append(rejection(step, error.one_line()))
    return taken


def refused(steps: Sequence[Intake], error: AgentWorldError) -> list[Intake]:
    """The steps, each rejected for this reason."""
    return [step if isinstance(step, Rejected) else rejection(step.step, error.one_line()) for step in steps]


def trajectories_of(payloads: Sequence[Payload]) -> set[str]:
    """Those that the payloads name."""
    named: set[str] = set()
    for payload in payloads:
        if isinstance(payload, PreparedExchange):
            named.add(payload.exchange.trajectory_id)
            payload = payload.steps
        named.update(one.step.trajectory_id for one in payload if isinstance(one, Prepared))
    return named
