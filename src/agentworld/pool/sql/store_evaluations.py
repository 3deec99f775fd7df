"""Evaluations and followers of the SQL stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from agentworld.pool import schema
from agentworld.pool.base import check_limit, cursor_for, read_cursor
from agentworld.pool.bounds import check_name
from agentworld.pool.exact_text import read_json, stored_json
from agentworld.pool.results import Page
from agentworld.pool.review_rules import (
    check_digests,
    check_evaluated,
    check_evaluations,
    check_follower,
    overtaken,
)
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.rows import from_json, json_or_none
from agentworld.pool.sql.statements import Statement, json_list, parameter, sql
from agentworld.pool.sql.store_base import SqlStore
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Evaluation, EvaluationState, EvaluationTarget, Follower

_e, _f = schema.evaluations, schema.followers
_KEY = ("evaluator", "target", "target_id")
_said = upsert(_e).values({column.name: parameter(column.name) for column in _e.c})
_PUT = sql(
    _said.on_conflict_do_update(
        index_elements=_KEY,
        set_={column.name: _said.excluded[column.name] for column in _e.c if column.name not in _KEY},
    )
)
_KNOWN = sql(
    select(_e)
    .where(_e.c.content == parameter("digest"), _e.c.fingerprint == parameter("mark"), _e.c.state == "ok")
    .order_by(_e.c.pk.desc())
    .limit(1)
)
_THERE = {
    kind: sql(select(column).where(among_texts(column, "ids")))
    for kind, column in (
        ("trajectory", schema.trajectories.c.trajectory_id),
        ("step", schema.steps.c.step_id),
        ("group", schema.groups.c.group_id),
    )
}
_LOAD = sql(select(_f).where(_f.c.name == parameter("who")))
_BEGIN = sql(insert(_f).values({column.name: parameter(column.name) for column in _f.c}))
_GO_ON = sql(
    update(_f)
    .where(_f.c.name == parameter("who"))
    .values({name: parameter(name) for name in ("position", "state", "revision", "at")})
)


def _listing(names: tuple[str, ...]) -> Statement:
    found = select(_e).where(_e.c.pk > parameter("after"))
    for name in names:
        found = found.where(_e.c[name] == parameter(f"of_{name}"))
    return sql(found.order_by(_e.c.pk).limit(parameter("limit")))


_LISTS = {
    names: _listing(names)
    for names in (
        (*evaluator, *target, *state)
        for evaluator in ((), ("evaluator",))
        for target in ((), ("target", "target_id"))
        for state in ((), ("state",))
    )
}


class EvaluationMethods(SqlStore):
    """See agentworld.pool.curation_methods."""

    def put_evaluations(self, evaluations: Sequence[Evaluation]) -> int:
        """See Pool."""
        sent = check_evaluations(evaluations)

        def operation(txn: Transaction) -> int:
            # The last of several on one target stands, and nothing stays of a target that was deleted meanwhile.
            latest = {(one.evaluator, one.target, one.target_id): one for one in sent}
            there = {kind: _there(txn, kind, [one.target_id for one in sent if one.target == kind]) for kind in _THERE}
            kept = [one for one in latest.values() if one.target_id in there[one.target]]
            txn.many(_PUT, [_row_of(txn, one) for one in kept])
            return len(kept)

        return self._writer.submit(operation).result()

    def list_evaluations(
        self,
        *,
        evaluator: str | None = None,
        target: EvaluationTarget | None = None,
        target_id: str | None = None,
        state: EvaluationState | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Evaluation]:
        """See Pool."""
        check_evaluated(target, target_id, state)
        after = read_cursor(cursor, "oldest") or 0
        given = {"evaluator": evaluator, "target": target, "target_id": target_id, "state": state}
        wanted = {name: value for name, value in given.items() if value is not None}
        bound: dict[str, Any] = {f"of_{name}": value for name, value in wanted.items()}
        with self._database.reading() as reader:
            rows = reader.execute(_LISTS[tuple(wanted)], {**bound, "after": after, "limit": check_limit(limit) + 1})
        more = cursor_for(rows[limit - 1]["pk"], "oldest") if len(rows) > limit else None
        return Page([_record(row) for row in rows[:limit]], more)

    def known_evaluations(self, fingerprint: bytes, contents: Sequence[bytes]) -> dict[bytes, Evaluation]:
        """See Pool."""
        found: dict[bytes, Evaluation] = {}
        with self._database.reading() as reader:
            for content in check_digests(fingerprint, contents):
                for row in reader.execute(_KNOWN, {"digest": content, "mark": fingerprint}):
                    found[content] = _record(row)
        return found

    def load_follower(self, name: str) -> Follower | None:
        """See Pool."""
        check_name(name, "name")
        with self._database.reading() as reader:
            rows = reader.execute(_LOAD, {"who": name})
        return _follower(rows[0]) if rows else None

    def save_follower(self, name: str, position: int, state: bytes | None = None, *, revision: int = 0) -> Follower:
        """See Pool."""
        check_follower(name, position, state, revision)

        def operation(txn: Transaction) -> Follower:
            there = txn.one(_LOAD, {"who": name})
            if (0 if there is None else there["revision"]) != revision:
                raise overtaken(name)
            saved = Follower(name=name, position=position, state=state, revision=revision + 1, at=txn.now)
            values = msgspec.structs.asdict(saved)
            if there is None:
                txn.execute(_BEGIN, values)
            else:
                txn.execute(_GO_ON, {"who": values.pop("name"), **values})
            return saved

        return self._writer.submit(operation).result()


def _there(txn: Transaction, kind: str, ids: list[str]) -> set[str]:
    return {row[0] for row in txn.execute(_THERE[kind], {"ids": json_list(ids)})} if ids else set()


def _row_of(txn: Transaction, one: Evaluation) -> dict[str, Any]:
    return {
        "pk": txn.next_pk("evaluations"),
        "evaluator": one.evaluator,
        "target": one.target,
        "target_id": one.target_id,
        "fingerprint": one.fingerprint,
        "content": one.content,
        "state": one.state,
        "scores": json_or_none(one.values),
        "details": None if one.details is None else stored_json(one.details).decode(),
        "error": None if one.error is None else stored_json(one.error).decode(),
        "attempts": one.attempts,
        "seconds": one.seconds,
        "at": one.at or txn.now,
    }


def _record(row: Row) -> Evaluation:
    return Evaluation(
        evaluator=row["evaluator"],
        target=row["target"],
        target_id=row["target_id"],
        fingerprint=bytes(row["fingerprint"]),
        content=bytes(row["content"]),
        state=row["state"],
        values={name: float(value) for name, value in from_json(row["scores"], {}).items()},
        details=from_json(row["details"], None),
        error=None if row["error"] is None else read_json(row["error"], str),
        attempts=row["attempts"],
        seconds=row["seconds"],
        at=row["at"],
    )


def _follower(row: Row) -> Follower:
    return Follower(
        name=row["name"],
        position=row["position"],
        state=None if row["state"] is None else bytes(row["state"]),
        revision=row["revision"],
        at=row["at"],
    )
