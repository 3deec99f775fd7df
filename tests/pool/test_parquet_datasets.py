"""Dataset versions in exports and archives: whole or not at all, and the same on another engine."""

import json
import shutil
import sqlite3
from contextlib import closing

import pyarrow.parquet
import pytest

from agentworld.errors import ConfigError, InvalidRequestError, NotFoundError
from agentworld.pool import open_store
from agentworld.pool.restore import restore
from agentworld.records import Feedback, FrozenStep

from .contract.test_datasets import freeze, row
from .samples import finished


@pytest.fixture
def other(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/other.db")
    yield store
    store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def source(request):
    return request.getfixturevalue(f"{request.param}_pool")


@pytest.fixture
def made(source):
    """Two versions of four trajectories, one of them of another channel."""
    rows = []
    for position, name in enumerate("abcd"):
        channel = "val" if name == "d" else "train"
        said = [Feedback(kind="comment", comment="\ud800\x00", trajectory_id=name, feedback_id=f"f{name}")]
        steps = finished(source, name, reward=1.0, steps=2, channel=channel)
        rows.append(row(position, name, steps, feedback=said))
    return [freeze(source, rows[:3], 1, "small"), freeze(source, rows, 2, "all")], rows


def versions(pool):
    return [(one, pool.dataset_rows(one.version)) for one in pool.list_datasets().items]


def test_a_round_trip_keeps_versions_and_their_rows(source, made, other, tmp_path):
    (small, everything), rows = made
    manifest = source.export_parquet(tmp_path / "out")
    assert (manifest.rows["datasets"], manifest.rows["dataset_rows"]) == (2, 7)
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".json", *[".parquet"] * 11]
    done = other.import_parquet(tmp_path / "out")
    assert (done.datasets, done.datasets_known, done.trajectories) == (2, 0, 4)
    assert versions(other) == versions(source) == [(everything, rows), (small, rows[:3])]
    assert other.get_dataset("small") == small
    assert [pin.trajectory_id for pin in other.pins(owner=small.version)] == ["a", "b", "c"]
    again = other.import_parquet(tmp_path / "out")
    assert (again.datasets, again.datasets_known, again.known) == (0, 2, 4)
    assert versions(other) == versions(source)
    assert other.check() == []


def test_what_is_not_whole_stays_behind(source, made, other, tmp_path):
    (small, _), rows = made
    assert source.export_parquet(tmp_path / "train", channel="train").rows["datasets"] == 1
    assert source.export_parquet(tmp_path / "one", where="reward > 5").rows["datasets"] == 0
    manifest = source.export_parquet(tmp_path / "small", dataset="small")
    assert (manifest.dataset, manifest.rows["trajectories"], manifest.rows["datasets"]) == ("small", 3, 1)
    other.import_parquet(tmp_path / "small")
    assert versions(other) == [(small, rows[:3])]
    assert [one.trajectory_id for one in other.list_trajectories().items] == ["a", "b", "c"]
    with pytest.raises(InvalidRequestError, match="as it is"):
        source.export_parquet(tmp_path / "both", dataset="small", channel="train")
    with pytest.raises(NotFoundError):
        source.export_parquet(tmp_path / "absent", dataset="nothing")
    assert not (tmp_path / "absent").exists()


def test_what_was_deleted_stays_deleted_wherever_a_version_goes(source, made, other, tmp_path):
    (small, _), rows = made
    source.export_parquet(tmp_path / "before")
    source.delete_trajectories(["b"], "asked")
    source.export_parquet(tmp_path / "after", dataset="small")
    other.import_parquet(tmp_path / "after")
    left = other.dataset_rows("small")
    assert left == source.dataset_rows("small")
    assert (left[1].trajectory_id, left[1].digest, left[1].feedback) == ("b", rows[1].digest, [])
    assert left[1].steps == [FrozenStep(one.step_id, one.digest) for one in rows[1].steps]
    assert [(one.target_id, one.reason) for one in other.tombstones()] == [("b", "asked")]
    assert [one.at for one in other.tombstones()] == [one.at for one in source.tombstones() if one.kind == "trajectory"]
    # An export from before the deletion brings nothing of it back.
    done = other.import_parquet(tmp_path / "before")
    assert (done.deleted, done.datasets, done.datasets_known) == (1, 1, 1)
    assert other.dataset_rows("all")[1].feedback == []
    assert other.get_dataset("small") == small
    assert other.check() == []


def test_an_export_that_lacks_a_trajectory_restores_no_version(source, made, other, tmp_path):
    source.export_parquet(tmp_path / "out")
    path = tmp_path / "out" / "dataset_rows.parquet"
    table = pyarrow.parquet.read_table(path)
    changed = [text.replace('"a"', '"Z"', 1) for text in table["record"].to_pylist()]
    column = table.schema.names.index("record")
    pyarrow.parquet.write_table(table.set_column(column, table.schema.field(column), [changed]), path)
    with pytest.raises(ConfigError, match="Z of a dataset is not in the export"):
        other.import_parquet(tmp_path / "out")
    assert other.list_datasets().items == []
    with closing(sqlite3.connect(tmp_path / "other.db")) as database:  # Nothing of it waits for a collection.
        left = [database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("datasets", "dataset_rows")]
    assert left == [0, 0]
    assert other.stats().trajectories == source.stats().trajectories


def test_exports_of_earlier_formats_have_none(source, made, other, tmp_path):
    source.export_parquet(tmp_path / "out")
    path = tmp_path / "out" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["format_version"] = 2
    for name in ("datasets", "dataset_rows"):
        del manifest["rows"][name]
        (tmp_path / "out" / f"{name}.parquet").unlink()
    path.write_text(json.dumps(manifest))
    done = other.import_parquet(tmp_path / "out")
    assert (done.trajectories, done.datasets) == (4, 0)


def test_an_archive_has_them(source, made, tmp_path):
    source.backup(tmp_path / "archive.db")
    before = versions(source)
    restore(tmp_path / "archive.db", f"sqlite:///{tmp_path}/again.db")
    pool = open_store(f"sqlite:///{tmp_path}/again.db")
    try:
        assert versions(pool) == before
        assert len(pool.pins(owner_kind="dataset")) == 7
        assert pool.check() == []
    finally:
        pool.close()
    shutil.rmtree(tmp_path, ignore_errors=True)
