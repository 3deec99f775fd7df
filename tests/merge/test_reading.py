"""What is read of a pool to be merged: of every kind of source, within a budget, with what is known of each token."""

import numpy as np
import pytest

from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.factory import open_pool
from agentworld.merge.nodes import merge_tree
from agentworld.merge.reading import Budget, read_sequences
from agentworld.merge.results import MergeSource
from agentworld.merge.summary import merge_stats
from agentworld.records import BatchSpec, Selection, Splits
from tests.merge.pools import SYSTEM, TASK, TURNS, filled

ALL = [f"{name}-{number}" for name, turns in TURNS.items() for number in range(len(turns))]


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def pool(request, tmp_path_factory):
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path_factory.mktemp('merge')}/pool.db"
    with open_pool(url) as opened:
        yield filled(opened)


def read(pool, budget=None, **source):
    return read_sequences(pool, MergeSource(**source), budget=budget)


def steps(found):
    return [each.step.step_id for each in found.items]


def test_each_kind_of_source_gives_its_steps(pool):
    assert sorted(steps(read(pool, group="g"))) == ALL
    assert steps(read(pool, trajectory="g-1")) == ["g-1-0", "g-1-1"]
    assert steps(read(pool, group="g", where="step_index == 1")) == ["g-0-1", "g-1-1", "g-2-1"]
    everything = read(pool)
    assert sorted(steps(everything)) == ["alone-0", *ALL]
    assert (everything.excluded, everything.without_ids, everything.stopped) == (1, 1, None)
    assert everything.units().keys() == {"g", "alone"}
    assert everything.vocabularies() == ["own", "other"]
    assert steps(read(pool, channel="val")) == []
    batch = pool.lease(BatchSpec(method="grpo", groups=1, rollouts=2, where="reward > 2"), "c")
    for source in ({"batch": batch.batch_id}, {"consumer": "c"}):
        assert sorted(steps(read(pool, **source))) == [each for each in ALL if not each.startswith("g-1")]
    pool.release(batch.batch_id, batch.epoch)
    for unit, size, wanted in (
        ("step", 3, ["g-0-0", "g-0-1", "g-0-2"]),
        ("pair", 1, [each for each in ALL if each[:3] != "g-2"]),
    ):
        batch = pool.lease(BatchSpec(method="dpo", unit=unit, size=size), unit)
        assert sorted(steps(read(pool, batch=batch.batch_id))) == wanted
        pool.release(batch.batch_id, batch.epoch)
    made = pool.create_dataset("d", Selection(where="group_id == 'g'", splits=Splits(fractions={"a": 0.5, "b": 0.5})))
    assert sorted(steps(read(pool, dataset=made.version))) == ALL
    assert sum(len(read(pool, dataset="d", split=split).items) for split in ("a", "b")) == len(ALL)


def test_what_is_known_of_each_token_stands_in_the_order_of_the_tree(pool):
    found = read(pool)
    tree, known = found.tree(), found.attributes()
    for place, each in enumerate(found.items):
        own = slice(tree.offsets[place], tree.offsets[place + 1])
        assert tree.tokens[tree.path(place)].tolist() == each.arrays.ids.tolist()
        step = pool.get_step(each.step.step_id)
        begin = len(step.prompt_ids)
        assert known.trained[own].tolist() == [False] * begin + [mask > 0 for mask in step.response_mask]
        np.testing.assert_array_equal(known.logprobs[own][begin:], np.array(step.response_logprobs, dtype=np.float32))
        assert np.isnan(known.logprobs[own][:begin]).all()
        assert set(known.versions[own][known.trained[own]]) == {step.policy.version}
        assert set(known.versions[own][~known.trained[own]]) == {-1}
    # Equal ids of two vocabularies are not shared.
    alone = steps(found).index("alone-0")
    assert not set(tree.path(alone)) & set(tree.index[tree.offsets[0] : tree.offsets[1]])


@pytest.mark.parametrize(
    ("budget", "stopped"), [(Budget(tokens=250), "tokens"), (Budget(steps=2), "steps"), (Budget(rows=1), "rows")]
)
def test_reading_stops_within_its_budget_and_says_at_what(pool, budget, stopped):
    found = read(pool, budget, group="g")
    assert found.stopped == stopped
    assert found.tokens == sum(len(each.arrays.ids) for each in found.items) <= budget.tokens
    assert len(found.items) <= budget.steps
    assert merge_stats(found).stopped == merge_tree(found).stopped == stopped


def test_numbers_are_those_of_sets_of_prefixes(pool):
    """Held against a count that knows no trees: the distinct beginnings of all sequences."""
    found = read(pool)
    said = merge_stats(found, budget=130)
    sequences = [(each.step.vocabulary, *each.arrays.ids.tolist()) for each in found.items]
    beginnings = {each[:length] for each in sequences for length in range(2, len(each) + 1)}
    goes_on = {each[:-1] for each in beginnings}
    whole = said.whole
    assert (whole.sequences, whole.total) == (9, sum(len(each) - 1 for each in sequences))
    assert (whole.unique, whole.depth) == (len(beginnings), max(map(len, beginnings)) - 1)
    assert whole.joined == sum(len(each) - 1 for each in set(sequences) if each not in goes_on)
    assert whole.ratio == whole.total / whole.unique
    # The roots, the end of the common prompt, and where the third rollout tells its history anew.
    assert (whole.forks, whole.widest, whole.branching) == (3, 3, 7 / 3)
    assert whole.reasons == {"rollout": 2, "template": 1, "unshared": 1}
    assert [(one.unit, one.forks) for one in said.worst] == [("alone", 0), ("g", 2)]
    assert said.apart == sum(one.unique for one in said.worst) == whole.unique
    assert (said.trained, said.vocabularies, said.excluded, said.without_ids) == (4 * len(ALL) + 2, 2, 1, 1)
    packing = said.packing
    assert packing.bound == whole.unique <= packing.tokens
    assert packing.fullest <= 130
    assert merge_stats(found, budget=110).packing.left_out == sum(len(each) - 1 > 110 for each in sequences)


def test_nodes_are_bounded_and_say_what_is_hidden(pool):
    found = read(pool)
    whole = merge_tree(found)
    by_id = {node.id: node for node in whole.nodes}
    assert whole.nodes_in_all == len(whole.nodes)
    assert sum(node.length for node in whole.nodes) == whole.unique
    assert sorted(step for node in whole.nodes for step in node.ends) == sorted(steps(found))
    for node in whole.nodes:
        above = by_id.get(node.parent)
        assert node.start == (0 if above is None else above.start + above.length)
        assert above is None or (above.id < node.id and above.sequences >= node.sequences)
    assert [(node.length, node.sequences, node.unit) for node in whole.nodes if node.parent < 0] == [
        (len(SYSTEM + TASK), 8, "g"), (len(SYSTEM) + 3, 1, "alone"),
    ]  # fmt: skip
    few = merge_tree(found, max_nodes=3, ids=2)
    assert (len(few.nodes), few.nodes_in_all, few.unique) == (3, whole.nodes_in_all, whole.unique)
    assert few.nodes[0].token_ids == SYSTEM[:2]
    assert few.nodes[0].vocabulary == "own"
    assert sum(node.length + node.hidden_tokens for node in few.nodes) == whole.unique
    assert sum(node.hidden for node in few.nodes) == whole.nodes_in_all - 3
    shallow = merge_tree(found, depth=1)
    assert [node.parent for node in shallow.nodes] == [-1, -1]
    assert shallow.nodes[0].hidden == whole.nodes_in_all - 2


@pytest.mark.parametrize(
    ("source", "error", "path"),
    [
        ({"group": "g", "batch": "b"}, InvalidRequestError, "batch"),
        ({"split": "train"}, InvalidRequestError, "split"),
        ({"dataset": "d", "where": "reward > 1"}, InvalidRequestError, "where"),
        ({"batch": "b", "channel": "train"}, InvalidRequestError, "channel"),
        ({"where": "rewrd > 1"}, InvalidRequestError, None),
        ({"group": "none"}, NotFoundError, "group_id"),
        ({"trajectory": "none"}, NotFoundError, "trajectory_id"),
        ({"batch": "none"}, NotFoundError, "batch_id"),
        ({"consumer": "none"}, NotFoundError, "consumer"),
        ({"dataset": "none"}, NotFoundError, "version"),
    ],
)
def test_what_cannot_be_read_is_named(pool, source, error, path):
    with pytest.raises(error) as caught:
        read(pool, **source)
    assert path is None or caught.value.path == path


def test_nothing_is_a_tree_too(pool):
    found = read(pool, channel="empty")
    said = merge_stats(found, budget=10)
    assert (said.whole.total, said.whole.ratio, said.packing.micro_batches, said.worst) == (0, 1.0, 0, [])
    assert merge_tree(found).nodes == []
