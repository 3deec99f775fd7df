"""Deletion on request and retention over HTTP, for who has the scope admin."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import delete, post
from litestar.datastructures import State
from litestar.params import FromPath, QueryParameter, RawBody

from agentworld.api.access import reach
from agentworld.api.bodies import decode
from agentworld.client.wire import API
from agentworld.pool.keeping import Collection, Deletion, Retention

Reason = Annotated[str | None, QueryParameter(description="Kept in the tombstone")]
Purge = Annotated[bool, QueryParameter(description="Then rewrite the pool, so that no file of it holds what is gone")]


class DeletionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose records are to go. `purge`: then rewrite the pool, so that no file of it holds them; writers wait."""

    user: Annotated[str, msgspec.Meta(min_length=1)]
    reason: str | None = None
    purge: bool = False


class RetentionRequest(Retention, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What may go; without any limit only garbage does. `dry_run`: only say what would. `include_waiting`: also what a
    consumer has not had yet.
    """

    dry_run: bool = False
    include_waiting: bool = False
    purge: bool = False


@delete(f"{API}/trajectories/{{trajectory_id:str}}", status_code=200, sync_to_thread=True)
def delete_trajectory(
    state: State, trajectory_id: FromPath[str], reason: Reason = None, purge: Purge = False
) -> Deletion:
    """Delete a trajectory for good, with all that is its own, whatever pins or leases hold it. Again is no error."""
    pool = reach(state)
    done: Deletion = pool.delete_trajectories([trajectory_id], reason)
    if purge:
        pool.purge()
    return done


@post(f"{API}/pool/delete", status_code=200, sync_to_thread=True, opt={"body": DeletionRequest})
def delete_user(state: State, body: RawBody) -> Deletion:
    """Delete everything of one user for good, whatever pins or leases hold it."""
    sent, pool = decode(body, DeletionRequest), reach(state)
    done: Deletion = pool.delete_user(sent.user, sent.reason)
    if sent.purge:
        pool.purge()
    return done


@post(f"{API}/pool/retain", status_code=200, sync_to_thread=True, opt={"body": RetentionRequest})
def retain(state: State, body: RawBody) -> Collection:
    """Take out what retention names, then content that nothing refers to any more, in short transactions."""
    sent, pool = decode(body, RetentionRequest), reach(state)
    retention = Retention(**{name: getattr(sent, name) for name in Retention.__struct_fields__})
    done: Collection = pool.collect(retention, dry_run=sent.dry_run, include_waiting=sent.include_waiting)
    if sent.purge and not sent.dry_run:
        pool.purge()
    return done


ROUTES = [delete_trajectory, delete_user, retain]
