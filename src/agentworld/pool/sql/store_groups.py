"""Groups and what is awaited, read."""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy import Select, or_, select

from agentworld.errors import NotFoundError
from agentworld.pool import group_rules, schema
from agentworld.pool.base import check_limit, cursor_for, read_awaited_cursor, read_cursor
from agentworld.pool.results import Awaited, Page
from agentworld.pool.sql import groups, standing
from agentworld.pool.sql.statements import Statement, parameter, sql
from agentworld.pool.sql.store_base import SqlStore
from agentworld.records import Group

_g, _w = schema.groups, schema.awaited
_CLOSED_AT_ONCE = 100


def _list_sql(by_state: bool, by_channel: bool) -> Statement:
    statement: Select[Any] = select(_g).where(_g.c.pk > parameter("after"))
    if by_state:
        statement = statement.where(_g.c.state == parameter("of_state"))
    if by_channel:
        statement = statement.where(_g.c.channel == parameter("of_channel"))
    return sql(statement.order_by(_g.c.pk).limit(parameter("limit")))


_LISTS = {(state, channel): _list_sql(state, channel) for state in (False, True) for channel in (False, True)}
_AWAITED = sql(
    select(_w)
    .where(
        or_(_w.c.target > parameter("kind"), (_w.c.target == parameter("kind")) & (_w.c.target_id > parameter("id")))
    )
    .order_by(_w.c.target, _w.c.target_id)
    .limit(parameter("limit"))
)


class GroupMethods(SqlStore):
    """Groups; targets that signals wait for."""

    def get_group(self, group_id: str) -> Group:
        """See Pool."""
        with self._database.reading() as connection:
            rows = connection.execute(groups.FIND, {"id": group_id})
        if not rows:
            raise NotFoundError(f"no group {group_id!r}", path="group_id")
        return groups.group_from(rows[0])

    def list_groups(
        self,
        *,
        state: Literal["open", "closed"] | None = None,
        channel: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Group]:
        """See Pool."""
        group_rules.check_state(state)
        after = read_cursor(cursor, "oldest") or 0
        bound = {"after": after, "limit": check_limit(limit) + 1, "of_state": state, "of_channel": channel}
        used = ("after", "limit", *(["of_state"] if state else []), *(["of_channel"] if channel else []))
        with self._database.reading() as connection:
            rows = connection.execute(_LISTS[bool(state), bool(channel)], {name: bound[name] for name in used})
        more = cursor_for(rows[limit - 1]["pk"], "oldest") if len(rows) > limit else None
        return Page([groups.group_from(row) for row in rows[:limit]], more)

    def close_due_groups(self) -> int:
        """See Pool."""
        closed = 0
        while True:
            with self._database.reading() as connection:
                if not groups.due(connection, self._clock()):
                    return closed
            now_closed = self._writer.submit(lambda txn: standing.close_due(txn, _CLOSED_AT_ONCE)).result()
            if not now_closed:
                return closed  # Another process was faster, or its clock is behind.
            closed += now_closed

    def awaited(self, *, cursor: str | None = None, limit: int = 100) -> Page[Awaited]:
        """See Pool."""
        kind, target_id = read_awaited_cursor(cursor)
        bound = {"kind": kind, "id": target_id, "limit": check_limit(limit) + 1}
        with self._database.reading() as connection:
            rows = connection.execute(_AWAITED, bound)
        items = [Awaited(row["target"], row["target_id"], row["since"]) for row in rows[:limit]]
        return Page(items, f"{items[-1].kind}:{items[-1].id}" if len(rows) > limit else None)
