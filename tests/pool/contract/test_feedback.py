import pytest

from agentworld.errors import ConflictError, InvalidRequestError
from agentworld.records import Feedback, Message, NewTrajectory

from ..samples import ids, step

GOOD = [
    Feedback(kind="rating", value=4, name="helpful"),
    Feedback(kind="label", name="quality", value={"deep": [1, "\x00", None]}),
    Feedback(kind="correction", value="should have said \ud800 so"),
    Feedback(kind="correction", value={"role": "assistant", "content": "this"}, comment="better"),
    Feedback(kind="comparison", other_id="other", value=0.5),
    Feedback(kind="comparison", other_id="other"),
    Feedback(kind="comment", comment="so so \x00", source="anna"),
]


def on(record, **target):
    values = {name: getattr(record, name) for name in Feedback.__struct_fields__}
    return Feedback(**{**values, **target})


def test_every_kind_reads_back(pool, clock):
    pool.append_steps([step("t", step_id="s")])
    for target in ({"step_id": "s"}, {"trajectory_id": "t"}):
        assert pool.add_feedback([on(one, **target) for one in GOOD]) == len(GOOD)
        found = pool.list_feedback(**target).items
        assert [(one.kind, one.name, one.value, one.comment, one.source, one.other_id) for one in found] == [
            (one.kind, one.name, one.value, one.comment, one.source, one.other_id) for one in GOOD
        ]
        assert all(one.feedback_id.startswith("fbk_") for one in found)
        assert {one.created_at for one in found} == {clock.now}
    assert len(pool.list_feedback().items) == 2 * len(GOOD)
    assert [one.step_id for one in pool.list_feedback(kind="rating").items] == ["s", None]
    added = [event for event in pool.events() if event.kind == "feedback.added"]
    assert (len(added), added[0].step_id, added[0].trajectory_id) == (2 * len(GOOD), "s", "t")


def test_a_message_is_a_correction(pool):
    pool.append_steps([step("t", step_id="s")])
    pool.add_feedback([Feedback(kind="correction", step_id="s", value=Message(role="assistant", content="this"))])
    assert pool.list_feedback().items[0].value["content"] == "this"


def test_feedback_comes_page_by_page(pool):
    pool.add_feedback([Feedback(kind="comment", comment=str(n), trajectory_id="t") for n in range(5)])
    first = pool.list_feedback(limit=2)
    second = pool.list_feedback(limit=3, cursor=first.next_cursor)
    assert [one.comment for one in (*first.items, *second.items)] == ["0", "1", "2", "3", "4"]
    assert second.next_cursor is None
    with pytest.raises(InvalidRequestError):
        pool.list_feedback(step_id="s", trajectory_id="t")


def test_pages_stay_in_place_when_what_was_before_them_is_deleted(pool):
    for name in ("a", "b"):
        pool.append_steps([step(name, step_id=f"s-{name}")])
    pool.add_feedback([Feedback(kind="comment", comment=str(n), trajectory_id="ab"[n // 3]) for n in range(6)])
    first = pool.list_feedback(kind="comment", limit=4)
    pool.delete_trajectories(["a"])
    rest = pool.list_feedback(kind="comment", cursor=first.next_cursor)
    assert [one.comment for one in rest.items] == ["4", "5"]


def test_sending_again_is_one_and_other_content_a_conflict(pool):
    sent = Feedback(feedback_id="f", kind="rating", value=1, trajectory_id="t")
    assert pool.add_feedback([sent]) == 1
    assert pool.add_feedback([sent, on(sent, created_at=5.0)]) == 0
    with pytest.raises(ConflictError) as caught:
        pool.add_feedback([Feedback(kind="comment", comment="x", trajectory_id="t"), on(sent, value=2)])
    assert caught.value.path == "feedback[1].feedback_id"
    assert [one.value for one in pool.list_feedback().items] == [1]


def test_two_of_one_id_in_one_call_are_a_conflict(pool):
    first = Feedback(feedback_id="f", kind="rating", value=1, trajectory_id="t")
    with pytest.raises(ConflictError):
        pool.add_feedback([first, on(first, value=2)])
    assert pool.list_feedback().items == []


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        ({"kind": "rating", "value": True}, "value"),
        ({"kind": "rating", "value": float("inf")}, ""),
        ({"kind": "rating", "value": "5"}, "value"),
        ({"kind": "label", "value": 1}, "name"),
        ({"kind": "label", "name": "", "value": 1}, "name"),
        ({"kind": "label", "name": "x\x00", "value": 1}, "name"),
        ({"kind": "correction"}, "value"),
        ({"kind": "correction", "value": {"role": "wizard"}}, "value"),
        ({"kind": "comparison"}, "other_id"),
        ({"kind": "comparison", "other_id": "s"}, "other_id"),
        ({"kind": "comparison", "other_id": "a/b"}, "other_id"),
        ({"kind": "comparison", "other_id": "o", "value": "much"}, "value"),
        ({"kind": "comment"}, "comment"),
        ({"kind": "comment", "comment": "x", "value": 1}, "value"),
        ({"kind": "comment", "comment": "x", "name": "n"}, "name"),
        ({"kind": "rating", "value": 1, "other_id": "o"}, "other_id"),
        ({"kind": "praise", "comment": "x"}, "kind"),
        ({"kind": "comment", "comment": "x", "source": ""}, "source"),
        ({"kind": "comment", "comment": "x", "feedback_id": "a b"}, "feedback_id"),
    ],
)
def test_each_kind_is_checked(pool, bad, place):
    with pytest.raises(InvalidRequestError) as caught:
        pool.add_feedback([Feedback(kind="comment", comment="x", step_id="s"), Feedback(step_id="s", **bad)])
    assert caught.value.path.startswith("feedback[1]")
    assert place in caught.value.path
    assert pool.list_feedback().items == []


def test_feedback_names_its_target(pool):
    with pytest.raises(InvalidRequestError, match="trajectory or on a step"):
        pool.add_feedback([Feedback(kind="comment", comment="x")])


def label(name, value, **target):
    return Feedback(kind="label", name=name, value=value, **target)


def test_labels_are_for_where_on_steps_and_trajectories(pool):
    for name in ("1", "2"):
        pool.append_steps([step(f"t{name}", step_id=f"s{name}")])
    pool.add_feedback([label("quality", "good", step_id="s1"), label("quality", "bad", trajectory_id="t2")])
    assert ids(pool.list_steps(where="label.quality == 'good'")) == ["s1"]
    assert ids(pool.list_trajectories(where="label.quality == 'bad'")) == ["t2"]
    assert ids(pool.list_trajectories(where="not has label.quality")) == ["t1"]
    assert [e.data for e in pool.events() if e.kind == "label.set"] == [{"name": "quality", "source": "api"}] * 2


def test_the_latest_label_wins_and_null_takes_it_away(pool):
    pool.append_steps([step("t", step_id="s", labels={"own": True})])
    pool.add_feedback([label("a", 1, step_id="s"), label("a", 2, step_id="s"), label("b", 0, step_id="s")])
    assert pool.get_step("s").labels == {"own": True, "a": 2, "b": 0}
    pool.add_feedback([label("a", None, step_id="s"), label("own", None, step_id="s")])
    assert pool.get_step("s").labels == {"b": 0}
    pool.create_trajectory(NewTrajectory(trajectory_id="u"))
    pool.add_feedback([label("a", False, trajectory_id="u")])
    assert pool.get_trajectory("u").labels == {"a": False}
    pool.add_feedback([label("a", None, trajectory_id="u"), label("never", None, trajectory_id="u")])
    assert pool.get_trajectory("u").labels == {}
    assert pool.check() == []


def test_what_was_seen_reads_back_and_is_a_part_of_what_was_said(pool):
    seen = "0123456789abcdef" * 4
    sent = Feedback(feedback_id="f", kind="rating", value=1, trajectory_id="t", content=seen)
    assert pool.add_feedback([sent]) == 1
    assert pool.list_feedback().items[0].content == seen
    assert pool.add_feedback([sent]) == 0
    with pytest.raises(ConflictError):
        pool.add_feedback([on(sent, content=None)])
    for wrong in ("", "0" * 63, "0" * 65, "A" * 64, "0" * 64 + "\n"):
        with pytest.raises(InvalidRequestError) as caught:
            pool.add_feedback([on(sent, feedback_id=None, content=wrong)])
        assert caught.value.path == "feedback[0].content"
