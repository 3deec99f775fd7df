"""Session files of Claude Code: replies over several lines, rewinds, compactions, sub-agents, and what is broken."""

import json
from pathlib import Path

import pytest

from agentworld.ingest.formats import claude_code_lines, claude_code_parts, values
from agentworld.ingest.reading import read_path
from tests.ingest.shapes import lineage, said

FIXTURES = Path(__file__).parent / "fixtures" / "claude-code"
SESSION = "5e550000-0000-4000-8000-00000000000"


def read(name):
    return read_path("auto", FIXTURES / name)


def one(name):
    runs, notes = read(name)
    assert len(runs) == 1
    return runs[0], notes


def test_a_session_is_a_tree_of_replies():
    run, notes = one("session.jsonl")

    assert notes == []
    assert (run.native_id, run.agent, run.status) == (f"{SESSION}1", "claude-code", "finished")
    assert lineage(run) == [
        "0 <- -: 2 => assistant(I look at both files.; Read; Bash)",
        "1 <- 0: 6 => assistant(null; Task)",
        "2 <- 1 subagent Explore: 1 => assistant(null; Grep)",
        "3 <- 2 Explore: 3 => assistant(Only cart.py calls it.)",
        "4 <- 1: 8 => assistant(null; Edit)",
        "5 <- 4: 13 => assistant(The constant is RATE.)",
        "6 <- 0 history_rewritten: 7 => assistant(Decimals it is.)",
    ]
    assert [said(message) for message in run.steps[5].prompt_messages[2:]] == [
        "assistant(I look at both files.; Read; Bash)",
        "tool toolu_1(def price(net):\n    return net\n)",
        "tool toolu_2(test_shop.py)",
        "user(The rate is 20 percent.)",
        "assistant(null; Task)",
        "tool toolu_3(Only cart.py calls it.)",
        "assistant(null; Edit)",
        "tool toolu_4(The user does not want this.)",
        "user(Keep the rate in a constant, as in this <png>)",
        "assistant(No response requested.)",
        "user(Go on.)",
    ]
    assert [said(message) for message in run.trailing] == ["user([Request interrupted by user for tool us)", "user()"]


def test_what_belongs_to_a_reply_is_kept_with_it():
    run, _ = one("session.jsonl")
    first = run.steps[0]

    assert first.response_message.reasoning == "Two files matter: the shop and its tests."
    assert first.response_message.tool_calls[1].function.arguments == '{"command": "ls tests"}'
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (1110, 77)
    assert (first.finish_reason, first.model, first.dialect) == ("tool_calls", "claude-sonnet-4-5", "anthropic")
    assert first.metadata["id"] == "msg_1"
    assert first.metadata["attachments"] == ['{"type": "todo_reminder", "content": [], "itemCount": 0}']
    assert run.steps[2].metadata["call"] == "toolu_3"
    assert run.steps[4].metadata["tool_results"] == {"toolu_4": {"is_error": True}}
    assert run.steps[5].metadata["redacted_thinking"] == 1
    assert run.steps[6].finish_reason == "length"
    assert [medium for _, medium in run.media.values()] == ["image/png"]
    assert [error["text"] for error in run.metadata["api_errors"]] == ['{"status": 529}', "API Error: overloaded"]
    assert run.metadata["titles"] == ["Prices with tax", "Tax"]
    assert run.metadata["skipped"]["shape-of-tomorrow"] == 1
    assert 0 < run.created_at < run.completed_at


def test_a_compaction_begins_a_prompt_anew_and_keeps_what_it_kept():
    run, notes = one("compacted.jsonl")

    assert notes == []
    assert lineage(run)[1:] == [
        "1 <- 0: 3 => assistant(Then the data.)",
        "2 <- 1 compaction: 4 => assistant(Started.)",
        "3 <- 2 compaction: 1 => assistant(It goes on.)",
        "4 <- 3 compaction: 2 => assistant(Nothing.)",
    ]
    assert [said(message) for message in run.steps[2].prompt_messages] == [
        "user(Summary: a move to another database is p)",
        "user(And then?)",
        "assistant(Then the data.)",
        "user(Start.)",
    ]
    assert run.steps[2].metadata["compaction"] == {"trigger": "manual", "preTokens": 1200}


def test_sub_agents_in_files_of_their_own_and_resumed_sessions_are_one_run():
    run, notes = one("agents")

    assert notes == []
    assert lineage(run) == [
        "0 <- -: 1 => assistant(null; Agent; Agent)",
        "1 <- 0: 4 => assistant(The new one is a loop.)",
        "2 <- 1: 6 => assistant(The loop.)",
        "3 <- 0 subagent general-purpose: 1 => assistant(null; Agent)",
        "4 <- 3 general-purpose: 3 => assistant(It is recursive.)",
        "5 <- 0 subagent general-purpose: 1 => assistant(It is a loop.)",
        "6 <- 3 subagent counter: 1 => assistant(12)",
    ]
    assert run.native_id == f"{SESSION}3"
    assert run.metadata["sessions"] == [f"{SESSION}4"]
    assert run.metadata["copied_lines"] == 7
    assert run.metadata["agents_without_a_transcript"] == ["a4444444"]


def test_a_sub_agent_without_its_session_names_it(tmp_path):
    name = "agent-a2222222.jsonl"
    path = tmp_path / name
    path.write_bytes(next(FIXTURES.rglob(name)).read_bytes())
    (run,), _ = read_path("auto", path)

    assert (run.native_id, run.parent_run, run.agent) == (f"{SESSION}3/a2222222", f"{SESSION}3", "a2222222")
    assert lineage(run) == ["0 <- - a2222222: 1 => assistant(It is a loop.)"]


def test_what_is_broken_is_told_with_its_line_and_the_rest_is_read():
    run, notes = one("broken.jsonl")
    told = {(note.place, note.why) for note in notes if note.lost}

    assert told == {
        ("line 2, message.content[0]", "a block of the reply cannot be read: a block of type 'hologram'"),
        ("line 4", "a line is no object: list"),
        ("line 5", "a reply has no message"),
        ("line 7, message.content[0].content[1]", "a medium cannot be read: it is not valid base64"),
        ("line 11", "the JSON ends too early, after 59 bytes"),
    }
    assert {note.place for note in notes if not note.lost} == {
        "line 1",
        "line 6",
        "line 7, message.content[0].content[0]",
        "line 9",
    }
    assert lineage(run) == ["0 <- -: 1 => assistant(null; Bash)", "1 <- 0: 4 => assistant(Text alone.)"]
    assert len(run.trailing) == 2  # two lines that follow each other


def test_lines_without_uuids_follow_each_other():
    (printed, drifted), _ = read("printed.jsonl")

    assert lineage(printed) == [
        "0 <- -: 1 => assistant(null; Task)",
        "1 <- 0 subagent toolu_1: 1 => assistant(Hello, hallo, salut.)",
        "2 <- 0: 3 => assistant(Done.; web_search)",
    ]
    assert [said(message) for message in printed.trailing] == [
        'tool srvtoolu_1({"type": "web_search_result", "title": ")'
    ]
    assert (printed.status, printed.metadata["result"]["num_turns"]) == ("truncated", 2)
    assert lineage(drifted) == [
        "0 <- -: 1 => assistant(null; bash)",
        "1 <- 0: 3 => assistant(They are empty.)",
    ]
    assert drifted.steps[1].prompt_messages[2].tool_call_id == "call_1"


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([{"type": "assistant", "isApiErrorMessage": True, "message": {"role": "assistant", "content": []}}], "failed"),
        ([{"type": "result", "subtype": "error_during_execution", "is_error": True}], "failed"),
        ([{"type": "result", "subtype": "success", "is_error": False}], "finished"),
    ],
)
def test_how_a_session_ended(tmp_path, lines, status):
    told = [
        {"type": "user", "message": {"role": "user", "content": "Hi"}},
        {"type": "assistant", "message": {"id": "m", "role": "assistant", "content": "Hello"}},
    ]
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps({"sessionId": "s", **line}) + "\n" for line in [*told, *lines]))
    (run,), _ = read_path("auto", path)

    assert run.status == status


def test_a_second_result_beside_the_first_stands_in_its_place(tmp_path):
    call = {"type": "tool_use", "id": "t", "name": "run", "input": {}}

    def line(uuid, parent, role, content):
        kept = {"uuid": uuid, "parentUuid": parent, "sessionId": "s", "type": role}
        return json.dumps({**kept, "message": {"id": uuid, "role": role, "content": content}})

    def result(text):
        return [{"type": "tool_result", "tool_use_id": "t", "content": text}]

    path = tmp_path / "s.jsonl"
    path.write_text(
        "\n".join(
            [
                line("u", None, "user", "Run it"),
                line("a", "u", "assistant", [call]),
                line("r1", "a", "user", result("interrupted")),
                line("r2", "a", "user", result("done")),
                line("b", "r2", "assistant", "It is done."),
            ]
        )
    )
    (run,), _ = read_path("auto", path)

    assert [said(message) for message in run.steps[1].prompt_messages[1:]] == ["assistant(null; run)", "tool t(done)"]
    assert [said(message) for message in run.trailing] == ["tool t(interrupted)"]


def test_a_large_file_is_read_session_by_session(monkeypatch, tmp_path):
    path = tmp_path / "sessions.jsonl"
    names = ["session.jsonl", "printed.jsonl"]
    text = [line for name in names for line in (FIXTURES / name).read_text().splitlines()]
    fork = {"sessionId": "forked", "uuid": "fork", "parentUuid": "f1", "type": "user"}
    text.append(json.dumps({**fork, "message": {"role": "user", "content": "And then?"}}))
    path.write_text("\n".join(text))
    whole, notes = read_path("claude-code", path)
    held = []
    read = claude_code_lines.Session.read

    def watched(session, bundle):
        held.append(sum(1 for entry in bundle for _ in entry.documents()))
        read(session, bundle)

    monkeypatch.setattr(claude_code_parts, "LARGE", 0)
    monkeypatch.setattr(claude_code_lines.Session, "read", watched)
    parts, part_notes = read_path("claude-code", path)

    assert len(whole) == 3
    assert sorted(map(lineage, parts)) == sorted(map(lineage, whole))
    assert {run.native_id: run.trailing for run in parts} == {run.native_id: run.trailing for run in whole}
    assert [note.why for note in part_notes] == [note.why for note in notes]
    assert sum(held) == len(text)
    assert len(held) == 3


@pytest.mark.parametrize(
    "path", ["claude-code/session.jsonl", "codex/rollout.jsonl", "openhands/v0_events.json"], ids=lambda path: path[:5]
)
def test_prompts_of_one_run_do_not_grow_without_end(path, monkeypatch):
    whole, _ = read_path("auto", FIXTURES.parent / path)
    monkeypatch.setattr(values, "MAX_PROMPTS", 10)
    (run,), notes = read_path("auto", FIXTURES.parent / path)

    assert [note.why for note in notes if note.lost] == [values.TOO_MANY]
    assert 0 < len(run.steps) < len(whole[0].steps)
    assert sum(len(step.prompt_messages) for step in run.steps[:-1]) <= 10
    left = {said(step.response_message) for step in whole[0].steps[len(run.steps) :]}
    assert left <= {said(message) for message in run.trailing}


def written(path, lines):
    path.write_text("".join(json.dumps({"sessionId": "s", **line}) + "\n" for line in lines))
    return read_path("auto", path)


def spoken(uuid, parent, role, content, **more):
    return {"uuid": uuid, "parentUuid": parent, "type": role, "message": {"role": role, "content": content}, **more}


def test_what_blocks_of_a_reply_have_besides_is_kept(tmp_path):
    cited = {"type": "text", "text": "x", "citations": [{"cited_text": "C"}]}
    call = {"type": "mcp_tool_use", "id": "t", "name": "f", "server_name": "S", "input": {}, "odd": "o" * 5000}
    lines = [
        spoken("u", None, "user", "q"),
        spoken("a", "u", "assistant", [cited, call, {"type": "text", "text": "y"}]),
    ]
    ((run,), _) = written(tmp_path / "a.jsonl", lines)
    first, second = run.steps[0].metadata["blocks"]
    assert first == {"type": "text", "citations": [{"cited_text": "C"}]}
    assert second["cut"].startswith('{"server_name": "S"')
    assert len(second["cut"]) < 1100


def test_a_sub_agent_that_only_progress_tells_of(tmp_path):
    call = {"type": "tool_use", "id": "t", "name": "Task", "input": {"prompt": "Look", "subagent_type": "Explore"}}

    def progress(uuid, role, content):
        inner = {"type": role, "uuid": uuid, "message": {"role": role, "content": content}}
        data = {"type": "agent_progress", "agentId": "a1", "message": inner}
        return {"type": "progress", "uuid": f"p{uuid}", "parentUuid": "a", "parentToolUseID": "t", "data": data}

    (run,), notes = written(
        tmp_path / "s.jsonl",
        [
            spoken("u", None, "user", "Explore"),
            spoken("a", "u", "assistant", [call]),
            progress("x", "user", "Look"),
            progress("y", "assistant", "Nothing."),
            spoken("r", "py", "user", [{"type": "tool_result", "tool_use_id": "t", "content": "Nothing."}]),
            spoken("b", "r", "assistant", "Nothing is there."),
        ],
    )

    assert notes == []
    assert lineage(run) == [
        "0 <- -: 1 => assistant(null; Task)",
        "1 <- 0: 3 => assistant(Nothing is there.)",
        "2 <- 0 subagent Explore: 1 => assistant(Nothing.)",
    ]


def test_a_rewind_to_the_beginning_and_a_second_reply_to_the_same_prompt(tmp_path):
    (run,), notes = written(
        tmp_path / "s.jsonl",
        [
            spoken("u", None, "user", "One"),
            spoken("a", "u", "assistant", "First"),
            spoken("b", "u", "assistant", "Second"),
            spoken("v", None, "user", "Two"),
            spoken("c", "v", "assistant", "Third"),
            {"type": "system", "subtype": "compact_boundary", "uuid": "k", "parentUuid": None},
            spoken("w", "k", "user", "Three"),
            spoken("d", "w", "assistant", "Fourth"),
        ],
    )

    assert notes == []
    assert lineage(run) == [
        "0 <- -: 1 => assistant(First)",
        "1 <- - parallel: 1 => assistant(Second)",
        "2 <- - history_rewritten: 1 => assistant(Third)",
        "3 <- 2 compaction: 1 => assistant(Fourth)",
    ]


def test_lines_of_other_files_with_the_same_uuids_are_other_lines(tmp_path):
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "s" / "subagents").mkdir(parents=True)
        call = {"type": "tool_use", "id": "t", "name": "Task", "input": {"prompt": f"Look at {name}"}}
        written(folder / "s.jsonl", [spoken("u", None, "user", name), spoken("a", "u", "assistant", [call])])
        prompt = spoken("x", None, "user", f"Look at {name}", agentId="a1", isSidechain=True)
        reply = spoken("y", "x", "assistant", f"Seen {name}", agentId="a1", isSidechain=True)
        written(folder / "s" / "subagents" / "agent-a1.jsonl", [prompt, reply])
    runs, notes = read_path("auto", tmp_path)

    assert notes == []
    assert [lineage(run) for run in runs] == [
        ["0 <- -: 1 => assistant(null; Task)", f"1 <- 0 subagent a1: 1 => assistant(Seen {name})"]
        for name in ("one", "two")
    ]
    assert [run.native_id for run in runs] == [None, None]  # another session may have such a name, too


def test_a_uuid_that_two_lines_have_means_the_later_one(tmp_path):
    lines = [spoken("u", None, "user", "One"), spoken("a", "u", "assistant", "First")]
    lines += [spoken("u", "a", "user", "Two"), spoken("b", "u", "assistant", "Second")]
    (run,), notes = written(tmp_path / "s.jsonl", lines)

    assert [(note.place, note.lost) for note in notes] == [("line 3", False)]
    assert [said(message) for step in run.steps for message in step.prompt_messages] == [
        "user(One)",
        "user(One)",
        "assistant(First)",
        "user(Two)",
    ]
