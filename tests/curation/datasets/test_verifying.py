"""Versions are what they were, or it is said how not; and each row is traced back to the calls of the agent."""

import json

import msgspec
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from agentworld.curation.datasets.exported import exported_row
from agentworld.curation.datasets.reading import read_version, rows_of
from agentworld.curation.datasets.selecting import create_dataset
from agentworld.curation.datasets.tracing import trace_row
from agentworld.curation.datasets.verifying import verify_dataset
from agentworld.errors import ConfigError, InvalidRequestError, NotFoundError
from agentworld.pool.dataset_rules import digested_task
from agentworld.pool.keeping import Retention
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import Decision, Evaluation, Feedback, Reward, Selection, Splits
from tests.curation.datasets.filling import AT, POLICY, fill, run

EVERYTHING = Selection(splits=Splits(fractions={"train": 0.5, "test": 0.5}))


def test_a_version_verifies_whatever_is_said_later_and_after_a_collection(pool):
    fill(pool)
    for number in range(3):
        run(pool, f"other{number}", channel="val")
    made = create_dataset(pool, "d", EVERYTHING)
    pool.add_rewards([Reward(value=0.0, trajectory_id="t1")])
    pool.add_feedback([Feedback(kind="label", step_id="t1-1", name="bad", value=True)])
    pool.decide([Decision(verdict="exclude", trajectory_id="t2", reason="bad")])
    assert pool.collect(Retention(max_steps=0), include_waiting=True).trajectories == 3
    found = verify_dataset(pool, made.version)
    assert (found.ok, found.rows, found.steps, found.problems, found.manifest) == (10, 10, 19, [], [])
    assert found.is_ok
    assert found.is_intact


def test_what_was_deleted_on_request_is_reported_with_the_reason(pool):
    fill(pool)
    made = create_dataset(pool, "d", EVERYTHING)
    pool.delete_trajectories(["t2"], "asked for it")
    told = []
    found = verify_dataset(pool, made.version, told=told.append, problems=1)
    assert (found.ok, found.deleted, found.reduced, found.missing, found.manifest) == (8, 1, 1, 0, [])
    assert found.is_intact
    assert not found.is_ok
    deleted, compared = told
    assert (deleted.trajectory_id, deleted.state, deleted.reason) == ("t2", "deleted", "asked for it")
    assert deleted.at is not None
    # What t3 was said to be better than is gone, and so is what was said of it.
    assert (compared.trajectory_id, compared.state) == ("t3", "reduced")
    assert "t2" in compared.what[0]
    assert found.problems == [deleted]
    row = next(row for row in rows_of(pool, made.version) if row.trajectory_id == "t2")
    assert (row.labels, row.feedback, row.reward) == ({}, [], None)
    assert row.task_key == digested_task("sums/1") == digested_task(row.task_key)
    origin = trace_row(pool, "d", trajectory_id="t2")
    assert (origin.state, origin.reason, len(origin.steps)) == ("deleted", "asked for it", 2)
    assert trace_row(pool, "d", step_id="t2-1").trajectory_id == "t2"


def test_any_other_change_is_named(memory):
    for number in range(8):
        run(memory, f"t{number}", task={"task_id": number, "reference": 1} if number == 7 else None)
    made = create_dataset(memory, "d")
    state = memory._state
    state.trajectories["t7"].task = {"task_id": 7, "reference": True}
    state.steps["t0-0"].step.policy = None
    state.steps["t1-1"].prepared.logprobs[0] = -0.25
    built = next(iter(state.datasets.values()))
    built.rows[2].labels = {"a": 1}
    built.rows[3] = msgspec.structs.replace(built.rows[3], digest="00" * 16)
    for name in ("t4-0", "t5-0", "t5-1"):
        state.steps_of[name[:2]].remove(name)
        del state.steps[name]
    for name in ("t6", "t5"):
        del state.trajectories[name]
    found = verify_dataset(memory, made.version)
    assert {one.trajectory_id: (one.state, one.what) for one in found.problems} == {
        "t0": ("changed", ["step t0-0 has another content"]),
        "t1": ("changed", ["step t1-1 has another content"]),
        "t2": ("changed", ["what the row says of it is not what was frozen"]),
        "t3": ("changed", ["what the row says of it is not what was frozen"]),
        "t4": ("changed", ["step t4-0 is not there"]),
        "t5": ("missing", []),
        "t6": ("missing", []),
        "t7": ("changed", ["its task is another one"]),
    }
    assert len(found.manifest) == 1  # Of the digest that was changed.
    gone = []
    assert [one.row.trajectory_id for one in read_version(memory, "d", skipped=gone.append)] == [
        "t0", "t1", "t2", "t3", "t7",
    ]  # fmt: skip
    assert [(one.trajectory_id, one.why) for one in gone] == [("t4", "steps"), ("t5", "missing"), ("t6", "missing")]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"note": "another"}, "the manifest is not what was frozen"),
        ({"rows": 9}, "3 rows are there, the manifest counts 9"),
        ({"digest": "00" * 16, "version": f"d@{'00' * 16}"}, "the rows together have the digest"),
        ({"splits": {}}, "other rows or steps of splits"),
    ],
)
def test_a_manifest_that_was_changed_is_named(memory, changes, says):
    for number in range(3):
        run(memory, f"t{number}")
    create_dataset(memory, "d")
    built = next(iter(memory._state.datasets.values()))
    built.version = msgspec.structs.replace(built.version, **changes)
    found = verify_dataset(memory, "d")
    assert not found.is_intact
    assert any(says in line for line in found.manifest)


@pytest.mark.parametrize("pool", ["sqlite", "postgres"], indirect=True)
def test_a_version_is_the_same_on_another_engine_after_it_was_collected_exported_and_imported(pool, tmp_path):
    origin = SqlitePool(tmp_path / "origin.db")
    fill(origin)
    made = create_dataset(origin, "d", EVERYTHING, note="n")
    for number in range(3):
        run(origin, f"later{number}")
    origin.collect(Retention(max_steps=0), include_waiting=True)
    origin.export_parquet(tmp_path / "export")
    pool.import_parquet(tmp_path / "export")
    assert pool.get_dataset("d") == made == origin.get_dataset("d")
    assert list(rows_of(pool, "d")) == list(rows_of(origin, "d"))
    for there in (pool, origin):
        found = verify_dataset(there, made.version)
        assert (found.is_ok, found.problems, found.manifest) == (True, [], [])
        there.set_curation(POLICY)  # Policies stay where they are; what they weighed is in the rows.
        assert create_dataset(there, "again", EVERYTHING).digest == made.digest
    assert len(pool.pins(owner_kind="dataset", owner=made.version)) == 10
    origin.close()


def test_a_row_is_traced_to_the_calls_and_to_what_let_it_in(pool):
    fill(pool)
    pool.decide([Decision(verdict="ready", trajectory_id="t1", reason="fine", source="ann")])
    digests = {"fingerprint": b"f" * 16, "content": b"c" * 16}
    pool.put_evaluations([Evaluation(evaluator="judge", target="trajectory", target_id="t1", state="ok", **digests)])
    made = create_dataset(pool, "d", EVERYTHING)
    called = trace_row(pool, "d", trajectory_id="called")
    (step, other) = called.steps
    assert (step.step_id, step.exchange_id, step.dialect, step.requested_model) == ("called-0", "call", "chat", "any")
    assert (step.created_at, step.latency_ms, step.policy.version) == (AT, 12.0, 1)
    frozen = {row.trajectory_id: row for row in rows_of(pool, "d")}
    assert [step.digest, other.digest] == [one.digest for one in frozen["called"].steps]
    row = frozen["called"]
    assert (called.version, called.position, called.digest) == (made.version, row.position, row.digest)
    assert [one.name for one in called.policies] == ["weighing"]
    found = trace_row(pool, made.version[:10], step_id="t1-0")
    assert [one.step_id for one in found.steps] == ["t1-0"]
    assert sorted((one.name, one.value, one.source, one.step_id) for one in found.rewards) == [
        ("reward", 0.1, "complete", None),
        ("style", 0.0, "judge", None),
        ("tests", 2.0, "checker", "t1-0"),
    ]
    by_hand = [(one.verdict, one.reason, one.source) for one in found.decisions if one.by == "manual"]
    assert by_hand == [("ready", "fine", "ann")]
    assert [one.evaluator for one in found.evaluations] == ["judge"]
    assert (found.task, found.task_key, found.cluster, found.status) == (
        {"task_id": 0, "task_set": "sums"},
        "sums/0",
        "t0",
        "finished",
    )
    for arguments in ({"trajectory_id": "none"}, {"step_id": "none"}, {"step_id": "t9-9"}):
        with pytest.raises(NotFoundError):
            trace_row(pool, "d", **arguments)
    for arguments in ({}, {"trajectory_id": "t1", "step_id": "t1-0"}):
        with pytest.raises(InvalidRequestError):
            trace_row(pool, "d", **arguments)
    with pytest.raises(InvalidRequestError):
        trace_row(pool, trajectory_id="t1")


def test_a_row_of_an_export_is_traced(memory, tmp_path):
    run(memory, "t1", metadata={"import": {"format": "atif", "file": "a.json"}})
    run(memory, "t2")
    made = create_dataset(memory, "d")
    about = {"version": made.version, "trajectory_id": "t1", "step_ids": ["t1-1"]}
    rows = [{"messages": [], "agentworld": {**about, "trajectory_id": "t2", "step_ids": []}}, {"agentworld": about}]
    lines, table, plain = tmp_path / "a.jsonl", tmp_path / "a.parquet", tmp_path / "plain.parquet"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{broken\n[]\n")
    parquet.write_table(pa.Table.from_pylist(rows), table, row_group_size=1)
    parquet.write_table(pa.table({"a": [1]}), plain)
    for file in (lines, table):
        found = trace_row(memory, exported=exported_row(file, 1))
        assert (found.trajectory_id, [one.step_id for one in found.steps]) == ("t1", ["t1-1"])
        assert found.imported == {"format": "atif", "file": "a.json"}
        assert len(trace_row(memory, exported=exported_row(file, 0)).steps) == 2
    assert trace_row(memory, exported={"agentworld": json.dumps(about)}) == found
    document = tmp_path / "a.json"
    document.write_text(json.dumps({"extra": {"agentworld": {"dataset": about}}}))
    assert trace_row(memory, exported=exported_row(document, 0)) == found
    with pytest.raises(NotFoundError):
        exported_row(document, 1)
    for file, number, error in (
        (lines, 2, InvalidRequestError),
        (lines, 9, NotFoundError),
        (table, 2, NotFoundError),
        (table, -1, InvalidRequestError),
        (tmp_path / "none.jsonl", 0, ConfigError),
        (tmp_path / "none.parquet", 0, ConfigError),
    ):
        with pytest.raises(error):
            exported_row(file, number)
    broken = tmp_path / "broken.parquet"
    broken.write_text("no parquet")
    with pytest.raises(InvalidRequestError):
        exported_row(broken, 0)
    for row in (exported_row(lines, 3), exported_row(plain, 0), {"agentworld": "{}"}, {"agentworld": 1}):
        with pytest.raises(InvalidRequestError, match="no column 'agentworld'"):
            trace_row(memory, exported=row)
