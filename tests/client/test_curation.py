"""Curation with the same words on a pool in this process and over HTTP."""

import asyncio
import base64
import inspect

import msgspec
import pytest

from agentworld.client import AsyncFactory
from agentworld.client import curation as client_curation
from agentworld.client.absent import NOT_OVER_HTTP
from agentworld.client.curation import AsyncCurationMethods, CurationMethods
from agentworld.client.evaluations import AsyncEvaluationMethods, EvaluationMethods
from agentworld.errors import ConflictError, InvalidRequestError, NotFoundError, QueryError
from agentworld.factory import connect, open_pool
from agentworld.pool import open_store
from agentworld.pool.curation_methods import CurationMethods as PoolWords
from agentworld.pool.memory import MemoryPool
from agentworld.records import (
    BatchSpec,
    CurationPolicy,
    Decision,
    Evaluation,
    Feedback,
    NewReview,
    NewTrajectory,
    Reward,
    Step,
)
from tests.api.serving import Serving

LOW = CurationPolicy(rules=("when reward < 0.5 then exclude 'low'", "steps when model == 'x' then tag odd"), name="p")


class InLoop:
    """The curation methods of an AsyncFactory called one after another, and all else of a Factory."""

    def __init__(self, url):
        self._url = url
        self._rest = connect(url)

    def __getattr__(self, name):
        if not hasattr(AsyncCurationMethods, name) and not hasattr(AsyncEvaluationMethods, name):
            return getattr(self._rest, name)

        async def called(*args, **fields):
            async with AsyncFactory(self._url) as factory:
                return await getattr(factory, name)(*args, **fields)

        return lambda *args, **fields: asyncio.run(called(*args, **fields))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._rest.close()


def public(kind):
    return {
        name: inspect.signature(method)
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_the_methods_for_event_loops_are_those_for_threads():
    assert public(AsyncCurationMethods) == public(CurationMethods)
    assert public(AsyncEvaluationMethods) == public(EvaluationMethods)
    ours = {*public(CurationMethods), *public(EvaluationMethods)}
    assert all(map(inspect.iscoroutinefunction, (getattr(AsyncFactory, name) for name in ours)))
    pool = {name for name, _ in inspect.getmembers(PoolWords, inspect.isfunction) if not name.startswith("_")}
    assert pool - set(NOT_OVER_HTTP) <= ours


@pytest.fixture(params=["http", "loop", "embedded"])
def factory(request, tmp_path):
    """The same surface three times, on SQLite."""
    url = f"sqlite:///{tmp_path}/pool.db"
    if request.param == "embedded":
        with open_pool(url) as pool:
            yield pool
    else:
        opened = InLoop if request.param == "loop" else connect
        with Serving(open_store(url)) as running, opened(running.url) as connected:
            connected.serving = running
            yield connected


def finished(factory, trajectory_id, reward, **more):
    factory.create_trajectory(NewTrajectory(trajectory_id=trajectory_id, **more))
    fields = {"prompt_ids": [1], "response_ids": [2], "response_logprobs": [-1.0], "token_source": "submitted"}
    factory.append_steps([Step(step_id=f"s-{trajectory_id}", trajectory_id=trajectory_id, **fields)])
    factory.complete_trajectory(trajectory_id, "finished", reward)


def leased(factory, consumer):
    spec = BatchSpec(unit="trajectory", size=10, min_size=1)
    batch = factory.lease(spec, consumer)
    return [] if batch is None else sorted(item.key for item in batch.items)


def test_a_policy_is_tried_put_in_force_and_taken_away(factory):
    finished(factory, "a", 0.1)
    finished(factory, "b", 0.9)
    told = []
    preview = factory.try_curation(LOW, progress=lambda *each: told.append(each))
    assert (preview.trajectories, preview.by_rule, preview.samples) == (2, {0: 1, 1: 1}, {0: ["b"], 1: ["a"]})
    assert (preview.changes, preview.whole) == ({"ready -> excluded": 1}, True)
    assert told[-1] == ("look", 2, 2)
    assert not factory.try_curation(LOW, limit=1, samples=0).whole
    assert factory.curation() == []
    told.clear()
    active = factory.set_curation(LOW, source="me", progress=lambda *each: told.append(each))
    assert (active.policy, active.pending, active.source, active.version) == (LOW, 0, "me", preview.version)
    assert told[-1][0] == "decide"
    assert leased(factory, "one") == ["b"]
    assert factory.set_curation(LOW) == active
    assert factory.curation("train") == factory.curation() == [active]
    assert factory.curation("other") == []
    assert factory.clear_curation("train")
    assert not factory.clear_curation("train")
    assert leased(factory, "two") == ["a", "b"]
    [past] = factory.list_curations("train", limit=5)
    assert past.ended_at is not None
    assert past.pending == 0


def test_decisions_and_why_things_stand_as_they_do(factory):
    finished(factory, "a", 0.1)
    factory.set_curation(LOW)
    assert factory.decide([Decision(verdict="ready", trajectory_id="a", reason="looked at", source="ann")]) == 1
    assert leased(factory, "one") == ["a"]
    found = factory.explain_standing(trajectory_id="a")
    assert (found.readiness, found.reasons) == ("ready", ())
    assert [(one.number, one.holds, one.decided) for one in found.rules] == [(1, True, True)]
    assert {(one.verdict, one.by) for one in found.decisions} == {("ready", "manual"), ("exclude", "policy")}
    assert factory.decide([Decision(verdict="exclude", step_id="s-a", reason="bad step")]) == 1
    assert "manual: bad step" in factory.explain_standing(step_id="s-a").reasons
    assert [one.reason for one in factory.decisions(step_id="s-a")] == ["bad step"]
    assert len(factory.decisions(trajectory_id="a")) == 3
    assert factory.decide([Decision(verdict=None, step_id="s-a"), Decision(verdict=None, trajectory_id="a")]) == 2
    assert factory.explain_standing(trajectory_id="a").reasons == ("rule: low",)
    for wrong in (
        lambda: factory.explain_standing(trajectory_id="none"),
        lambda: factory.explain_standing(step_id="none"),
        lambda: factory.decide([Decision(verdict="ready", trajectory_id="none")]),
    ):
        with pytest.raises(NotFoundError):
            wrong()
    for wrong in (
        lambda: factory.explain_standing(),
        lambda: factory.decisions(trajectory_id="a", step_id="s-a"),
        lambda: factory.decide([Decision(verdict="exclude", trajectory_id="a")]),
        lambda: factory.decide(["exclude"]),
        lambda: factory.set_curation("when"),
        lambda: factory.get_review("1"),
        lambda: factory.add_reviews([3]),
    ):
        with pytest.raises(InvalidRequestError):
            wrong()


def test_reviews(factory):
    finished(factory, "a", 1.0)
    finished(factory, "b", 1.0)
    assert factory.claim_review("ann") is None
    sent = [NewReview(trajectory_id="a", reason="odd", worth=0.9), NewReview(step_id="s-b", reason="why", worth=0.2)]
    assert factory.add_reviews(sent) == 2
    first = factory.claim_review("ann", seconds=60)
    assert (first.trajectory_id, first.state, first.worth) == ("a", "claimed", 0.9)
    page = factory.list_reviews(limit=1)
    rest = factory.list_reviews(limit=1, cursor=page.next_cursor)
    assert [one.reason for one in (*page.items, *rest.items)] == ["odd", "why"]
    assert [one.step_id for one in factory.list_reviews(state="open", channel="train").items] == ["s-b"]
    assert factory.skip_review(first.review_id, "ann").skipped_by == ("ann",)
    second = factory.claim_review("ann", channel="train")
    assert second.step_id == "s-b"
    with pytest.raises(ConflictError, match="with 'ann'"):
        factory.resolve_review(second.review_id, "bob", "accept")
    done = factory.resolve_review(second.review_id, "ann", "reject", "wrong")
    assert (done.state, done.verdict) == ("done", "reject")
    assert factory.get_step("s-b").excluded_reason == "manual: wrong"
    assert factory.get_review(second.review_id) == done
    assert factory.undo_review(second.review_id, "ann").state == "open"
    with pytest.raises(ConflictError, match="no verdict"):
        factory.undo_review(second.review_id, "ann")
    with pytest.raises(NotFoundError):
        factory.get_review(99)


def said(target_id, **more):
    fields = {"fingerprint": b"f" * 16, "content": b"c" * 16, "state": "ok", "values": {"reward": 1.0}} | more
    return Evaluation(evaluator="e", target="trajectory", target_id=target_id, **fields)


def test_what_evaluators_said_goes_to_and_fro(factory):
    finished(factory, "a", 1.0)
    finished(factory, "b", 1.0)
    pool = factory.serving.pool if hasattr(factory, "serving") else factory
    failure = {"state": "failed", "values": {}, "error": "\x1b[31mtimed out \ud800"}
    sent = [said("a", details={"why": [1, None]}), said("b", **failure), said("nobody")]
    assert factory.put_evaluations(sent) == 2
    assert factory.known_evaluations(b"f" * 16, [b"c" * 16, b"d" * 16]) == {
        b"c" * 16: factory.list_evaluations(state="ok").items[0]
    }
    begun = factory.save_follower("reward:r", 3, b"\0\xff")
    assert factory.load_follower("reward:r") == begun
    assert (begun.state, begun.position) == (b"\0\xff", 3)
    with pytest.raises(ConflictError):
        factory.save_follower("reward:r", 4)
    found = factory.list_evaluations()
    assert found == pool.list_evaluations()
    assert [one.error for one in factory.list_evaluations(state="failed", evaluator="e").items] == [failure["error"]]
    assert factory.list_evaluations(target="trajectory", target_id="a").items[0].details == {"why": [1, None]}
    assert factory.explain_standing(trajectory_id="b").failures == {"e": failure["error"]}
    with pytest.raises(InvalidRequestError):
        factory.list_evaluations(target="trajectory")
    if pool is factory:
        return
    raw = factory.serving.get("/api/v1/evaluations?target=trajectory&target_id=a")[1]["items"][0]
    assert base64.b64decode(raw["fingerprint"]) == b"f" * 16


def test_a_policy_that_cannot_be_read_names_rule_position_and_what_to_write(factory):
    for call in (factory.set_curation, factory.try_curation):
        with pytest.raises(QueryError) as caught:
            call(CurationPolicy(rules=("when has reward then ready", "when rewrd < 1 then exclude 'x'")))
        assert caught.value.message.startswith("rule 2: ")
        assert "position 5" in caught.value.message
        assert (caught.value.path, caught.value.hint) == ("rules[1]", "Did you mean reward?")
    assert factory.curation() == []


class Slow(MemoryPool):
    """Says that something is pending until as many have asked for the policy as it takes."""

    def __init__(self, calls_needed):
        super().__init__()
        self.calls_left = calls_needed

    def set_curation(self, policy, **more):
        self.calls_left -= 1
        super().set_curation(policy, **more)
        return self.curation(policy.channel)[0]

    def curation(self, channel=None):
        pending = 3 if self.calls_left > 0 else 0
        return [msgspec.structs.replace(one, pending=pending) for one in super().curation(channel)]


@pytest.mark.parametrize("connect", [connect, InLoop])
def test_the_client_makes_a_server_go_on_with_what_was_broken_off(monkeypatch, connect):
    monkeypatch.setattr(client_curation, "STALLED_SECONDS", 0.0)
    told = []
    with Serving(Slow(3)) as server, connect(server.url) as factory:
        active = factory.set_curation(LOW, progress=lambda *each: told.append(each))
        assert (active.pending, server.pool.calls_left) == (0, 0)
        assert told[0] == ("decide", 0, 3)
        assert told[-1] == ("decide", 3, 3)


def test_it_does_not_wait_for_the_policy_of_somebody_else(monkeypatch):
    other = CurationPolicy(rules=("when has reward then ready",))
    with Serving(Slow(1000)) as server, connect(server.url) as factory:

        def replaced(stage, done, total):
            server.pool.set_curation(other)

        assert factory.set_curation(LOW, progress=replaced).policy == LOW


def test_labels_and_rewards_decide_anew_over_http():
    with Serving() as server, connect(server.url) as factory:
        finished(factory, "a", 0.1)
        factory.set_curation(LOW)
        assert leased(factory, "one") == []
        factory.add_rewards([Reward(value=0.7, trajectory_id="a")])
        assert leased(factory, "one") == ["a"]
        factory.set_curation(CurationPolicy(rules=("when label.bad then exclude 'bad'",)))
        factory.add_feedback([Feedback(kind="label", trajectory_id="a", name="bad", value=True)])
        assert leased(factory, "two") == []
