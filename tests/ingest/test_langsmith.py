"""LangSmith's runs: trees, lists and batches of them, and feedback on them."""

import json
from pathlib import Path

from agentworld.ingest.reading import read_path
from tests.ingest.shapes import lineage, said

FIXTURES = Path(__file__).parent / "fixtures" / "langsmith"


def test_a_tree_of_runs():
    (run,), notes = read_path("langsmith", FIXTURES / "tree.json")

    assert lineage(run) == ["0 <- -: 1 => assistant(null; weather)", "1 <- 0: 3 => assistant(Rain.)"]
    assert run.trailing == []  # The next prompt shows what the tool said.
    assert (run.native_id, run.user, run.metadata["session"], run.metadata["project"]) == (
        "ls-1",
        "u-5",
        "th-1",
        "tests",
    )
    assert [(reward.name, reward.value, reward.step) for reward in run.rewards] == [
        ("helpful", 0.5, None),
        ("short", 1.0, "1"),
    ]
    assert [(label.name, label.value) for label in run.feedback] == [("tone", "calm")]
    step = run.steps[0]
    assert (step.model, step.requested_model, step.finish_reason) == ("gpt-like-1", "gpt-like", "tool_calls")
    assert (step.sampling.temperature, step.usage.prompt_tokens, len(step.tools)) == (0.3, 10, 1)
    assert [(note.lost, note.place) for note in notes] == [(False, "$.child_runs[3]")]


def test_langchain_s_messages_and_feedback_in_another_file():
    (run,), notes = read_path("langsmith", FIXTURES / "parts")

    assert lineage(run) == ["0 <- -: 2 => assistant(; mul)"]
    assert [said(message) for message in run.trailing] == ["tool q-1(42)"]
    assert [(reward.name, reward.value, reward.step) for reward in run.rewards] == [("accuracy", 0.25, None)]
    assert [(label.name, label.value, label.step) for label in run.feedback] == [("route", "tools", "0")]
    step = run.steps[0]
    assert (step.model, step.finish_reason, step.usage.completion_tokens) == ("lc-model", "tool_calls", 4)
    assert (step.sampling.temperature, step.tools[0]["function"]["name"]) == (0.0, "mul")
    assert [(note.file, note.place) for note in notes if note.lost] == [
        ("parts/runs.jsonl", "line 4"),
        ("parts/feedback.jsonl", "line 3"),
    ]


def test_both_parts_of_a_run_in_a_batch():
    (run,), notes = read_path("langsmith", FIXTURES / "batch.json")

    assert lineage(run) == ["0 <- -: 1 => assistant(Sun.)", "1 <- - parallel: 1 => assistant(Su)"]
    assert [step.finish_reason for step in run.steps] == ["stop", "length"]
    assert (run.steps[0].created_at, run.steps[0].latency_ms, notes) == (1790000000.0, 1500.0, [])


def test_metadata_of_runs_are_kept(tmp_path):
    told = {"metadata": {"ls_provider": "p", "ls_model_name": "m", "team": "red", "user_id": "u"}}
    said = {
        "inputs": {"messages": [{"role": "user", "content": "q"}]},
        "outputs": {"role": "assistant", "content": "x"},
    }
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"id": "r", "trace_id": "r", "run_type": "llm", "name": "n", "extra": told, **said}))
    (run,), _ = read_path("langsmith", file)
    assert (run.metadata["metadata"], run.steps[0].metadata["metadata"]) == ({"team": "red"}, {"team": "red"})
    # Of what stands between the root and the calls of models too; theirs are on their steps.
    root = {"id": "r", "trace_id": "r", "run_type": "chain", "name": "graph", "inputs": {}}
    middle = {"id": "m", "trace_id": "r", "parent_run_id": "r", "run_type": "chain", "name": "node", "inputs": {}}
    middle |= {"tags": ["seq:1"], "extra": {"metadata": {"langgraph_node": "plan"}}}
    bare = {"id": "b", "trace_id": "r", "parent_run_id": "r", "run_type": "chain", "name": "node", "inputs": {}}
    call = {"id": "c", "trace_id": "r", "parent_run_id": "m", "run_type": "llm", "name": "n", "extra": told, **said}
    file.write_text(json.dumps({"runs": [root, middle, bare, call]}))
    (run,), _ = read_path("langsmith", file)
    kept = {"name": "node", "tags": ["seq:1"], "metadata": {"langgraph_node": "plan"}}
    assert run.metadata["runs"] == {"m": kept}
