"""What annotators of a pool said, how far they agree, and what goes to the review queue."""

import pytest

from agentworld.errors import InvalidRequestError
from agentworld.feedback.annotators import ask_for_reviews, disagreements, measure, said
from agentworld.records import Feedback

from .talks import Talk, asked


def judge(pool, target, name="quality", kind="label", **values):
    place = {"step_id": target} if "-" in target else {"trajectory_id": target}
    pool.add_feedback([Feedback(kind=kind, name=name, value=v, source=s, **place) for s, v in values.items()])


@pytest.fixture
def talked(pool):
    talk = Talk(pool)
    for text in ("a", "b", "c"):
        talk.sample([asked(text)], "x")
    return pool


def test_the_last_word_of_each_counts_and_checks_are_nobody(talked):
    judge(talked, "t-0", anna="good", ben="bad")
    judge(talked, "t-0", ben="good")
    judge(talked, "t-0", **{"check:x@1": True, "implicit:edit": 1})
    judge(talked, "t-0", name="other", anna="bad")
    judge(talked, "t-1", anna="good")
    judge(talked, "t-1", anna=None)
    judge(talked, "t", anna={"deep": [1]})
    assert [(one.target, one.target_id, one.values) for one in said(talked, "quality")] == [
        ("step", "t-0", {"anna": "good", "ben": "good"}),
        ("trajectory", "t", {"anna": {"deep": [1]}}),
    ]
    assert [one.values for one in said(talked, "quality", sources=["check:x@1"])] == [{"check:x@1": True}]
    assert [one.target_id for one in said(talked, "quality", where="step_index == 0")] == ["t-0"]
    assert said(talked, "quality", where="step_index == 1") == []


def test_agreement_of_labels(talked):
    judge(talked, "t-0", anna="good", ben="good", eve="good")
    judge(talked, "t-1", anna="good", ben="bad", eve="bad")
    judge(talked, "t-2", anna="bad", ben="bad")
    judge(talked, "t", anna="bad")
    found = measure("quality", said(talked, "quality"))
    assert (found.targets, found.compared, found.disagreed, found.level) == (4, 3, 1, "nominal")
    assert found.annotators == {"anna": 4, "ben": 3, "eve": 2}
    assert found.percent == pytest.approx((1 + 1 / 3 + 1) / 3)
    assert (found.fleiss_targets, found.fleiss_annotators) == (2, 3)
    kappas = {(one, other): (common, kappa) for one, other, common, kappa in found.cohen}
    # anna and ben: good good, good bad, bad bad; by chance 4/9.
    assert kappas["anna", "ben"] == (3, pytest.approx((2 / 3 - 4 / 9) / (1 - 4 / 9)))
    assert kappas["ben", "eve"] == (2, 1.0)


def test_agreement_of_ratings_goes_by_distance(talked):
    judge(talked, "t-0", kind="rating", anna=1, ben=2)
    judge(talked, "t-1", kind="rating", anna=5, ben=4.5)
    near = measure("quality", said(talked, "quality", kind="rating"), "rating")
    assert near.level == "interval"
    assert near.alpha > 0.8
    assert measure("quality", said(talked, "quality", kind="rating"), "rating", "nominal").alpha == pytest.approx(0)
    judge(talked, "t-2", anna="good", ben="bad")
    with pytest.raises(InvalidRequestError, match="no number"):
        measure("quality", said(talked, "quality"), level="ordinal")


def test_true_is_not_one_and_one_is_one(talked):
    judge(talked, "t-0", anna=True, ben=1)
    judge(talked, "t-1", anna=1, ben=1.0)
    assert measure("quality", said(talked, "quality")).disagreed == 1


def test_disagreements_go_to_the_review_queue_the_worst_first(talked):
    judge(talked, "t-0", anna="good", ben="good", eve="bad")
    judge(talked, "t-1", anna="good", ben="bad")
    judge(talked, "t-2", anna="good", ben="good")
    judge(talked, "t", anna="good", ben="bad", eve="so \u001b[31m so")
    judge(talked, "t-9", anna="good", ben="bad")
    found = list(disagreements("quality", said(talked, "quality")))
    assert ask_for_reviews(talked, found) == (3, 1)
    assert ask_for_reviews(talked, found) == (0, 1)
    page = talked.list_reviews().items
    assert {(one.step_id or one.trajectory_id, round(one.worth, 3)) for one in page} == {
        ("t-0", 0.579), ("t-1", 1.0), ("t", 1.0)}  # fmt: skip
    assert page[-1].step_id == "t-0"
    assert page[-1].reason == 'quality: "good" by 2, "bad" by 1'
    assert {one.origin for one in page} == {"disagreement"}
    claimed = talked.claim_review("dora")
    talked.resolve_review(claimed.review_id, "dora", "accept")
    ask_for_reviews(talked, found)
    assert talked.get_review(claimed.review_id).state == "done"


def test_ratings_that_are_near_agree(talked):
    judge(talked, "t-0", kind="rating", anna=1, ben=2)
    judge(talked, "t-1", kind="rating", anna=1, ben=5)
    rated = said(talked, "quality", kind="rating")
    assert [one.step_id for one in disagreements("quality", rated, tolerance=1)] == ["t-1"]
    assert len(list(disagreements("quality", rated))) == 2
    assert list(disagreements("quality", rated, least=1)) == []
    judge(talked, "t-1", kind="rating", ben=None)
    assert [one.values for one in said(talked, "quality", kind="rating")] == [{"anna": 1, "ben": 2}, {"anna": 1}]
