"""Taking rows of dataset versions away, and out of them what was deleted on request, in bounded transactions."""

from __future__ import annotations

from functools import partial

from agentworld.pool.sql import datasets
from agentworld.pool.sql.store_base import SqlStore


class DatasetKeeping(SqlStore):
    """What deleting, collecting and building versions share."""

    def _drop_rows(self, number: int) -> None:
        """Take the rows of a version that is on its way out away; of what is frozen nothing."""
        while not self._writer.submit(lambda txn: datasets.drop_part(txn, number)).result():
            pass

    def _drop_broken_off(self, dry_run: bool) -> int:
        """Drop what began a day ago and was not frozen, and what is on its way out; returns how many were begun."""
        with self._database.reading() as reader:
            found = datasets.broken_off(reader, self._clock())
        if not dry_run:
            for row in found:
                self._writer.submit(partial(datasets.drop, number=row["pk"])).result()
                self._drop_rows(row["pk"])
        return sum(row["began_at"] != datasets.DROPPED for row in found)

    def _scrub_rows(self) -> None:
        """Take away what was being built of what was deleted on request, and out of other rows what their comparisons
        say of it.
        """
        with self._database.reading() as reader:
            dropped = datasets.on_the_way_out(reader)
        for number in dropped:
            self._drop_rows(number)
        after = (0, -1)
        while True:
            with self._database.reading() as reader:
                rows = datasets.compared_rows(reader, after)
                changed = datasets.without_deleted(reader, rows)
            if changed:
                self._writer.submit(partial(datasets.rewrite_compared, after=after)).result()
            if len(rows) < datasets.LOOKED_AT_ONCE:
                return
            after = (rows[-1]["dataset"], rows[-1]["position"])
