"""OpenHands V0 and V1: replies over several events, rejections, delegation, condensation, rows with scores."""

import json
from pathlib import Path

import pytest

from agentworld.ingest.format import Head
from agentworld.ingest.formats import openhands
from agentworld.ingest.reading import read_path
from tests.ingest.shapes import lineage, said

FIXTURES = Path(__file__).parent / "fixtures" / "openhands"


def read(name):
    return read_path("auto", FIXTURES / name)


def test_events_of_v0():
    (run,), notes = read("v0_events.json")

    assert notes == []
    assert (run.agent, run.status) == ("openhands", "failed")
    assert lineage(run) == [
        "0 <- -: 2 => assistant(Look first.; execute_bash; execute_bash)",
        "1 <- 0: 5 => assistant(null; execute_bash)",
        "2 <- 1: 7 => assistant(; delegate_to_browsing_agent)",
        "3 <- 2 subagent BrowsingAgent: 1 => assistant(Open it.; browse_interactive)",
        "4 <- 3 BrowsingAgent: 3 => assistant(Found.; finish)",
        "5 <- 2 compaction: 5 => assistant(It must add.; str_replace_editor)",
        "6 <- 5: 9 => assistant(Shall I rewrite it?)",
        "7 <- 6: 11 => assistant(null; finish)",
    ]
    assert [said(message) for message in run.steps[1].prompt_messages] == [
        "system(You fix code.)",
        "user(Fix the sum.<png>)",
        "assistant(Look first.; execute_bash; execute_bash)",
        "tool c1(sum.py)",
        "tool c2(a - b)",
    ]
    assert [said(message) for message in run.steps[6].prompt_messages[2:]] == [
        "user(sum.py subtracts; removing was rejected.)",
        "assistant(; delegate_to_browsing_agent)",
        "tool c4(Sums add.)",
        "assistant(It must add.; str_replace_editor)",
        "tool c5(No match.)",
        "user(run: git diff)",
        "user(nothing)",
    ]
    assert run.trailing == []


def test_what_belongs_to_a_reply_of_v0_is_kept_with_it():
    (run,), _ = read("v0_events.json")
    first = run.steps[0]

    assert first.response_message.reasoning == "Two commands."
    assert (first.model, first.finish_reason, first.usage.prompt_tokens) == ("gpt-4.1", "tool_calls", 100)
    assert first.tools[0]["function"]["name"] == "execute_bash"
    assert (
        run.steps[1].response_message.tool_calls[0].function.arguments == '{"command": "rm -r /"'
    )  # as it was sampled
    assert run.steps[1].metadata["rejected"] == ["c3"]
    assert run.steps[5].metadata["tool_error"] == "c5"
    assert len(run.media) == 1


def test_rows_of_v0_with_their_scores():
    (resolved, failed, scored), notes = read("v0_rows.jsonl")

    assert lineage(resolved) == [
        "0 <- -: 1 => assistant(First the file.; run)",
        "1 <- 0: 3 => assistant(null; run_ipython)",
        "2 <- 1: 5 => assistant(Which licence?)",
        "3 <- 2: 7 => assistant(It is there.; finish)",
    ]
    assert resolved.task == {"task_id": "example/shop#7"}
    assert [(reward.name, reward.value) for reward in resolved.rewards] == [("success", 1.0)]
    assert [(each.kind, each.comment) for each in resolved.feedback] == [("comment", "The file is there.")]
    assert resolved.metadata["git_patch"] == "diff --git a/LICENSE b/LICENSE"
    assert resolved.metadata["accumulated_cost"] == 0.5
    assert (failed.status, failed.task) == ("failed", {"task_id": "example__sum-1"})
    assert [(reward.name, reward.value) for reward in failed.rewards] == [("resolved", 0.0)]
    assert [step.model for step in failed.steps] == ["local/coder"]
    assert "hidden" not in repr(failed)
    assert [said(message) for message in failed.trailing] == ["tool call_1($ )"]
    assert [(reward.name, reward.value) for reward in scored.rewards] == [("resolved", 1.0), ("score", 0.25)]
    assert [(note.place, note.why, note.lost) for note in notes] == [
        ("line 3, history[2]", "event 1 is there already", False),
        ("line 3, history[3]", "it is no event: int", True),
        ("line 3, history[4]", "it is no event: with the keys strange", True),
        ("line 4", "the JSON ends too early, after 51 bytes", True),
    ]


def test_a_folder_of_v1():
    (run,), notes = read("v1")

    assert [(note.file.rpartition("/")[2], note.why) for note in notes] == [
        ("event-00016-e16.json", "no file has event 15 before it"),
        ("event-00017-e17.json", "the JSON ends too early, after 27 bytes"),
    ]
    assert (run.native_id, run.status) == ("0e000000-0000-4000-8000-000000000001", "finished")
    assert lineage(run) == [
        "0 <- -: 2 => assistant(Two ways.; terminal; terminal)",
        "1 <- 0: 5 => assistant(null; terminal)",
        "2 <- 1: 7 => assistant(null; telepathy)",
        "3 <- 2 compaction: 5 => assistant(There are two files.)",
    ]
    assert [said(message) for message in run.steps[2].prompt_messages] == [
        "system(You are an agent.Today is Friday.)",
        "user(Count the filesUse find.<png>)",
        "assistant(Two ways.; terminal; terminal)",
        "tool t1(a\nb)",
        "tool t2(a b)",
        "assistant(null; terminal)",
        "tool t3(Action rejected: Keep it.)",
    ]
    assert [said(message) for message in run.steps[3].prompt_messages[2:]] == [
        "user(Two files were counted.)",
        "assistant(null; telepathy)",
        "tool t4(Tool 'telepathy' not found.)",
    ]
    assert [said(message) for message in run.trailing] == ["user(Thanks.)"]


def test_what_the_state_of_v1_says_is_on_its_steps():
    (run,), _ = read("v1")
    first = run.steps[0]

    assert (first.model, first.sampling.temperature, first.latency_ms) == ("claude-sonnet-4-5", 0.5, 1500.0)
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (300, 30)
    assert first.response_message.reasoning == "Compare both."
    assert [tool["function"]["name"] for tool in first.tools] == ["execute_bash", "think"]
    assert first.metadata["calls"] == {"t1": {"security_risk": "LOW"}, "t2": {"security_risk": "LOW"}}
    assert run.steps[3].response_message.reasoning == "Two."
    assert "api_key" not in repr(run)


def test_rows_of_v1():
    (run,), notes = read("v1_rows.jsonl")

    assert notes == []
    assert (run.status, run.task) == ("failed", {"task_id": "example__bye-1"})
    assert lineage(run) == ["0 <- -: 1 => assistant(null; finish)"]
    assert run.steps[0].usage.prompt_tokens == 9
    assert run.metadata["errors"] == [{"code": "LLMBadRequestError", "detail": "too long"}]


def test_events_of_v0_in_files_of_their_own_are_one_conversation(tmp_path):
    folder = tmp_path / "conversation" / "events"
    folder.mkdir(parents=True)
    for number in range(11):
        who = {"source": "user"} if number % 2 == 0 else {"source": "agent"}
        event = {"id": number, **who, "action": "message", "args": {"content": f"text {number}"}}
        (folder / f"{number}.json").write_text(json.dumps(event))
    (run,), notes = read_path("auto", tmp_path / "conversation")

    assert notes == []
    assert lineage(run) == [
        f"{step} <- {step - 1 if step else '-'}: {2 * step + 1} => assistant(text {2 * step + 1})" for step in range(5)
    ]
    assert [said(message) for message in run.trailing] == ["user(text 10)"]


@pytest.mark.parametrize(
    "document",
    [
        {"trajectory": [{"action": "ls", "observation": "a", "thought": "Look"}]},  # SWE-agent
        {"events": [{"action": "begin", "event": "span"}]},
        {"history": [{"role": "user", "content": "Hi", "agent": "primary"}]},
        [{"action": "left", "x": 1}],
        {"kind": "Event", "metadata": {}},
    ],
)
def test_what_other_tools_call_actions_is_not_claimed(document):
    shape = "array" if isinstance(document, list) else "json"
    documents = tuple(document) if isinstance(document, list) else (document,)

    assert not openhands.FORMAT.claims(Head(name="a.json", shape=shape, documents=documents))
