"""The demo's whole path with very little of each: every process, every stage, stopping and going on."""

import json
import signal

import msgspec
import pytest

from agentworld.cli import demo, invoke
from agentworld.demo import recipe, stages
from agentworld.demo.state import STAGES, DemoPlan
from agentworld.pool import open_store
from agentworld.trainers.checkpoint import latest_checkpoint, read_record

PLAN = DemoPlan(teacher_tasks=12, epochs=1, evaluation_tasks=2, iterations=2, groups=1, black_box_groups=1, rollouts=2)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(recipe, "quick_plan", lambda seed: msgspec.structs.replace(PLAN, seed=seed))


@pytest.mark.parametrize("plan", [recipe.full_plan(), recipe.quick_plan()])
def test_what_is_imitated_comes_in_batches_that_a_pool_hands_out(plan):
    spec, batches = stages.imitation(plan)
    sized = spec.resolved()
    assert sized.count * batches >= plan.teacher_tasks * len(recipe.TASK_SETS) > sized.count * (batches - 1)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_stops_goes_on_and_ends_with_a_trained_policy(small, tmp_path, capfd, monkeypatch):
    out = tmp_path / "demo"
    command = ["demo", "--quick", "--out", str(out)]

    # Ctrl-C after the first update by GRPO, between its checkpoint and the publication of its weights.
    publish = stages.Stages._publish

    def interrupted(self, trainer):
        if trainer.record.version == 3:
            raise KeyboardInterrupt
        publish(self, trainer)

    monkeypatch.setattr(stages, "MOST_UNITS", 16)  # Of 24 imitated trajectories, so in two batches.
    with monkeypatch.context() as patched:
        patched.setattr(stages.Stages, "_publish", interrupted)
        assert invoke(command) == 130
    assert "goes on after the last stage or update" in capfd.readouterr().out
    assert not (out / "metrics.json").exists()

    assert invoke(command) == 0
    output = capfd.readouterr().out
    assert "Going on after: collect, fine-tune, evaluate fine-tuned" in output
    assert "tokens if stored flat" in output

    metrics = json.loads((out / "metrics.json").read_text())
    assert set(metrics["seconds"]) == set(STAGES)
    assert [entry["version"] for entry in metrics["curve"]] == [2, 3]
    assert metrics["policy_version"] == 4
    assert all(both["improved"]["tasks"] == 2 for both in metrics["success"].values())
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    record = read_record(latest_checkpoint(out / "weights" / "improve"))
    assert len(set(record.applied)) == 2

    pool = open_store(f"sqlite:///{out}/pool.db")
    try:
        expert = pool.list_trajectories(channel="expert", limit=1000).items
        assert len(expert) == 24
        told = [event.data for event in pool.events(0, channel="metrics") if event.kind == "metrics.added"]
        said = {(each["run"], each["kind"], each["step"]) for each in told}
        assert {("improve", kind, step) for kind, step in (("evaluation", 2), ("train", 3), ("train", 4))} <= said
        assert ("improve", "evaluation", 4) in said
        losses = [each["step"] for each in told if each["run"] == "fine-tune" and "loss" in each["values"]]
        assert losses == [1, 2]  # One update for each of the two batches.
        assert all(each.reward == 1.0 for each in expert)
        trained = pool.list_trajectories(channel="train", limit=1000).items
        assert {each.agent for each in trained if each.status != "abandoned"} == {"loop", "openai"}
        steps = pool.list_steps(channel="train", limit=1000, include=("tokens", "logprobs")).items
        assert {step.policy.version for step in steps} == {2, 3}
        assert {step.token_source for step in steps} == {"token-in"}
        assert all(len(step.response_ids) == len(step.response_logprobs) for step in steps)
        assert pool.gateway_state().policies["pocket"].version == 4
        assert metrics["pool"]["steps"] == pool.stats().steps
    finally:
        pool.close()

    # Complete: the same command says so and shows the same table, without starting anything.
    assert invoke(command) == 0
    assert "is complete" in " ".join(capfd.readouterr().out.split())  # Long paths wrap the line.
    assert invoke([*command, "--seed", "1"]) == 1
    assert "other settings" in capfd.readouterr().err


def test_sigterm_stops_as_ctrl_c_does():
    with pytest.raises(KeyboardInterrupt):
        demo._interrupt(signal.SIGTERM, None)
