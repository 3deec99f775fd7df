"""Arrays as the columns hold them: few are packed as many are, and each as it would be alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.forest import BLOCK_SIZE
from agentworld.pool.sql import packing
from agentworld.pool.sql.packing import pack_blocks, pack_ids, pack_logprobs, pack_tails, unpack_ids, unpack_logprobs

# Around where an id needs a byte more, and where the bits of several together would say so.
ids = st.sampled_from([0, 1, 255, 256, 0xFFFF, 0x10000, 0x1FFFF, 0xFFFFFF, 0x1000000, 0xFFFFFFFF])
tails = st.lists(st.lists(ids, max_size=BLOCK_SIZE - 1), max_size=12)
kinds = st.sampled_from([(0, 500), (0, 1 << 16), (1 << 16, 1 << 24), (0, 1 << 24), (0, 1 << 32)])
# Magnitudes of their own, so that the table of their highest bytes has few entries, or too many.
numbers = st.one_of(
    st.floats(-8, 0, width=32), st.floats(width=32, allow_nan=False), st.sampled_from([0.0, -0.0, float("nan")])
)
logprobs = st.lists(
    st.one_of(
        st.lists(st.floats(-8, 0, width=32), max_size=140),
        st.lists(numbers, max_size=80),
        st.integers(60, 140).map(lambda count: [-0.5 * number for number in range(count)]),
    ),
    min_size=1,
    max_size=8,
)


def _raw(values, dtype):
    return np.array(values, dtype=dtype).tobytes()


@given(said=tails)
def test_each_tail_is_packed_as_alone(said):
    packed = pack_tails([_raw(each, "<u4") for each in said])
    assert packed == [pack_ids(np.array(each, dtype="<u4")) for each in said]
    assert [unpack_ids(data, len(each)).tolist() for data, each in zip(packed, said, strict=True)] == said


@given(blocks=st.lists(kinds, min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_each_block_is_packed_as_alone(blocks, seed):
    random = np.random.default_rng(seed)
    made = [random.integers(low, high, BLOCK_SIZE).astype("<u4") for low, high in blocks]
    assert pack_blocks(b"".join(each.tobytes() for each in made)) == [pack_ids(each) for each in made]


@given(said=logprobs)
def test_few_log_probabilities_are_packed_as_many_are(said):
    raws = [_raw(each, "<f4") for each in said]
    made = []
    for few in (1 << 30, -1):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(packing, "_FEW_BYTES", few)
            made.append(pack_logprobs(raws))
    assert made[0] == made[1]
    assert [unpack_logprobs(data).tobytes() for data in made[0]] == raws
