"""What goes in comes out, and the same content is stored once however it was cut."""

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.pool.memory import MemoryPool
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import FunctionCall, MediaPart, Message, Step, TextPart, ToolCall

text = st.text(st.characters(exclude_categories=["Cs"]) | st.just("\x00"), max_size=8)
parts = st.lists(
    st.builds(TextPart, text) | st.builds(MediaPart, st.just("ab"), st.just("image/png"), st.none() | text), max_size=2
)
calls = st.lists(st.builds(ToolCall, text, st.builds(FunctionCall, text, text)), max_size=2)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
    content=st.none() | text | parts.map(tuple),
    reasoning=st.none() | text,
    tool_calls=calls.map(tuple),
    tool_call_id=st.none() | text,
    name=st.none() | text,
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, width=32) | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=4,
).filter(lambda value: "inf" not in repr(value))
objects = st.dictionaries(text, values, max_size=3)
token = st.integers(0, 2**32 - 1) | st.integers(0, 70_000) | st.integers(0, 5)


@st.composite
def sequences(draw):
    """Ids that often share long prefixes and end near the edges of blocks."""
    shared = draw(st.sampled_from([0, 1, 127, 128, 129, 256, 300]))
    ids = list(range(shared)) + draw(st.lists(token, max_size=4)) + [7] * draw(st.sampled_from([0, 1, 126, 130]))
    return ids, draw(st.integers(0, len(ids)))


@st.composite
def steps(draw):
    ids, split = draw(sequences())
    response = ids[split:]
    finite = st.floats(-(2.0**100), 0, width=32)
    return {
        "prompt_ids": ids[:split],
        "response_ids": response,
        "response_mask": draw(st.lists(st.integers(0, 1), min_size=len(response), max_size=len(response))),
        "response_logprobs": draw(st.lists(finite | st.none(), min_size=len(response), max_size=len(response))),
        "prompt_messages": draw(st.none() | st.lists(messages, max_size=3)),
        "response_message": draw(st.none() | messages),
        "tools": draw(st.none() | st.lists(objects, max_size=2)),
        "metadata": draw(objects),
        "labels": draw(objects),
        "vocabulary": draw(st.none() | st.sampled_from(["v", "w"])),
        "agent": draw(st.none() | text),
    }


NAMES = [
    *("prompt_ids", "response_ids", "response_mask", "response_logprobs"),
    *("prompt_messages", "response_message", "tools", "metadata", "labels", "vocabulary", "agent"),
]


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def shared_pool(request, tmp_path_factory):
    store = MemoryPool() if request.param == "memory" else SqlitePool(tmp_path_factory.mktemp("exact") / "pool.db")
    yield store
    store.close()


_numbers = itertools.count()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(contents=st.lists(steps(), min_size=1, max_size=4), together=st.booleans(), trajectories=st.integers(1, 2))
def test_what_goes_in_comes_out(shared_pool, contents, together, trajectories):
    run = next(_numbers)
    sent = [
        Step(step_id=f"s{run}-{number}", trajectory_id=f"t{run}-{number % trajectories}", **content)
        for number, content in enumerate(contents)
    ]
    before = msgspec.json.encode(sent)
    if together:
        results = shared_pool.append_steps(sent)
    else:
        results = [result for step in sent for result in shared_pool.append_steps([step])]
    assert [result.outcome for result in results] == ["stored"] * len(sent)
    assert msgspec.json.encode(sent) == before
    for step in sent:
        there = shared_pool.get_step(step.step_id)
        for name in NAMES:
            # Encoded, because equality of dicts does not see the order of keys.
            assert msgspec.json.encode(getattr(there, name)) == msgspec.json.encode(getattr(step, name)), name
    assert {result.outcome for result in shared_pool.append_steps(sent)} == {"duplicate"}


def stored_after(tmp_path, name, batches):
    pool = SqlitePool(tmp_path / f"{name}.db")
    for batch in batches:
        pool.append_steps(batch)
    stats = pool.stats()
    pool.close()
    return stats


def test_the_same_content_is_stored_once_however_it_was_cut(tmp_path):
    random = np.random.default_rng(3)
    ids = random.integers(0, 150_000, 700).tolist()

    def cut(trajectory, at):
        return Step(step_id=f"{trajectory}-{at}", trajectory_id=trajectory, prompt_ids=ids[:at], response_ids=ids[at:])

    alone = stored_after(tmp_path, "alone", [[cut("t", 300)]])
    cuts = [cut("t", at) for at in (0, 1, 128, 300, 699)] + [cut("u", at) for at in (127, 700)]
    full_blocks = 5 * 128
    for name, batches in {"together": [cuts], "one by one": [[step] for step in cuts]}.items():
        stats = stored_after(tmp_path, name, batches)
        assert stats.tokens_flat == 7 * 700
        assert stats.tokens_stored == full_blocks + 7 * (700 - full_blocks)
    assert alone.tokens_stored == 700


def test_stores_count_alike(tmp_path):
    random = np.random.default_rng(5)
    stores = [MemoryPool(), SqlitePool(tmp_path / "pool.db")]
    ids, texts = [], []
    for turn in range(6):
        reply = Message(role="assistant", content=f"reply {turn}")
        texts.append(Message(role="user", content=f"turn {turn}"))
        step = Step(
            step_id=f"s{turn}",
            trajectory_id="t",
            prompt_ids=list(ids),
            response_ids=random.integers(0, 9, 100).tolist(),
            prompt_messages=list(texts),
            response_message=reply,
            finish_reason="abort" if turn == 2 else "stop",
        )
        ids += step.response_ids
        texts.append(reply)
        for store in stores:
            store.append_steps([step])
    memory, sqlite = (store.stats() for store in stores)
    assert memory == sqlite
    assert sqlite.message_nodes == 12
    assert sqlite.tokens_flat == sum(100 * (turn + 1) for turn in range(6))
    for store in stores:
        store.close()
