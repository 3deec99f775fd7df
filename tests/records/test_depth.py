import pytest

from agentworld.errors import InvalidRequestError
from agentworld.records.depth import MAX_DEPTH, check_depth


def nested(depth, wrap=lambda inner: {"a": inner}):
    value = "end"
    for _ in range(depth):
        value = wrap(value)
    return value


WRAPS = [lambda inner: {"a": inner}, lambda inner: [1, inner], lambda inner: {"b": [], "c": (inner,)}]


@pytest.mark.parametrize("wrap", WRAPS)
def test_the_deepest_value_passes_and_one_deeper_does_not(wrap):
    levels = 2 if wrap is WRAPS[2] else 1
    check_depth(nested(MAX_DEPTH // levels, wrap), "labels")
    with pytest.raises(InvalidRequestError) as caught:
        check_depth(nested(MAX_DEPTH // levels + 1, wrap), "labels")
    assert caught.value.path == "labels"
    assert caught.value.hint


def test_scalars_and_breadth_are_no_depth():
    for value in (None, 1, "[" * 1000, {}, [[]] * 10_000):
        check_depth(value, "metadata")


def test_neither_a_huge_depth_nor_a_cycle_exhausts_the_stack():
    cycle = []
    cycle += [cycle, cycle]
    for value in (nested(100_000), cycle):
        with pytest.raises(InvalidRequestError):
            check_depth(value, "task")
