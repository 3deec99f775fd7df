"""Langfuse's exports: who continues whom, what scores become, and what is told of what is left out."""

import json
from pathlib import Path

from agentworld.ingest.files import BytesEntry
from agentworld.ingest.formats import get_format
from agentworld.ingest.reading import read_path
from agentworld.ingest.spans.collecting import Collection
from agentworld.ingest.spans.node import Node
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


def test_messages_alone_are_put_in_order_and_wrappers_left_out():
    (run,), notes = read_path("langfuse", FIXTURES / "messages.json")

    assert [(said(step.response_message), step.parent_step_id) for step in run.steps] == [
        ("assistant(null; wave)", None),
        ("assistant(Hello!)", "0"),
    ]
    assert run.steps[1].prompt_messages[-1].tool_call_id == "call_0"
    assert sorted(note.place for note in notes) == ["$.aa", "$.dd.input"]


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
