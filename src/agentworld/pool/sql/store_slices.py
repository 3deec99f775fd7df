"""The steps of a pool in slices that several processes read side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import select

from agentworld.pool import schema
from agentworld.pool.base import MAX_PAGE, cursor_for
from agentworld.pool.sql.arrays import read_arrays
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.pages import page_of_keys, rows_of
from agentworld.pool.sql.reads import read_steps
from agentworld.pool.sql.rows import PROMPT_IDS, RESPONSE_IDS
from agentworld.pool.sql.statements import integers, json_list, parameter, sql
from agentworld.pool.sql.store_base import SqlStore
from agentworld.pool.sql.transaction import KEYS

IDS_AT_ONCE = 2_000_000  # of prompts and replies in one table: 8 MB
_COUNTER = sql(select(schema.counters.c.value).where(schema.counters.c.name == parameter("name")))
_t = schema.trajectories.c
_ENDS = sql(select(_t.pk, _t.status, _t.reward).where(_t.pk.in_(integers("rows"))))


class Slice(NamedTuple):
    """Steps with primary keys over `above` and up to `until`, and what is asked of them; `now` is `where`'s."""

    above: int
    until: int
    where: str | None
    channel: str | None
    include: tuple[str, ...]
    now: float


class SliceMethods(SqlStore):
    """Reading by slices of primary keys, which no later write moves."""

    def last_key(self) -> int:
        """The highest primary key that a step has had; every step of now has one from 1 to this."""
        with self._database.reading() as reader:
            found = reader.execute(_COUNTER, {"name": f"{KEYS}steps"})
        return found[0][0] if found else 0

    def now(self) -> float:
        """The store's time, in seconds since the epoch."""
        return self._clock()

    def tables(self, wanted: Slice) -> Iterator[Any]:
        """The slice in commit order as tables of `arrow_tables.steps_table`, of up to 1000 steps and IDS_AT_ONCE ids
        (or one step with more). Each is read in a transaction of its own. There is always one, if an empty one.
        """
        empty = True
        cursor: str | None = cursor_for(wanted.above, "oldest")
        while cursor is not None:
            with self._database.reading() as reader:
                page = page_of_keys(
                    reader, "steps", wanted.where, {"channel": wanted.channel}, "oldest", cursor, MAX_PAGE, wanted.now,
                    wanted.until,
                )  # fmt: skip
                rows = rows_of(reader, "steps", page.keys)
            for portion in _portions(rows):
                with self._database.reading() as reader:
                    yield _table(reader, portion, wanted.include)
                empty = False
            cursor = page.next_cursor
        if empty:
            with self._database.reading() as reader:
                yield _table(reader, [], wanted.include)


def _portions(rows: Sequence[Row]) -> Iterator[list[Row]]:
    portion: list[Row] = []
    held = 0
    for row in rows:
        if portion and held + row["id_count"] > IDS_AT_ONCE:
            yield portion
            portion, held = [], 0
        portion.append(row)
        held += row["id_count"]
    if portion:
        yield portion


def _table(reader: Reader, rows: Sequence[Row], include: Sequence[str]) -> Any:
    from agentworld.pool.arrow_tables import StepRest, steps_table

    # Read again, as a step may have gone since its key was found.
    rows = rows_of(reader, "steps", [row["pk"] for row in rows])
    steps = read_steps(reader, rows, [name for name in include if name == "messages"])
    arrays = {}
    if "tokens" in include or "logprobs" in include:
        arrays = {found.step_id: found for found in read_arrays(reader, [row["pk"] for row in rows])}
    trajectories = {row["trajectory"] for row in rows}
    ends = {row["pk"]: row for row in reader.execute(_ENDS, {"rows": json_list(list(trajectories))})}
    rests = []
    for row in rows:
        end = ends[row["trajectory"]]
        rest = StepRest(end["status"], end["reward"])
        if (found := arrays.get(row["step_id"])) is not None:
            rest = rest._replace(
                prompt=found.ids[: found.prompt_length] if row["present"] & PROMPT_IDS else None,
                response=found.ids[found.prompt_length :] if row["present"] & RESPONSE_IDS else None,
                mask=found.mask,
                logprobs=found.logprobs,
            )
        rests.append(rest)
    return steps_table(steps, rests, include)
