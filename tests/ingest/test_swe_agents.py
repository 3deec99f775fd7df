"""SWE-agent and mini-swe-agent: what the model was shown, what it threw away, and how it ended."""

import json
from pathlib import Path

import pytest

from agentworld.ingest.files import BytesEntry
from agentworld.ingest.formats import get_format
from agentworld.ingest.formats.outcomes import status_of
from agentworld.ingest.reading import read_path
from agentworld.records import Usage
from tests.ingest.shapes import lineage, said

FIXTURES = Path(__file__).parent / "fixtures"


def read(name):
    runs, notes = read_path("auto", FIXTURES / name)
    return runs, [f"{note.place}: {note.why}" for note in notes if note.lost]


def read_bytes(format, value, name="a.traj"):
    notes = []
    entry = BytesEntry(json.dumps(value).encode(), name, note=notes.append)
    return list(get_format(format).runs([entry], notes.append)), notes


def test_queries_are_what_the_model_was_shown():
    [run], lost = read("swe-agent/queries.traj")

    assert lineage(run) == [
        "0 <- -: 2 => assistant(Look.; bash)",
        "1 <- 0: 4 => assistant(Let me think about it)",  # It could not be parsed, and was thrown away.
        "2 <- 0 retry: 4 => assistant(Open it.; open)",
        "3 <- 0 history_rewritten: 6 => assistant(; submit)",  # An old observation was left out.
    ]
    assert run.steps[1].metadata["discarded"] is True
    assert run.steps[3].prompt_messages[3].text.startswith("Old environment output")
    assert run.steps[0].response_message.reasoning == "Where is it?"
    assert run.steps[0].response_message.tool_calls[0].function.arguments == '{"command":"ls"}'
    assert [said(message) for message in run.trailing] == ["tool call_c()"]
    assert (run.steps[0].model, run.steps[0].sampling.top_p) == ("anthropic/some-model", 0.95)
    assert run.steps[2].metadata == {
        "execution_time": 0.5, "state": {"working_dir": "/r"}, "extra_info": {"note": "second try"}
    }  # fmt: skip
    assert (run.status, run.task, run.rewards[0].value) == ("truncated", {"task_id": "lists__lists-7"}, 0.5)
    assert run.feedback[0].value == "submitted (exit_cost)"
    assert "never kept" not in repr(run)
    assert lost == []


def test_an_answer_that_the_history_has_otherwise_and_other_fields_are_kept():
    first = {"role": "assistant", "content": "I list.", "action": "ls", "agent": "main", "thought": "THT", "odd": 1}
    last = {"role": "assistant", "content": "Done.", "action": "exit", "agent": "main", "thought": "Done."}
    history = [{"role": "user", "content": "q", "agent": "main"}, first, last]
    asked = [{"action": "ls", "response": "I list.\n```ls```"}, {"action": "exit", "response": "Done."}]
    (run,), _ = read_bytes("swe-agent", {"history": history, "trajectory": asked, "info": {"exit_status": "submitted"}})
    assert [step.metadata for step in run.steps] == [
        {"response": "I list.\n```ls```", "message": {"odd": 1, "thought": "THT"}}, {},
    ]  # fmt: skip


def test_demonstrations_are_context():
    [run], lost = read("swe-agent/first_version.traj")

    assert [len(step.prompt_messages) for step in run.steps] == [5, 7]
    assert run.steps[0].prompt_messages[2].text == "I open it.\n```\nopen x\n```"
    assert (run.status, lost) == ("finished", [])


def test_each_attempt_is_a_run():
    runs, lost = read("swe-agent/attempts.traj")

    assert [(run.rollout_index, run.status, run.metadata["attempt"]["is_chosen"]) for run in runs] == [
        (0, "failed", False),
        (1, "finished", True),
    ]
    assert lost == ["$.attempts[2]: it is no trajectory of SWE-agent"]


def test_rows_of_data_sets():
    runs, lost = read("swe-agent/rows.jsonl")

    assert [[(reward.name, reward.value) for reward in run.rewards] for run in runs] == [
        [("target", 1.0)],
        [("target", 0.0)],
        [("resolved", 1.0)],
    ]
    assert [run.status for run in runs] == ["finished", "truncated", "finished"]
    assert runs[0].steps[0].prompt_messages[0].text == "You work in a shell."
    assert [(label.step, label.value) for label in runs[0].feedback if label.name == "mask"] == [
        ("0", False),
        ("1", True),
    ]
    assert runs[2].steps[1].prompt_messages[-1].tool_call_id == "call_z"
    assert lost == ["line 4: the JSON ends too early, after 51 bytes"]


def test_what_a_processor_left_out_is_told():
    history = [
        {"role": role, "content": "x", "agent": "main", "message_type": "action"} for role in ("user", "assistant")
    ]
    config = {"agent": {"history_processor": {"type": "last_n_observations", "n": 5}}}
    [run], notes = read_bytes("swe-agent", {"history": history, "trajectory": [], "info": {}, "replay_config": config})

    assert len(run.steps) == 1
    assert [note.why for note in notes] == [
        "what last_n_observations left out of prompts is not in the file; they are shown the whole history"
    ]


def test_sub_agents_of_the_first_version():
    def item(role, text, agent):
        return {"role": role, "content": text, "agent": agent}

    history = [
        item("system", "Main", "primary"), item("user", "Go", "primary"), item("assistant", "Ask", "primary"),
        item("system", "Sub", "helper"), item("user", "Q", "helper"), item("assistant", "A", "helper"),
        item("user", "A", "primary"), item("assistant", "Done", "primary"),
    ]  # fmt: skip
    [run], _ = read_bytes("swe-agent", {"history": history, "info": {}, "trajectory": []})

    assert lineage(run) == [
        "0 <- - primary: 2 => assistant(Ask)",
        "1 <- 0 subagent helper: 2 => assistant(A)",
        "2 <- 0 primary: 4 => assistant(Done)",
    ]


@pytest.mark.parametrize(
    ("ended", "status"),
    [
        ("submitted", "finished"), ("Submitted", "finished"), ("exit_cost", "truncated"), ("exit_context", "truncated"),
        ("LimitsExceeded", "truncated"), ("max_steps", "truncated"), ("exit_error", "failed"),
        ("exit_format", "failed"),
        ("AgentError", "failed"), (None, "abandoned"), ("", "abandoned"), (5, "abandoned"),
    ],
)  # fmt: skip
def test_statuses(ended, status):
    assert status_of(ended) == status


def test_calls_of_mini_swe_agent():
    [run], lost = read("mini-swe-agent/calls.traj.json")

    assert lineage(run) == [
        "0 <- -: 2 => assistant(null; bash; bash)",
        "1 <- 0: 5 => assistant(Once more; bash)",
    ]
    assert [call.function.arguments for call in run.steps[0].response_message.tool_calls] == [
        '{"command": "mkdir -p t/{a,b}"}',
        '{"command": "ls',  # Cut by the token limit: the text as it was sent.
    ]
    assert run.steps[0].response_message.reasoning == "Where?"
    assert (run.steps[0].finish_reason, run.steps[0].usage) == ("tool_calls", Usage(104, 10))
    assert (run.status, [message.name for message in run.trailing], lost) == ("truncated", ["exit"], [])


def test_ids_of_the_answers_that_mini_swe_agent_keeps():
    [run], _ = read("mini-swe-agent/text.traj.json")

    assert [line.partition(":")[0] for line in lineage(run)] == ["0 <- -", "1 <- 0", "2 <- 0 retry"]
    assert (run.steps[1].metadata, run.steps[1].usage.prompt_tokens) == ({"cost": 0.25, "discarded": True}, 102)
    first = run.steps[0]
    assert (first.prompt_ids, first.response_ids, first.response_logprobs) == ([1, 2, 3, 1], [11, 12], [-0.5, -0.5])
    assert (first.token_source, run.steps[1].token_source) == ("submitted", "none")
    assert [(reward.name, reward.value) for reward in run.rewards] == [("resolved", 0.0)]
    assert (run.created_at, run.completed_at) == (1750000000.5, 1750000001.5)


def test_responses_of_mini_swe_agent():
    [run], lost = read("mini-swe-agent/responses.traj.json")

    assert lineage(run) == ["0 <- -: 2 => assistant(Listing. Now.; bash)", "1 <- 0: 4 => assistant(null; bash)"]
    assert (run.steps[0].response_message.reasoning, run.steps[0].usage) == ("Think.", Usage(50, 7))
    assert lost == []
