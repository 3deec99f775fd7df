"""Taking out of events what deleted trajectories held, and the mark of deletions that were broken off.

Events have no index by trajectory, so they are looked through in ranges once the trajectories are gone. A deletion
takes a number when it begins; `SCRUBBED` is the highest one up to which all deletions have come to their end. Where the
two differ when a deletion or a collection begins, one was broken off, and what it left is looked for everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import and_, func, or_, select, update

from agentworld.pool import schema
from agentworld.pool.keeping.events import kept_data
from agentworld.pool.sql.connections import Reader
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.rows import json_or_none
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction

EVENTS_AT_ONCE = 5_000
ASKED = "gc.deletions_begun"
SCRUBBED = "gc.deletions_ended"

_e, _tomb = schema.events, schema.tombstones
_LAST = sql(select(func.coalesce(func.max(_e.c.pk), 0)))


def _deleted(kind: str) -> Any:
    return select(_tomb.c.target_id).where(_tomb.c.kind == kind)


_in_range = and_(_e.c.pk > parameter("above"), _e.c.pk <= parameter("upto"), _e.c.data.is_not(None))
# Of signals that came before their step and did not say whose it is.
_of_step = and_(_e.c.trajectory_id.is_(None), _e.c.step_id.in_(_deleted("step")))
_EVENTS = sql(select(_e.c.pk, _e.c.data).where(_in_range, or_(among_texts(_e.c.trajectory_id, "ids"), _of_step)))
_EVENTS_OF_DELETED = sql(
    select(_e.c.pk, _e.c.data).where(_in_range, or_(_e.c.trajectory_id.in_(_deleted("trajectory")), _of_step))
)
_SET_EVENT = sql(update(_e).where(_e.c.pk == parameter("row")).values(data=parameter("data")))


def begin(txn: Transaction) -> int:
    """The number of a deletion that begins."""
    txn.count(ASKED)
    return txn.counter(ASKED)


def is_next(txn: Transaction, number: int) -> bool:
    """Whether all deletions before this one have come to their end."""
    return txn.counter(SCRUBBED) >= number - 1


def end(txn: Transaction, number: int) -> None:
    """Note that the deletions up to this number have come to their end."""
    txn.count(SCRUBBED, max(0, number - txn.counter(SCRUBBED)))


def last_event(reader: Reader) -> int:
    """The number of the newest event."""
    return int(reader.execute(_LAST)[0][0])


def scrub_events(reader: Reader, trajectory_ids: Sequence[str] | None, above: int, upto: int) -> list[dict[str, Any]]:
    """For the events of a range that tell of these trajectories (None: of all with a tombstone): the rows as they must
    become.
    """
    bound: dict[str, Any] = {"above": above, "upto": upto}
    if trajectory_ids is None:
        found = reader.execute(_EVENTS_OF_DELETED, bound)
    else:
        found = reader.execute(_EVENTS, {**bound, "ids": json_list(trajectory_ids)})
    changed = []
    for row in found:
        data = msgspec.json.decode(row["data"])
        if (kept := kept_data(data)) != data:
            changed.append({"row": row["pk"], "data": json_or_none(kept)})
    return changed


def write_scrubbed(txn: Transaction, rows: Sequence[dict[str, Any]]) -> None:
    """Write what `scrub_events` gave."""
    txn.many(_SET_EVENT, rows)
