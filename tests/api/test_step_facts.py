"""What the page asks of single steps: the text of their ids, and credit among their group."""

import pytest

from agentworld.config import ModelSettings
from agentworld.engines.tokenizer import load_tokenizer
from agentworld.records import NewTrajectory, Step
from tests.api.serving import Serving


def test_ids_are_told_as_text_where_the_vocabulary_is_here(server):
    model = ModelSettings(name="m", upstream="http://127.0.0.1:9", driver="vllm", tokenizer="byte", tokens="token-in")
    tokenizer = load_tokenizer("byte")
    name = tokenizer.digest.hex()
    ids = tokenizer.encode("a\u00e9")
    with Serving(models=(model,)) as serving:
        asked = ",".join(map(str, [*ids, 10**9, 2**32]))
        found = serving.get(f"/api/v1/pieces?vocabulary={name}&ids={asked}")
        assert found == (200, {"vocabulary": name, "pieces": ["a", "\\xc3", "\\xa9", None, None]})
        for wrong in ("x", "-1", "1.5", "9" * 11, ",".join("1" for _ in range(501))):
            assert serving.get(f"/api/v1/pieces?vocabulary={name}&ids={wrong}")[0] == 400, wrong
        assert serving.get("/api/v1/pieces?vocabulary=other&ids=1")[0] == 404
    assert server.get(f"/api/v1/pieces?vocabulary={name}&ids=1")[0] == 404


def grouped(pool, rewards):
    for number, reward in enumerate(rewards):
        name = f"t{number}"
        pool.create_trajectory(NewTrajectory(trajectory_id=name, group_id="g"))
        steps = [
            Step(step_id=f"{name}-{turn}", trajectory_id=name, prompt_ids=[1] * (turn + 1), response_ids=[2, 3])
            for turn in range(2)
        ]
        pool.append_steps(steps)
        if reward is not None:
            pool.complete_trajectory(name, "finished", reward)


def test_credit_is_that_of_the_method_among_the_group(server):
    grouped(server.pool, (0.0, 1.0, 0.5, None))
    status, found = server.get("/api/v1/credit?trajectory_id=t1&method=leave_one_out")
    assert (status, found["members"], found["method"]) == (200, 3, "leave_one_out")  # The open one is not served.
    assert [(each["step_id"], each["tokens"]) for each in found["steps"]] == [("t1-0", 2), ("t1-1", 2)]
    assert [each["credit"] for each in found["steps"]] == pytest.approx([0.75, 0.75])  # 1 - mean(0, 0.5)
    assert "gae" in found["methods"]
    refused = server.get("/api/v1/credit?trajectory_id=t3")
    assert refused[0] == 400
    assert "no reward" in refused[1]["error"]["message"]
    assert server.get("/api/v1/credit?trajectory_id=t1&method=leave_one")[0] == 400
    assert server.get("/api/v1/credit?trajectory_id=none")[0] == 404


def test_credit_of_too_large_a_group_is_refused(server, monkeypatch):
    grouped(server.pool, (0.0, 1.0))
    monkeypatch.setattr("agentworld.api.credit.MOST_STEPS", 3)
    assert "4 steps" in server.get("/api/v1/credit?trajectory_id=t0")[1]["error"]["message"]
    monkeypatch.setattr("agentworld.api.credit.MOST_MEMBERS", 1)
    assert server.get("/api/v1/credit?trajectory_id=t0")[0] == 400
