"""Rows of every kind mark exactly the sampled tokens, and weigh the same in sum."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.credit import StepTree
from agentworld.trainers.adapters import SampleOptions, read_samples
from agentworld.trainers.adapters.paths import prefix_parents
from agentworld.trainers.rows import chain_rows
from tests.examples import examples
from tests.trainers.adapters.rollouts import batch, forked, marked, member, step, trees, two_groups

KINDS = [
    ("step", "first_path"),
    ("chain", "first_path"),
    ("tree", "first_path"),
    ("tree", "mean"),
    ("tree", "per_path"),
]


def places(row):
    """(step, place in its reply) of each id of a row's response that a reply put there."""
    found = {}
    for one, (start, end) in zip(row.steps, row.turns, strict=True):
        found |= {place: (one.step_id, place - start) for place in range(start, end)}
    return found


@given(st.lists(trees("a"), min_size=1, max_size=1), trees("b"), st.sampled_from(KINDS))
@settings(max_examples=examples(150), deadline=None)
def test_rows_mark_exactly_the_sampled_tokens(first, second, kind):
    members = [*first, second]
    rows, shared = kind
    samples = read_samples(batch({"g": members}), SampleOptions(rows=rows, shared=shared, credit="method"))
    steps = {one.step_id: one for each in members for one in each.steps}
    times, shares, sums = Counter(), Counter(), 0.0
    for row in samples.rows:
        last = row.steps[-1]
        assert row.ids.tolist() == last.prompt_ids + last.response_ids
        assert row.prompt_ids.tolist() == row.steps[0].prompt_ids
        at = places(row)
        for place in np.flatnonzero(row.response_mask).tolist():
            name, own = at[place]
            times[name, own] += 1
            shares[name, own] += float(row.shares[place])
            assert row.logprobs[place] == np.float32(steps[name].response_logprobs[own])
            assert row.versions[place] == steps[name].policy.version
            assert row.temperature == steps[name].sampling.temperature
            sums += float(row.shares[place]) * float(row.advantages[place])
        for values, fill in ((row.logprobs, 0), (row.advantages, 0), (row.shares, 0), (row.versions, -1)):
            assert (values[~row.response_mask] == fill).all()
    expected = Counter(place for each in members for place in marked(each))
    if shared == "per_path":
        assert set(times) == set(expected)
        assert times == paths_through(members)
    else:
        assert shares == pytest.approx(expected)
    if shared == "first_path":
        assert times == expected
        chains = read_samples(batch({"g": members}), SampleOptions(rows="step")).rows
        assert sums == pytest.approx(sum(float(row.advantages.sum()) for row in chains), abs=1e-5)


def paths_through(members):
    found = Counter()
    for each in members:
        keys = [one.sampling.temperature for one in each.steps]
        counts = StepTree(prefix_parents(each.steps, keys)).leaf_counts
        for name, place in marked(each):
            index = [one.step_id for one in each.steps].index(name)
            found[name, place] = int(counts[index])
    return found


@given(trees())
@settings(max_examples=examples(60), deadline=None)
def test_chains_are_those_of_the_reference_trainer(each):
    samples = read_samples(batch({"g": [each]}), SampleOptions(credit="none"))
    rows = chain_rows(each, [0.0] * len(each.steps), behaviour=True)
    own = sorted((row.ids.tolist(), row.whole(row.response_mask).tolist()) for row in samples.rows)
    assert own == sorted((row.ids.tolist(), row.mask.tolist()) for row in rows)


def test_shared_tokens_of_a_tree_by_name():
    tree = batch({"g": [member("f", forked("f"), 1.0)]})

    def marks(shared):
        rows = read_samples(tree, SampleOptions(rows="tree", shared=shared, credit="none")).rows
        return [(row.ids.tolist(), row.shares.tolist(), row.denominator) for row in rows]

    assert marks("first_path") == [
        ([1, 2, 3, 4, 5, 6], [1, 1, 0, 1], 8),
        ([1, 2, 3, 4, 7, 8, 9], [0, 0, 0, 1, 1], 8),
        ([7, 7, 7, 1, 1, 1], [1, 1, 1], 8),
    ]
    assert [row[1] for row in marks("mean")] == [[0.5, 0.5, 0, 1], [0.5, 0.5, 0, 1, 1], [1, 1, 1]]
    assert [row[1:] for row in marks("per_path")] == [([1, 1, 0, 1], 10), ([1, 1, 0, 1, 1], 10), ([1, 1, 1], 10)]


def test_versions_follow_the_spans_within_a_reply():
    row = read_samples(two_groups()).rows[0]
    assert row.response_ids.tolist() == [4, 5, 6, 7, 8, 9, 10]
    assert row.versions.tolist() == [3, -1, 4, -1, -1, 4, 4]
    assert row.turns == [(0, 3), (5, 7)]


def test_advantages_are_those_of_the_methods_credit():
    rows = read_samples(two_groups()).rows
    assert [round(float(row.advantages[0]), 3) for row in rows] == [1.0, -1.0, -1.0, 1.0]
    assert read_samples(batch({"g": two_groups().items[0].trajectories}, method="sft")).rows[0].advantages is None
    plain = read_samples(two_groups(), SampleOptions(credit="none"))
    assert {row.advantages is None for row in plain.rows} == {True}


def test_masked_trajectories_count_in_statistics_alone():
    groups = two_groups()
    groups.items[0].trajectories[1].trained = False
    assert [row.trajectory_id for row in read_samples(groups).rows] == ["a", "c", "d"]
    with_all = read_samples(groups, SampleOptions(statistics=True)).rows
    assert [row.trajectory_id for row in with_all] == ["a", "b", "c", "d"]
    assert not with_all[1].response_mask.any()
    assert with_all[0].advantages.max() == pytest.approx(1.0, abs=1e-5)


def test_copies_that_make_shards_equally_long_are_left_out():
    groups = two_groups()
    groups.items[1].padding = True
    assert [row.trajectory_id for row in read_samples(groups).rows] == ["a", "b"]


def test_annotations_stand_at_their_tokens():
    groups = two_groups()
    for item in groups.items:
        for each in item.trajectories:
            each.annotations = {one.step_id: {"values": [0.5] * len(one.response_ids)} for one in each.steps}
    first = groups.items[0].trajectories[0]
    first.annotations["a-0"]["values"] = [0.25, 0.75]  # At the two sampled tokens alone.
    row = read_samples(groups, SampleOptions(annotations=("values",))).rows[0]
    assert row.annotations["values"].tolist() == [0.25, 0, 0.75, 0, 0, 0.5, 0.5]


def test_prompts_of_equal_beginnings_continue_the_parent_on_record():
    twins = [step("t-0", [1], [2], trajectory="t"), step("t-1", [1], [2], trajectory="t")]
    after = step("t-2", [1, 2, 3], [4], trajectory="t", parent_step_id="t-1")
    assert prefix_parents([*twins, after], [0, 0, 0]) == [-1, -1, 1]
    assert prefix_parents([*twins, after], [0, 0, 1]) == [-1, -1, -1]
