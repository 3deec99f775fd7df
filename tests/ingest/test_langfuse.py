"""Langfuse's exports: who continues whom, what scores become, and what is told of what is left out."""

import csv
import io
import json
from pathlib import Path

from agentworld.ingest.csv_rows import fields, rows
from agentworld.ingest.files import BytesEntry
from agentworld.ingest.formats import get_format
from agentworld.ingest.reading import read_path
from agentworld.ingest.spans.collecting import Collection
from agentworld.ingest.spans.node import Node
from agentworld.ingest.splitting import OVERSIZED
from tests.ingest.shapes import lineage, said

FIXTURES = Path(__file__).parent / "fixtures" / "langfuse"


def test_a_trace_with_scores_of_each_kind():
    (run,), notes = read_path("langfuse", FIXTURES / "trace.json")

    assert lineage(run) == [
        "0 <- - explainer: 2 => assistant(null; lookup)",
        "1 <- 0 explainer: 4 => assistant(A fjord is a long inlet.)",
    ]
    assert [(reward.name, reward.value, reward.step) for reward in run.rewards] == [
        ("correct", 1.0, None),
        ("clarity", 0.8, "1"),
    ]
    assert [(label.name, label.value) for label in run.feedback] == [("tone", "neutral")]
    assert (run.user, run.metadata["session"], run.metadata["tags"]) == ("u-9", "s-9", ["docs"])
    step = run.steps[0]
    assert (step.model, step.sampling.temperature, step.usage.completion_tokens) == ("word-1", 0.2, 6)
    assert run.steps[1].response_message.reasoning == "Rephrase it."
    assert [(note.lost, note.place) for note in notes] == [(False, "$.observations[4]")]


def test_observations_of_many_frameworks_and_scores_in_another_file():
    runs, notes = read_path("langfuse", FIXTURES / "parts")
    told = {run.native_id: lineage(run) for run in runs}

    assert told == {
        "lf-2": ["0 <- -: 2 => assistant(Reading.; read)", "1 <- 0: 5 => assistant(It says hello.)"],
        "lf-3": ["0 <- -: 2 => assistant(2)"],
        "lf-4": ["0 <- -: 2 => assistant(Hello.)"],
        "lf-5": ["0 <- -: 1 => assistant(Read.)"],
    }
    first = next(run for run in runs if run.native_id == "lf-2")
    assert [(reward.name, reward.step) for reward in first.rewards] == [("helpful", "1")]
    assert first.steps[0].response_message.reasoning == "Read it first."
    assert [(note.file, note.place) for note in notes if note.lost] == [
        ("parts/observations.jsonl", "line 7"),
        ("parts/observations.jsonl", "line 6"),
    ]


def test_batches_put_the_parts_of_an_observation_together():
    (run,), notes = read_path("langfuse", FIXTURES / "batch.json")

    assert lineage(run) == ["0 <- -: 1 => assistant(hi)"]
    assert (run.user, run.steps[0].latency_ms, run.rewards[0].value) == ("u-3", 1000.0, 1.0)
    assert [note.why for note in notes] == ["events of type 'future-create' are not known"]


def test_messages_alone_are_put_in_order_and_wrappers_left_out(tmp_path):
    (run,), notes = read_path("langfuse", FIXTURES / "messages.json")

    assert [(said(step.response_message), step.parent_step_id) for step in run.steps] == [
        ("assistant(null; wave)", None),
        ("assistant(Hello!)", "0"),
    ]
    assert run.steps[1].prompt_messages[-1].tool_call_id == "call_0"
    assert sorted(note.place for note in notes) == ["$.aa", "$.dd.input"]
    # Of messages of which only the tools were exported nothing is lost here: the tools are the call's.
    tool = {"type": "function", "function": {"name": "wave", "parameters": {"type": "object"}}}
    answer = {"success": True, "data": [{"role": "assistant", "content": "hi"}]}
    call = {"input": {"success": True, "data": [{"tools": [tool]}]}, "output": answer}
    path = tmp_path / "tools.json"
    path.write_text(json.dumps({"aa": call}))
    (run,), notes = read_path("langfuse", path)
    assert [each["function"]["name"] for each in run.steps[0].tools] == ["wave"]
    assert [(note.why, note.lost) for note in notes] == [("of this message the file has only the tools", False)]


def test_lists_of_traces_that_name_their_observations_alone_say_what_to_do():
    page = {"data": [{"id": "t", "timestamp": "2026-09-21T10:00:00Z", "observations": ["o-1"], "scores": ["s-1"]}]}
    notes = []
    runs = list(get_format("langfuse").runs([BytesEntry(json.dumps(page).encode(), "x.json")], notes.append))

    assert runs == []
    assert [(note.place, note.lost, note.hint) for note in notes if note.lost] == [
        ("$.data[0].observations[0]", True, "Use the API's traces/ID")
    ]


def test_records_that_wait_for_others_are_bounded():
    notes, left = [], []
    collection = Collection(lambda place, why, **_: notes.append(why), most=1200)
    for index, name in enumerate(["a", "b", "b", "a"]):
        collection.trace(name, "$").add(Node(id=str(index)))
        left += [(trace.trace_id, trace.part) for trace in collection.over()]

    assert left == [("a", 1), ("b", 1)]
    assert [(trace.trace_id, trace.part) for trace in collection.rest()] == [("a", 2)]
    assert notes == ["more of the trace 'a' comes after 1200 characters of others; it becomes a run of its own"]


def test_tables_of_csv_are_read_as_the_records_that_they_are():
    runs, notes = read_path("auto", FIXTURES / "tables")

    assert notes == []
    assert {run.native_id: lineage(run) for run in runs} == {
        "lf-8": ["0 <- -: 1 => assistant(null; map)", '1 <- 0: 3 => assistant(Two: "Isar", and a brook.)'],
        "lf-9": ["0 <- -: 1 => assistant(Seven)"],
    }
    first, last = runs
    assert [(reward.name, reward.value, reward.step) for run in runs for reward in run.rewards] == [
        ("clarity", 0.75, "1"),
        ("right", 1.0, "1"),
        ("helpful", 1.0, None),
        ("clarity", 0.0, "0"),
    ]
    assert [(label.name, label.value, label.step) for label in first.feedback] == [("tone", "calm", "1")]
    assert (first.user, first.metadata["session"], first.metadata["trace_metadata"]) == ("u-8", "s-8", {"lake": 1})
    assert last.steps[0].prompt_messages[0].content == "7"  # a text, though it looks like a number

    # Exports of before wrote each value as JSON, texts too.
    records = [json.loads(line) for line in (FIXTURES / "parts" / "observations.jsonl").read_text().splitlines()[:5]]
    names = list(dict.fromkeys(name for record in records for name in record))
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows(
        [names, *([json.dumps(record.get(name, "")) for name in names] for record in records)]
    )
    lines = "".join(json.dumps(record) + "\n" for record in records)
    reader, told = get_format("langfuse"), []
    table = list(reader.runs([BytesEntry(written.getvalue().encode(), "x.csv")], told.append))
    named = [(run.native_id, run.steps) for run in reader.runs([BytesEntry(lines.encode(), "x.jsonl")], told.append)]
    assert [(run.native_id, run.steps) for run in table] == named != []

    broken = b'id,traceId,type,input,output\n"a","t","GENERATION","x"\n'
    assert list(reader.runs([BytesEntry(broken, "x.csv")], told.append)) == []
    assert (told[-1].place, told[-1].why) == ("line 2", "the row has 4 fields, and the table has 5 columns")


def test_rows_of_csv_are_cut_where_the_standard_library_cuts_them():
    table = [["a", "b, c"], ['say "x"', "two\r\nlines\n\nmore"], ["", "ü€😀"], ["last", "1"]]
    for end in ("\n", "\r\n"):
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator=end).writerows(table)
        data = text.getvalue().encode()
        for size in (1, 3, 7, len(data)):
            assert [row for _, row in rows((data[at : at + size] for at in range(0, len(data), size)), 1000)] == table
    assert list(rows(iter([b'a,b\n"long ' + b"x" * 50 + b'\n",c\n\nd,e']), 20)) == [
        (1, ["a", "b"]),
        (2, OVERSIZED),
        (5, ["d", "e"]),
    ]
    assert list(rows(iter([b'a,"open\nto the end']), 99)) == [(1, ["a", "open\nto the end"])]
    assert fields('a,b"c",d') == ["a", 'b"c",d']
