"""What a pool's writer keeps in memory is bounded in bytes, and the bytes that it counts are those that it takes."""

import gc
import tracemalloc

import pytest

from agentworld.pool.sql import forests
from agentworld.records import Message, Tool

from .samples import step

TRAJECTORIES = 200


def talk(number, turns):
    """A step at the end of a conversation of its own."""
    said = [
        Message(role=role, content=f"{role} {number}.{turn}") for turn in range(turns) for role in ("user", "assistant")
    ]
    return step(
        f"t{number}",
        step_id=f"s{number}",
        prompt_messages=[*said, Message(role="user", content="go")],
        response_message=Message(role="assistant", content=f"done {number}"),
        prompt_ids=[(7 * number + place) % 50_000 for place in range(100 * turns + 20)],
    )


@pytest.fixture
def traced():
    gc.freeze()  # What was there before is not looked through at each collection.
    tracemalloc.start()
    yield
    tracemalloc.stop()


def freed(cache):
    """Bytes that are free once the cache is cleared, and those that it had counted."""
    gc.collect()
    before, counted = tracemalloc.get_traced_memory()[0], cache._held
    cache.clear()
    gc.collect()
    return before - tracemalloc.get_traced_memory()[0], counted


@pytest.mark.parametrize("turns", [0, 1, 8])
def test_tips_take_the_bytes_that_are_counted(sqlite_pool, traced, turns):
    for begin in range(0, TRAJECTORIES, 40):
        sqlite_pool.append_steps([talk(number, turns) for number in range(begin, begin + 40)])
    writer = sqlite_pool._appender._forests
    for cache in (writer._token_tips, writer._message_tips):
        taken, counted = freed(cache)
        assert counted > 100 * TRAJECTORIES
        assert taken < 1.15 * counted
        assert counted < 1.25 * taken


def test_tips_stay_within_their_bytes_whatever_comes(sqlite_pool):
    writer = sqlite_pool._appender._forests
    caches = (writer._token_tips, writer._message_tips)
    for cache in caches:
        cache._limit = 20_000
    sqlite_pool.append_steps([talk(number, 2) for number in range(TRAJECTORIES)])
    for cache in caches:
        assert 10_000 < cache._held <= 20_000
        assert cache.get(f"t{TRAJECTORIES - 1}")
        assert not cache.get("t0")


def tools(number, size):
    return [Tool(name=f"tool_{number}", description="x" * size)]


def test_tool_sets_of_any_size_fill_no_memory(sqlite_pool):
    """They are read back, those that are not known any more too."""
    small, large = 1_000, forests._KNOWN_TOOL_BYTES + 1
    sent = [(number, small) for number in range(forests._KNOWN_TOOL_SETS + 10)] + [
        (number, large) for number in range(5)
    ]
    sqlite_pool.append_steps(
        [step(f"t{place}", step_id=f"s{place}", tools=tools(*of)) for place, of in enumerate(sent)]
    )
    known = sqlite_pool._appender._forests._tool_digests
    assert 0 < len(known) <= forests._KNOWN_TOOL_SETS
    assert max(map(len, known)) <= forests._KNOWN_TOOL_BYTES
    for place in (0, len(sent) - 1):
        assert sqlite_pool.get_step(f"s{place}").tools == tools(*sent[place])
