"""What people are asked to look at: by worth, handed out to one at a time, and what becomes of their verdicts."""

import threading

import pytest

from agentworld.errors import ConflictError, InvalidRequestError, NotFoundError, QueryError
from agentworld.pool.sql import reviews
from agentworld.pool.sql.statements import sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import BatchSpec, CurationPolicy, Decision, NewReview, NewTrajectory

from ..samples import finished, step


def asked(pool, *worths, **settings):
    for number, worth in enumerate(worths):
        finished(pool, f"t{number}", reward=1.0)
        pool.add_reviews([NewReview(trajectory_id=f"t{number}", reason="look", worth=worth, **settings)])


def stands(pool, trajectory_id):
    there = pool.get_trajectory(trajectory_id)
    return there.readiness, there.excluded_reason


def test_the_most_worth_is_handed_out_first_and_to_one_at_a_time(pool, clock):
    asked(pool, 0.2, 0.9, 0.5)
    first = pool.claim_review("ann")
    assert (first.trajectory_id, first.state, first.claimed_by) == ("t1", "claimed", "ann")
    assert first.claimed_until == clock.now + 600
    assert pool.claim_review("ann", seconds=60).review_id == first.review_id
    assert pool.claim_review("bob").trajectory_id == "t2"
    assert pool.claim_review("eve").trajectory_id == "t0"
    assert pool.claim_review("joe") is None
    clock.now += 61
    assert pool.claim_review("joe").trajectory_id == "t1"
    assert [(one.trajectory_id, one.state, one.claimed_by) for one in pool.list_reviews().items] == [
        ("t1", "claimed", "joe"),
        ("t2", "claimed", "bob"),
        ("t0", "claimed", "eve"),
    ]


def test_what_is_skipped_is_not_asked_again_of_the_same_one(pool):
    asked(pool, 0.9, 0.5)
    first = pool.claim_review("ann")
    assert pool.skip_review(first.review_id, "ann").skipped_by == ("ann",)
    assert pool.claim_review("ann").trajectory_id == "t1"
    assert pool.claim_review("bob").review_id == first.review_id


def test_where_tells_what_became_of_reviews(pool):
    asked(pool, 0.9, 0.8, 0.7, 0.6)
    finished(pool, "t4", reward=1.0)
    pool.add_reviews([NewReview(step_id=pool.list_steps(trajectory_id="t4").items[0].step_id, reason="not of it")])
    pool.skip_review(pool.claim_review("ann").review_id, "ann")
    pool.resolve_review(pool.claim_review("ann").review_id, "ann", "accept")
    pool.resolve_review(pool.claim_review("ann").review_id, "ann", "reject")
    found = {
        where: "".join(one.trajectory_id[1:] for one in pool.list_trajectories(where=where).items)
        for where in (
            "review == 'waiting'", "review in ('skipped', 'accepted')", "review like 'a%'", "review != 'rejected'",
            "has review and channel == 'train'", "review is null", "review == 'nothing'", "review > 'b'",
            "not has review",
        )
    }  # fmt: skip
    assert list(found.values()) == ["3", "01", "1", "0134", "0123", "4", "", "023", "4"]
    with pytest.raises(QueryError, match="review is no field of batches"):
        pool.consumer("c").lease(
            BatchSpec(method="reinforce", unit="trajectory", where="ready and review == 'accepted'")
        )


def test_many_that_were_skipped_are_passed_over(pool, monkeypatch):
    few = {by_channel: sql(reviews._free(by_channel)._source.limit(5)) for by_channel in (False, True)}
    monkeypatch.setattr(reviews, "_FREE", few)
    monkeypatch.setattr(reviews, "_CANDIDATES_AT_ONCE", 5)
    asked(pool, *([0.5] * 13))
    for _ in range(12):
        pool.skip_review(pool.claim_review("ann").review_id, "ann")
    read = []
    execute = Transaction.execute

    def counted(*args):
        found = execute(*args)
        read.extend(row["pk"] for row in found if "skipped_by" in row.keys())  # noqa: SIM118  # Rows are no dicts.
        return found

    with monkeypatch.context() as counting:
        counting.setattr(Transaction, "execute", counted)
        assert pool.claim_review("ann").trajectory_id == "t12"
    assert len(read) <= 1  # Under the lock that others wait for: the one that is free, and none that was skipped.
    pool.skip_review(pool.claim_review("ann").review_id, "ann")
    assert pool.claim_review("ann") is None


def test_a_verdict_is_a_decision_and_can_be_taken_back(pool):
    asked(pool, 0.9, 0.5)
    one, two = pool.list_reviews().items
    done = pool.resolve_review(one.review_id, "ann", "reject", "wrong; twice")
    assert (done.state, done.verdict, done.resolved_by, done.comment) == ("done", "reject", "ann", "wrong; twice")
    assert stands(pool, "t0") == ("excluded", "manual: wrong, twice")
    assert pool.resolve_review(one.review_id, "ann", "reject", "wrong; twice") == done
    with pytest.raises(ConflictError, match="is done"):
        pool.resolve_review(one.review_id, "ann", "accept")
    assert pool.resolve_review(two.review_id, "bob", "accept").verdict == "accept"
    assert stands(pool, "t1") == ("ready", None)
    assert [d.verdict for d in pool.decisions(trajectory_id="t1")] == ["ready"]
    again = pool.undo_review(one.review_id, "bob")
    assert (again.state, again.verdict, again.comment, again.resolved_at) == ("open", None, None, None)
    assert stands(pool, "t0") == ("ready", None)
    assert pool.decisions(trajectory_id="t0") == []
    with pytest.raises(ConflictError, match="no verdict"):
        pool.undo_review(one.review_id, "bob")
    assert pool.check() == []


def test_what_somebody_else_has_is_not_mine(pool):
    asked(pool, 0.9)
    one = pool.claim_review("ann")
    for attempt in (
        lambda: pool.resolve_review(one.review_id, "bob", "accept"),
        lambda: pool.skip_review(one.review_id, "bob"),
    ):
        with pytest.raises(ConflictError, match="with 'ann'"):
            attempt()
    assert pool.get_review(one.review_id).state == "claimed"


def test_a_rule_asks_and_what_it_asked_gates_until_then(pool):
    finished(pool, "a", reward=1.0)
    finished(pool, "b", reward=0.0)
    pool.set_curation(CurationPolicy(rules=("when reward == 1 then review 'too good' 0.9",)))
    assert stands(pool, "a") == ("excluded", "review: too good")
    [one] = pool.list_reviews(state="open").items
    assert (one.trajectory_id, one.origin, one.reason, one.worth) == ("a", "rule", "too good", 0.9)
    pool.resolve_review(one.review_id, "ann", "accept")
    assert stands(pool, "a") == ("ready", None)
    pool.undo_review(one.review_id, "ann")
    assert stands(pool, "a") == ("excluded", "review: too good")
    assert pool.get_review(one.review_id).state == "open"
    pool.clear_curation("train")
    assert pool.get_review(one.review_id).state == "withdrawn"
    assert pool.claim_review("ann") is None
    pool.set_curation(CurationPolicy(rules=("when reward == 1 then review 'again'",)))
    assert pool.claim_review("ann").reason == "again"
    assert pool.check() == []


def test_a_person_may_ask_and_hold_back(pool):
    [name] = finished(pool, "a", reward=1.0)
    pool.decide([Decision(verdict="review", step_id=name, reason="odd")])
    one = pool.claim_review("ann")
    assert (one.trajectory_id, one.step_id, one.origin) == ("a", name, "manual")
    pool.resolve_review(one.review_id, "ann", "reject")
    assert pool.get_step(name).excluded_reason == "manual: rejected: odd"


def test_asking_twice_is_one_review_of_the_higher_worth(pool):
    asked(pool, 0.4)
    assert pool.add_reviews([NewReview(trajectory_id="t0", reason="look", worth=0.3)]) == 0
    assert pool.add_reviews([NewReview(trajectory_id="t0", reason="look", worth=0.8)]) == 1
    assert [one.worth for one in pool.list_reviews().items] == [0.8]
    pool.resolve_review(pool.list_reviews().items[0].review_id, "ann", "accept")
    assert pool.add_reviews([NewReview(trajectory_id="t0", reason="look", worth=0.9)]) == 0
    assert pool.add_reviews([NewReview(trajectory_id="t0", reason="judges differ", origin="uncertainty")]) == 1
    assert pool.claim_review("bob").origin == "uncertainty"


def test_pages_and_filters(pool):
    asked(pool, 0.1, 0.5, 0.5, 0.9)
    finished(pool, "v", reward=1.0, channel="val")
    pool.add_reviews([NewReview(trajectory_id="v", reason="look", worth=0.7)])
    pool.resolve_review(pool.list_reviews().items[0].review_id, "ann", "accept")
    order, cursor = [], None
    while True:
        page = pool.list_reviews(cursor=cursor, limit=2)
        order += [one.trajectory_id for one in page.items]
        if (cursor := page.next_cursor) is None:
            break
    assert order == ["t3", "v", "t1", "t2", "t0"]
    assert [one.trajectory_id for one in pool.list_reviews(state="done").items] == ["t3"]
    assert [one.trajectory_id for one in pool.list_reviews(channel="val").items] == ["v"]
    assert pool.claim_review("ann", channel="val").trajectory_id == "v"
    assert [one.trajectory_id for one in pool.list_reviews(state="claimed").items] == ["v"]
    assert [one.trajectory_id for one in pool.list_reviews(state="open", channel="train").items] == ["t1", "t2", "t0"]
    with pytest.raises(QueryError, match="no cursor"):
        pool.list_reviews(cursor="o12")


def test_no_two_get_the_same_one(pool):
    asked(pool, *([0.5] * 12))
    found = []

    def take(name):
        while (one := pool.claim_review(name)) is not None:
            found.append(one.review_id)
            pool.resolve_review(one.review_id, name, "accept")

    threads = [threading.Thread(target=take, args=(f"r{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(one.review_id for one in pool.list_reviews(state="done").items)
    assert len(found) == 12


def test_reviews_go_with_their_trajectory(pool):
    asked(pool, 0.5)
    pool.delete_trajectories(["t0"])
    assert pool.list_reviews().items == []
    assert pool.check() == []


def test_reviews_go_to_the_channel_that_their_trajectory_turns_out_to_be_of(pool):
    pool.append_steps([step("t", step_id="s"), step("other", step_id="o")])
    asked_of = ({"trajectory_id": "t"}, {"step_id": "s"}, {"step_id": "o"})
    pool.add_reviews([NewReview(reason="look", **each) for each in asked_of])
    pool.create_trajectory(NewTrajectory(trajectory_id="t", channel="val"))
    assert [one.step_id for one in pool.list_reviews(channel="val").items] == [None, "s"]
    assert [one.step_id for one in pool.list_reviews(channel="train").items] == ["o"]
    assert pool.claim_review("ann", channel="val").trajectory_id == "t"


def test_what_cannot_be_is_refused(pool):
    asked(pool, 0.5)
    [one] = pool.list_reviews().items
    for bad in (
        lambda: pool.add_reviews([NewReview(trajectory_id="t0", reason="")]),
        lambda: pool.add_reviews([NewReview(reason="x")]),
        lambda: pool.add_reviews([NewReview(trajectory_id="t0", reason="x", worth=float("nan"))]),
        lambda: pool.add_reviews([NewReview(trajectory_id="t0", reason="x", origin="else")]),
        lambda: pool.claim_review(""),
        lambda: pool.claim_review("ann", seconds=0),
        lambda: pool.claim_review("ann", seconds=float("nan")),
        lambda: pool.resolve_review(one.review_id, "ann", "maybe"),
        lambda: pool.resolve_review(one.review_id, "ann", "accept", "two\nlines"),
        lambda: pool.get_review("1"),
        lambda: pool.list_reviews(state="odd"),
    ):
        with pytest.raises(InvalidRequestError):
            bad()
    with pytest.raises(NotFoundError):
        pool.get_review(10**6)
    with pytest.raises(NotFoundError):
        pool.add_reviews([NewReview(trajectory_id="t0", reason="again"), NewReview(step_id="no", reason="x")])
    assert [one.reason for one in pool.list_reviews().items] == ["look"]


def test_what_is_held_back_again_is_asked_again(pool):
    finished(pool, "a", reward=1.0)
    for _ in range(2):
        pool.decide([Decision(verdict="review", trajectory_id="a", reason="check")])
        one = pool.claim_review("ann")
        assert one is not None
        pool.resolve_review(one.review_id, "ann", "accept")
        assert stands(pool, "a") == ("ready", None)
    rule = CurationPolicy(rules=("when reward == 1 then review 'check' 900",))
    pool.decide([Decision(verdict=None, trajectory_id="a")])
    for _ in range(2):
        pool.set_curation(rule)
        assert [(one.reason, one.worth) for one in pool.list_reviews(state="open").items] == [("check", 900)]
        pool.decide([Decision(verdict="ready", trajectory_id="a")])
        pool.decide([Decision(verdict=None, trajectory_id="a")])
        assert pool.claim_review("ann").worth == 900
        pool.clear_curation("train")
        assert pool.claim_review("ann") is None


def test_undoing_a_verdict_leaves_what_somebody_else_decided_since(pool):
    asked(pool, 0.5)
    [one] = pool.list_reviews().items
    pool.resolve_review(one.review_id, "ann", "reject", "wrong")
    pool.decide([Decision(verdict="exclude", trajectory_id="t0", reason="my own reason", source="boss")])
    assert pool.undo_review(one.review_id, "ann").state == "open"
    assert stands(pool, "t0") == ("excluded", "manual: my own reason")
    assert [each.source for each in pool.decisions(trajectory_id="t0")] == ["boss"]
