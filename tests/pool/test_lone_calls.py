"""What a call's transaction looks up and inserts, alone and with others: the same is there afterwards."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.pool.sql import step_digest
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import Exchange, Message, Step
from tests.examples import examples

_TEXTS = ["You solve tasks.", "a task", "another", "\0 \ud800 \U00100000", 'said "so"\\']
_IDS = np.arange(600, dtype="<u4")
_call = st.tuples(
    st.integers(0, 5),  # exchange
    st.integers(0, 2),  # trajectory
    st.lists(st.sampled_from(_TEXTS), min_size=1, max_size=4),
    st.lists(st.integers(0, 6), max_size=2, unique=True),  # steps
    st.sampled_from([0, 100, 128, 300, 600]),  # ids of the prompt
    st.sampled_from([None, "g"]),
    st.sampled_from([None, "a"]),
    st.booleans(),  # tools
)


def exchange_of(call):
    number, trajectory, texts, steps, length, group, agent, has_tools = call
    ids = {"exchange_id": f"e{number}", "trajectory_id": f"t{trajectory}", "group_id": group, "agent": agent}
    said = {"dialect": "chat", "model": "m", "requested_model": "m", "created_at": 5.0}
    prompt = [Message(role="user", content=text) for text in texts]
    choices = [
        Step(
            step_id=f"s{step}",
            **ids,
            **said,
            latency_ms=2.0,
            token_source="engine",
            prompt_ids=_IDS[:length],
            response_ids=_IDS[:7],
            response_logprobs=np.linspace(-1, 0, 7),
            prompt_messages=prompt,
            response_message=Message(role="assistant", content=f"answer {step}"),
            tools=[{"type": "function", "function": {"name": "look"}}] if has_tools else None,
        )
        for step in steps
    ]
    return Exchange(**ids, **said, messages=[], choices=choices)


def outcome(future):
    """What became of a call, or its fault."""
    try:
        return future.result()
    except Exception as error:
        return str(error)


def rows(path):
    """All rows, but for how many transactions there were."""
    pool = SqlitePool(path, clock=lambda: 9.0)
    with pool._database.reading() as reader:
        tables = [row[0] for row in reader.raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {table: [tuple(row) for row in reader.raw.execute(f"SELECT * FROM {table}")] for table in tables}
    assert pool.check() == []
    pool.close()
    found["counters"] = sorted(row for row in found["counters"] if row[0] != "pk.transactions" and row[1])
    return found


def write_alone(pool, calls):
    return [outcome(pool.submit_exchange(exchange_of(call))) for call in calls]


def write_together(pool, calls):
    begun, go_on = threading.Event(), threading.Event()

    def wait(txn):
        begun.set()
        assert go_on.wait(60)

    pool._writer.submit(wait)
    assert begun.wait(60)
    futures = [pool.submit_exchange(exchange_of(call)) for call in calls]
    go_on.set()
    return [outcome(future) for future in futures]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(_call, max_size=6))
def test_alone_and_together_leave_the_same(tmp_path_factory, calls):
    folder = tmp_path_factory.mktemp("calls")
    outcomes = []
    for name, write in (("alone", write_alone), ("together", write_together)):
        pool = SqlitePool(folder / f"{name}.db", clock=lambda: 9.0)
        outcomes.append(write(pool, calls))
        pool.close()
    assert outcomes[0] == outcomes[1]
    alone, together = (rows(folder / f"{name}.db") for name in ("alone", "together"))
    # Forests are numbered table by table in a transaction, and by step in several.
    assert {name: len(found) for name, found in alone.items()} == {name: len(found) for name, found in together.items()}
    for table in ("trajectories", "exchanges", "events", "groups", "counters", "dead_letters"):
        assert alone[table] == together[table], table


@settings(max_examples=examples(200), deadline=None)
@given(
    st.binary(max_size=40),
    st.none() | st.binary(max_size=9),
    st.none() | st.binary(max_size=40),
    st.none() | st.tuples(st.binary(min_size=16, max_size=16), st.integers(0, 10**9)),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 31),
)
def test_the_digest_of_a_usual_step_is_that_of_any(rest, mask, logprobs, tokens, messages, present):
    stored = step_digest.stored_parts(mask, logprobs, tokens, messages, present)
    expected = step_digest.step_digest(rest, stored)
    assert step_digest.content_digest(rest, mask, logprobs, tokens, messages, present) == expected


@pytest.mark.parametrize("known", ["trajectory", "step", "exchange"])
def test_what_is_there_is_found_by_a_call_alone(tmp_path, known):
    pool = SqlitePool(tmp_path / "pool.db", clock=lambda: 9.0)
    first = (0, 0, ["a task"], [0], 128, None, None, False)
    write_alone(pool, [first])
    pool._appender._forget()  # As where another process wrote.
    second = {
        "trajectory": (1, 0, ["a task"], [1], 128, None, None, False),
        "step": (1, 1, ["a task"], [0], 128, None, None, False),
        "exchange": (0, 1, ["a task"], [1], 128, None, None, False),
    }[known]
    [found] = write_alone(pool, [second])
    if known == "trajectory":
        assert [(one.outcome, one.step_index) for one in found] == [("stored", 1)]
    elif known == "step":
        assert [one.outcome for one in found] == ["conflict"]
    else:
        assert "is there with other content" in found
    pool.close()
