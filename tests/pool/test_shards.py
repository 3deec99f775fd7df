import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.errors import InvalidRequestError
from agentworld.pool.shards import item_tokens, shard, share
from agentworld.records import Batch, BatchItem, BatchTrajectory, Step, Trajectory


def item(key, *lengths):
    """One trajectory; `lengths`: (prompt, reply) of each step."""
    steps = [
        Step(step_id=f"{key}-{n}", trajectory_id=key, prompt_length=prompt, response_length=reply)
        for n, (prompt, reply) in enumerate(lengths)
    ]
    return BatchItem(key=key, trajectories=[BatchTrajectory(trajectory=Trajectory(trajectory_id=key), steps=steps)])


def batch(items):
    return Batch(batch_id="b", consumer="c", epoch=1, deadline=0.0, unit="trajectory", method="sft", items=items)


def test_a_continued_sequence_is_computed_once():
    assert item_tokens(item("chain", (10, 5), (15, 5), (30, 10))) == 40
    assert item_tokens(item("fork", (10, 5), (10, 7))) == 15 + 17


@given(
    sizes=st.lists(st.integers(1, 2000), min_size=1, max_size=40),
    world=st.integers(1, 9),
    micro=st.integers(1, 5),
)
def test_shares_are_equally_long_and_together_the_batch(sizes, world, micro):
    whole = batch([item(f"t{n}", (size, 1)) for n, size in enumerate(sizes)])
    shares = [shard(whole, rank, world, micro) for rank in range(world)]
    lengths = {len(one.items) for one in shares}
    assert len(lengths) == 1
    [length] = lengths
    # No longer than the longest share of real items needs.
    assert length % micro == 0
    assert length - micro < -(-len(sizes) // world) <= length
    assert {one.metadata["micro_batches"] for one in shares} == {length // micro}
    real = [[i.key for i in one.items if not i.padding] for one in shares]
    assert sorted(key for keys in real for key in keys) == sorted(i.key for i in whole.items)
    order = {i.key: n for n, i in enumerate(whole.items)}
    assert all(keys == sorted(keys, key=order.__getitem__) for keys in real)
    for one in shares:
        for each in one.items:
            assert [entry.trained for entry in each.trajectories] == [not each.padding]
    assert [entry.trained for each in whole.items for entry in each.trajectories] == [True] * len(sizes)
    assert shares == [shard(whole, rank, world, micro) for rank in range(world)]


@given(sizes=st.lists(st.integers(1, 2000), min_size=1, max_size=60), world=st.integers(1, 8))
def test_shares_have_near_equal_work(sizes, world):
    sums = [sum(sizes[index] for index in indices) for indices in share(sizes, world)]
    # Longest first: the difference is at most the longest.
    assert max(sums) - min(sums) <= max(sizes)


def test_work_is_shared_by_tokens_not_by_place():
    sizes = [100, 100, 1, 1]
    assert [sum(sizes[index] for index in indices) for indices in share(sizes, 2)] == [101, 101]


@pytest.mark.parametrize("arguments", [(True, 2), (0.0, 2), ("0", 2), (None, 2), (0, 2.0), (0, "2"), (0, 2, 1.5)])
def test_numbers_of_a_share_are_whole(arguments):
    with pytest.raises(InvalidRequestError, match="must be a whole number"):
        shard(batch([item("t", (1, 1))]), *arguments)
