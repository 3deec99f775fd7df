"""Marks of calls, on SQL engines."""

from __future__ import annotations

from collections.abc import Sequence

from agentworld.pool.call_marks import CallMark
from agentworld.pool.media import read_digest
from agentworld.pool.sql import call_marks
from agentworld.pool.sql.store_base import SqlStore
from agentworld.records import check_id


class CallMarkMethods(SqlStore):
    """See Pool."""

    def mark_call(self, trajectory_id: str, mark: str) -> None:
        """See Pool."""
        check_id(trajectory_id, "trajectory_id")
        named = read_digest(mark)
        self._writer.submit(lambda txn: call_marks.ask(txn, named, trajectory_id)).result()

    def find_marks(self, marks: Sequence[str]) -> list[CallMark]:
        """See Pool."""
        with self._database.reading() as reader:
            return call_marks.find(reader, [read_digest(mark) for mark in marks], self._clock())

    def take_reply(self, marks: Sequence[str]) -> str | None:
        """See Pool."""
        named = [read_digest(mark) for mark in marks]
        with self._database.reading() as reader:
            for mark in named:
                if rows := call_marks.find(reader, [mark], self._clock()):
                    break
            else:
                return None
        if len(rows) == 1:
            return rows[0].trajectory_id
        return self._writer.submit(lambda txn: call_marks.take(txn, mark)).result()
