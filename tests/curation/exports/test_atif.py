"""What is exported to ATIF and imported again is the same: any trajectory, and what every format's files hold."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.curation.datasets.reading import steps_of, whole_trajectory
from agentworld.curation.exports import export_dataset, to_atif
from agentworld.errors import ConfigError
from agentworld.factory import open_pool
from agentworld.ingest.files import BytesEntry
from agentworld.ingest.formats.atif import FORMAT
from agentworld.ingest.loader import import_paths
from agentworld.ingest.reading import read_path
from agentworld.ingest.wholes import is_empty
from agentworld.pool.media.blob import media_digest
from agentworld.records import (
    FunctionCall,
    MediaPart,
    Message,
    Policy,
    Sampling,
    Step,
    TextPart,
    ToolCall,
    Trajectory,
    Usage,
    VersionSpan,
    exact_json,
)
from tests.curation.exports.talks import frozen, put_weather
from tests.examples import examples
from tests.ingest.counting import counters, counts_of
from tests.ingest.test_samples import FIXTURES, PATHS

TIME = 1_770_000_000.123457
MEDIA = {media_digest(data).hex(): (data, kind) for data, kind in ((b"\x89PNG\r\n\x1a\n1", "image/png"), (b"x", "a/b"))}
PARTS = [
    MediaPart(digest, kind, detail) for (digest, (_, kind)), detail in zip(MEDIA.items(), (None, "low"), strict=True)
]
words = st.sampled_from(["", "a", "Grüß Gott ⚖️", '{"a": 1}', "\x00", "lone \ud800", "</tool>"])
contents = st.one_of(
    st.none(), words, st.lists(st.one_of(words.map(TextPart), st.sampled_from(PARTS)), max_size=3).map(tuple)
)
arguments = st.sampled_from(["{}", "", '{"a":1}', '{"a": 1}', "[]", "null", '{"unfinished": ', '"{}"', '{"n":1e400}'])
calls = st.builds(
    ToolCall,
    id=st.sampled_from(["c0", "c1", "call_0"]),
    function=st.builds(FunctionCall, st.sampled_from("fg"), arguments),
)
replies = st.builds(
    Message,
    role=st.just("assistant"),
    content=contents,
    reasoning=st.one_of(st.none(), words),
    tool_calls=st.lists(calls, max_size=3).map(tuple),
)
said = st.one_of(
    st.builds(
        Message,
        role=st.sampled_from(["system", "developer", "user"]),
        content=contents,
        name=st.sampled_from([None, "n"]),
    ),
    # Simulated users call tools of their own.
    st.builds(Message, role=st.just("user"), content=contents, tool_calls=st.lists(calls, max_size=1).map(tuple)),
    st.builds(
        Message, role=st.just("tool"), content=contents, tool_call_id=st.sampled_from([None, "c0", "c1", "other"])
    ),
)
ids = st.lists(st.integers(0, 300), min_size=1, max_size=4)
facts = st.fixed_dictionaries(
    {},
    optional={
        "agent": st.sampled_from([None, "main", "helper"]),
        "model": st.sampled_from([None, "m1", "m2"]),
        "policy": st.just(Policy("m1", "run", 3)),
        "sampling": st.just(Sampling(temperature=0.5, stop=("x",))),
        "tools": st.sampled_from([None, [{"type": "function", "function": {"name": "f"}}]]),
        "usage": st.just(Usage(prompt_tokens=3, completion_tokens=2)),
        "finish_reason": st.just("length"),
        "created_at": st.sampled_from([0.0, TIME, 1.5]),
        "latency_ms": st.just(2.5),
        "vocabulary": st.just("bytes"),
        "rewards": st.dictionaries(st.sampled_from(["reward", "tidy"]), st.floats(-2, 2), max_size=2),
        "labels": st.dictionaries(st.sampled_from(["good", "kind"]), st.sampled_from([True, "x", None]), max_size=2),
    },
)


@st.composite
def trajectories(draw):
    """A forest of steps: most go on from the one before, some from any other, or from none."""
    steps = []
    for number in range(draw(st.integers(0, 6))):
        parent = draw(st.sampled_from([None, *steps, *steps[-1:] * 4]))
        before = [] if parent is None else [*(parent.prompt_messages or ()), *filter(None, [parent.response_message])]
        before = before if draw(st.integers(0, 4)) else before[:1]
        fields = draw(facts)
        if draw(st.booleans()):
            sampled = draw(ids)
            fields |= {
                "prompt_ids": draw(ids),
                "response_ids": sampled,
                "token_source": draw(st.sampled_from(["engine", "submitted"])),
            }
            each = st.one_of(st.none(), st.floats(-5, 0, width=32))
            fields["response_logprobs"] = draw(
                st.one_of(st.none(), st.lists(each, min_size=len(sampled), max_size=len(sampled)))
            )
            fields["response_mask"] = draw(st.sampled_from([None, [1] * len(sampled)]))
            fields["version_spans"] = draw(st.sampled_from([(), (VersionSpan(0, 3),)]))
        fields["prompt_messages"] = before + draw(st.lists(said | replies, max_size=3))
        fields["response_message"] = draw(replies)
        if draw(st.integers(0, 9)) == 0:
            fields["prompt_messages"] = fields["response_message"] = None
        reason = draw(st.sampled_from([None, None, None, "subagent", "compaction", "parallel"]))
        parent_id = None if parent is None else parent.step_id
        steps.append(
            Step(
                step_id=f"t.{number}",
                trajectory_id="t",
                parent_step_id=parent_id,
                fork_reason=reason,
                metadata={"number": number},
                **fields,
            )
        )
    tail = draw(st.lists(said, max_size=2))
    return (
        Trajectory(
            trajectory_id="t",
            status=draw(st.sampled_from(["finished", "failed", "truncated"])),
            rewards=draw(st.dictionaries(st.sampled_from(["reward", "tests"]), st.floats(-2, 2), max_size=2)),
            labels=draw(st.dictionaries(st.sampled_from(["good"]), st.booleans(), max_size=1)),
            task=draw(st.sampled_from([None, {"task_id": "x"}])),
            agent=draw(st.sampled_from([None, "main"])),
            metadata={"trailing": msgspec.to_builtins(tail), "kept": [1]} if tail else {"kept": [1]},
            created_at=TIME,
            completed_at=TIME + 1,
        ),
        steps,
        tail,
    )


def read(document):
    notes = []
    runs = list(FORMAT.runs([BytesEntry(exact_json.encode(document), "t.json")], notes.append))
    return runs, notes


def fields_of(step, without):
    return {name: getattr(step, name) for name in step.__struct_fields__ if name not in without}


@settings(max_examples=examples(120), deadline=None)
@given(trajectories())
def test_any_trajectory_comes_back(made):
    trajectory, steps, tail = made
    document = exact_json.decode(exact_json.encode(to_atif(trajectory, steps, media=lambda digest: MEDIA[digest][0])))
    (run,), notes = read(document)

    assert [note for note in notes if note.lost] == []
    back = {step.metadata["number"]: step for step in run.steps}
    assert sorted(back) == list(range(len(steps)))
    numbers = {step.step_id: number for number, step in back.items()}
    rewards = {}
    labels = {}
    for reward in run.rewards:
        rewards.setdefault(numbers.get(reward.step), {})[reward.name] = reward.value
    for label in run.feedback:
        labels.setdefault(numbers.get(label.step), {})[label.name] = label.value
    for number, step in enumerate(steps):
        parent = back[number].parent_step_id
        assert (f"t.{numbers[parent]}" if parent is not None else None) == step.parent_step_id
        assert rewards.get(number, {}) == step.rewards
        assert labels.get(number, {}) == step.labels
        same = ("step_id", "trajectory_id", "parent_step_id", "rewards", "labels", "metadata")
        assert fields_of(back[number], same) == fields_of(step, same)
    assert rewards.get(None, {}) == trajectory.rewards
    assert labels.get(None, {}) == trajectory.labels
    assert run.trailing == tail
    for name in ("status", "task", "agent", "created_at", "completed_at"):
        assert getattr(run, name) == getattr(trajectory, name)
    assert (run.native_id, run.metadata["kept"]) == ("t", [1])
    shown = {
        part.digest
        for step in steps
        for each in [*(step.prompt_messages or ()), *filter(None, [step.response_message])]
        for part in each.media
    }
    assert {digest: MEDIA[digest] for digest in shown}.items() <= run.media.items()


@settings(max_examples=examples(60), deadline=None)
@given(trajectories())
def test_documents_are_what_the_format_says(made):
    """The rules of the format's specification that readers check."""
    trajectory, steps, _ = made
    document = to_atif(trajectory, steps, media=lambda digest: MEDIA[digest][0])
    names = [each["trajectory_id"] for each in document.get("subagent_trajectories", ())]
    assert len(set(names)) == len(names)
    for each in [document, *document.get("subagent_trajectories", ())]:
        assert each["schema_version"] in ("ATIF-v1.7", "ATIF-v1.8")
        assert [type(each["agent"][name]) for name in ("name", "version")] == [str, str]
        for number, step in enumerate(each["steps"], 1):
            assert step["step_id"] == number
            assert step["source"] in ("system", "user", "agent")
            assert isinstance(step["message"], str | list)
            if step["source"] != "agent":
                assert not step.keys() & {"model_name", "reasoning_content", "tool_calls", "metrics"}
            called = {call["tool_call_id"] for call in step.get("tool_calls", ())}
            assert all(isinstance(call["arguments"], dict) for call in step.get("tool_calls", ()))
            for result in step.get("observation", {}).get("results", ()):
                assert result.get("source_call_id") in {None, *called}
                assert all(ref["trajectory_id"] in names for ref in result.get("subagent_trajectory_ref", ()))
            assert None not in step.get("metrics", {}).get("logprobs", ())


@pytest.mark.parametrize(("name", "path"), PATHS)
def test_what_any_format_holds_comes_back_through_a_pool(name, path, tmp_path):
    """Pool -> ATIF -> pool, and the counts are those of the file; rewards are those of the pool, where the primary one
    may stand beside the one that it was made of.
    """
    counted = counters()[name].count(path)
    rewards = []
    with open_pool("memory://") as pool:
        if import_paths(pool, [path]).total("empty"):  # runs without a reply, which no pool has
            counted = counts_of([run for run in read_path(name, path)[0] if not is_empty(run)])
        for number, each in enumerate(pool.list_trajectories(limit=1000).items):
            trajectory = whole_trajectory(pool, each.trajectory_id)
            steps = list(steps_of(pool, each.trajectory_id, include=("tokens", "messages", "logprobs")))
            said = pool.feedback_on(trajectory_ids=[each.trajectory_id])
            said += pool.feedback_on(step_ids=[step.step_id for step in steps])
            document = to_atif(trajectory, steps, feedback=said, media=lambda digest: pool.get_media(digest).data)
            (tmp_path / f"{number:04d}.json").write_bytes(exact_json.encode(document))
            rewards += [value for each in (trajectory, *steps) for value in each.rewards.values()]
        # The pool that it came from has all of it, under other ids.
        again = import_paths(pool, [tmp_path], "atif")
        assert again.total("known") == len(list(tmp_path.iterdir()))
        assert (again.total("added"), again.total("replaced")) == (0, 0)
    found, notes = read_path("atif", tmp_path)

    assert [note for note in notes if note.lost and not note.why.endswith("its address is kept")] == []
    counted.rewards = rewards
    expected, there = counted.compared(counts_of(found))
    assert there == expected


def test_what_comes_after_a_branch_stays_there_where_the_run_has_grown(tmp_path):
    path = tmp_path / "a.json"
    whole = exact_json.decode((FIXTURES / "atif" / "embedded.json").read_bytes())
    roof = next(each for each in whole["subagent_trajectories"] if each["trajectory_id"] == "roof")
    roof["steps"].append({"step_id": 4, "source": "user", "message": "It leaks."})
    with open_pool("memory://") as pool:
        for document in (whole | {"steps": whole["steps"][:2]}, whole):
            path.write_bytes(exact_json.encode(document))
            import_paths(pool, [path])
        [name] = [each.trajectory_id for each in pool.list_trajectories().items if each.readiness != "excluded"]
        steps = list(steps_of(pool, name, include=("tokens", "messages", "logprobs")))
        made = to_atif(whole_trajectory(pool, name), steps)
    assert name.endswith(".2")
    leaks = [each for each in made["subagent_trajectories"] if "It leaks." in str(each["steps"][-1])]
    assert [each["steps"][-2]["message"] for each in leaks] == ["On."]


def test_a_version_is_exported_a_document_a_file(memory, tmp_path):
    put_weather(memory, "t1")
    put_weather(memory, "t2", "Bonn")
    version = frozen(memory)
    report = export_dataset(memory, version.version, "atif", tmp_path / "out")

    assert (report.rows, report.file_format) == (2, "json")
    files = sorted((tmp_path / "out" / "data" / "train").iterdir())
    assert [file.name for file in files] == ["000000-t1.json", "000001-t2.json"]
    assert report.size == sum(file.stat().st_size for file in files)
    about = exact_json.decode(files[0].read_bytes())["extra"]["agentworld"]["dataset"]
    assert about == {"version": version.version, "trajectory_id": "t1", "step_ids": ["t1-0", "t1-1"]}
    assert "agentworld import atif data" in (tmp_path / "out" / "README.md").read_text()
    runs, notes = read_path("auto", tmp_path / "out" / "data")
    assert [run.native_id for run in runs] == ["t1", "t2"]
    assert not notes
    with pytest.raises(ConfigError, match="not written as 'parquet'"):
        export_dataset(memory, version.version, "atif", tmp_path / "other", file_format="parquet")
