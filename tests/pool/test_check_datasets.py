"""What `pool check` says of dataset versions that something else has written to."""

import sqlite3

import pytest

from .contract.test_datasets import digest, manifest, row
from .samples import finished


@pytest.fixture
def spoil(sqlite_pool):
    """Runs SQL on the pool's file, which has a version of three trajectories; gives what a check says then."""
    rows = [row(position, name, finished(sqlite_pool, name, steps=2)) for position, name in enumerate("abc")]
    building = sqlite_pool.begin_dataset("math")
    sqlite_pool.put_dataset_rows(building, rows)
    sqlite_pool.freeze_dataset(building, manifest("math", 1, 3))
    sqlite_pool.put_dataset_rows(sqlite_pool.begin_dataset("math"), rows)
    assert sqlite_pool.check() == []

    def run(*statements):
        with sqlite3.connect(sqlite_pool.path, isolation_level=None) as connection:
            for statement in statements:
                connection.execute(statement)
        return {(one.kind, one.table, one.message) for one in sqlite_pool.check()}

    return run


@pytest.mark.parametrize(
    ("statement", "kind", "table", "message"),
    [
        ("DELETE FROM dataset_rows WHERE dataset = 1 AND position = 2", "count", "datasets", "counts 3 rows, 2 are"),
        ("DELETE FROM dataset_rows WHERE dataset = 2 AND position = 1", "sequence", "datasets", "last of 2 rows has"),
        ("UPDATE dataset_rows SET split = 'test'", "count", "datasets", "counts 2 rows of train, 0 are there"),
        ("UPDATE dataset_rows SET digest = x'00'", "hash", "dataset_rows", "its columns and its record differ"),
        ("UPDATE dataset_rows SET record = x'00'", "hash", "dataset_rows", "cannot be read"),
        (f"UPDATE datasets SET digest = '{digest(9)}' WHERE pk = 1", "hash", "datasets", "the manifest is of math@"),
        ("UPDATE datasets SET manifest = '7' WHERE pk = 1", "hash", "datasets", "the manifest cannot be read"),
        ("UPDATE dataset_rows SET dataset = 7 WHERE dataset = 1", "reference", "dataset_rows", "names row 7"),
        ("UPDATE trajectories SET trajectory_id = 'z' WHERE pk = 1", "reference", "dataset_rows", "neither there nor"),
        ("UPDATE steps SET step_id = 'z' WHERE pk = 1", "reference", "dataset_rows", "trajectory a has no step"),
    ],
)
def test_each_fault_is_named(spoil, statement, kind, table, message):
    found = spoil(statement)
    assert any((of, where) == (kind, table) and message in said for of, where, said in found), found
