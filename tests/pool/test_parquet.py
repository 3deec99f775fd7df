"""Export as Parquet and import give equal records, again and again."""

import builtins
import itertools
import json
import re

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentworld import create_dataset
from agentworld.errors import ConfigError, NotFoundError
from agentworld.pool import open_store
from agentworld.pool.partial import partial_folder
from agentworld.pool.sql.writer import Writer
from agentworld.records import (
    Annotation,
    BatchSpec,
    CurationPolicy,
    Decision,
    Exchange,
    Feedback,
    FunctionCall,
    MediaPart,
    Message,
    NewTrajectory,
    Policy,
    Reward,
    Sampling,
    Step,
    TextPart,
    ToolCall,
    Usage,
)
from tests.examples import examples
from tests.pool.samples import finished, group, step

READ = ("tokens", "messages", "logprobs")
_runs = itertools.count()


def contents(pool):
    """All records, without what only one pool's numbers can tell."""
    trajectories = pool.list_trajectories(limit=1000).items
    steps = pool.list_steps(limit=1000, include=READ).items
    return [
        [msgspec.to_builtins(each) for each in trajectories],
        [msgspec.to_builtins(each) for each in steps],
        [msgspec.to_builtins(one) for each in trajectories for one in pool.list_exchanges(each.trajectory_id)],
        [msgspec.to_builtins(each) for each in pool.list_feedback(limit=1000).items],
        [repr(one) for each in trajectories for one in pool.get_annotations(trajectory_id=each.trajectory_id)],
        [
            msgspec.to_builtins(pool.get_group(name))
            for name in sorted({t.group_id for t in trajectories if t.group_id})
        ],
    ]


@pytest.fixture
def other(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/other.db")
    yield store
    store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def source(request):
    return request.getfixturevalue(f"{request.param}_pool")


def fill(pool):
    call = ToolCall(id="c", function=FunctionCall("f", '{"b": 1,\n"a": 2}'))
    rich = step(
        "rich",
        prompt_ids=[*range(300), 2**32 - 1],
        response_ids=[1, 2, 3],
        response_mask=[1, 0, 1],
        response_logprobs=[-0.1, None, -3.5],
        response_message=Message(role="assistant", reasoning="hm\x00\ud800", tool_calls=(call,)),
        tools=[{"z": 1, "a": {"big": 10**30, "small": 5e-324}}],
        sampling=Sampling(temperature=0.7, stop=("x",), seed=3),
        usage=Usage(301, 3),
        labels={"l": None},
        metadata={"deep": [1, {"x": "\ud800"}]},
        rewards={"style": 0.25},
        policy=Policy("m", "r", 7),
        created_at=5.5,
        latency_ms=1.25,
    )
    pool.create_trajectory(NewTrajectory(trajectory_id="rich", task={}, metadata={"k": "\x00"}, user="u", priority=2.5))
    pool.append_steps([rich])
    pool.append_steps(
        [
            step("rich", supersedes=rich.step_id),
            step("rich", prompt_ids=None, response_ids=None, response_logprobs=None),
        ]
    )
    pool.append_steps([step("rich", response_logprobs=[-1.0])])  # Quarantined.
    pool.append_exchange(
        Exchange(
            exchange_id="x1", trajectory_id="rich", dialect="chat", model="m", requested_model="n",
            messages=[], error={"message": "\ud800"},
        )
    )  # fmt: skip
    pool.add_rewards([Reward(value=1.0, step_id=rich.step_id, source="judge", details={"why": "\x00"})])
    pool.add_feedback(
        [Feedback(kind="label", name="q", value={"a": 1}, trajectory_id="rich", comment="\ud800", content="0a" * 32)]
    )
    pool.add_annotations([Annotation(name="v", values=[1.0, 2.0, 3.0], step_id=rich.step_id)])
    pool.add_rewards([Reward(value=0.5, step_id="never", trajectory_id="rich", source="early")])
    pool.complete_trajectory("rich", "finished", 1.0)
    pool.append_steps([step("rich")])  # Late.
    group(pool, "g", [0.0, 1.0, None])
    finished(pool, "failed", status="failed", group_id="h", channel="val")
    pool.create_trajectory(NewTrajectory(trajectory_id="open", group_id="h"))
    return rich


def test_a_round_trip_is_exact(source, other, tmp_path):
    rich = fill(source)
    before = contents(source)
    manifest = source.export_parquet(tmp_path / "out")
    assert manifest.rows["steps"] == source.stats().steps
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["rows"] == manifest.rows
    done = other.import_parquet(tmp_path / "out")
    assert (done.trajectories, done.steps, done.rejected) == (manifest.rows["trajectories"], manifest.rows["steps"], 0)
    assert contents(other) == before
    assert [one.id for one in other.awaited().items] == ["never"]
    assert other.check() == []
    # What came before its step counts once that comes.
    other.append_steps([step("rich", step_id="never")])
    assert other.get_step("never").reward == 0.5
    # What was sent at first is still known as the same.
    assert other.append_steps([rich])[0].outcome == "duplicate"
    assert other.lease(BatchSpec(method="grpo", groups=1, rollouts=2), "policy") is not None


def test_an_import_into_its_own_pool_changes_nothing(source, tmp_path):
    fill(source)
    source.export_parquet(tmp_path / "out")
    before, stats = contents(source), source.stats()
    done = source.import_parquet(tmp_path / "out")
    assert (done.trajectories, done.steps) == (0, 0)
    assert done.known == len(before[0])
    assert (contents(source), source.stats()) == (before, stats)


def test_what_was_broken_off_is_gone_on_with(sqlite_pool, other, tmp_path, monkeypatch):
    fill(sqlite_pool)
    for number in range(60):
        sqlite_pool.append_steps([step("open", metadata={"n": number})])
    sqlite_pool.export_parquet(tmp_path / "out")

    class Stop(Exception):
        pass

    seen = []

    def stop(*told):
        seen.append(told)
        if len(seen) == 5:
            raise Stop

    # Broken off within a trajectory: a check has nothing to say of what is half there.
    submit = Writer.submit
    for number in (2, 4, 6):
        left = iter(range(number))

        def until(self, operation, left=left):
            if next(left, None) is None:
                raise Stop
            return submit(self, operation)

        monkeypatch.setattr(Writer, "submit", until)
        with pytest.raises(Stop):
            other.import_parquet(tmp_path / "out")
        monkeypatch.undo()
        assert other.check() == []
    with pytest.raises(Stop):
        other.import_parquet(tmp_path / "out", progress=stop)
    from agentworld.pool.sql import importing

    original, importing.finish = importing.finish, lambda *_: (_ for _ in ()).throw(Stop)
    try:
        with pytest.raises(Stop):
            other.import_parquet(tmp_path / "out")
    finally:
        importing.finish = original
    other.import_parquet(tmp_path / "out")
    assert contents(other) == contents(sqlite_pool)
    assert other.check() == []


def test_two_exports_to_one_folder_do_not_meet_and_what_a_killed_one_left_is_taken_over(source, tmp_path):
    fill(source)
    folder = tmp_path / "out"
    with partial_folder(folder), pytest.raises(ConfigError, match="another backup or export"):
        source.export_parquet(folder)
    (tmp_path / "out.partial").mkdir()
    for name in ("steps.parquet", "left.parquet"):
        (tmp_path / "out.partial" / name).write_bytes(b"half")
    source.export_parquet(folder)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("out")) == ["out"]
    assert not (folder / "left.parquet").exists()


def test_a_bad_row_becomes_a_dead_letter(sqlite_pool, other, tmp_path):
    finished(sqlite_pool, "a", steps=3, reward=1.0)
    sqlite_pool.export_parquet(tmp_path / "out")
    path = tmp_path / "out" / "steps.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[1]["metadata"] = "{broken"
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    done = other.import_parquet(tmp_path / "out")
    assert (done.steps, done.rejected) == (2, 1)
    (letter,) = other.dead_letters()
    assert letter.step_id == rows[1]["step_id"]
    assert "cannot be read" in letter.reason
    assert other.check() == []


def test_a_step_of_another_trajectory_stays_as_it_is(sqlite_pool, other, tmp_path):
    """Whatever an export says under its id becomes a dead letter, and what it says of the step is left out."""
    finished(sqlite_pool, "a", steps=1, step_changes={"step_id": "same", "labels": {"from": "a"}})
    sqlite_pool.append_steps([step("a", step_id="fine")])
    sqlite_pool.add_rewards([Reward(value=7.0, step_id="same"), Reward(value=3.0, step_id="fine")])
    sqlite_pool.add_feedback([Feedback(kind="comment", comment="of a", step_id="same")])
    sqlite_pool.export_parquet(tmp_path / "out")
    (mine,) = finished(other, "z", step_changes={"step_id": "same", "labels": {"from": "z"}})
    before = msgspec.to_builtins(other.get_step(mine, include=READ))
    done = other.import_parquet(tmp_path / "out")
    assert (done.trajectories, done.steps, done.rejected, done.rewards, done.feedback) == (1, 1, 1, 1, 0)
    assert msgspec.to_builtins(other.get_step(mine, include=READ)) == before
    (letter,) = other.dead_letters()
    assert (letter.step_id, letter.trajectory_id) == ("same", "a")
    assert "another step is there" in letter.reason
    assert other.get_step("fine").reward == 3.0
    assert other.check() == []


def test_what_was_deleted_does_not_come_back(sqlite_pool, other, tmp_path):
    finished(sqlite_pool, "a", reward=1.0)
    finished(sqlite_pool, "b", reward=1.0)
    sqlite_pool.export_parquet(tmp_path / "out")
    other.delete_trajectories(["a"])
    done = other.import_parquet(tmp_path / "out")
    assert (done.trajectories, done.deleted) == (1, 1)
    assert [each.trajectory_id for each in other.list_trajectories().items] == ["b"]


def test_only_what_matches_is_exported(sqlite_pool, tmp_path):
    finished(sqlite_pool, "a", reward=1.0)
    finished(sqlite_pool, "b", reward=0.0)
    finished(sqlite_pool, "c", reward=1.0, channel="val")
    manifest = sqlite_pool.export_parquet(tmp_path / "out", where="reward >= 0.5", channel="train")
    assert manifest.rows["trajectories"] == 1
    table = pq.read_table(tmp_path / "out" / "steps.parquet")
    assert table["trajectory_id"].to_pylist() == ["a"]
    assert str(table.schema.field("prompt_ids").type) == "list<element: uint32>"
    assert str(table.schema.field("response_logprobs").type) == "list<element: float>"
    assert json.loads(table["prompt_messages"][0].as_py())[0]["role"] == "user"


def test_what_cannot_be_is_refused_with_what_to_do(sqlite_pool, tmp_path, monkeypatch):
    finished(sqlite_pool, "a", reward=1.0)
    (tmp_path / "there").mkdir()
    with pytest.raises(ConfigError, match="is there already"):
        sqlite_pool.export_parquet(tmp_path / "there")
    with pytest.raises(NotFoundError, match=r"manifest\.json is missing"):
        sqlite_pool.import_parquet(tmp_path / "there")
    sqlite_pool.export_parquet(tmp_path / "out")
    (tmp_path / "out" / "rewards.parquet").unlink()
    with pytest.raises(ConfigError, match="is missing"):
        sqlite_pool.import_parquet(tmp_path / "out")
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match="needs pyarrow") as error:
        sqlite_pool.export_parquet(tmp_path / "again")
    assert "agentworld[parquet]" in error.value.hint


@pytest.mark.parametrize(
    ("name", "column", "value", "why"),
    [
        ("feedback", "kind", "shout", "kind is 'shout', which means nothing"),
        ("feedback", "value", "{", "feedback.parquet cannot be read"),
        ("rewards", "target_id", "another", "it goes with 'a' and is on 'another'"),
        ("rewards", "source", None, "source is null"),
        ("rewards", "value", "much", "rewards.parquet cannot be read"),
        ("steps", "prompt_ids", [["x"]], "steps.parquet cannot be read"),
        ("trajectories", "metadata", "[", "a row of trajectories.parquet cannot be read"),
        ("steps", "metadata", "{", "a step of a dataset is not in the export, or could not be read"),
        ("decisions", "labels", "7", "labels is no object"),
        ("dataset_rows", "record", None, "a dataset of the export cannot be read"),
        ("manifest", "../../secret", 1, "'../../secret', which is no file of an export"),
    ],
)
def test_an_export_that_somebody_changed_says_what_cannot_be(sqlite_pool, other, tmp_path, name, column, value, why):
    finished(sqlite_pool, "a", reward=1.0)
    sqlite_pool.add_feedback([Feedback(kind="label", trajectory_id="a", name="n", value=1)])
    create_dataset(sqlite_pool, "d")
    sqlite_pool.decide([Decision(verdict="exclude", trajectory_id="a", reason="odd", source="me")])
    sqlite_pool.export_parquet(tmp_path / "out")
    if name == "manifest":
        path = tmp_path / "out" / "manifest.json"
        manifest = json.loads(path.read_text())
        manifest["rows"][column] = value
        path.write_text(json.dumps(manifest))
    else:
        path = tmp_path / "out" / f"{name}.parquet"
        table = pq.read_table(path)
        field = table.schema.names.index(column)
        pq.write_table(table.set_column(field, column, pa.array([value] * table.num_rows)), path)
    with pytest.raises(ConfigError, match=re.escape(why)):
        other.import_parquet(tmp_path / "out")
    assert other.list_datasets().items == []


def test_types_that_another_writer_gave_columns_are_read(sqlite_pool, other, tmp_path):
    finished(sqlite_pool, "a", reward=1.0)
    sqlite_pool.export_parquet(tmp_path / "out")
    for path in (tmp_path / "out").glob("*.parquet"):
        table = pq.read_table(path)
        wider = {pa.string(): pa.large_string(), pa.float32(): pa.float64(), pa.int64(): pa.int32()}
        lists = {pa.list_(pa.uint32()): pa.large_list(pa.int64()), pa.list_(pa.float32()): pa.list_(pa.float64())}
        kinds = [{**wider, **lists}.get(field.type, field.type) for field in table.schema]
        pq.write_table(table.cast(pa.schema(list(zip(table.schema.names, kinds, strict=True)))), path)
    other.import_parquet(tmp_path / "out")
    assert contents(other) == contents(sqlite_pool)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(st.text(max_size=5), json_values, max_size=3)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=st.none() | st.text(max_size=20),
    reasoning=st.none() | st.text(max_size=5),
)


@st.composite
def steps(draw):
    ids = st.lists(st.integers(0, 2**32 - 1), max_size=200)
    reply = draw(st.none() | st.lists(st.integers(0, 200), max_size=5))
    return {
        "prompt_ids": None if reply is None else draw(ids),
        "response_ids": reply,
        "response_logprobs": None if reply is None else draw(st.none() | st.just([-0.5] * len(reply))),
        "prompt_messages": draw(st.none() | st.lists(messages, max_size=3)),
        "response_message": draw(st.none() | messages),
        "tools": draw(st.none() | st.lists(objects, max_size=2)),
        "metadata": draw(objects),
        "labels": draw(objects),
        "rewards": draw(st.dictionaries(st.sampled_from(["reward", "other"]), st.floats(-9, 9), max_size=2)),
        "latency_ms": draw(st.none() | st.floats(0, 1e9)),
    }


@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps(), min_size=1, max_size=4), objects, st.sampled_from([None, "finished", "failed"]))
def test_any_records_come_back_as_they_were(sqlite_pool, other, tmp_path, drawn, metadata, status):
    run = next(_runs)
    name = f"t{run}"
    sqlite_pool.create_trajectory(NewTrajectory(trajectory_id=name, metadata=metadata, task=metadata or None))
    sqlite_pool.append_steps([step(name, **changes) for changes in drawn])
    if status is not None:
        sqlite_pool.complete_trajectory(name, status)
    sqlite_pool.export_parquet(tmp_path / f"out{run}", where=f"trajectory_id == '{name}'")
    other.import_parquet(tmp_path / f"out{run}")
    assert msgspec.to_builtins(other.get_trajectory(name)) == msgspec.to_builtins(sqlite_pool.get_trajectory(name))
    both = [pool.list_steps(trajectory_id=name, include=READ).items for pool in (sqlite_pool, other)]
    assert msgspec.to_builtins(both[0]) == msgspec.to_builtins(both[1])


def test_what_people_decided_comes_along_and_what_a_policy_did_is_decided_anew(source, other, tmp_path):
    names = finished(source, "a", reward=0.0, steps=2)
    finished(source, "b", reward=0.0)
    low = CurationPolicy(rules=("when reward < 1 then exclude 'low'", "when has reward then tag seen"))
    source.set_curation(low)
    source.decide([Decision(verdict="exclude", step_id=names[0], reason="leaks", source="ann")])
    source.decide([Decision(verdict="ready", trajectory_id="b", source="ann")])
    source.export_parquet(tmp_path / "export")
    other.import_parquet(tmp_path / "export")
    assert [one.readiness for one in other.list_trajectories().items] == ["ready", "ready"]
    assert [one.labels for one in other.list_trajectories().items] == [{}, {}]
    assert other.get_step(names[0]).excluded_reason == "manual: leaks"
    assert [(one.by, one.source) for one in other.decisions(trajectory_id="a")] == [("manual", "ann")]
    assert other.check() == []
    other.set_curation(low)
    assert [one.readiness for one in other.list_trajectories().items] == ["excluded", "ready"]
    other.decide([Decision(verdict=None, step_id=names[0]), Decision(verdict=None, trajectory_id="b")])
    assert other.get_step(names[0]).readiness == "excluded"
    assert other.get_trajectory("b").excluded_reason == "rule: low"
    assert other.check() == []


def test_a_policy_that_is_in_force_decides_what_is_imported(source, other, tmp_path):
    finished(source, "a", reward=0.0)
    source.export_parquet(tmp_path / "export")
    other.set_curation(CurationPolicy(rules=("when reward < 1 then exclude 'low'",)))
    other.import_parquet(tmp_path / "export")
    assert other.get_trajectory("a").excluded_reason == "rule: low"
    assert other.check() == []


def test_an_export_of_the_first_format_is_read(source, other, tmp_path):
    finished(source, "a", reward=0.0)
    source.export_parquet(tmp_path / "export")
    (tmp_path / "export" / "decisions.parquet").unlink()
    manifest = json.loads((tmp_path / "export" / "manifest.json").read_text())
    manifest["format_version"] = 1
    del manifest["rows"]["decisions"]
    (tmp_path / "export" / "manifest.json").write_text(json.dumps(manifest))
    other.import_parquet(tmp_path / "export")
    assert contents(other) == contents(source)


def test_an_export_that_does_not_tell_what_feedback_saw_is_read(source, other, tmp_path):
    finished(source, "a", reward=0.0)
    source.add_feedback([Feedback(kind="rating", value=1, trajectory_id="a")])
    source.export_parquet(tmp_path / "export")
    file = tmp_path / "export" / "feedback.parquet"
    parquet = pq
    parquet.write_table(parquet.read_table(file).drop_columns(["content"]), file)
    other.import_parquet(tmp_path / "export")
    assert contents(other) == contents(source)


def test_media_go_with_what_shows_them(source, other, tmp_path):
    shown, answered = (source.put_media(data, "image/png") for data in (b"shown", b"answered"))
    source.put_media(b"nobody shows this", "image/png")
    part = {digest: MediaPart(digest=digest, media_type="image/png") for digest in (shown, answered, "0" * 32)}
    prompt = [Message(role="user", content=(TextPart("look"), part[shown], part[shown], part["0" * 32]))]
    reply = Message(role="assistant", content=(part[answered],))
    source.append_steps([Step(step_id="s", trajectory_id="t", prompt_messages=prompt, response_message=reply)])
    folder = tmp_path / "export"
    manifest = source.export_parquet(folder)
    assert (manifest.rows["media"], manifest.media_missing) == (2, 1)
    assert other.import_parquet(folder).media == 2
    assert [other.get_media(digest).data for digest in (shown, answered)] == [b"shown", b"answered"]
    assert other.get_media(shown).media_type == "image/png"
    assert other.import_parquet(folder).known == 1
    path = folder / "media.parquet"
    rows = pq.read_table(path).to_pylist()
    rows[0]["data"] = b"other"
    pq.write_table(pa.Table.from_pylist(rows), path)
    with pytest.raises(ConfigError, match=f"the medium {rows[0]['digest']} is damaged"):
        other.import_parquet(folder)
    path.unlink()
    with pytest.raises(ConfigError, match=r"media\.parquet is missing"):
        other.import_parquet(folder)
