"""What filters can be made of."""

import itertools
from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.api.facets import BUCKETS, bucketed
from agentworld.pool.keys import NewKey
from agentworld.query.fields import fields_of
from agentworld.query.parser import MAX_DEPTH
from agentworld.records import Message, NewReview, NewTrajectory, Step, TextPart
from tests.api.serving import Serving
from tests.examples import examples


def filled(pool):
    for number in range(6):
        channel = "val" if number == 5 else "train"
        task = {"task_set": "sums"} if number % 2 else None
        name = f"t{number}"
        pool.create_trajectory(NewTrajectory(trajectory_id=name, channel=channel, agent=f"a{number % 2}", task=task))
        if number:
            pool.complete_trajectory(name, "finished", number / 4)


def counts(found, name):
    return {each["value"]: each["count"] for each in found["values"][name]}


def test_fields_are_those_of_the_language(server):
    for subject in ("trajectories", "steps"):
        status, page = server.get(f"/api/v1/fields?subject={subject}")
        assert status == 200
        assert [each["name"] for each in page["items"]] == [field.name for field in fields_of(subject)]
    by_name = {each["name"]: each for each in server.get("/api/v1/fields")[1]["items"]}
    assert (by_name["status"]["indexed"], by_name["agent"]["indexed"]) == (True, False)
    assert (by_name["label"]["keys"], by_name["label"]["plain"], by_name["task"]["keys"]) == ("NAME", False, "PATH")
    assert server.get("/api/v1/fields?subject=groups")[0] == 400


def test_facets_count_what_matches_and_say_where_they_stopped(server):
    filled(server.pool)
    found = server.get("/api/v1/facets")[1]
    assert (found["looked"], found["whole"], found["unrewarded"]) == (6, True, 1)
    assert counts(found, "status") == {"open": 1, "finished": 5}
    assert counts(found, "channel") == {"train": 5, "val": 1}
    assert counts(found, "task.task_set") == {None: 3, "sums": 3}
    assert sum(each["count"] for each in found["rewards"]) == 5
    some = server.get(f"/api/v1/facets?where={quote('reward > 0.5 and agent == ' + repr('a1'))}")[1]
    assert (some["looked"], counts(some, "agent")) == (2, {"a1": 2})
    capped = server.get("/api/v1/facets?limit=2")[1]
    assert (capped["looked"], capped["whole"]) == (2, False)
    assert counts(capped, "channel") == {"train": 1, "val": 1}  # The newest two.
    deepest = server.get(f"/api/v1/facets?where={quote('(' * MAX_DEPTH + 'has reward' + ')' * MAX_DEPTH)}")[1]
    assert deepest["looked"] == 5  # Nothing more can be asked around it.
    assert "review" not in deepest["values"]
    assert server.get("/api/v1/facets?where=rewrad")[1]["error"]["code"] == "invalid_query"
    assert server.get("/api/v1/facets?limit=10001")[0] == 400


def test_rows_begin_with_what_was_asked_and_tell_of_their_reviews(server):
    filled(server.pool)
    block = TextPart("<system-reminder>\n<b>x</b>\n</system-reminder>")
    said = Message(role="user", content=(block, TextPart("  Fix\n\n it: " + "x" * 300)))
    steps = [
        Step(step_id="a", trajectory_id="t1", prompt_messages=[Message(role="system", content="You"), said]),
        Step(step_id="b", trajectory_id="t1", prompt_messages=[Message(role="user", content="Later")]),
        Step(step_id="c", trajectory_id="t2", prompt_messages=[Message(role="user", content=(block,))]),
    ]
    server.pool.append_steps(steps)
    server.pool.create_trajectory(NewTrajectory(trajectory_id="t6", task={"prompt": "How  many?"}))
    server.pool.add_reviews([NewReview(trajectory_id=f"t{number}", reason="look") for number in range(5)])
    for verdict in ("accept", "reject"):
        server.pool.resolve_review(server.pool.claim_review("ann").review_id, "ann", verdict)
    for who in ("ann", "bob"):
        server.pool.skip_review(server.pool.claim_review(who).review_id, who)
    server.pool.claim_review("bob")
    items = server.get("/api/v1/previews?trajectory_ids=t6,t2,t1,none,t3,t0,t5")[1]["items"]
    assert [(each["trajectory_id"], each["review"]) for each in items] == [
        ("t6", None), ("t2", "skipped"), ("t1", "rejected"), ("t3", "waiting"), ("t0", "accepted"), ("t5", None),
    ]  # fmt: skip
    asked = {each["trajectory_id"]: each["prompt"] for each in items}
    assert (asked["t6"], asked["t3"]) == ("How many?", None)
    assert asked["t1"] == ("Fix it: " + "x" * 300)[:240] + "…"
    assert asked["t2"] == "<system-reminder> <b>x</b> </system-reminder>"
    assert server.get("/api/v1/previews?trajectory_ids=" + ",".join(f"t{n}" for n in range(101)))[0] == 400
    kinds = {"waiting": 1, "skipped": 1, "accepted": 1, "rejected": 1}
    assert counts(server.get("/api/v1/facets")[1], "review") == {**kinds, "waiting": 2, None: 2}
    found = server.get("/api/v1/review-counts?by=ann")[1]
    assert found == {**kinds, "claimed": 1, "withdrawn": 0, "whole": True}
    assert server.get("/api/v1/review-counts")[1] == {**found, "waiting": 2, "skipped": 0}


def test_a_bound_key_counts_its_own_channel_alone():
    with Serving(require_keys=True) as server:
        filled(server.pool)
        secret = server.pool.create_key(NewKey(name="val", scopes=("read",), channel="val")).secret
        found = server.get("/api/v1/facets", Authorization=f"Bearer {secret}")[1]
        assert (found["looked"], counts(found, "channel")) == (1, {"val": 1})
        assert server.get("/api/v1/facets?channel=train", Authorization=f"Bearer {secret}")[0] == 403


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=30))
def test_buckets_hold_every_value_once(values):
    found = bucketed(values)
    assert sum(each.count for each in found) == len(values)
    assert len(found) <= BUCKETS
    assert all(before.high <= after.low for before, after in itertools.pairwise(found))
    if values:
        assert found[0].low == min(values)
        assert found[-1].high == max(values)
