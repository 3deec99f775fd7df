"""ATIF: what becomes of steps, results, references and ids."""

import json
from pathlib import Path

import pytest

from agentworld.ingest.files import BytesEntry
from agentworld.ingest.formats.atif import FORMAT
from agentworld.ingest.formats.atif_document import Document
from agentworld.ingest.formats.atif_forest import Forest
from agentworld.ingest.formats.media import ADDRESS
from agentworld.ingest.formats.noted import Values
from agentworld.ingest.reading import read_path
from agentworld.records import MediaPart, TextPart

FIXTURES = Path(__file__).parent / "fixtures" / "atif"


def read(document):
    notes = []
    return list(FORMAT.runs([BytesEntry(json.dumps(document).encode(), "t.json")], notes.append)), notes


def document(*steps, **more):
    numbered = [{"step_id": number, **step} for number, step in enumerate(steps, 1)]
    return {"schema_version": "ATIF-v1.7", "agent": {"name": "a", "version": "1"}, "steps": numbered, **more}


def lines(run):
    """Of each step its key, what it goes on from, and why it is a branch."""
    return [(step.step_id, step.parent_step_id, step.fork_reason) for step in run.steps]


def test_every_field_has_its_place():
    (run,), notes = read_path("auto", FIXTURES / "every_field.json")
    first, last = run.steps
    assert not notes
    assert (run.native_id, run.agent, run.metadata["atif"]["session_id"]) == ("weighing-7", "weigher", "run-7")
    assert [message.role for message in first.prompt_messages] == ["system", "user"]
    shown = first.prompt_messages[1].content
    assert shown[0] == TextPart("How heavy is this stone?")
    assert run.media[shown[1].digest][1] == shown[1].media_type == "image/png"
    assert first.response_message.content == ""
    assert first.response_message.reasoning == "I must weigh it, and look at it too."
    assert [call.function.arguments for call in first.response_message.tool_calls] == [
        '{"thing":"stone","times":2}',
        "{}",
    ]
    assert (first.model, last.model) == ("small-2", "small-1")
    assert (first.prompt_ids, first.response_ids) == ([1, 2, 3, 4], [5, 6, 7])
    assert first.response_logprobs == [-0.5, None, -0.25]
    assert (first.token_source, last.token_source) == ("submitted", "none")
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (4, 3)
    assert first.metadata == {
        "reasoning_effort": "low", "cached_tokens": 2.0, "cost_usd": 0.001, "metrics": {"reasoning_tokens": 1},
        "other": {"observation.results[1].extra": {"took": 1.5}},
    }  # fmt: skip
    assert last.created_at - first.created_at == 2.5
    results = [(message.role, message.tool_call_id, message.text) for message in last.prompt_messages[3:5]]
    assert results == [("tool", "call_1", "The scales are level."), ("tool", "call_0", "Error: too heavy")]
    # What was dispatched without a model is context, and no step.
    assert last.prompt_messages[5].text == "Asking again."
    assert last.prompt_messages[6].content is None
    assert [message.text for message in run.trailing] == ["Thank you."]
    assert {(reward.name, reward.value, reward.step) for reward in run.rewards} == {
        ("progress", 0.25, "3"), ("success", 0.0, None), ("honesty", 1.0, None),
    }  # fmt: skip
    assert [tool["function"]["name"] for tool in first.tools] == ["weigh", "look"]


def test_what_has_no_field_of_its_own_is_kept_by_its_place():
    reference = {"session_id": "elsewhere", "extra": {"w": 1}}
    result = {"source_call_id": "c", "content": "o", "extra": {"q": 2}, "odd": 3, "subagent_trajectory_ref": reference}
    call = {"tool_call_id": "c", "function_name": "f", "arguments": {}, "extra": {"agentworld": {}, "e": 4}}
    metrics = {"prompt_tokens": 1, "completion_tokens": 1, "seconds": 5}
    steps = [
        {"step_id": 1, "source": "user", "message": "q", "extra": {"seen": 6}, "mood": "calm"},
        {
            "step_id": 2, "source": "agent", "message": "x", "tool_calls": [call], "weird": 7, "metrics": metrics,
            "observation": {"results": [result], "extra": "OX"},
        },
    ]  # fmt: skip
    inner = {"schema_version": "ATIF-v1.4", "session_id": "in", "notes": "N", "extra": {"i": 8}, "top": 9}
    inner = {**inner, "agent": {"name": "b"}, "steps": [{"step_id": 1, "source": "agent", "message": "y"}]}
    whole = {"schema_version": "ATIF-v1.4", "session_id": "s", "agent": {"name": "a", "kind": "k"}, "steps": steps}
    (run,), notes = read({**whole, "top": 10, "subagent_trajectories": [inner]})
    assert not [note for note in notes if note.lost]
    assert run.steps[0].metadata["other"] == {
        "weird": 7, "metrics.seconds": 5, "tool_calls[0].extra": {"e": 4}, "observation.extra": "OX",
        "observation.results[0].extra": {"q": 2}, "observation.results[0].odd": 3,
        "observation.results[0].subagent_trajectory_ref[0].extra": {"w": 1},
    }  # fmt: skip
    assert run.metadata["atif"]["other"] == {
        "top": 10, "agent.kind": "k", "steps[0].extra": {"seen": 6}, "steps[0].other": {"mood": "calm"},
    }  # fmt: skip
    of_inner = run.metadata["documents"][1]
    assert (of_inner["notes"], of_inner["extra"], of_inner["other"]) == ("N", {"i": 8}, {"top": 9})


def test_results_without_an_id_belong_to_the_calls_in_order():
    (run,), _ = read_path("auto", FIXTURES / "first_version.json")
    second, third = run.steps[1:]
    assert [message.tool_call_id for message in second.prompt_messages[2:]] == ["a", "b"]
    # Of a step without calls the environment speaks as the user.
    assert (third.prompt_messages[-1].role, third.prompt_messages[-1].text) == ("user", "Nothing was called.")


def test_files_of_a_folder_that_name_one_another_are_one_run():
    (run, other), notes = read_path("auto", FIXTURES / "chain")
    assert lines(run) == [("2", None, None), ("1.4", "2", "subagent"), ("2.3", "2", "compaction"), ("2.4", "2.3", None)]
    assert [step.agent for step in run.steps] == ["sorter", "sorter-summary", "sorter", "sorter"]
    assert run.steps[1].prompt_messages[1].text == "By size."
    assert run.steps[2].prompt_messages[1].text == "Half of the shelves are sorted."
    assert [message.text for message in run.trailing] == ["Half done.", "The context was summarised."]
    assert run.metadata["trailing_after"] == ["2", "2"]
    assert [about.get("file") for about in run.metadata["documents"]] == [
        "trajectory.json", "trajectory.summarization-1-summary.json", "trajectory.cont-1.json",
    ]  # fmt: skip
    assert (run.rewards[0].value, run.rewards[0].step) == (1.0, None)
    assert other.native_id == "alone"
    assert [(note.lost, "questions" in note.why) for note in notes] == [(False, True)]


def test_a_file_alone_says_what_it_goes_on_to():
    (run,), notes = read_path("auto", FIXTURES / "chain" / "trajectory.json")
    assert lines(run) == [("2", None, None)]
    assert [note.hint for note in notes if "continued" in note.place] == ["Import the folder"]
    (summary,), _ = read_path("auto", FIXTURES / "chain" / "trajectory.summarization-1-summary.json")
    assert (lines(summary), summary.parent_run) == ([("4", None, None)], "shelves")


def test_sub_agents_within_a_document_begin_at_the_step_that_asked():
    (run,), _ = read_path("auto", FIXTURES / "embedded.json")
    assert lines(run) == [
        ("2", None, None), ("1.2", "2", "subagent"), ("2.2", "2", "subagent"), ("3.2", "2.2", "subagent"),
        ("2.3", "2.2", None), ("3", "2", None),
    ]  # fmt: skip
    # A reference is no word of anybody.
    assert [message.text for message in run.steps[-1].prompt_messages] == ["Build a shed.", "Two helpers."]
    assert [(reward.value, reward.step) for reward in run.rewards] == [(1.0, "1.2")]


def test_documents_that_name_each_other_in_a_circle_end():
    steps = [{"source": "user", "message": "?"}, {"source": "agent", "message": "!"}]
    there = {"one": document(*steps, session_id="1", continued_trajectory_ref="x-cont-1.json")}
    there["two"] = document(*steps, session_id="1-cont-1", continued_trajectory_ref="x-cont-1.json")
    runs, _ = read(there)
    assert [lines(run) for run in runs] == [[("2", None, None), ("1.2", "2", "compaction")]]


def test_sub_agents_nest_to_a_bound():
    made = document({"source": "agent", "message": "deepest"}, trajectory_id="d")
    for number in range(60):
        made = document({"source": "agent", "message": "x"}, trajectory_id=f"d{number}", subagent_trajectories=[made])
    notes = []
    (run,) = Forest([Document(made, Values("t", notes.append), "$")]).runs()
    assert len(run.steps) == 51
    assert [note.why for note in notes] == ["they nest more than 50 deep"]


def test_pictures_that_are_elsewhere_are_kept_as_addresses():
    part = {"type": "image", "source": {"media_type": "image/png", "path": "images/1.png"}}
    (run,), notes = read(document({"source": "user", "message": [part]}, {"source": "agent", "message": "A dot."}))
    (shown,) = run.steps[0].prompt_messages[0].content
    assert isinstance(shown, MediaPart)
    assert run.media[shown.digest] == (b"images/1.png", ADDRESS)
    assert [(note.place, note.lost) for note in notes] == [("$.steps[0].message[0].source.path", False)]


@pytest.mark.parametrize("given", [None, 3, [1], {"results": 4}, {"results": [{"content": {"a": 1}}, 5]}])
def test_observations_of_any_shape_lose_no_step(given):
    (run,), _ = read(
        document({"source": "agent", "message": "x", "observation": given}, {"source": "agent", "message": "y"})
    )
    assert [step.response_message.text for step in run.steps] == ["x", "y"]


def test_results_of_trials_are_on_their_trajectories():
    (done, slow), notes = read_path("auto", FIXTURES / "job")
    assert {reward.name: reward.value for reward in done.rewards} == {"reward": 1.0, "style": 0.5}
    assert (done.status, done.task) == ("finished", {"task_id": "sweep"})
    assert (slow.status, slow.rewards, slow.metadata["trial"]["exception"]) == ("truncated", [], "AgentTimeoutError")
    # Of a trial that left no trajectory only that is said.
    assert [(note.file, note.lost) for note in notes if "without a trajectory" in note.why] == [
        ("job/mop__a/result.json", False)
    ]
