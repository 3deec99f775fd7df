"""What goes on record is the same, however the reply came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.capture.call import Call
from agentworld.capture.collect import Collector
from agentworld.capture.recorder import Recorder
from agentworld.capture.sessions import Session, message_keys
from agentworld.dialects.exchange import Delta, Request
from agentworld.engines.whole_replies import WholeDelta
from agentworld.errors import PoolError
from agentworld.forest import joined_ids, tools_digest
from agentworld.pool.memory import MemoryPool
from agentworld.records import Message, Policy, Sampling, Usage
from tests.examples import examples

_ASKED = (Message(role="system", content="s"), Message(role="user", content="u"))
_SAID: dict[str, Any] = {
    "text": "said",
    "ids": [5, 6, 7],
    "logprobs": [-1.0, -0.1, -0.25],
    "prompt_ids": [1, 2],
    "finish_reason": "stop",
    "usage": Usage(2, 3),
}
_CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "logprobs": st.sampled_from([[-1.0, -0.1], [0.5, -1.0, -2.0], [-0.0, 0.0, 0.0009]]),
        "logprobs_mode": st.sampled_from(["raw_logprobs", "processed_logprobs", "raw_logits"]),
        "usage": st.sampled_from([None, Usage(2, 4)]),
        "policy_version": st.just(4),
        "policy_run": st.just("other"),
        "finish_reason": st.sampled_from(["length", "abort"]),
        "stop_reason": st.sampled_from(["end", 3]),
        "reasoning": st.just("thought"),
    },
)
_CALLS = st.fixed_dictionaries(
    {},
    optional={
        "source": st.sampled_from(["none", "token-in"]),
        "prompt_ids": st.sampled_from([[1, 2], [1, 3]]),
        "retry_count": st.just(1),
        "agent": st.just("a"),
        "group_id": st.just("g"),
        "vocabulary": st.just("v"),
    },
)


def _call(more: dict[str, Any]) -> Call:
    said: dict[str, Any] = {
        "trajectory_id": "t",
        "request": Request(dialect="chat", model="asked", messages=_ASKED),
        "model": "m",
        "policy": Policy("m", "r", 3),
        "sampling": Sampling(temperature=1.0),
        "keys": message_keys(_ASKED),
        "tools_key": tools_digest([]),
        "body_digest": "d",
        "exchange_id": "exc_1",
        "created_at": 12.5,
        "started": 0.0,
    }
    return Call(**{**said, **more})


def _whole(said: dict[str, Any]) -> WholeDelta:
    numbers = np.array(said["logprobs"], dtype=np.float64)
    sequence = joined_ids(said["prompt_ids"], said["ids"])
    kept = {name: value for name, value in said.items() if name not in ("prompt_ids", "ids", "logprobs")}
    length, highest = len(said["prompt_ids"]), max(said["logprobs"])
    return WholeDelta(**kept, sequence=sequence, prompt_length=length, numbers=numbers, highest=highest)


async def _recorded(call: Call, *deltas: Delta) -> tuple[object, ...]:
    pool, session, collector = MemoryPool(), Session("t", None), Collector()
    for delta in deltas:
        collector.feed(delta)
    steps = await Recorder(pool).commit(call, session, collector, collector.choices())
    (stored,), (exchange,) = pool.list_steps(trajectory_id="t").items, pool.list_exchanges("t")
    (tip,) = session.tips or [None]
    known = None if tip is None or tip.ids is None else (tip.ids.tolist(), tip.keys, tip.messages, tip.prompt_length)
    said = [msgspec.structs.replace(record, latency_ms=None) for record in (stored, exchange)]
    steps = [msgspec.structs.replace(step, latency_ms=None) for step in steps]
    told = [msgspec.json.encode(step, enc_hook=lambda array: array.tolist()) for step in steps]
    return said, told, known, session.size


@settings(max_examples=examples(200), deadline=None)
@given(_CHANGES, _CALLS, st.sampled_from([None, None, [1], [1, 2], [1, 2, 3]]))
async def test_a_reply_in_one_piece_goes_on_record_as_any(
    changes: dict[str, Any], more: dict[str, Any], prompt: list[int] | None
) -> None:
    said = {**_SAID, **changes}
    before = () if prompt is None else (Delta(index=-1, prompt_ids=prompt),)  # As a stream begins with.
    whole = await _recorded(_call(more), *before, _whole(said))
    assert whole == await _recorded(_call(more), *before, Delta(**said))


@pytest.mark.parametrize("kind", [_whole, lambda said: Delta(**said)])
async def test_a_refused_step_is_kept_as_it_was_said(kind: Callable[[dict[str, Any]], Delta]) -> None:
    """Dead letters hold numbers as they came, not as storage rounds them."""
    pool, collector = MemoryPool(), Collector()
    collector.feed(kind(_SAID))
    call = _call({"metadata": {"a": float("nan")}})
    with pytest.raises(PoolError, match="nan is no number"):
        await Recorder(pool).commit(call, Session("t", None), collector, collector.choices())
    (letter,) = pool.dead_letters()
    kept = msgspec.json.decode(letter.record)
    assert (kept["prompt_ids"], kept["response_ids"]) == ([1, 2], [5, 6, 7])
    assert kept["response_logprobs"] == _SAID["logprobs"]
