"""What evaluators said is kept, found again by content, and goes with its target; followers go on where they were."""

import pytest

from agentworld.errors import ConflictError, InvalidRequestError
from agentworld.records import Evaluation, NewTrajectory, digest

from ..samples import finished, step

MARK, OTHER = digest(b"evaluator"), digest(b"other")


def said(target_id, *, content=b"c", **changes):
    values = {
        "evaluator": "exact",
        "target": "trajectory",
        "target_id": target_id,
        "fingerprint": MARK,
        "content": digest(content),
        "state": "ok",
        "values": {"reward": 1.0},
        **changes,
    }
    return Evaluation(**values)


def test_the_latest_of_each_evaluator_and_target_stays(pool, clock):
    finished(pool, "a")
    finished(pool, "b")
    details = {"why": "\0 \ud800", "n": 2**60}
    assert pool.put_evaluations([said("a", details=details, seconds=0.5), said("b", content=b"d")]) == 2
    clock.now += 1
    failed = said("a", state="failed", values={}, error="timed out\0", attempts=3)
    assert pool.put_evaluations([failed]) == 1
    [of_b, of_a] = pool.list_evaluations().items
    assert (of_a.state, of_a.error, of_a.attempts, of_a.at, of_a.values) == ("failed", "timed out\0", 3, clock.now, {})
    assert (of_b.values, of_b.at) == ({"reward": 1.0}, clock.now - 1)
    assert pool.explain_standing(trajectory_id="a").failures == {"exact": "timed out\0"}
    assert pool.explain_standing(trajectory_id="b").failures == {}
    pool.put_evaluations([said("a", details=details, seconds=0.5)])
    [again] = pool.list_evaluations(target="trajectory", target_id="a").items
    assert (again.details, again.seconds, again.state) == (details, 0.5, "ok")
    assert pool.explain_standing(trajectory_id="a").failures == {}
    assert pool.check() == []


def test_lists_are_filtered_and_paged(pool):
    for number in range(5):
        finished(pool, f"t{number}")
        wrong = {"state": "failed", "values": {}, "error": "x"} if number % 2 else {}
        pool.put_evaluations([said(f"t{number}", evaluator=f"e{number % 2}", **wrong)])
    first = pool.list_evaluations(limit=3)
    rest = pool.list_evaluations(limit=3, cursor=first.next_cursor)
    assert [one.target_id for one in [*first.items, *rest.items]] == [f"t{number}" for number in range(5)]
    assert [one.target_id for one in pool.list_evaluations(state="failed").items] == ["t1", "t3"]
    assert [one.target_id for one in pool.list_evaluations(evaluator="e0").items] == ["t0", "t2", "t4"]
    assert pool.list_evaluations(evaluator="e0", state="failed").items == []


def test_what_was_said_of_the_same_content_is_found(pool):
    [name] = finished(pool, "a")
    pool.put_evaluations([said("a", content=b"x"), said(name, target="step", content=b"y")])
    pool.put_evaluations([said("a", evaluator="else", fingerprint=OTHER, content=b"z")])
    asked = [digest(part) for part in (b"x", b"y", b"z", b"never")]
    found = pool.known_evaluations(MARK, asked)
    assert {content: one.target_id for content, one in found.items()} == {asked[0]: "a", asked[1]: name}
    pool.put_evaluations([said("a", content=b"x", state="failed", values={}, error="no")])
    assert pool.known_evaluations(MARK, asked[:1]) == {}


def test_evaluations_go_with_their_targets(pool):
    pool.create_trajectory(NewTrajectory(trajectory_id="a", group_id="g"))
    pool.create_trajectory(NewTrajectory(trajectory_id="b", group_id="g"))
    one = step("a")
    pool.append_steps([one, step("b")])
    everywhere = [
        said("a"),
        said("b"),
        said(one.step_id, target="step"),
        said("g", target="group"),
        said("nowhere"),
    ]
    assert pool.put_evaluations(everywhere) == 4
    pool.delete_trajectories(["a"])
    assert [one.target_id for one in pool.list_evaluations().items] == ["b"]
    # An evaluator that was at work meanwhile brings nothing back.
    assert pool.put_evaluations(everywhere[:3]) == 1


def test_a_follower_goes_on_where_it_was_and_alone(pool):
    assert pool.load_follower("checks") is None
    first = pool.save_follower("checks", 5, b"\0state")
    assert (first.position, first.state, first.revision) == (5, b"\0state", 1)
    assert pool.load_follower("checks") == first
    with pytest.raises(ConflictError, match="another process follows as 'checks'"):
        pool.save_follower("checks", 6)
    second = pool.save_follower("checks", 7, revision=first.revision)
    assert (second.position, second.state, second.revision) == (7, None, 2)
    with pytest.raises(ConflictError):
        pool.save_follower("checks", 8, revision=first.revision)
    assert pool.load_follower("checks") == second


def test_what_cannot_be_is_refused(pool):
    finished(pool, "a")
    for bad in (
        said("a", values={"reward": float("nan")}),
        said("a", values={"reward": True}),
        said("a", values=[1.0]),
        said("a", state="failed"),
        said("a", state="odd"),
        said("a", target="pool"),
        said("a", fingerprint=b"short"),
        said("a", details={"x": "y" * 300_000}),
        said("a", attempts=-1),
        said("a", values={str(number): 0.0 for number in range(1001)}),
        said("a", seconds=-1.0),
        *(said("a", at=at) for at in (float("nan"), -1.0, 1e300, True)),
        said("", attempts=1),
        "exact",
    ):
        with pytest.raises(InvalidRequestError):
            pool.put_evaluations([said("a"), bad])
    assert pool.list_evaluations().items == []
    for attempt in (
        lambda: pool.list_evaluations(target="step"),
        lambda: pool.list_evaluations(state="odd"),
        lambda: pool.known_evaluations(b"short", []),
        lambda: pool.known_evaluations(MARK, [b"short"]),
        lambda: pool.save_follower("x", -1),
        lambda: pool.save_follower("x", 1, "text"),
    ):
        with pytest.raises(InvalidRequestError):
            attempt()
