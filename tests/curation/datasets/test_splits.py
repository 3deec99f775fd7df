"""Dividing keys into splits: what belongs together stays together, fractions are met, and parents are followed."""

import dataclasses
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.curation.datasets.clusters import Texts, Union
from agentworld.curation.datasets.scratch import Scratch
from agentworld.curation.datasets.splits import check_splits, divide, key_name
from agentworld.curation.datasets.tasks import begun_with, first_messages, named_task, task_text, user_text
from agentworld.errors import InvalidRequestError
from agentworld.records import Message, Splits, Step, Trajectory
from tests.examples import examples

HALVES = {"train": 0.5, "test": 0.5}
TEXT = "one of the oldest lighthouses on this coast was built from granite blocks that were cut by hand"


@dataclasses.dataclass
class Divided:
    """A division with the names of splits, and numbers as Python has them."""

    split: list
    cluster: list
    clusters: int
    largest: int
    torn: int


def divided(keys, sizes=None, texts=(), had=None, **splits):
    chosen = check_splits(Splits(**{"fractions": HALVES, **splits}))
    order = list(chosen.fractions)
    votes = None
    if had is not None:
        votes = np.array([[had.get(number, {}).get(split, 0) for split in order] for number in range(len(keys))])
    names = b"".join(key_name(chosen, key) for key in keys)
    with closing(Scratch()) as scratch, closing(Texts(scratch)) as given:
        for number, text in enumerate(texts):
            given.add(number, text)
        made = divide(names, sizes or [1] * len(keys), given, chosen, votes)
    split = [order[place] for place in made.split]
    return Divided(split, made.cluster.tolist(), made.clusters, made.largest, made.torn)


def joined(texts, threshold):
    """The number that stands for each, of texts by number, of which one can have several."""
    union = Union(max(number for number, _ in texts) + 1)
    with closing(Scratch()) as scratch, closing(Texts(scratch)) as found:
        for number, text in texts:
            found.add(number, text)
        found.join(union, threshold)
    return [union.find(number) for number in range(max(number for number, _ in texts) + 1)]


def rows(division, sizes):
    found = {}
    for split, size in zip(division.split, sizes, strict=True):
        found[split] = found.get(split, 0) + size
    return found


@settings(max_examples=examples(50))
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=40),
    st.sampled_from([{"train": 1.0}, HALVES, {"train": 0.8, "test": 0.1, "val": 0.1}]),
    st.integers(0, 3),
    st.randoms(),
)
def test_a_division_misses_by_less_than_a_cluster_and_depends_on_no_order(sizes, fractions, seed, random):
    keys = [f"k{number}" for number in range(len(sizes))]
    made = divided(keys, sizes, fractions=fractions, seed=seed)
    got = rows(made, sizes)
    for split, fraction in fractions.items():
        assert abs(got.get(split, 0) - fraction * sum(sizes)) <= max(sizes) * len(fractions)
    order = list(range(len(sizes)))
    random.shuffle(order)
    again = divided([keys[at] for at in order], [sizes[at] for at in order], fractions=fractions, seed=seed)
    assert again.split == [made.split[at] for at in order]
    assert (made.clusters, made.largest, made.torn) == (len(sizes), max(sizes), 0)


def test_equal_clusters_meet_the_fractions_and_the_seed_decides_which():
    keys = [f"k{number}" for number in range(100)]
    made = [divided(keys, fractions={"train": 0.9, "test": 0.1}, seed=seed) for seed in (0, 0, 1)]
    assert [one.split.count("test") for one in made] == [10, 10, 10]
    assert made[0].split == made[1].split != made[2].split


def test_no_split_stays_empty_where_a_cluster_can_be_spared():
    few = {"train": 0.9, "val": 0.05, "test": 0.05}
    assert sorted(divided(["a", "b", "c", "d"], [2, 2, 1, 1], fractions=few).split) == ["test", "train", "train", "val"]
    made = divided(["a", "b"], [5, 3], fractions=few)
    assert sorted(made.split) == ["train", "val"]
    kept = divided(["a", "b"], [1, 1], had={0: {"train": 1}, 1: {"train": 1}}, fractions={"train": 0.5, "test": 0.5})
    assert kept.split == ["train", "train"]


def test_a_large_cluster_goes_where_it_fits():
    sizes = [1] * 20 + [60]
    made = divided([f"k{number}" for number in range(21)], sizes, fractions={"train": 0.9, "test": 0.1})
    assert made.split[20] == "train"
    assert rows(made, sizes) == {"train": 72, "test": 8}
    assert made.largest == 60


def test_texts_that_are_nearly_the_same_stay_together_over_chains():
    def changed(*places):
        return " ".join("other" if at in places else word for at, word in enumerate(TEXT.split() * 3))

    texts = [changed(), changed(1), changed(1, 30), changed(1, 30, 50), "quite another text about rivers and trains"]
    # Ends of the chain are less alike than its links.
    strict = divided([f"k{number}" for number in range(5)], texts=texts, near_duplicates=0.75)
    assert len({*strict.split[:4]}) == 1
    assert strict.cluster == [0, 0, 0, 0, 4]
    assert divided([f"k{number}" for number in range(5)], texts=texts, near_duplicates=None).clusters == 5
    assert joined([(0, texts[0]), (1, texts[3])], 0.9) == [0, 1]


def test_equal_texts_stay_together_however_short_and_a_key_may_have_several():
    texts = ["Solve 1", " solve\n1", "∫∑ ★", "∫∑ ★", "请计算", "请计算", "Solve 2", "！?", "\ud800", "\ud800"]
    keys = [f"k{number}" for number in range(len(texts))]
    assert divided(keys, texts=texts).cluster == [0, 0, 2, 2, 4, 4, 6, 7, 8, 8]
    assert divided(keys, texts=texts, near_duplicates=None).clusters == len(texts)
    several = [*enumerate(["first", "second", TEXT, TEXT + " indeed"]), (0, TEXT), (0, "SECOND")]
    assert joined(several, 0.8) == [0, 0, 0, 0]


def test_many_equal_texts_and_texts_of_no_words_are_no_trouble():
    texts = ["the same text again and again"] * 1500 + ["", "!?", "a b"]
    made = divided([f"k{number}" for number in range(len(texts))], texts=texts)
    assert made.clusters == 4
    assert made.largest == 1500


def test_what_a_parent_has_keeps_its_split_with_all_that_is_like_it():
    keys = [f"k{number}" for number in range(12)]
    had = {0: {"test": 2}, 1: {"train": 1}, 2: {"gone": 5}}
    for seed in range(5):
        made = divided(keys, had=had, seed=seed)
        assert made.split[:2] == ["test", "train"]
        assert made.split.count("test") == 6
        assert made.torn == 0
    bridged = divided(["a", "b", "c"], [2, 1, 0], texts=[TEXT] * 3, had={0: {"train": 2}, 1: {"test": 1}})
    # What was held out stays so: of equal fractions, the split that is named last.
    assert bridged.split == ["test"] * 3
    assert bridged.torn == 2
    most = divided(["a", "b"], [1, 1], texts=["x", "X "], had={0: {"val": 1}, 1: {"train": 9}},
                   fractions={"val": 0.2, "train": 0.8})  # fmt: skip
    assert (most.split, most.torn) == (["val"] * 2, 9)
    # A key that only the parent has draws what is like it into its split, and fills nothing.
    drawn = divided(["a", "old"], [1, 0], texts=[TEXT] * 2, had={1: {"test": 3}}, fractions={"train": 0.9, "test": 0.1})
    assert drawn.split[0] == "test"
    assert (drawn.clusters, drawn.largest) == (1, 1)


@pytest.mark.parametrize(
    ("splits", "path"),
    [
        ({"fractions": {}}, "splits.fractions"),
        ({"fractions": {"train": 0.5, "test": 0.4}}, "splits.fractions"),
        ({"fractions": {"train": 1.5, "test": -0.5}}, "splits.fractions.train"),
        ({"fractions": {"train": True}}, "splits.fractions.train"),
        ({"fractions": {"a/b": 1.0}}, "splits.fractions"),
        ({"fractions": {f"s{number}": 1 / 21 for number in range(21)}}, "splits.fractions"),
        ({"by": "user"}, "splits.by"),
        ({"near_duplicates": 0}, "splits.near_duplicates"),
        ({"near_duplicates": 1.1}, "splits.near_duplicates"),
        ({"seed": 2**63}, "splits.seed"),
        ({"seed": 1.0}, "splits.seed"),
    ],
)
def test_splits_that_make_no_sense_are_refused(splits, path):
    with pytest.raises(InvalidRequestError) as raised:
        check_splits(Splits(**splits))
    assert raised.value.path == path


def test_the_key_of_a_task_is_what_names_it_best():
    def key(task):
        return named_task(Trajectory(trajectory_id="t", task=task))

    assert key({"task_id": 7, "task_set": "math", "prompt": "a"}) == "math/7"
    assert key({"task_id": "x"}) == "/x"
    assert key({"prompt": "a"}) == key({"prompt": "a", "reference": "b"}) != key({"prompt": "b"})
    assert key({"messages": [{"role": "user", "content": "a"}]}).startswith("prompt:")
    assert [key(task) for task in (None, {}, {"task_id": True}, {"task_id": ""}, {"prompt": ""})] == [None] * 5


def test_the_text_of_a_task_is_what_the_user_says():
    chat = {"messages": [{"role": "system", "content": "rules"}, {"role": "user", "content": [{"text": "a"}, "b"]}]}
    assert task_text(Trajectory(trajectory_id="t", task=chat)) == "a\nb"
    deep = "x"
    for _ in range(50):
        deep = [deep]
    assert task_text(Trajectory(trajectory_id="t", task={"prompt": deep})) == ""
    assert task_text(Trajectory(trajectory_id="t")) == ""
    said = [
        Message(role="system", content="rules"),
        Message(role="user", content=" "),
        Message(role="user", content="q"),
    ]
    step = Step(step_id="s", trajectory_id="t", prompt_messages=[*said, Message(role="assistant", content="a")])
    assert first_messages(step) == said
    assert first_messages(None) == []
    assert user_text(said) == "q"
    assert user_text(said[:1]) == "rules"
    assert begun_with(said) == begun_with(list(said)) != begun_with(said[:2])
    assert begun_with([]) is None
