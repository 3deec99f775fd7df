"""What goes in comes out, and the same content is stored once however it was cut."""

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.errors import InvalidRequestError
from agentworld.pool.memory import MemoryPool
from agentworld.pool.postgres import PostgresPool
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import (
    Exchange,
    FunctionCall,
    MediaPart,
    Message,
    NewTrajectory,
    Reward,
    Sampling,
    Step,
    TextPart,
    ToolCall,
    exact_json,
)
from tests.examples import examples

from ..samples import step as sample

name = st.text(st.characters(exclude_categories=["Cs"]).filter(lambda one: one != "\x00"), max_size=8)
# What stores hold otherwise than it is said, and what stands for it there.
odd = st.sampled_from(["\x00", "\ud800", "\ud83d", "\ude00", "\udfff", "\U00100000", "\U00100800", "\U00100801"])
text = st.text(st.characters(exclude_categories=()) | odd, max_size=8)
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
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([-0.0, 1e308, 5e-324, 10**30, 2**63, -(2**63) - 1, 1, 1.0])
    | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=4,
)
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
        "agent": draw(st.none() | name),
        "sampling": draw(
            st.none() | st.builds(Sampling, tool_choice=values, stop=st.lists(text, max_size=1).map(tuple))
        ),
    }


NAMES = [
    *("prompt_ids", "response_ids", "response_mask", "response_logprobs"),
    *("prompt_messages", "response_message", "tools", "metadata", "labels", "vocabulary", "agent", "sampling"),
]


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgres"])
def shared_pool(request, tmp_path_factory):
    if request.param == "memory":
        store = MemoryPool()
    elif request.param == "sqlite":
        store = SqlitePool(tmp_path_factory.mktemp("exact") / "pool.db")
    else:
        store = PostgresPool(request.getfixturevalue("postgres").fresh_pool_url())
    yield store
    store.close()


_numbers = itertools.count()


@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(contents=st.lists(steps(), min_size=1, max_size=4), together=st.booleans(), trajectories=st.integers(1, 2))
def test_what_goes_in_comes_out(shared_pool, contents, together, trajectories):
    run = next(_numbers)
    sent = [
        Step(step_id=f"s{run}-{number}", trajectory_id=f"t{run}-{number % trajectories}", **content)
        for number, content in enumerate(contents)
    ]
    before = exact_json.encode(sent)
    if together:
        results = shared_pool.append_steps(sent)
    else:
        results = [result for step in sent for result in shared_pool.append_steps([step])]
    assert [result.outcome for result in results] == ["stored"] * len(sent)
    assert exact_json.encode(sent) == before
    for step in sent:
        there = shared_pool.get_step(step.step_id)
        for name in NAMES:
            # Encoded, because equality of dicts does not see the order of keys.
            assert exact_json.encode(getattr(there, name)) == exact_json.encode(getattr(step, name)), name
    assert {result.outcome for result in shared_pool.append_steps(sent)} == {"duplicate"}


@settings(max_examples=examples(25), deadline=None, derandomize=True)
@given(task=st.none() | objects, metadata=objects, details=objects, error=objects)
def test_other_free_json_comes_back_too(shared_pool, task, metadata, details, error):
    run = f"t-free-{next(_numbers)}"
    shared_pool.create_trajectory(NewTrajectory(trajectory_id=run, task=task, metadata=metadata))
    there = shared_pool.get_trajectory(run)
    assert exact_json.encode([there.task, there.metadata]) == exact_json.encode([task, metadata])
    assert shared_pool.create_trajectory(NewTrajectory(trajectory_id=run, task=task, metadata=metadata)) == there
    reward = Reward(value=1.0, trajectory_id=run, details=details)
    assert shared_pool.add_rewards([reward]) == 1
    call = Exchange(
        exchange_id=run, trajectory_id=run, dialect="chat", model="m", requested_model="m", messages=[], error=error
    )
    shared_pool.append_exchange(call)
    assert exact_json.encode(shared_pool.list_exchanges(run)[0].error) == exact_json.encode(error)
    shared_pool.append_exchange(call)  # The same again is no conflict.


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_has_not_are_refused(pool, number):
    places = [
        {"metadata": {"a": [number]}},
        {"labels": {"a": {"b": number}}},
        {"tools": [{"a": number}]},
        {"sampling": Sampling(temperature=number)},
        {"sampling": Sampling(tool_choice=number)},
        {"sampling": Sampling(logit_bias={"1": number})},
    ]
    pool.append_steps([sample("t", tools=[{"a": None}])])  # As which msgspec would write it.
    assert [result.outcome for result in pool.append_steps([sample("t", **place) for place in places])] == [
        "rejected"
    ] * len(places)
    with pytest.raises(InvalidRequestError):
        pool.create_trajectory(NewTrajectory(trajectory_id="u", metadata={"a": number}))


def as_arrays(step):
    """The step with arrays in place of its lists."""
    kinds = {"prompt_ids": "<u4", "response_ids": np.int64, "response_mask": np.uint8, "response_logprobs": "<f4"}
    given = {name: np.asarray(getattr(step, name), dtype=kind) for name, kind in kinds.items() if getattr(step, name)}
    return msgspec.structs.replace(step, **given)


def test_arrays_stand_for_lists(pool):
    lists = sample("t", prompt_ids=list(range(300)), response_mask=[1, 0], response_logprobs=[-0.5, -1.5])
    arrays = as_arrays(lists)
    assert pool.append_steps([arrays])[0].outcome == "stored"
    arrays.prompt_ids[:] = 0  # The caller's own again.
    assert pool.append_steps([lists])[0].outcome == "duplicate"
    there = pool.get_step(lists.step_id)
    for name in ("prompt_ids", "response_ids", "response_mask", "response_logprobs"):
        assert getattr(there, name) == getattr(lists, name)
    # Every other one: arrays need not lie in one piece.
    spread = np.arange(600, dtype="<u4")[::2]
    one = sample("t", prompt_ids=spread)
    two = msgspec.structs.replace(one, prompt_ids=spread.tolist())
    assert [pool.append_steps([step])[0].outcome for step in (one, two)] == ["stored", "duplicate"]
    bad = sample("t", prompt_ids=np.asarray([[1, 2]], dtype="<u4"))
    [result] = pool.append_steps([bad])
    assert (result.outcome, pool.dead_letters()[-1].step_id) == ("rejected", bad.step_id)


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
