import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.capture.holdings import owner
from agentworld.errors import InvalidRequestError
from agentworld.forest import BLOCK_SIZE, common_prefix, plan_tokens, token_array, vocabulary_root
from tests.records.strategies import token_ids

ROOT = vocabulary_root("v")


def read_back(plan):
    blocks = {block.digest: block for block in plan.new_blocks}
    ids = []
    for own in plan.path.digests:
        ids.extend(np.frombuffer(blocks[own].ids, dtype="<u4").tolist())
    return ids + plan.path.tail.tolist()


@given(token_ids)
def test_what_goes_in_comes_out(ids):
    plan = plan_tokens(ROOT, token_array(ids))
    assert read_back(plan) == ids
    assert plan.path.length == len(ids)
    assert len(plan.path.tail) < BLOCK_SIZE
    parents = [ROOT, *plan.path.digests[:-1]] if plan.path.digests else []
    assert [block.parent for block in plan.new_blocks] == parents


@given(token_ids, token_ids, st.integers(0, 600))
def test_a_tip_changes_the_work_and_not_the_result(stored, other, cut):
    ids = token_array(stored[:cut] + other)
    tip_ids = token_array(stored)
    tip = plan_tokens(ROOT, tip_ids).path
    with_tip = plan_tokens(ROOT, ids, (tip, tip_ids))
    without = plan_tokens(ROOT, ids)
    assert with_tip.path.digests == without.path.digests
    assert with_tip.path.tail.tolist() == without.path.tail.tolist()
    reused = common_prefix(ids, tip_ids) // BLOCK_SIZE
    assert with_tip.new_blocks == without.new_blocks[reused:]


def test_equal_ids_of_two_vocabularies_are_two_sequences():
    ids = token_array(range(BLOCK_SIZE))
    assert plan_tokens(ROOT, ids).path.digests != plan_tokens(vocabulary_root("w"), ids).path.digests


def test_media_belong_to_the_identity_of_their_block_and_those_after_it():
    ids = token_array([7] * BLOCK_SIZE * 3)
    plain = plan_tokens(ROOT, ids).path.digests
    first = plan_tokens(ROOT, ids, media={BLOCK_SIZE + 3: b"a" * 16}).path.digests
    second = plan_tokens(ROOT, ids, media={BLOCK_SIZE + 3: b"b" * 16}).path.digests
    moved = plan_tokens(ROOT, ids, media={BLOCK_SIZE + 4: b"a" * 16}).path.digests
    assert plain[0] == first[0] == second[0] == moved[0]
    assert len({plain[1], first[1], second[1], moved[1]}) == 4
    assert len({plain[2], first[2], second[2], moved[2]}) == 4


def test_a_tip_of_another_vocabulary_is_not_used():
    ids = token_array(range(BLOCK_SIZE * 2))
    tip = plan_tokens(vocabulary_root("w"), ids).path
    assert plan_tokens(ROOT, ids, (tip, ids)).path.digests == plan_tokens(ROOT, ids).path.digests


@pytest.mark.parametrize("ids", [[-1], [2**32], [1.5], ["a"], [[1]], [2**70], [None]])
def test_what_is_no_id_is_refused(ids):
    with pytest.raises(InvalidRequestError, match="token ids"):
        token_array(ids)


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_arrays_hold_ids_and_nothing_else(kind):
    assert token_array(kind([0, 2**32 - 1])).tolist() == [0, 2**32 - 1]
    assert token_array(kind([])).tolist() == []
    for wrong in ([-1], [1, 2**32], [1.5], [1, 1.0], ["1"], [[1]], [2**70]):
        with pytest.raises(InvalidRequestError):
            token_array(kind(wrong))


def test_arrays_made_of_lists_are_their_own_owners():
    whole = token_array([1, 2, 3])
    assert owner(whole) is whole
    assert owner(whole[:2]) is whole
