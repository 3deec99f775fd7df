"""Reading many steps at once, and how a query is answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from agentworld.pool.arrays import StepArrays, check_selection
from agentworld.pool.base import MAX_PAGE
from agentworld.pool.sql.arrays import keys_named, keys_of, portions, read_arrays
from agentworld.pool.sql.pages import explain_page, page_of_keys
from agentworld.pool.sql.store_base import SqlStore
from agentworld.query import Explanation, Subject, explain, parse


class ReadMethods(SqlStore):
    """Sequences as arrays, explanations."""

    def sequences(
        self,
        *,
        trajectory_id: str | None = None,
        step_ids: Sequence[str] | None = None,
        where: str | None = None,
        channel: str | None = None,
    ) -> Iterator[StepArrays]:
        """See Pool."""
        check_selection(step_ids, (trajectory_id, where, channel))
        if where is not None:
            parse(where, "steps")
        if step_ids is not None:
            chosen = self._named(list(step_ids))
        elif trajectory_id is not None and where is None and channel is None:
            chosen = self._of(trajectory_id)
        else:
            chosen = self._matching(where, {"trajectory_id": trajectory_id, "channel": channel})
        return self._arrays(chosen)

    def explain(self, where: str, subject: Subject = "trajectories") -> Explanation:
        """See Pool."""
        found = explain(parse(where, subject), subject)
        with self._database.reading() as reader:
            return msgspec.structs.replace(found, plan=explain_page(reader, subject, where, self._clock()))

    def _arrays(self, chosen: Iterator[list[list[int]]]) -> Iterator[StepArrays]:
        # No transaction stays open while the caller works.
        for several in chosen:
            for keys in several:
                with self._database.reading() as reader:
                    found = read_arrays(reader, keys)
                yield from found

    def _of(self, trajectory_id: str) -> Iterator[list[list[int]]]:
        with self._database.reading() as reader:
            found = portions(reader, keys_of(reader, trajectory_id))
        yield found

    def _named(self, step_ids: Sequence[str]) -> Iterator[list[list[int]]]:
        for begin in range(0, len(step_ids), MAX_PAGE):
            with self._database.reading() as reader:
                found = portions(reader, keys_named(reader, step_ids[begin : begin + MAX_PAGE]))
            yield found

    def _matching(self, where: str | None, filters: dict[str, str | None]) -> Iterator[list[list[int]]]:
        cursor = None
        now = self._clock()
        while True:
            with self._database.reading() as reader:
                page = page_of_keys(reader, "steps", where, filters, "oldest", cursor, MAX_PAGE, now)
                found = portions(reader, page.keys)
            yield found
            cursor = page.next_cursor
            if cursor is None:
                return
