"""Regenerate, edit and abandon, each with what it is and with what looks like it and is not."""

import threading

import pytest

from agentworld.errors import ConflictError, InvalidRequestError
from agentworld.feedback.content import reply_digest
from agentworld.feedback.following import FOLLOWER, derive
from agentworld.feedback.implicit import LABEL, Thresholds
from agentworld.records import Message

from .talks import Talk, asked, said

A, C = asked("a"), asked("c")
LONG = "The capital of France is Lyon, and it lies on the river Seine."


def found(pool, kind):
    """Feedback of a kind as (target, other or value)."""
    return [
        (one.step_id or one.trajectory_id, one.other_id or one.value) for one in pool.list_feedback(kind=kind).items
    ]


def preferred(pool):
    derive(pool)
    return found(pool, "comparison")


def edits(pool, thresholds=None):
    derive(pool, thresholds)
    return [(step_id, value["content"]) for step_id, value in found(pool, "correction")]


def test_the_reply_that_is_gone_on_with_is_preferred(pool):
    talk = Talk(pool)
    for reply in ("x", "y", "z"):
        talk.sample([A], reply)
    talk.sample([A, said("y"), C], "end")
    talk.end()
    derived = derive(pool)
    assert derived.signals == {"implicit:regenerate": 2}
    assert found(pool, "comparison") == [("t-1", "t-0"), ("t-1", "t-2")]
    one = pool.list_feedback().items[0]
    assert (one.source, one.comment, one.content) == (
        "implicit:regenerate", "gone on with by t-3", reply_digest(said("y")))  # fmt: skip


@pytest.mark.parametrize(
    "prompts",
    [
        [([A], "x"), ([A], "y")],  # none is gone on with
        [([A], "x"), ([A], "y"), ([A, said("x"), C], "1"), ([A, said("y"), C], "2")],  # a search goes on with both
        [([A], "x"), ([A], "x"), ([A, said("x"), C], "1")],  # they are the same
        [([A], "x"), ([C], "y"), ([A, said("x"), C], "1")],  # of another prompt
        [([A], "x"), ([A, said("x"), C], "1"), ([A], "y")],  # sampled after that
    ],
)
def test_what_looks_like_regenerating(pool, prompts):
    talk = Talk(pool)
    for prompt, reply in prompts:
        talk.sample(prompt, reply)
    talk.end()
    assert preferred(pool) == []


def test_a_reply_that_a_retry_took_the_place_of_was_seen_by_nobody(pool):
    talk = Talk(pool)
    first = talk.sample([A], "x")
    talk.sample([A], "y", supersedes=first, fork_reason="retry")
    talk.sample([A, said("y"), C], "end")
    talk.end()
    assert preferred(pool) == []


def test_a_reply_that_came_back_edited_is_a_correction(pool):
    talk = Talk(pool)
    talk.sample([A], LONG)
    right = LONG.replace("Lyon", "Paris")
    talk.sample([A, said(right), C], "end")
    talk.end()
    assert edits(pool) == [("t-0", right)]
    one = pool.list_feedback().items[0]
    assert (one.source, one.content) == ("implicit:edit", reply_digest(said(LONG)))
    assert one.comment.startswith("sent back by t-1, 0.9")


@pytest.mark.parametrize(
    "sent",
    [
        said(LONG[:30]),  # cut
        said(LONG.replace(" ", "\n ")),  # other blanks
        said("Summary of what was said so far."),  # compacted
        said(""),
        said(LONG.replace("Lyon", "Paris"), ("f", "{}")),  # other calls
        Message(role="user", content=LONG.replace("Lyon", "Paris")),
    ],
)
def test_what_looks_like_an_edit(pool, sent):
    talk = Talk(pool)
    talk.sample([A], LONG)
    talk.sample([A, sent, C], "end")
    talk.end()
    assert edits(pool) == []


def test_a_client_that_rewrites_all_of_its_history_edits_nothing(pool):
    for name, rewritten in (("all", 4), ("few", 1)):
        talk = Talk(pool, name)
        prompt = [asked(name)]
        for number in range(5):
            reply = f"{LONG} {number} {number}"
            talk.sample(prompt, reply)
            sent = reply.replace("Seine", "Loire") if number < rewritten else reply
            prompt = [*prompt, said(sent), asked(f"and {number}?")]
        talk.end()
    assert [step_id for step_id, _ in edits(pool)] == ["few-0"]


def test_thresholds(pool):
    talk = Talk(pool)
    talk.sample([A], LONG)
    talk.sample([A, said(LONG.replace("Lyon", "Paris")), C], "end")
    talk.end("abandoned")
    for strict in (
        Thresholds(signals=("edit",), least_similar=0.99),
        Thresholds(signals=("edit",), longest=10),
        Thresholds(signals=("regenerate",)),
    ):
        assert derive(pool, strict, again=True).signals.total() == 0
    assert derive(pool, Thresholds(signals=("edit",)), again=True).signals == {"implicit:edit": 1}
    for wrong in ({"least_similar": 1.5}, {"most_edited": -1}, {"longest": 0}, {"signals": ("x",)}):
        with pytest.raises(InvalidRequestError):
            Thresholds(**wrong)


@pytest.mark.parametrize(
    ("status", "reply", "label"),
    [
        ("abandoned", said("x"), "after_reply"),
        ("abandoned", said(None, ("f", "{}")), "in_tool_call"),
        ("finished", said("x"), None),
        ("failed", said("x"), None),
    ],
)
def test_what_was_left_is_labelled(pool, status, reply, label):
    talk = Talk(pool)
    talk.sample([A], reply)
    talk.end(status)
    derive(pool)
    assert pool.get_trajectory("t").labels.get(LABEL) == label
    where = f"label.{LABEL} == 'after_reply'"
    assert len(pool.list_trajectories(where=where).items) == (label == "after_reply")


def test_it_goes_on_where_it_was_and_says_nothing_twice(pool):
    for name in ("one", "two"):
        talk = Talk(pool, name)
        talk.sample([asked(name)], "x")
        talk.sample([asked(name)], "y")
        talk.sample([asked(name), said("y"), C], "end")
        talk.end()
        first = derive(pool)
        assert (first.trajectories, first.signals["implicit:regenerate"]) == (1, 1)
        assert derive(pool).trajectories == 0
    again = derive(pool, again=True)
    assert (again.trajectories, again.signals.total()) == (2, 0)
    assert len(found(pool, "comparison")) == 2


def test_a_late_step_has_it_looked_at_again(pool):
    talk = Talk(pool)
    talk.sample([A], "x")
    talk.sample([A], "y")
    talk.end()
    assert preferred(pool) == []
    talk.sample([A, said("y"), C], "late")
    assert preferred(pool) == [("t-1", "t-0")]


def test_one_channel_alone(pool):
    for name in ("one", "two"):
        talk = Talk(pool, name, channel=name)
        talk.sample([A], "x")
        talk.end("abandoned")
    assert derive(pool, channel="two").signals == {"implicit:abandon": 1}
    assert pool.get_trajectory("one").labels == {}
    assert derive(pool).signals == {"implicit:abandon": 1}


def test_it_follows_until_it_is_stopped(pool):
    stop, told = threading.Event(), []
    worker = threading.Thread(
        target=lambda: derive(pool, follow=True, stop=stop, done=lambda total: told.append(total.trajectories))
    )
    worker.start()
    try:
        talk = Talk(pool)
        talk.sample([A], "x")
        talk.end("abandoned")
        for event in pool.follow(timeout=100):
            if event.kind == "label.set":
                break
        else:
            raise AssertionError("nothing was derived")
    finally:
        stop.set()
        worker.join(100)
    assert not worker.is_alive()
    assert told[-1] == 1
    assert pool.load_follower(FOLLOWER).position > 0


def test_what_is_too_long_is_counted_and_left_out(pool, monkeypatch):
    monkeypatch.setattr("agentworld.feedback.following.MOST_STEPS", 1)
    talk = Talk(pool)
    talk.sample([A], "x")
    talk.sample([C], "x")
    talk.end("abandoned")
    derived = derive(pool)
    assert (derived.trajectories, derived.too_long, derived.signals.total()) == (0, 1, 0)


def test_what_was_deleted_since_is_passed_over(pool):
    talk = Talk(pool)
    talk.sample([A], "x")
    talk.end("abandoned")
    pool.delete_trajectories(["t"])
    assert derive(pool).trajectories == 0


def test_where_it_breaks_off_the_next_run_goes_on(pool, monkeypatch):
    for number in range(3):
        talk = Talk(pool, f"t{number}")
        talk.sample([A], "x")
        talk.end("abandoned")
    kept, calls = pool.add_signals, []

    def failing(sent):
        calls.append(sent)
        if len(calls) == 2:
            raise RuntimeError("killed")
        return kept(sent)

    monkeypatch.setattr(pool, "add_signals", failing)
    with pytest.raises(RuntimeError):
        derive(pool)
    monkeypatch.undo()
    assert [bool(pool.get_trajectory(f"t{number}").labels) for number in range(3)] == [True, False, False]
    derived = derive(pool)
    assert (derived.trajectories, derived.signals.total()) == (3, 2)
    assert all(pool.get_trajectory(f"t{number}").labels for number in range(3))


def test_a_second_one_beside_it_is_told(pool):
    talk = Talk(pool)
    talk.sample([A], "x")
    talk.end("abandoned")

    def another(total):
        derive(pool)

    with pytest.raises(ConflictError):
        derive(pool, follow=True, done=another)
