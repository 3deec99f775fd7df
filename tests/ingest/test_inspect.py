"""Inspect: calls out of events, what lies apart put in, scores of every shape, archives in every state."""

import json
import shutil
import struct
import zipfile
from pathlib import Path

import pytest
import zstandard

from agentworld.factory import open_pool
from agentworld.ingest.formats.inspect_scores import number_of
from agentworld.ingest.loader import import_paths
from agentworld.ingest.reading import read_path
from agentworld.records import Usage
from tests.ingest.shapes import lineage, said

FIXTURES = Path(__file__).parent / "fixtures" / "inspect"


def read(path):
    runs, notes = read_path("auto", path)
    return runs, [f"{note.place}: {note.why}" for note in notes if note.lost], [n.why for n in notes if not n.lost]


def test_calls_are_steps_with_what_they_were_shown():
    runs, _, told = read(FIXTURES / "log.json")
    run = runs[0]

    assert lineage(run) == [
        "0 <- - react: 2 => assistant(Adding.; add; add)",
        "1 <- 0 react: 5 => assistant(5, and the other failed)",
        "2 <- 1 subagent checker: 2 => assistant(Yes.)",
        "3 <- 1 compaction react: 3 => assistant(Nine.)",
        "4 <- 1 parallel react: 3 => assistant(9)",
    ]
    assert [said(message) for message in run.steps[1].prompt_messages] == [
        "system(Add numbers.)",
        "user(2 + 3, then 4 + 5)",
        "assistant(Adding.; add; add)",
        "tool c1(5)",
        "tool c2(Could not parse the arguments)",
    ]
    assert said(run.steps[3].prompt_messages[2]) == "user(See:<png>)"
    assert len(run.media) == 1
    assert [message.content for message in run.trailing] == ["Thanks"]
    first = run.steps[0]
    assert first.response_message.reasoning == "Two sums."
    assert first.response_message.tool_calls[1].function.arguments == '{"raw":"{\\"a\\": "}'
    assert first.tools[0]["function"]["description"] == "Adds two numbers."
    assert (first.sampling.temperature, first.sampling.max_tokens, first.sampling.seed) == (0.5, 100, 3)
    assert (first.model, first.requested_model, first.finish_reason) == ("served-model", "mockllm/model", "tool_calls")
    assert (first.usage, first.latency_ms, first.created_at) == (Usage(10, 2), 500.0, 1769936402.5)
    assert sorted(run.metadata["tool_faults"]) == ["c2"]
    assert "a call of the model has no reply: 503 from the provider" in told
    assert "calls of graders are no steps of the agent; their scores tell of them" in told


def test_scores_of_every_shape():
    [run, *_], lost, _ = read(FIXTURES / "log.json")

    assert [(reward.name, reward.value, reward.step) for reward in run.rewards] == [
        ("half_way", 0.5, "1"), ("exact", 1.0, None), ("graded", 0.5, None), ("parts.sum", 1.0, None),
        ("parts.form", 0.25, None), ("steps[0]", 1.0, None), ("steps[1]", 0.0, None), ("number", -2.5, None),
        ("text_number", 0.75, None),
    ]  # fmt: skip
    assert [(label.name, label.value) for label in run.feedback] == [("words", "rather good")]
    assert run.rewards[2].details["explanation"] == "Half"
    assert "$.samples[0].scores.none.value: the score has no value, or one that is no finite number" in lost


@pytest.mark.parametrize(
    ("value", "number"),
    [("C", 1.0), ("P", 0.5), ("I", 0.0), ("N", 0.0), ("yes", 1.0), ("No", 0.0), (True, 1.0), (2, 2.0), ("1e3", 1000.0),
     ("nan", None), ("inf", None), ("c", None), ("good", None), (float("nan"), None), (None, None), ([], None)],
)  # fmt: skip
def test_numbers_of_scores(value, number):
    assert number_of(value) == number


def test_samples_that_broke_off_or_have_no_events():
    runs, lost, _ = read(FIXTURES / "log.json")

    assert [run.status for run in runs] == ["finished", "truncated", "finished", "failed", "finished"]
    assert [run.rollout_index for run in runs] == [0, 1, 0, 0, 0]
    assert runs[0].group_id == runs[1].group_id
    assert lineage(runs[2]) == ["0 <- -: 1 => assistant(8)", "1 <- 0: 3 => assistant()"]
    assert (runs[2].rewards[0].name, runs[2].rewards[0].value) == ("score", 1.0)
    assert (runs[3].steps, [said(message) for message in runs[3].trailing]) == ([], ["user(1 + 1)"])
    assert "$.samples[4]: the attachment 'attachment://gone' is not in the file" in lost
    assert "$.samples[5]: a sample must be an object" in lost


def test_pools_of_messages_are_put_in():
    run = read(FIXTURES / "log.json")[0][1]

    assert [len(step.prompt_messages) for step in run.steps] == [2, 4, 0]
    assert run.steps[1].parent_step_id == "0"


def test_archives():
    runs, lost, _ = read(FIXTURES / "finished.eval")
    assert [(run.task["task_id"], run.rollout_index, run.task["task_set"]) for run in runs] == [
        ("1", 0, "sums"),
        ("1", 1, "sums"),
    ]
    assert lost == ["$: the sample 2 of epoch 1 is summed up, but is not in the archive"]

    [run], lost, told = read(FIXTURES / "unfinished.eval")
    assert lineage(run) == [
        "0 <- -: 2 => assistant(Adding.; add; add)",
        "1 <- 0: 4 => assistant(5, and the other failed)",
    ]
    assert said(run.steps[0].prompt_messages[0]) == "system(Add numbers.)"
    assert run.metadata["sample_metadata"] == {"level": "hard"}
    assert "the archive has no header: the evaluation was not finished" in told
    assert len(lost) == 2  # one that is cut off, and one that is not there

    [run], lost, _ = read(FIXTURES / "unpacked")
    assert (len(run.steps), lost) == (1, [])


def test_a_folder_of_logs_may_be_called_samples(tmp_path):
    folder = tmp_path / "samples"
    shutil.copytree(FIXTURES, folder / "inspect")
    alone = [read(path) for path in FIXTURES.iterdir()]
    runs, lost, _ = read(folder)
    assert (len(runs), len(lost)) == (sum(len(one[0]) for one in alone), sum(len(one[1]) for one in alone))


def test_an_archive_that_is_compressed_by_zstandard(tmp_path):
    with zipfile.ZipFile(FIXTURES / "finished.eval") as old:
        members = {info.filename: old.read(info) for info in old.infolist()}
    sizes = {}
    path = tmp_path / "z.eval"
    with zipfile.ZipFile(path, "w") as new:
        for name, data in members.items():
            packed = zstandard.compress(data)
            sizes[name] = len(data)
            new.writestr(zipfile.ZipInfo(name), packed)
        places = [(info.filename, info.header_offset) for info in new.infolist()]
    raw = bytearray(path.read_bytes())
    at = raw.index(b"PK\x01\x02")
    for name, place in places:
        struct.pack_into("<H", raw, place + 8, 93)
        struct.pack_into("<I", raw, place + 22, sizes[name])
        struct.pack_into("<H", raw, at + 10, 93)
        struct.pack_into("<I", raw, at + 24, sizes[name])
        lengths = struct.unpack_from("<HHH", raw, at + 28)
        at += 46 + sum(lengths)
    path.write_bytes(raw)

    assert read(path)[0] == read(FIXTURES / "finished.eval")[0]


def test_a_log_that_was_scored_again_replaces_the_older_scores(tmp_path):
    log = json.loads((FIXTURES / "log.json").read_text())
    log["samples"] = log["samples"][:1]
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text(json.dumps(log))
    log["samples"][0]["scores"]["exact"]["value"] = "I"
    second.write_text(json.dumps(log))
    shutil.copy(first, tmp_path / "c.json")
    with open_pool("memory://") as pool:
        assert import_paths(pool, [first]).formats["inspect"].added == 1
        report = import_paths(pool, [second, tmp_path / "c.json"]).formats["inspect"]

    assert (report.replaced, report.known) == (1, 1)


def test_ranges_of_a_pool_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("agentworld.ingest.formats.values.MAX_PROMPTS", 5)
    (tmp_path / "log.json").write_bytes((FIXTURES / "log.json").read_bytes())

    runs, lost, _ = read(tmp_path / "log.json")

    assert [len(step.prompt_messages) for step in runs[1].steps] == [2, 0]
    assert any("prompts hold more than 5 messages together" in why for why in lost)
