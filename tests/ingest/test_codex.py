"""Codex: rollouts of all versions, compactions, roll-backs, threads that began one another, streams, what is broken."""

from pathlib import Path

from agentworld.ingest.reading import read_path
from tests.ingest.shapes import lineage, said

FIXTURES = Path(__file__).parent / "fixtures" / "codex"
THREAD = "7ead0000-0000-4000-8000-00000000000"


def one(name):
    (run,), notes = read_path("auto", FIXTURES / name)
    return run, notes


def test_a_rollout_is_replayed():
    run, _ = one("rollout.jsonl")

    assert (run.native_id, run.agent, run.status) == (f"{THREAD}1", "codex", "abandoned")
    assert lineage(run) == [
        "0 <- -: 4 => assistant(null; shell; files__list)",
        "1 <- 0: 7 => assistant(null; apply_patch)",
        "2 <- 1: 9 => assistant(null; local_shell)",
        "3 <- 2: 11 => assistant(/health had no test; it has one now.; web_search)",
        "4 <- 3: 13 => assistant(As planned.)",
        "5 <- 4: 15 => assistant(Fine.)",
        "6 <- 3 history_rewritten: 13 => assistant(It has a test.)",
        "7 <- 6 compaction: 4 => assistant(null; tool_search)",
        "8 <- 7: 6 => assistant(Here is a check mark.; image_generation)",
    ]
    assert [said(message) for message in run.steps[4].prompt_messages] == [
        "system(You are a coding agent.)",
        "developer(Filesystem: read-only.)",
        "user(<environment_context>\n  <cwd>/work/api</)",
        "user(Which routes have no test?)",
        "assistant(null; shell; files__list)",
        "tool call_a(3: route /users\n9: route /health\n)",
        'tool call_b({"output": "test_users.py\\n", "metadata")',
        "assistant(null; apply_patch)",
        "tool call_c(Success.<png>)",
        "assistant(null; local_shell)",
        "tool call_d(1 passed)",
        "assistant(/health had no test; it has one now.; web_search)",
        "user(Like in this plan:<png>)",
    ]
    assert [said(message) for message in run.trailing] == ["tool ig_1(<png>)", "user(Stop.)"]


def test_what_belongs_to_a_reply_is_kept_with_it():
    run, notes = one("rollout.jsonl")
    first = run.steps[0]

    assert first.response_message.reasoning == "Compare routes with tests.\nTwo commands do."
    assert first.response_message.tool_calls[1].function.arguments == '{"path": "tests"'  # as it was sampled
    assert run.steps[1].response_message.tool_calls[0].function.arguments.startswith("*** Begin Patch")
    assert (first.model, first.dialect) == ("gpt-5.1-codex", "responses")
    assert [(step.usage.prompt_tokens, step.usage.completion_tokens) for step in run.steps if step.usage] == [
        (900, 40),
        (1000, 50),
        (1100, 60),
    ]
    assert first.metadata == {
        "turn": "t1",
        "effort": "medium",
        "encrypted_reasoning": 1,
        "tool_results": {"call_a": {"exit_code": 0, "seconds": 1.5}},
    }
    assert run.steps[6].metadata["rolled_back"] == 2
    assert run.steps[7].prompt_messages[3].name == "reviewer"
    assert run.metadata["titles"] == ["Routes without tests"]
    assert run.metadata["skipped"]["turn_of_tomorrow"] == 1
    assert [note.why for note in notes if note.lost] == []


def test_the_first_version_has_items_alone():
    run, notes = one("first_version.jsonl")

    assert notes == []
    assert run.native_id == f"{THREAD}2"
    assert lineage(run) == ["0 <- -: 1 => assistant(null; shell)", "1 <- 0: 3 => assistant(12 lines.)"]


def test_threads_that_began_one_another_are_one_run():
    run, notes = one("threads")

    assert notes == []
    assert run.native_id == f"{THREAD}3"
    assert lineage(run) == [
        "0 <- -: 2 => assistant(null; spawn_agent)",
        "1 <- 0: 4 => assistant(null; wait)",
        "2 <- 1: 6 => assistant(The parser is sound.)",
        "3 <- 0 subagent reviewer: 2 => assistant(It is sound.)",
        "4 <- 1 history_rewritten: 7 => assistant(It is.)",
    ]


def test_a_thread_alone_names_the_one_that_began_it():
    (run,), _ = read_path("auto", next(FIXTURES.glob(f"threads/*{THREAD}4.jsonl")))

    assert (run.native_id, run.parent_run, run.agent) == (f"{THREAD}4", f"{THREAD}3", "reviewer")
    assert lineage(run) == ["0 <- - reviewer: 2 => assistant(It is sound.)"]


def test_a_fork_alone_has_all_its_steps():
    (run,), _ = read_path("auto", next(FIXTURES.glob(f"threads/*{THREAD}5.jsonl")))

    assert (run.native_id, run.parent_run, run.metadata["forked_from"]) == (f"{THREAD}5", None, f"{THREAD}3")
    assert len(run.steps) == 3


def test_a_stream_of_exec():
    run, notes = one("stream.jsonl")

    assert [note.why for note in notes if note.lost] == ["an item of type 'dream' is not read"]
    assert (run.native_id, run.status) == (f"{THREAD}6", "failed")
    assert run.metadata["errors"] == ["usage limit"]
    assert lineage(run) == [
        "0 <- -: 0 => assistant(null; command_execution)",
        "1 <- 0: 2 => assistant(null; docs__find)",
        "2 <- 1: 4 => assistant(Changed a.txt.; file_change)",
        "3 <- 2: 5 => assistant(Nothing more.)",
        "4 <- 3: 6 => assistant(null; todo_list)",
    ]
    assert run.steps[0].response_message.reasoning == "List, then change."
    assert run.steps[2].metadata["usage_of_turn"]["input_tokens"] == 500


def test_what_is_broken_is_told_with_its_line_and_the_rest_is_read():
    run, notes = one("broken.jsonl")

    assert {(note.place, note.why) for note in notes if note.lost} == {
        ("line 5", "a line is no object: str"),
        ("line 6", "a line has no type; its keys are payload"),
        ("line 7", "a call has no name"),
        ("line 9", "an item cannot be read: one of type 'hologram'"),
        ("line 14", "the JSON ends too early, after 86 bytes"),
    }
    assert lineage(run) == [
        "0 <- -: 2 => assistant(Only an event answers.; )",
        "1 <- 0 compaction: 4 => assistant(Plain text.)",
    ]
    assert [said(message) for message in run.steps[1].prompt_messages] == [
        "system(You are a coding agent.)",
        "user(Only an event says this.<uri-list>)",
        "user(Summary: an answer was given.)",
        'user({"type": "hologram"})',
    ]
    assert [said(message) for message in run.trailing] == ["user(Typed in a later version.)"]
    assert run.status == "failed"
