"""What a lease reads as lists is what the arrays of the same columns are."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.errors import PoolError
from agentworld.forest import BLOCK_SIZE
from agentworld.pool.sql.id_lists import divided, sequences
from agentworld.pool.sql.packing import (
    pack_ids,
    pack_logprobs,
    raw_logprobs,
    unpack_id_lists,
    unpack_ids,
    unpack_logprob_lists,
    unpack_logprobs,
)

_id = st.one_of(st.integers(0, 2**16 - 1), st.integers(0, 2**24 - 1), st.integers(0, 2**32 - 1))
_ids = st.lists(st.lists(_id, max_size=6), max_size=8)
_logprob = st.one_of(
    st.floats(-30, 0, width=32), st.just(math.nan), st.sampled_from([-0.0, -(2.0**-100), -(2.0**100), -1e-3])
)


@st.composite
def logprobs(draw):
    """Packed and raw ones, with and without gaps, of odd and even lengths."""
    found = []
    for _ in range(draw(st.integers(0, 5))):
        count = draw(st.sampled_from([0, 1, 7, 63, 64, 65, 66, 67, 129, 200]))
        some = draw(st.lists(_logprob, min_size=1, max_size=5))
        found.append(np.resize(np.asarray(some, dtype=np.float32), count) if count else np.zeros(0, dtype=np.float32))
    return found


def as_list(array):
    return None if array is None else [None if value != value else value for value in array.tolist()]


@given(_ids)
def test_ids_of_many_are_those_of_each(several):
    packed = [pack_ids(np.asarray(ids, dtype=np.uint32)) for ids in several]
    counts = [len(ids) for ids in several]
    assert unpack_id_lists(packed, counts) == [unpack_ids(*each).tolist() for each in zip(packed, counts, strict=True)]
    assert unpack_id_lists(packed, counts) == several


@given(logprobs(), st.data())
def test_logprobs_of_many_are_those_of_each(several, data):
    packed = [None if each is None else pack_logprobs([raw_logprobs(each)])[0] for each in [*several, None]]
    packed = data.draw(st.permutations(packed))
    assert repr(unpack_logprob_lists(packed)) == repr([as_list(unpack_logprobs(each)) for each in packed])


@given(logprobs(), st.integers(0, 255), st.integers(0, 10_000), st.integers(0, 40))
def test_what_is_damaged_is_read_as_alone_or_not_at_all(several, byte, place, missing):
    packed = [bytearray(pack_logprobs([raw_logprobs(each)])[0]) for each in several if len(each) >= 64]
    if not packed:
        return
    packed[0][place % len(packed[0])] = byte
    damaged = [bytes(packed[0])[missing:], *map(bytes, packed[1:])]
    try:
        expected = repr([as_list(unpack_logprobs(each)) for each in damaged])
    except (ValueError, IndexError) as error:
        with pytest.raises(type(error)):
            unpack_logprob_lists(damaged)
    else:
        assert repr(unpack_logprob_lists(damaged)) == expected


def test_ids_that_do_not_fill_their_bytes_are_refused():
    with pytest.raises(ValueError, match="reshape"):
        unpack_id_lists([pack_ids(np.arange(4, dtype=np.uint32)), b"1234567"], [4, 2])


@given(st.data())
def test_sequences_are_their_blocks_one_after_the_other(data):
    blocks, paths = {}, {None: []}
    for key in range(1, data.draw(st.integers(1, 8)) + 1):
        parent = data.draw(st.sampled_from(list(paths)))
        base = data.draw(st.sampled_from([0, 70_000, 2**25]))
        ids = [base + key * BLOCK_SIZE + number for number in range(BLOCK_SIZE)]
        blocks[key] = (parent, pack_ids(np.asarray(ids, dtype=np.uint32)))
        paths[key] = [*paths[parent], *ids]
    ends = data.draw(st.lists(st.sampled_from(list(blocks)), unique=True))
    found = sequences(blocks, ends)
    assert found == {None: []} | {end: paths[end] for end in ends}
    assert len({id(ids) for ids in found.values()}) == len(found)


def test_a_block_that_is_missing_is_named():
    blocks = {2: (1, pack_ids(np.arange(BLOCK_SIZE, dtype=np.uint32)))}
    with pytest.raises(PoolError, match="row 1, which others build on, is missing"):
        sequences(blocks, [2])


@given(st.lists(st.integers(), max_size=5), st.lists(st.integers(), max_size=5), st.data())
def test_both_lists_are_new_and_hold_everything(before, tail, data):
    place = data.draw(st.integers(0, len(before) + len(tail)))
    first, second = divided(before, tail, place)
    assert (first, second) == ((before + tail)[:place], (before + tail)[place:])
    assert len({id(each) for each in (before, tail, first, second)}) == 4
