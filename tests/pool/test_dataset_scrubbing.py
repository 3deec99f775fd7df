"""What rows of versions keep where two deletions on request meet, and where threads read at once."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from agentworld.pool.sql import datasets
from agentworld.pool.sql.dataset_records import pack, row_from
from agentworld.pool.sqlite import SqlitePool
from agentworld.records import Feedback
from tests.pool.contract.test_datasets import freeze, row
from tests.pool.samples import finished


def test_a_row_whose_trajectory_goes_meanwhile_says_nothing_again(tmp_path, monkeypatch):
    with closing(SqlitePool(tmp_path / "pool.db")) as pool:
        for name in "ab":
            finished(pool, name)
        said = [Feedback(kind="comparison", trajectory_id="a", other_id="b", feedback_id="f", comment="secret")]
        version = freeze(pool, [row(0, "a", [], feedback=said, labels={"l": "secret"}), row(1, "b", [])])
        look, seen = datasets.without_deleted, []

        def between(reader, rows):
            found = look(reader, rows)
            if not seen:
                seen.append(len(found))
                pool.delete_trajectories(["a"], reason="too")
            return found

        monkeypatch.setattr(datasets, "without_deleted", between)
        pool.delete_trajectories(["b"], reason="asked for it")
        assert seen == [1]
        first, _ = pool.dataset_rows(version.version)
        assert (first.labels, [one.comment for one in first.feedback]) == ({}, [])


def test_threads_pack_and_read_rows_at_once():
    rows = [row(number, f"t{number}", ["s"], labels={"l": str(number) * 20_000}) for number in range(8)]

    def there_and_back(one):
        return all(row_from(pack(one).values["record"]) == one for _ in range(30))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(there_and_back, rows))
