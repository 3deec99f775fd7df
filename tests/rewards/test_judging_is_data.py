"""A judge that is asked through the gateway: each judgement is a trajectory that names what it judged."""

import json

import pytest

from agentworld.config import ModelSettings
from agentworld.errors import ConfigError
from agentworld.rewards import EvaluationError, checked
from agentworld.rewards.registry import make_evaluator
from agentworld.rewards.running import RunSettings, plan_of, run_rewards
from agentworld.testing import ScriptedEngine
from tests.api.serving import Serving
from tests.rewards.pools import put
from tests.rewards.runs import group_of, run_of


@pytest.fixture(name="replies")
def replies_of_the_judge():
    return []


@pytest.fixture(name="server")
def gateway(replies):
    with ScriptedEngine(lambda request: replies.pop(0)) as engine:
        model = ModelSettings(name="scripted", upstream=engine.url, driver="builtin", tokens="engine")
        with Serving(models=(model,)) as server:
            yield server


def judge(server, kind="judge", **settings):
    fields = {"kind": kind, "name": "quality", "model": "scripted", "url": f"{server.url}/v1", **settings}
    return make_evaluator(fields, "test")


def score(value):
    return json.dumps({"reason": "so", "score": value})


def test_a_judgement_is_a_trajectory_that_names_what_it_judged(server, replies):
    replies += ["what?", score(10)]
    verdict = checked(judge(server), run_of("my work", trajectory_id="judged-1"))["judged-1"]
    assert verdict.values == {"reward": 1.0}
    (judgement,) = server.pool.list_trajectories().items
    assert (judgement.channel, judgement.status, judgement.agent) == ("judge", "finished", "judge:quality")
    assert judgement.metadata["judged"] == ["judged-1"]
    assert judgement.metadata["evaluator"] == "quality"
    steps = server.pool.list_steps(trajectory_id=judgement.trajectory_id, include=("messages",)).items
    assert [step.response_message.text for step in steps] == ["what?", score(10)]
    assert {step.channel for step in steps} == {"judge"}
    assert "my work" in steps[0].prompt_messages[1].text


def test_a_judgement_that_fails_is_a_failed_trajectory(server, replies):
    replies += ["what?", "what?"]
    with pytest.raises(EvaluationError, match="cannot be read"):
        checked(judge(server), run_of("my work"))
    (judgement,) = server.pool.list_trajectories().items
    assert (judgement.status, judgement.step_count) == ("failed", 2)


def test_a_comparison_names_both_in_each_order(server, replies):
    replies += [json.dumps({"reason": "", "better": letter}) for letter in "AB"]
    verdicts = checked(judge(server, "judge_pairwise"), group_of("x", "y"))
    assert [each.values["reward"] for each in verdicts.values()] == [1.0, 0.0]
    judged = [each.metadata["judged"] for each in server.pool.list_trajectories().items]
    assert sorted(judged) == [["t0", "t1"], ["t1", "t0"]]


def test_the_address_of_a_gateway_ends_in_v1(server):
    with pytest.raises(EvaluationError, match="ends in /v1"):
        checked(judge(server, url=server.url), run_of("x"))


def test_no_server_is_a_failed_evaluation():
    made = make_evaluator({"kind": "judge", "model": "m", "url": "http://127.0.0.1:9/v1", "retries": 0}, "test")
    with pytest.raises(EvaluationError, match="gave no answer") as caught:
        checked(made, run_of("x"))
    assert "The evaluator's `url`" in caught.value.hint


def test_judgements_are_not_judged_unless_their_channel_is_named(server, replies):
    put(server.pool, "a-1", "my work")
    plan = plan_of([judge(server), make_evaluator({"kind": "length", "name": "length", "free": 5, "limit": 9}, "test")])
    replies.append(score(10))
    for expected in (1, 0, 0):
        report = run_rewards(server.pool, plan, RunSettings())
        assert (report.trajectories, report.failed) == (expected, 0)
    assert len(server.pool.list_trajectories(channel="judge").items) == 1
    report = run_rewards(server.pool, plan_of(plan.evaluators[1:]), RunSettings(channel="judge"))
    assert report.trajectories == 1
    with pytest.raises(ConfigError, match="would judge channel 'judge', where its own judgements are"):
        run_rewards(server.pool, plan, RunSettings(channel="judge"))
