"""What is appended, checked before it waits for the writing thread."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentworld.errors import AgentWorldError, InvalidRequestError
from agentworld.pool.intake import ABORTED, Prepared, choices_of, prepare
from agentworld.pool.media import read_digest
from agentworld.pool.protocol import Rejected
from agentworld.pool.rejections import rejection
from agentworld.pool.usual_steps import exchange_text
from agentworld.records import Exchange, Step, check_id, digest


class PreparedExchange:
    """An exchange that was checked before it waits for the writer."""

    def __init__(self, exchange: Exchange) -> None:
        check_id(exchange.exchange_id, "exchange_id")
        check_id(exchange.trajectory_id, "trajectory_id")
        self.exchange = exchange
        kept = msgspec.structs.replace(
            exchange, messages=[], tools=[], choices=[], marks=[], only_group=None, only_channel=None
        )
        self.marks = [(read_digest(mark.digest), mark.said) for mark in exchange.marks]
        self.kept = kept
        self.content = digest(exchange_text(kept))
        self.steps = prepare_all(choices_of(exchange))
        aborted = not ABORTED.isdisjoint([choice.finish_reason for choice in exchange.choices])
        self.status = "error" if exchange.error is not None else "aborted" if aborted else "ok"


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
