"""Pairs of branches: by comparison, and by rating."""

import pytest

from agentworld.errors import InvalidRequestError
from agentworld.feedback.comparisons import prompt_key, rating_pairs, store_pairs
from agentworld.records import BatchSpec, Feedback, Message, Step, TextPart

from .talks import Talk, asked, said


def forked(pool, replies, **settings):
    """A finished trajectory whose second prompt was answered by each of `replies`."""
    talk = Talk(pool, **settings)
    talk.sample([asked("a")], "b")
    prompt = [asked("a"), said("b"), asked("c")]
    found = [talk.sample(prompt, reply) for reply in replies]
    talk.end()
    return found


def rate(pool, values, name="good", source="anna", target="step_id"):
    pool.add_feedback(
        [
            Feedback(kind="rating", name=name, value=value, source=source, **{target: target_id})
            for target_id, value in values.items()
        ]
    )


def pairs(pool, **options):
    return [
        (one.step_id or one.trajectory_id, one.other_id, one.value) for one in rating_pairs(pool, "good", **options)
    ]


def test_branches_of_one_prompt_that_were_compared_are_served_as_a_pair(pool):
    better, worse = forked(pool, ["x", "y"])
    pool.add_feedback([Feedback(kind="comparison", step_id=worse, other_id=better, source="anna")])
    (item,) = pool.lease(BatchSpec(method="dpo", require=("messages",)), "c").items
    one, other = (entry.steps[0] for entry in item.trajectories)
    assert (one.step_id, other.step_id) == (worse, better)
    assert prompt_key(one) == prompt_key(other)
    assert one.prompt_messages == other.prompt_messages


def test_ratings_of_branches_are_pairs_where_they_differ_enough(pool):
    x, y, z = forked(pool, ["x", "y", "z"])
    rate(pool, {x: 1, y: 3, z: 3.5})
    rate(pool, {z: 4.5}, source="ben")
    rate(pool, {x: 100}, source="implicit:x")
    rate(pool, {x: 100}, name="other")
    assert pairs(pool) == [(z, x, 3.0), (y, x, 2.0), (z, y, 1.0)]
    assert pairs(pool, margin=2.5) == [(z, x, 3.0)]
    assert pairs(pool, most=1) == [(z, x, 3.0)]
    assert pairs(pool, sources=("ben",)) == []
    with pytest.raises(InvalidRequestError):
        pairs(pool, margin=0)


def test_steps_of_other_prompts_are_no_pair(pool):
    forked(pool, ["x"])
    rate(pool, {"t-0": 1, "t-1": 5})
    assert pairs(pool) == []


def test_rollouts_of_one_group_are_a_pair(pool):
    for name, group in (("one", "g"), ("two", "g"), ("three", None)):
        forked(pool, ["x"], trajectory_id=name, group_id=group)
    rate(pool, {"one": 0, "two": 1, "three": 9, "nowhere": 9}, target="trajectory_id")
    assert pairs(pool) == [("two", "one", 1.0)]


def test_pairs_are_stored_once_served_and_not_turned_around(pool):
    x, y = forked(pool, ["x", "y"])
    rate(pool, {x: 1, y: 3})
    assert store_pairs(pool, rating_pairs(pool, "good")) == (1, 0)
    assert store_pairs(pool, rating_pairs(pool, "good")) == (0, 1)
    rate(pool, {x: 9})
    assert pairs(pool) == [(x, y, 6.0)]
    assert store_pairs(pool, rating_pairs(pool, "good")) == (0, 1)
    (item,) = pool.lease(BatchSpec(method="dpo", require=("messages",)), "c").items
    assert [entry.steps[0].step_id for entry in item.trajectories] == [y, x]


def test_a_prompt_is_one_however_it_was_spelled():
    def key(content, **changes):
        return prompt_key(Step(step_id="s", trajectory_id="t", prompt_messages=[Message(role="user", content=content)],
                               **changes))  # fmt: skip

    assert key("a") == key((TextPart("a"),))
    assert len({key("a"), key("b"), key("a", tools=[{"type": "function", "function": {"name": "f"}}])}) == 3
