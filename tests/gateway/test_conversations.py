"""Which trajectory a retry belongs to, and whether it repeats a failed call, as the pool tells."""

from __future__ import annotations

import pytest

from agentworld.capture.marks import call_mark
from agentworld.capture.sessions import Session
from agentworld.gateway.conversations import Conversations
from agentworld.gateway.retries import FAILED_SECONDS, Retries
from agentworld.pool.memory import MemoryPool
from agentworld.records import Exchange, Mark, Message, NewTrajectory, Step

KEY = b"key"
BODY = "0f" * 16


class Clock:
    """The pool's, far from this machine's."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool(clock: Clock) -> MemoryPool:
    return MemoryPool(clock=clock)


def call(
    pool: MemoryPool, number: int, *, failed: bool = False, retry: int = 0, at: float | None = None, body: str = BODY
) -> None:
    name = f"exc-{number}"
    pool.append_exchange(
        Exchange(
            exchange_id=name,
            trajectory_id="t",
            dialect="chat",
            model="m",
            requested_model="m",
            messages=[Message("user", "hi")],
            choices=[] if failed else [Step(step_id=f"s-{number}", trajectory_id="t", response_message=SAID)],
            error={"code": "x", "message": "y"} if failed else None,
            body_digest=body,
            retry_count=retry,
            created_at=float(number) if at is None else at,
            marks=[Mark(call_mark(KEY, body), "failed" if failed else "answered")],
        )
    )


SAID = Message("assistant", "ok")


async def test_how_long_a_failed_call_is_waited_for_goes_by_the_pools_clock(pool: MemoryPool, clock: Clock) -> None:
    known = Conversations(pool, Retries())
    call(pool, 1, failed=True)
    clock.now += FAILED_SECONDS
    assert await known.asked_before(KEY, BODY) == "t"
    clock.now += 1
    assert await known.asked_before(KEY, BODY) is None


async def failed(pool: MemoryPool) -> bool:
    session = Session("t", pool.get_trajectory("t"))
    return await Conversations(pool, Retries()).failed_elsewhere(session, BODY)


async def test_a_failure_is_found_behind_a_thousand_calls(pool: MemoryPool) -> None:
    pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    for number in range(1100):
        call(pool, number, body="ff" * 16)
    assert not await failed(pool)
    call(pool, 2000, failed=True)
    assert await failed(pool)
    call(pool, 2001, retry=1)
    assert not await failed(pool)


async def test_a_retry_takes_up_a_failure_from_before_it_alone(pool: MemoryPool) -> None:
    pool.create_trajectory(NewTrajectory(trajectory_id="t"))
    call(pool, 1, retry=1)  # Of a call that nobody remembers.
    call(pool, 2, failed=True)
    assert await failed(pool)
    # Stored after its retry, but asked before it.
    call(pool, 5, retry=1, at=5.0)
    assert not await failed(pool)
    call(pool, 7, retry=1, at=7.0)
    call(pool, 6, failed=True, at=6.0)
    assert not await failed(pool)
