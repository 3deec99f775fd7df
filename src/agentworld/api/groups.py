"""Groups, and what signals wait for."""

from __future__ import annotations

from typing import Literal

from litestar import get
from litestar.datastructures import State
from litestar.params import FromPath, FromQuery

from agentworld.api.access import reach
from agentworld.api.trajectories import Cursor
from agentworld.api.trajectories import Limit as PageLimit
from agentworld.client.wire import API
from agentworld.pool.protocol import Awaited, Page
from agentworld.records import Group


@get(f"{API}/groups", sync_to_thread=True)
def list_groups(
    state: State,
    closed: FromQuery[bool | None] = None,
    channel: FromQuery[str | None] = None,
    cursor: Cursor = None,
    limit: PageLimit = 100,
) -> Page[Group]:
    """One page of groups by the creation of their first trajectory."""
    wanted: Literal["open", "closed"] | None = None if closed is None else "closed" if closed else "open"
    page: Page[Group] = reach(state).list_groups(state=wanted, channel=channel, cursor=cursor, limit=limit)
    return page


@get(f"{API}/groups/{{group_id:str}}", sync_to_thread=True)
def get_group(state: State, group_id: FromPath[str]) -> Group:
    """One group with its numbers."""
    group: Group = reach(state).get_group(group_id)
    return group


@get(f"{API}/awaited", sync_to_thread=True)
def awaited(state: State, cursor: Cursor = None, limit: PageLimit = 100) -> Page[Awaited]:
    """Steps and trajectories that signals wait for."""
    page: Page[Awaited] = reach(state).awaited(cursor=cursor, limit=limit)
    return page


ROUTES = [list_groups, get_group, awaited]
