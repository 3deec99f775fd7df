"""Which marks failures leave on an engine, and what takes them back."""

from __future__ import annotations

import pytest

from agentworld.engines.base import EngineAbortedError, EngineBrokeError, EngineBusyError, EngineTimeoutError
from agentworld.errors import AgentWorldError, ContextLengthError, EngineError, EngineUnreachableError, PausedError
from agentworld.gateway.health import FAULTS, Health

from .clocks import HeldClock

AWAY = EngineUnreachableError("nothing answers")


def made() -> tuple[Health, HeldClock]:
    clock = HeldClock()
    return Health(clock), clock


def test_an_engine_that_is_away_is_passed_over_at_once() -> None:
    health, clock = made()
    health.fail(AWAY)
    assert (health.sound, health.usable) == (False, False)
    clock.advance(1.0)
    assert health.usable
    assert not health.sound
    health.begin()
    assert not health.usable  # One call tries it, and no second one.
    health.succeed()
    assert health.sound
    assert health.usable
    assert health.error is None


def test_it_rests_longer_each_time_and_not_for_ever() -> None:
    health, clock = made()
    rests = []
    for _ in range(8):
        health.fail(AWAY, health.begin())
        rest = 0.0
        while not health.usable:
            clock.advance(0.5)
            rest += 0.5
        rests.append(rest)
    assert rests == [1, 2, 4, 8, 16, 30, 30, 30]


@pytest.mark.parametrize("error", [EngineError("?"), EngineBrokeError("?"), EngineTimeoutError("?")], ids=repr)
def test_faults_in_a_row_take_it_out_of_service(error: AgentWorldError) -> None:
    health, _ = made()
    for _ in range(FAULTS - 1):
        health.fail(error)
    assert health.sound
    health.succeed()
    for _ in range(FAULTS - 1):
        health.fail(error)
    assert health.sound
    health.fail(error)
    assert not health.sound


@pytest.mark.parametrize(
    "error", [EngineBusyError("?"), EngineAbortedError("?"), ContextLengthError("?"), PausedError("?")], ids=repr
)
def test_what_is_no_fault_of_the_engine_is_no_mark(error: AgentWorldError) -> None:
    health, _ = made()
    for _ in range(10):
        health.fail(error)
    assert health.sound


def test_a_try_that_says_nothing_lets_the_next_one_try() -> None:
    health, clock = made()
    health.fail(AWAY)
    clock.advance(1.0)
    trial = health.begin()
    assert not health.usable
    health.end(trial)
    assert health.usable
    assert not health.sound


def test_probes_mark_and_take_back_what_they_can_know() -> None:
    health, _ = made()
    health.probed(EngineError("not JSON"))
    assert not health.sound
    health.probed(None)
    assert health.sound
    for _ in range(FAULTS):
        health.fail(EngineError("broken"))
    health.probed(None)  # It says which models it has, but answers no call.
    assert not health.sound


def test_a_call_from_before_the_failure_ends_no_trial() -> None:
    health, clock = made()
    failing, left = health.begin(), health.begin()
    health.fail(AWAY, failing)
    clock.advance(1.0)
    trial = health.begin()
    assert trial is not None
    health.end(left)
    assert not health.usable
    health.end(trial)
    assert health.usable
