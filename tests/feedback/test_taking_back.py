"""What was said is taken back as docs/feedback.md says, by the same source, kind by kind."""

import typing

import pytest

import agentworld as aw
from agentworld.feedback.annotators import said
from agentworld.feedback.corrections import corrections
from agentworld.records import Decision, Feedback, FeedbackKind
from tests.docs.pages import DOCS, section, table_of

FOUR = {"role": "assistant", "content": "4"}


@pytest.fixture(params=["memory", "sqlite"])
def pool(request, tmp_path):
    with aw.open_pool("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/pool.db") as opened:
        yield opened


def put(pool, *sides):
    """A finished trajectory of one step for each side."""
    for side in sides:
        with pool.trajectory(trajectory_id=side) as run:
            run.step(
                step_id=f"s-{side}",
                prompt_messages=[{"role": "user", "content": "2 + 2?"}],
                response_message=FOUR,
            )


def say(pool, kind, **fields):
    pool.add_feedback([Feedback(kind=kind, source="anna", **fields)])


def served(pool, consumer):
    """The pairs that a consumer gets: of each, the preferred trajectory."""
    found = []
    while (batch := pool.consumer(consumer).lease(aw.BatchSpec(method="dpo", require=("messages",)))) is not None:
        found += [item.trajectories[0].trajectory.trajectory_id for item in batch.items]
        batch.ack()
    return sorted(found)


def test_the_page_says_it_of_every_kind():
    assert set(table_of(section(DOCS / "feedback.md", "Taking back"))) == set(typing.get_args(FeedbackKind))


def test_the_last_rating_of_a_source_counts_and_a_label_without_a_value_is_gone(pool):
    put(pool, "a")
    for value in (1, 3):
        say(pool, "rating", name="good", value=value, step_id="s-a")
        say(pool, "label", name="ok", value=value, trajectory_id="a")
    assert [one.values for one in said(pool, "good", kind="rating")] == [{"anna": 3}]
    say(pool, "label", name="ok", value=None, trajectory_id="a")
    assert said(pool, "ok") == []
    assert pool.get_trajectory("a").labels == {}


def test_another_correction_counts_and_the_reply_itself_is_none(pool):
    put(pool, "a")
    for value in ("5", "four"):
        say(pool, "correction", value=value, step_id="s-a")
    assert [row.chosen.text for row in corrections(pool)] == ["four"]
    say(pool, "correction", value="4", step_id="s-a")
    assert list(corrections(pool)) == []


def test_a_comparison_is_taken_back_by_a_zero_of_the_same_source_and_served_no_more(pool):
    put(pool, "a", "b")
    say(pool, "comparison", trajectory_id="a", other_id="b")
    say(pool, "comparison", trajectory_id="b", other_id="a")
    say(pool, "comparison", step_id="s-a", other_id="s-b", value=2)
    assert served(pool, "first") == ["a", "a", "b"]
    # Before it is taken into a backlog, and after; what others say of the two, and the other way around, stays.
    spec = aw.BatchSpec(method="dpo", size=1, require=("messages",))
    held = pool.consumer("second").lease(spec)
    pool.consumer("zero").lease(spec).release()
    say(pool, "comparison", trajectory_id="a", other_id="b", value=0.0)
    say(pool, "comparison", step_id="s-a", other_id="s-b", value=-0.0)
    pool.add_feedback([Feedback(kind="comparison", source="ben", trajectory_id="b", other_id="a", value=0)])
    held.release()
    for consumer in ("second", "zero", "third"):
        assert served(pool, consumer) == ["b"]
    why = pool.explain_unit("third", "s-a", spec)
    assert "taken back" in why.message
    say(pool, "comparison", trajectory_id="a", other_id="b")
    assert served(pool, "third") == ["a"]


def test_no_pair_is_served_where_one_of_the_two_is_excluded(pool):
    put(pool, "a", "b")
    say(pool, "comparison", trajectory_id="a", other_id="b")
    say(pool, "comparison", trajectory_id="b", other_id="a")
    pool.decide([Decision(verdict="exclude", trajectory_id="a", reason="a slip", source="anna")])
    assert served(pool, "second") == []
