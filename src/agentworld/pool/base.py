"""What the stores share above their storage: waiting for futures, consumers, paging cursors."""

from __future__ import annotations

import abc
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

from agentworld.errors import InvalidRequestError, QueryError
from agentworld.pool import draining, spec_check
from agentworld.pool.arguments import check_event_kinds
from agentworld.pool.bounds import MAX_INTEGER, check_integer
from agentworld.pool.consumer import PoolConsumer
from agentworld.pool.events import follow
from agentworld.pool.explaining import Delivered, Explainer, with_spec
from agentworld.pool.protocol import AppendResult, Drain, GatewayWorker, Pool, Rejected, SignalsResult, UnitExplanation
from agentworld.pool.results import SpecReport
from agentworld.records import Annotation, BatchSpec, Event, Exchange, Feedback, Reward, Step, check_id

MAX_PAGE = 1000
_CURSOR = re.compile(r"([on])([0-9a-f]{1,16})")


class Store(Pool, abc.ABC):
    """Base of the stores. `poll_seconds`: the longest time between two looks for events of other processes."""

    poll_seconds: float

    def append_exchange(self, exchange: Exchange) -> list[AppendResult]:
        """See Pool."""
        return self.submit_exchange(exchange).result()

    def append_steps(self, steps: Sequence[Step | Rejected], *, own_channel: str | None = None) -> list[AppendResult]:
        """See Pool."""
        return self.submit_steps(steps, own_channel=own_channel).result()

    def add_rewards(self, rewards: Sequence[Reward]) -> int:
        """See Pool."""
        return self.add_signals(rewards).changed

    def add_feedback(self, feedback: Sequence[Feedback]) -> int:
        """See Pool."""
        return self.add_signals(feedback).changed

    def add_annotations(self, annotations: Sequence[Annotation]) -> int:
        """See Pool."""
        return self.add_signals(annotations).changed

    def consumer(self, name: str) -> PoolConsumer:
        """See Pool."""
        return PoolConsumer(self, name)

    def explain_unit(self, consumer: str, target_id: str, spec: BatchSpec | None = None) -> UnitExplanation:
        """See Pool."""
        check_id(consumer, "consumer")
        asked = with_spec(self, consumer, spec)
        return Explainer(self, consumer, asked, functools.partial(self._delivered, consumer)).explain(
            check_id(target_id, "id")
        )

    def check_spec(self, consumer: str, spec: BatchSpec | None = None) -> SpecReport:
        """See Pool."""
        check_id(consumer, "consumer")
        asked = with_spec(self, consumer, spec).resolved()
        explainer = Explainer(self, consumer, asked, functools.partial(self._delivered, consumer))
        return spec_check.check(self, explainer, consumer, asked)

    @abc.abstractmethod
    def _delivered(self, consumer: str, spec: BatchSpec, key: str) -> Delivered:
        """Where the unit of a resolved spec stands with the consumer."""

    def gateway_workers(self) -> list[GatewayWorker]:
        """See Pool."""
        return self._silence.living(self._last_words())

    @functools.cached_property
    def _silence(self) -> draining.Silence:
        return draining.Silence()

    @abc.abstractmethod
    def _last_words(self) -> list[GatewayWorker]:
        """What each worker of a gateway said last of itself, by name."""

    def drain(self, timeout: float = 0.0) -> Drain:
        """See Pool."""
        return draining.wait(lambda: draining.judge(self.gateway_state(), self.gateway_workers()), timeout)

    @abc.abstractmethod
    def add_signals(
        self, sent: Sequence[Reward | Feedback | Annotation], *, own_channel: str | None = None
    ) -> SignalsResult:
        """See Pool."""

    def follow(
        self, after: int = 0, *, timeout: float | None = None, kinds: Sequence[str] | None = None
    ) -> Iterator[Event]:
        """See Pool."""
        return follow(self, check_after(after), timeout, check_event_kinds(kinds))

    @abc.abstractmethod
    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See Pool."""

    @abc.abstractmethod
    def submit_exchange(self, exchange: Exchange) -> Future[list[AppendResult]]:
        """See Pool."""

    @abc.abstractmethod
    def submit_steps(
        self, steps: Sequence[Step | Rejected], *, own_channel: str | None = None
    ) -> Future[list[AppendResult]]:
        """See Pool."""


def check_limit(limit: int) -> int:
    """A page size from 1 to 1000."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_PAGE:
        raise InvalidRequestError(f"limit must be a whole number from 1 to {MAX_PAGE}", path="limit")
    return limit


def check_where(where: object) -> None:
    """QueryError where a condition is no text."""
    if where is not None and not isinstance(where, str):
        raise QueryError(f"where must be a text, not a {type(where).__name__}", path="where")


def check_after(after: int) -> int:
    """The sequence number that a reader goes on after, from 0."""
    if not isinstance(after, int) or isinstance(after, bool):
        raise InvalidRequestError("after must be a whole number", path="after", hint="Send a sequence, or 0")
    check_integer(after, "after", highest=MAX_INTEGER)
    return after


def check_order(order: str) -> None:
    """QueryError where an order is neither oldest nor newest first."""
    if order not in ("oldest", "newest"):
        raise QueryError(f"order is oldest or newest, not {order!r}", path="order")


def cursor_for(ordinal: int, order: str) -> str:
    """A cursor that goes on after `ordinal`."""
    return f"{order[0]}{ordinal:x}"


def read_cursor(cursor: str | None, order: str) -> int | None:
    """The ordinal to go on after; QueryError where the cursor is not one of this order."""
    check_order(order)
    if cursor is None:
        return None
    found = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    ordinal = int(found[2], 16) if found is not None else 0
    if found is None or found[1] != order[0] or ordinal > MAX_INTEGER:
        raise no_cursor(cursor)
    return ordinal


def no_cursor(cursor: object) -> QueryError:
    """The error of what is no cursor of a listing."""
    shown = repr(cursor[:40]) if isinstance(cursor, str) else f"a {type(cursor).__name__}"
    return QueryError(
        f"{shown} is no cursor of this listing", path="cursor", hint="Send next_cursor as it was returned"
    )


def read_awaited_cursor(cursor: str | None) -> tuple[str, str]:
    """The kind and id of what awaited targets go on after; QueryError where the cursor is none of theirs."""
    if cursor is None:
        return "", ""
    kind, separator, target_id = cursor.partition(":") if isinstance(cursor, str) else ("", "", "")
    if not separator or kind not in ("step", "trajectory"):
        raise no_cursor(cursor)
    return kind, target_id
