"""Curation over HTTP: sweeps that go on behind the answer, bodies, and what keys that are bound see and decide."""

import threading

import msgspec
import pytest

from agentworld.api import sweeps
from agentworld.errors import ForbiddenError, NotFoundError, PoolError
from agentworld.factory import connect
from agentworld.pool.keys import NewKey
from agentworld.pool.memory import MemoryPool
from agentworld.records import CurationPolicy, Decision, Evaluation, NewReview, NewTrajectory, Step
from tests.api.serving import Serving
from tests.api.test_errors import is_an_error

POLICY = {"rules": ["when reward < 0.5 then exclude 'low'"]}


def finished(pool, trajectory_id, channel="train", reward=1.0, **more):
    pool.create_trajectory(NewTrajectory(trajectory_id=trajectory_id, channel=channel, **more))
    pool.append_steps([Step(step_id=f"s-{trajectory_id}", trajectory_id=trajectory_id, channel=channel)])
    pool.complete_trajectory(trajectory_id, "finished", reward)


class LongSweep(MemoryPool):
    """Each change of a policy is in force at once and ends when `go` is set, telling of progress until then."""

    def __init__(self):
        super().__init__()
        self.go, self.calls, self.broken_off = threading.Event(), [], threading.Event()
        self.fault = None

    def _sweep(self, name, change, progress):
        self.calls.append(name)
        try:
            while True:
                progress("decide", 1, 2)
                if self.go.wait(0.01):
                    break
        except Exception:
            self.broken_off.set()
            raise
        if self.fault is not None:
            raise self.fault
        return change

    def set_curation(self, policy, *, source="api", progress=None):
        change = super().set_curation(policy, source=source)
        return self._sweep("set", change, progress)

    def clear_curation(self, channel, *, progress=None):
        change = super().clear_curation(channel)
        return self._sweep("clear", change, progress)

    def curation(self, channel=None):
        return self._pending(super().curation(channel))

    def list_curations(self, channel=None, *, limit=100):
        return self._pending(super().list_curations(channel, limit=limit))

    def _pending(self, found):
        return [msgspec.structs.replace(one, pending=0 if self.go.is_set() else 7) for one in found]


@pytest.fixture
def slow():
    with Serving(LongSweep()) as running:
        yield running
        running.pool.go.set()


def put(server, query="", body=POLICY):
    status, _, reply = server.send("PUT", f"/api/v1/curation{query}", body)
    return status, reply


def test_a_policy_is_in_force_while_its_sweep_goes_on(slow, monkeypatch):
    status, active = put(slow)
    assert (status, active["pending"], active["source"]) == (200, 7, "api")
    # The same again joins it, and who waits is answered with what is pending before any time-out.
    monkeypatch.setattr(sweeps, "LONGEST_WAIT", 0.3)
    assert put(slow, "?wait=true")[1]["pending"] == 7
    assert slow.pool.calls == ["set"]
    slow.pool.go.set()
    assert put(slow, "?wait=true")[1] == {**active, "pending": 0}


def test_so_is_one_taken_away(slow):
    put(slow)
    status, _, reply = slow.send("DELETE", "/api/v1/curation?channel=train")
    assert (status, reply) == (200, {"cleared": True, "pending": 7})
    slow.pool.go.set()
    assert slow.send("DELETE", "/api/v1/curation?channel=train&wait=true")[2]["pending"] == 0
    assert slow.send("DELETE", "/api/v1/curation?channel=none&wait=true")[2] == {"cleared": False, "pending": 0}
    assert slow.send("DELETE", "/api/v1/curation")[0] == 400


def test_the_end_of_the_server_breaks_a_sweep_off(slow):
    put(slow)
    slow.end_streams()
    assert slow.pool.broken_off.wait(100)
    status, reply = put(slow)
    assert (status, reply["error"]["code"]) == (503, "shutting_down")


def test_who_waits_is_told_what_a_sweep_failed_with(slow):
    slow.pool.fault = PoolError("the disk is on fire")
    put(slow)
    slow.pool.go.set()
    status, reply = put(slow, "?wait=true", {**POLICY, "name": "again"})
    assert (status, reply["error"]["message"]) == (503, "the disk is on fire")


@pytest.mark.parametrize(
    ("method", "path", "body", "said", "where"),
    [
        ("PUT", "curation", {"rules": ["when reward <"]}, "rule 1: ", "rules[0]"),
        ("PUT", "curation", {"ruls": []}, "unknown field", "$"),
        ("PUT", "curation", {"rules": "when"}, "Expected `array`", "$.rules"),
        ("PUT", "curation", {"rules": [], "default": "perhaps"}, "Invalid enum value", "$.default"),
        ("PUT", "curation", {"rules": [], "channel": "x" * 300}, "300 characters", "channel"),
        ("POST", "curation/try", {"rules": ["when has reward then rady"]}, "position 21", "rules[0]"),
        ("POST", "curation/try", {"rules": [], "limit": 0}, ">= 1", "$.limit"),
        ("POST", "decisions", {"verdict": "exclude", "trajectory_id": "a"}, "needs a reason", "decisions[0].reason"),
        ("POST", "decisions", {"verdict": "exclude", "reason": "x"}, "needs trajectory_id or step_id", "$"),
        ("POST", "decisions", [{"verdict": "ready", "step": "a"}], "unknown field", "$[0]"),
        ("POST", "decisions", {"decisions": [{"verdict": "ready", "trajectory_id": "a", "rule": 1}]}, "only a policy",
         "decisions[0]"),
        ("POST", "reviews", {"trajectory_id": "a", "reason": ""}, "needs its reason", "reviews[0].reason"),
        ("POST", "reviews/claim", {}, "missing required field `by`", "$"),
        ("POST", "reviews/claim", {"by": "x", "seconds": 0}, "from 1 to", "seconds"),
        ("POST", "reviews/1/resolve", {"by": "x", "verdict": "maybe"}, "Invalid enum value", "$.verdict"),
        ("GET", "reviews?review_state=lost", None, "none of these", "state"),
        ("GET", "decisions", None, "is needed", "step_id"),
        ("GET", "evaluations?target=run&target_id=a", None, "none of these", "target"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_is_named(server, method, path, body, said, where):
    status, _, reply = server.send(method, f"/api/v1/{path}", body)
    assert status == 400, reply
    assert is_an_error(reply)
    assert said in reply["error"]["message"]
    assert reply["error"]["path"] == where


def test_one_decision_or_review_or_a_list_is_taken(server):
    finished(server.pool, "a")
    one = {"verdict": "exclude", "reason": "no", "trajectory_id": "a", "source": "ann"}
    assert server.post("/api/v1/decisions", one) == (200, {"changed": 1})
    assert server.post("/api/v1/decisions", [one]) == (200, {"changed": 0})
    assert server.post("/api/v1/decisions", {"decisions": [{**one, "verdict": None}]}) == (200, {"changed": 1})
    asked = {"reason": "odd", "step_id": "s-a"}
    assert server.post("/api/v1/reviews", asked) == (200, {"changed": 1})
    assert server.post("/api/v1/reviews/claim", {"by": "ann"})[1]["step_id"] == "s-a"
    assert server.post("/api/v1/reviews/claim", {"by": "bob"}) == (204, b"")
    assert server.get("/api/v1/reviews/x")[0] == 404
    assert server.get("/api/v1/steps/none/standing")[1]["error"]["path"] == "step_id"


def test_a_server_tries_a_policy_on_the_latest_only_where_it_is_not_asked_for_more(server, monkeypatch):
    told = []
    real = server.pool.try_curation
    monkeypatch.setattr(server.pool, "try_curation", lambda *sent, **more: told.append(more) or real(*sent, **more))
    assert server.post("/api/v1/curation/try", POLICY)[0] == 200
    assert server.post("/api/v1/curation/try", {**POLICY, "limit": None, "samples": 0})[0] == 200
    assert told == [{"samples": 5, "limit": 10_000}, {"samples": 0, "limit": None}]


# --- keys that are bound --------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def held():
    """A server that requires keys, with a trajectory in each of two channels, and clients by what their key is for."""
    with Serving(require_keys=True) as server:
        pool = server.pool
        finished(pool, "v", "val", group_id="gv", group_size=1)
        finished(pool, "w", "val", group_id="gw", group_size=1)
        finished(pool, "t", "train", group_id="gt", group_size=1)
        # A trajectory of one channel with a step in another.
        pool.create_trajectory(NewTrajectory(trajectory_id="mixed", channel="train"))
        pool.append_steps([Step(step_id="s-mixed", trajectory_id="mixed", channel="val")])
        pool.complete_trajectory("mixed", "finished", 1.0)
        pool.set_curation(CurationPolicy(rules=("when reward < 0.5 then exclude 'low'",), channel="train"))
        pool.set_curation(CurationPolicy(rules=("when reward < 0.1 then exclude 'bad'",), channel="val"))
        digests = {"fingerprint": b"f" * 16, "content": b"c" * 16, "state": "ok"}
        pool.put_evaluations(
            [Evaluation(evaluator="e", target="trajectory", target_id=one, **digests) for one in ("v", "t")]
            + [Evaluation(evaluator="e", target="group", target_id="gv", **digests)]
        )
        pool.add_reviews([NewReview(trajectory_id=one, reason="look", worth=0.5) for one in ("t", "v", "w")])
        made = {
            "val": NewKey(name="val", scopes=("write", "read"), channel="val"),
            "one": NewKey(name="one", scopes=("write", "read"), trajectory_id="v"),
            "free": NewKey(name="free", scopes=("write", "read")),
        }
        clients = {name: connect(server.url, api_key=pool.create_key(new).secret) for name, new in made.items()}
        yield clients, pool
        for client in clients.values():
            client.close()


def test_a_policy_is_for_admins_to_put_in_force(held):
    clients, pool = held
    before = pool.curation()
    policy = CurationPolicy(rules=(), channel="val")
    for client in clients.values():
        for refused in (lambda one=client: one.set_curation(policy), lambda one=client: one.clear_curation("val")):
            with pytest.raises(ForbiddenError, match="admin"):
                refused()
    assert pool.curation() == before
    assert clients["free"].try_curation(policy).trajectories == 2


def test_a_key_of_a_channel_sees_and_decides_that_channel(held):
    val, pool = held[0]["val"], held[1]
    assert [one.policy.channel for one in val.curation()] == ["val"]
    assert {one.policy.channel for one in val.list_curations()} == {"val"}
    assert val.try_curation(CurationPolicy(rules=(), channel="val")).trajectories == 2
    assert val.explain_standing(trajectory_id="v").trajectory_id == val.explain_standing(step_id="s-v").trajectory_id
    assert val.decide([Decision(verdict="exclude", trajectory_id="v", reason="no")]) == 1
    assert [one.reason for one in val.decisions(trajectory_id="v")] == ["no"]
    assert val.decide([Decision(verdict=None, trajectory_id="v")]) == 1
    assert {one.channel for one in val.list_reviews().items} == {"val"}
    claimed = val.claim_review("ann")
    assert claimed.channel == "val"
    val.skip_review(claimed.review_id, "ann")
    assert [one.target_id for one in val.list_evaluations(target="group", target_id="gv").items] == ["gv"]
    [theirs] = pool.list_reviews(channel="train").items
    for unseen in (
        lambda: val.explain_standing(trajectory_id="t"),
        lambda: val.explain_standing(step_id="s-t"),
        lambda: val.explain_standing(step_id="s-mixed"),
        lambda: val.decisions(trajectory_id="t"),
        lambda: val.decide([Decision(verdict="ready", trajectory_id="v"), Decision(verdict="ready", step_id="s-t")]),
        lambda: val.add_reviews([NewReview(trajectory_id="t", reason="x")]),
        lambda: val.get_review(theirs.review_id),
        lambda: val.skip_review(theirs.review_id, "ann"),
        lambda: val.resolve_review(theirs.review_id, "ann", "accept"),
        lambda: val.undo_review(theirs.review_id, "ann"),
        lambda: val.list_evaluations(target="trajectory", target_id="t"),
        lambda: val.list_evaluations(target="group", target_id="gt"),
    ):
        with pytest.raises(NotFoundError):
            unseen()
    for refused in (
        lambda: val.curation("train"),
        lambda: val.list_curations("train"),
        lambda: val.try_curation(CurationPolicy(rules=())),
        lambda: val.list_reviews(channel="train"),
        lambda: val.claim_review("ann", channel="train"),
        val.list_evaluations,
    ):
        with pytest.raises(ForbiddenError):
            refused()
    assert pool.decisions(trajectory_id="v") == pool.decisions(trajectory_id="t") == []


def test_a_key_of_a_trajectory_sees_and_decides_that_trajectory(held):
    one, pool = held[0]["one"], held[1]
    assert one.explain_standing(step_id="s-v").readiness
    assert one.decide([Decision(verdict="exclude", step_id="s-v", reason="mine")]) == 1
    assert [each.reason for each in one.decisions(trajectory_id="v")] == ["mine"]
    assert one.decide([Decision(verdict=None, step_id="s-v")]) == 1
    assert [each.trajectory_id for each in one.list_reviews().items] == ["v"]
    assert [each.target_id for each in one.list_evaluations().items] == ["v"]
    [other] = [each for each in pool.list_reviews().items if each.trajectory_id == "w"]
    for unseen in (
        lambda: one.explain_standing(trajectory_id="w"),
        lambda: one.decide([Decision(verdict="ready", trajectory_id="w")]),
        lambda: one.resolve_review(other.review_id, "me", "accept"),
        lambda: one.list_evaluations(target="group", target_id="gv"),
    ):
        with pytest.raises(NotFoundError):
            unseen()
    for refused in (
        one.curation,
        one.list_curations,
        lambda: one.try_curation(CurationPolicy(rules=())),
        lambda: one.claim_review("me"),
    ):
        with pytest.raises(ForbiddenError, match="trajectory 'v' alone"):
            refused()


def test_an_agent_decides_nothing_about_its_own_trajectory(held):
    clients, pool = held
    started = clients["free"].start_trajectory(NewTrajectory(trajectory_id="own"))
    clients["free"].complete_trajectory("own", "finished", 0.0)
    clients["free"].add_reviews([NewReview(trajectory_id="own", reason="look")])
    [review] = [one for one in pool.list_reviews().items if one.trajectory_id == "own"]
    with connect(clients["free"].url, api_key=started.api_key) as agent:
        for refused in (
            lambda: agent.decide([Decision(verdict="ready", trajectory_id="own")]),
            lambda: agent.resolve_review(review.review_id, "me", "accept"),
            lambda: agent.skip_review(review.review_id, "me"),
            lambda: agent.undo_review(review.review_id, "me"),
        ):
            with pytest.raises(ForbiddenError, match="decides nothing about it"):
                refused()
        assert agent.add_reviews([NewReview(trajectory_id="own", reason="please", worth=0.6)]) == 1
    assert pool.get_trajectory("own").readiness == "excluded"
