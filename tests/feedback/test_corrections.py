"""Corrections as targets and as pairs: which count, what stands in them, and what a lease serves."""

from collections import Counter

import pytest

from agentworld.errors import InvalidRequestError, QueryError
from agentworld.feedback.content import reply_digest, seen_of
from agentworld.feedback.corrections import corrections, pair_row, store_corrections, target_row
from agentworld.records import BatchSpec, Decision, Feedback, Message, exact_json

from .talks import Talk, asked, said


@pytest.fixture
def talk(pool):
    return Talk(pool)


def correct(pool, value, source="anna", **changes):
    target = {"step_id": "t-0", **changes}
    pool.add_feedback([Feedback(kind="correction", value=value, source=source, **target)])


def test_a_correction_is_a_pair_and_a_target(pool, talk):
    tools = [{"type": "function", "function": {"name": "add", "description": "", "parameters": {}}}]
    talk.sample([asked("2 + 2?")], "five", tools=tools)
    correct(pool, "four", comment="sum")
    (found,) = corrections(pool)
    assert (found.prompt, found.chosen, found.rejected) == ([asked("2 + 2?")], said("four"), said("five"))
    assert (found.step_id, found.source, found.tools, found.comment) == ("t-0", "anna", tools, "sum")
    pair = exact_json.decode(exact_json.encode(pair_row(found)))
    assert pair["prompt"] == [{"role": "user", "content": "2 + 2?"}]
    assert (pair["chosen"][0]["content"], pair["rejected"][0]["content"]) == ("four", "five")
    target = exact_json.decode(exact_json.encode(target_row(found)))
    assert [message["content"] for message in target["messages"]] == ["2 + 2?", "four"]
    assert target["tools"] == tools


def test_a_message_keeps_its_tool_calls_and_a_text_has_none(pool, talk):
    talk.sample([asked("2 + 2?")], said("", ("add", '{"a": 2}')))
    correct(pool, said(None, ("add", '{"a": 2, "b": 2}')))
    correct(pool, "four", source="ben")
    first, second = corrections(pool)
    assert first.chosen.tool_calls[0].function.arguments == '{"a": 2, "b": 2}'
    assert second.chosen == Message(role="assistant", content="four")


def test_of_one_person_on_one_step_the_last_counts_and_what_counts_not_is_counted(pool, talk):
    talk.sample([asked("2 + 2?")], "five")
    correct(pool, "three")
    correct(pool, "four")
    correct(pool, "five", source="ben")
    correct(pool, "six", source="eve", content=reply_digest(said("seven")))
    correct(pool, "x", step_id="nowhere")
    left_out = Counter()
    assert [one.chosen.text for one in corrections(pool, left_out=left_out)] == ["four"]
    assert +left_out == Counter(missing=1, outdated=1, unchanged=1, superseded=1)
    assert [one.chosen.text for one in corrections(pool, source="ben")] == []


def test_on_a_step_and_on_the_trajectory_whose_reply_it_is_is_one_correction(pool, talk):
    talk.sample([asked("2 + 2?")], "five")
    correct(pool, "three", step_id="t-0")
    correct(pool, "four")
    left_out = Counter()
    assert [one.chosen.text for one in corrections(pool, left_out=left_out)] == ["four"]
    assert +left_out == Counter(superseded=1)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (Message(role="user", content="x"), "what the assistant should have said, not a message of role user"),
        (Message(role="tool", content="x"), "not a message of role tool"),
        (Message(role="assistant", content=" "), "says nothing and calls no tool"),
        ("", "the text of a correction is empty"),
        (4, "must be a text or a message"),
    ],
)
def test_what_cannot_be_a_reply_is_no_correction(pool, talk, value, complaint):
    talk.sample([asked("2 + 2?")], "five")
    with pytest.raises(InvalidRequestError, match=complaint):
        correct(pool, value)


def test_where_is_about_steps(pool, talk):
    talk.sample([asked("a")], "five")
    talk.sample([asked("a"), said("five"), asked("b")], "six")
    correct(pool, "one")
    correct(pool, "two", step_id="t-1")
    assert [one.step_id for one in corrections(pool, where="step_index == 1 or step_id == 'x'")] == ["t-1"]
    with pytest.raises(QueryError):
        list(corrections(pool, where="nonsense =="))


def test_what_curation_excludes_gives_none_unless_asked_for(pool, talk):
    talk.sample([asked("a")], "five")
    talk.end()
    correct(pool, "one")
    pool.decide([Decision(step_id="t-0", verdict="exclude", reason="wrong")])
    assert list(corrections(pool)) == []
    assert [one.chosen.text for one in corrections(pool, excluded=True)] == ["one"]


@pytest.mark.parametrize("status", ["failed", "abandoned"])
def test_how_a_run_ended_excludes_no_correction(pool, talk, status):
    talk.sample([asked("a")], "five")
    talk.end(status)
    correct(pool, "one")
    assert [one.chosen.text for one in corrections(pool)] == ["one"]
    pool.decide([Decision(trajectory_id="t", verdict="exclude", reason="wrong")])
    assert list(corrections(pool)) == []


def test_on_a_trajectory_it_is_of_the_last_reply_or_of_the_one_that_was_seen(pool, talk):
    talk.sample([asked("a")], "five")
    talk.sample([asked("a"), said("five"), asked("b")], "six")
    correct(pool, "one", step_id=None, trajectory_id="t")
    correct(pool, "two", source="ben", step_id=None, trajectory_id="t", content=reply_digest(said("five")))
    assert [(one.step_id, one.chosen.text) for one in corrections(pool)] == [("t-1", "one"), ("t-0", "two")]


def test_feedback_on_a_reply_that_is_the_last_no_more_is_outdated(pool, talk):
    talk.sample([asked("a")], "five")
    seen = {"content": reply_digest(said("five"))}
    on_run = Feedback(kind="rating", value=1, trajectory_id="t", **seen)
    on_step = Feedback(kind="rating", value=1, step_id="t-0", **seen)
    assert [seen_of(pool, one) for one in (on_run, on_step)] == ["current", "current"]
    talk.sample([asked("a"), said("five"), asked("b")], "six")
    assert [seen_of(pool, one) for one in (on_run, on_step)] == ["outdated", "current"]
    assert seen_of(pool, Feedback(kind="rating", value=1, trajectory_id="t")) == "unknown"
    for gone in ({"step_id": "x"}, {"trajectory_id": "x"}):
        assert seen_of(pool, Feedback(kind="rating", value=1, **seen, **gone)) == "unknown"


def test_the_digest_is_of_what_a_person_sees():
    # printf five | sha256sum
    assert reply_digest(said("five")) == "222b0bd51fcef7e65c2e62db2ed65457013bab56be6fafeb19ee11d453153c80"
    assert reply_digest(Message(role="assistant", content="five", reasoning="hm")) == reply_digest(said("five"))
    one, other = said("five", ("add", '{"a":1, "b":2}')), said("five", ("add", '{"b":2,"a":1}'))
    assert reply_digest(one) == reply_digest(other)
    assert len({reply_digest(each) for each in (one, said("five"), said("five", ("sub", '{"a":1, "b":2}')))}) == 3


def test_corrections_in_the_pool_are_served_as_targets_and_as_pairs(pool, talk):
    talk.sample([asked("2 + 2?")], "five")
    talk.end()
    correct(pool, "four")
    assert store_corrections(pool, corrections(pool)) == 1
    before = pool.stats().last_event
    assert store_corrections(pool, corrections(pool)) == 0
    assert pool.stats().last_event == before
    (pair,) = pool.lease(BatchSpec(method="dpo", require=("messages",)), "pairs").items
    assert [entry.steps[0].response_message.text for entry in pair.trajectories] == ["four", "five"]
    spec = BatchSpec(method="sft", where="label.correction == true", require=("messages",))
    (target,) = pool.lease(spec, "targets").items
    assert target.trajectories[0].steps[0].response_message == said("four")
    # Nothing was sampled, so there is nothing for who wants tokens.
    assert pool.lease(BatchSpec(method="dpo"), "tokens") is None
    assert pool.check() == []


def test_an_excluded_original_is_in_no_pair(pool, talk):
    talk.sample([asked("2 + 2?")], "five")
    talk.end()
    correct(pool, "four")
    store_corrections(pool, corrections(pool))
    pool.decide([Decision(step_id="t-0", verdict="exclude", reason="secret")])
    assert pool.lease(BatchSpec(method="dpo", require=("messages",)), "pairs") is None


def test_a_stored_correction_goes_with_its_user(pool):
    Talk(pool, user="kim").sample([asked("my secret")], "five")
    pool.complete_trajectory("t", "finished")
    correct(pool, "four")
    store_corrections(pool, corrections(pool))
    assert len(pool.list_trajectories().items) == 2
    pool.delete_user("kim")
    assert pool.list_trajectories().items == []
    assert list(corrections(pool)) == []
    assert pool.check() == []
