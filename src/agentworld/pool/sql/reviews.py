"""The rows of reviews: asked for by people and by what decides, handed out, resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import and_, insert, null, or_, select, update

from agentworld.errors import NotFoundError
from agentworld.pool import schema
from agentworld.pool.decision_rules import Target
from agentworld.pool.exact_text import stored_json
from agentworld.pool.review_rules import USUAL_WORTH, check_mine, check_undo, is_resolved_so, shown
from agentworld.pool.sql.connections import Reader, Row
from agentworld.pool.sql.lookups import among_integers, among_texts
from agentworld.pool.sql.rows import from_json, json_or_none
from agentworld.pool.sql.statements import Statement, json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import NewReview, Review, ReviewState, ReviewVerdict

_MOST = 1e300  # above every worth
_r, _s, _t = schema.reviews, schema.steps, schema.trajectories
_FIND = sql(select(_r).where(_r.c.target == parameter("kind"), among_texts(_r.c.target_id, "ids")))
_INSERT = sql(insert(_r).values({column.name: parameter(column.name) for column in _r.c}))
_ASKED = ("origin", "reason", "worth", "state", "created_at")
_FRESH = ("claimed_by", "claimed_until", "skipped_by", "verdict", "resolved_by", "comment", "resolved_at")
_AGAIN = sql(
    update(_r)
    .where(_r.c.pk == parameter("row"))
    .values({**{name: parameter(name) for name in _ASKED}, **dict.fromkeys(_FRESH, null())})
)
_REASON = sql(
    update(_r)
    .where(_r.c.pk == parameter("row"))
    .values(origin=parameter("origin"), reason=parameter("reason"), worth=parameter("worth"))
)
_WITHDRAW = sql(
    update(_r).where(_r.c.pk == parameter("row")).values(state="withdrawn", claimed_by=null(), claimed_until=null())
)


class Asking:
    """Reviews that one operation asks for, or withdraws as their target is decided otherwise."""

    def __init__(self, txn: Transaction) -> None:
        self._txn = txn
        self._wanted: dict[tuple[str, str], dict[str, Any] | None] = {}

    def ask(
        self,
        target: str,
        target_id: str,
        channel: str,
        origin: str,
        reason: str,
        worth: float | None,
        holds_back: bool = False,
    ) -> None:
        """Somebody should look at the target. `worth`: None keeps what it was. `holds_back`: it is not served before,
        so that it is asked again also where the same was resolved once.
        """
        asked = {"channel": channel, "origin": origin, "reason": reason, "worth": worth, "holds_back": holds_back}
        self._wanted[target, target_id] = asked

    def withdraw(self, target: str, target_id: str) -> None:
        """Nobody needs to look at it any more, where a decision has asked for it."""
        self._wanted[target, target_id] = None

    def write(self) -> int:
        """Write what was asked for; returns how many reviews have changed."""
        there: dict[tuple[str, str], Row] = {}
        for kind in ("trajectory", "step"):
            ids = [target_id for target, target_id in self._wanted if target == kind]
            if ids:
                rows = self._txn.execute(_FIND, {"kind": kind, "ids": json_list(ids)})
                there.update(((kind, row["target_id"]), row) for row in rows)
        new: list[dict[str, Any]] = []
        again: list[dict[str, Any]] = []
        other: list[dict[str, Any]] = []
        gone: list[dict[str, Any]] = []
        for key, asked in self._wanted.items():
            row = there.get(key)
            if asked is None:
                if row is not None and row["state"] == "open" and row["origin"] in ("rule", "manual"):
                    gone.append({"row": row["pk"]})
                continue
            holds_back = asked.pop("holds_back")
            if asked["worth"] is None:
                asked["worth"] = row["worth"] if row is not None else USUAL_WORTH
            if row is None:
                new.append(self._new(key, asked))
            elif row["state"] == "open":
                worth = max(row["worth"], asked["worth"])
                if (row["reason"], row["worth"], row["origin"]) != (asked["reason"], worth, asked["origin"]):
                    other.append({"row": row["pk"], **asked, "worth": worth})
            elif holds_back or row["state"] == "withdrawn" or row["reason"] != asked["reason"]:
                again.append({"row": row["pk"], **asked, "state": "open", "created_at": self._txn.now})
        self._txn.many(_INSERT, new)
        self._txn.many(_AGAIN, again)
        self._txn.many(_REASON, other)
        self._txn.many(_WITHDRAW, gone)
        self._wanted = {}
        return len(new) + len(again) + len(other) + len(gone)

    def _new(self, key: tuple[str, str], asked: dict[str, Any]) -> dict[str, Any]:
        return {
            **dict.fromkeys(column.name for column in _r.c),
            "pk": self._txn.next_pk("reviews"),
            "target": key[0],
            "target_id": key[1],
            "state": "open",
            "created_at": self._txn.now,
            **asked,
        }


_MOVE = sql(
    update(_r)
    .where(
        or_(
            and_(_r.c.target == "trajectory", _r.c.target_id == parameter("id")),
            and_(
                _r.c.target == "step",
                _r.c.target_id.in_(select(_s.c.step_id).where(_s.c.trajectory == parameter("row"))),
            ),
        )
    )
    .values(channel=parameter("told_channel"))
)
_ONE = sql(select(_r).where(_r.c.pk == parameter("row")))
_TRAJECTORIES_OF = sql(
    select(_s.c.step_id, _t.c.trajectory_id)
    .join_from(_s, _t, _t.c.pk == _s.c.trajectory)
    .where(among_texts(_s.c.step_id, "ids"))
)
_CHANNELS = {
    "trajectory": sql(
        select(_t.c.trajectory_id.label("id"), _t.c.channel).where(among_texts(_t.c.trajectory_id, "ids"))
    ),
    "step": sql(
        select(_s.c.step_id.label("id"), _t.c.channel)
        .join_from(_s, _t, _t.c.pk == _s.c.trajectory)
        .where(among_texts(_s.c.step_id, "ids"))
    ),
}
_SET = sql(update(_r).where(_r.c.pk == parameter("row")).values({name: parameter(name) for name in ("state", *_FRESH)}))
_CANDIDATES_AT_ONCE = 100
_OFFERED = 10  # of them, as others may claim some meanwhile
_OFFERED_ROWS = sql(select(_r).where(among_integers(_r.c.pk, "rows")))


def _free(by_channel: bool) -> Statement:
    found = (
        select(_r)
        .where(
            _r.c.state == "open",
            or_(_r.c.claimed_until.is_(None), _r.c.claimed_until <= parameter("now")),
            or_(
                _r.c.worth < parameter("below"),
                and_(_r.c.worth == parameter("below"), _r.c.pk > parameter("above")),
            ),
        )
        .order_by(_r.c.worth.desc(), _r.c.pk)
        .limit(_CANDIDATES_AT_ONCE)
    )
    return sql(found.where(_r.c.channel == parameter("name")) if by_channel else found)


_FREE = {by_channel: _free(by_channel) for by_channel in (False, True)}
_MINE = sql(
    select(_r)
    .where(_r.c.state == "open", _r.c.claimed_by == parameter("who"), _r.c.claimed_until > parameter("now"))
    .order_by(_r.c.worth.desc(), _r.c.pk)
    .limit(_CANDIDATES_AT_ONCE)
)


def add(txn: Transaction, sent: Sequence[tuple[Target, str, NewReview]]) -> int:
    """Ask for reviews; returns how many changed something. NotFoundError where a target is not there."""
    channels: dict[tuple[str, str], str] = {}
    for target, statement in _CHANNELS.items():
        ids = [target_id for kind, target_id, _ in sent if kind == target]
        if ids:
            rows = txn.execute(statement, {"ids": json_list(ids)})
            channels.update(((target, row["id"]), row["channel"]) for row in rows)
    asked = Asking(txn)
    for number, (target, target_id, one) in enumerate(sent):
        channel = channels.get((target, target_id))
        if channel is None:
            raise NotFoundError(f"no {target} {target_id!r}", path=f"reviews[{number}]")
        asked.ask(target, target_id, channel, one.origin, one.reason, float(one.worth))
    return asked.write()


def move_reviews(txn: Transaction, row: int, trajectory_id: str, channel: str) -> None:
    """The trajectory turns out to be of another channel than the reviews of it and of its steps say."""
    txn.execute(_MOVE, {"row": row, "id": trajectory_id, "told_channel": channel})


def find(reader: Reader, review_id: int, now: float) -> Review:
    """NotFoundError where there is none."""
    rows = reader.execute(_ONE, {"row": review_id})
    if not rows:
        raise NotFoundError(f"no review {review_id}", path="review_id")
    return records(reader, rows, now)[0]


class Candidates(NamedTuple):
    """Keys of free reviews that somebody has not skipped, the highest worth first, and the place to look on from."""

    keys: list[int]
    after: tuple[float, int] | None


def candidates(reader: Reader, by: str, channel: str | None, after: tuple[float, int] | None, now: float) -> Candidates:
    """Those among the next ones in their order. Who has skipped very many is walked past them by this, which holds no
    lock, page by page.
    """
    below, above = after if after is not None else (_MOST, 0)
    bound: dict[str, Any] = {"now": now, "below": below, "above": above}
    if channel is not None:
        bound["name"] = channel
    rows = reader.execute(_FREE[channel is not None], bound)
    free = [row for row in rows if by not in from_json(row["skipped_by"], [])][:_OFFERED]
    last = free[-1] if len(free) == _OFFERED else rows[-1] if len(rows) == _CANDIDATES_AT_ONCE else None
    return Candidates([row["pk"] for row in free], None if last is None else (last["worth"], last["pk"]))


def claim(txn: Transaction, by: str, channel: str | None, seconds: float, offered: Sequence[int]) -> Review | None:
    """The one that `by` has, or else the first of those offered that is free still and that they have not skipped."""
    until = txn.now + seconds
    mine = [row for row in txn.execute(_MINE, {"who": by, "now": txn.now}) if channel in (None, row["channel"])]
    row = mine[0] if mine else _still_free(txn, by, offered)
    if row is None:
        return None
    _set(txn, row, claimed_by=by, claimed_until=until)
    return find(txn.connection, row["pk"], txn.now)


def _still_free(txn: Transaction, by: str, offered: Sequence[int]) -> Row | None:
    there = {row["pk"]: row for row in txn.execute(_OFFERED_ROWS, {"rows": json_list(list(offered))})}
    for row in filter(None, map(there.get, offered)):
        taken = row["claimed_until"] is not None and row["claimed_until"] > txn.now
        if row["state"] == "open" and not taken and by not in from_json(row["skipped_by"], []):
            return row
    return None


def skip(txn: Transaction, review_id: int, by: str) -> Review:
    """Give it back; it is not handed to `by` again."""
    review = find(txn.connection, review_id, txn.now)
    check_mine(review, by)
    skipped = json_or_none(sorted({*review.skipped_by, by}))
    _set(txn, _row(txn, review_id), claimed_by=None, claimed_until=None, skipped_by=skipped)
    return find(txn.connection, review_id, txn.now)


def resolve(
    txn: Transaction, review_id: int, by: str, verdict: ReviewVerdict, comment: str | None
) -> tuple[Review, bool]:
    """Set the verdict; returns the review, and whether anything changed."""
    review = find(txn.connection, review_id, txn.now)
    if is_resolved_so(review, verdict, comment):
        return review, False
    check_mine(review, by)
    said = None if comment is None else stored_json(comment).decode()
    _set(
        txn,
        _row(txn, review_id),
        state="done",
        claimed_by=None,
        claimed_until=None,
        verdict=verdict,
        resolved_by=by,
        comment=said,
        resolved_at=txn.now,
    )
    return find(txn.connection, review_id, txn.now), True


def undo(txn: Transaction, review_id: int) -> Review:
    """Take the verdict back; the review is open again."""
    check_undo(find(txn.connection, review_id, txn.now))
    nothing = dict.fromkeys(("verdict", "resolved_by", "comment", "resolved_at"))
    _set(txn, _row(txn, review_id), state="open", **nothing)
    return find(txn.connection, review_id, txn.now)


def reopen(txn: Transaction, review_id: int) -> Review:
    """Open, whatever asked for it."""
    _set(txn, _row(txn, review_id), state="open")
    return find(txn.connection, review_id, txn.now)


def _row(txn: Transaction, review_id: int) -> Row:
    [row] = txn.execute(_ONE, {"row": review_id})
    return row


def _set(txn: Transaction, row: Row, **changes: Any) -> None:
    values = {name: row[name] for name in ("state", *_FRESH)}
    txn.execute(_SET, {"row": row["pk"], **values, **changes})


_STATES = {
    None: None,
    "open": and_(_r.c.state == "open", or_(_r.c.claimed_until.is_(None), _r.c.claimed_until <= parameter("now"))),
    "claimed": and_(_r.c.state == "open", _r.c.claimed_until > parameter("now")),
    "done": _r.c.state == "done",
    "withdrawn": _r.c.state == "withdrawn",
}


def _listing(state: str | None, by_channel: bool) -> Statement:
    found = select(_r).where(
        or_(_r.c.worth < parameter("below"), and_(_r.c.worth == parameter("below"), _r.c.pk > parameter("above")))
    )
    if (wanted := _STATES[state]) is not None:
        found = found.where(wanted)
    if by_channel:
        found = found.where(_r.c.channel == parameter("name"))
    return sql(found.order_by(_r.c.worth.desc(), _r.c.pk).limit(parameter("limit")))


_LISTS = {(state, channel): _listing(state, channel) for state in _STATES for channel in (False, True)}


def listed(
    reader: Reader,
    state: ReviewState | None,
    channel: str | None,
    after: tuple[float, int] | None,
    limit: int,
    now: float,
) -> list[Review]:
    """Reviews after a place in their order: the highest worth first, then the oldest."""
    below, above = after if after is not None else (_MOST, 0)
    bound: dict[str, Any] = {"below": below, "above": above, "limit": limit, "now": now}
    if channel is not None:
        bound["name"] = channel
    statement = _LISTS[state, channel is not None]
    return records(reader, reader.execute(statement, {name: bound[name] for name in statement.names}), now)


def records(reader: Reader, rows: Sequence[Row], now: float) -> list[Review]:
    """Rows as records, as they are shown."""
    steps = [row["target_id"] for row in rows if row["target"] == "step"]
    owners = {}
    if steps:
        found = reader.execute(_TRAJECTORIES_OF, {"ids": json_list(steps)})
        owners = {row["step_id"]: row["trajectory_id"] for row in found}
    return [shown(_record(row, owners), now) for row in rows]


def _record(row: Row, owners: Mapping[str, str]) -> Review:
    on_step = row["target"] == "step"
    return Review(
        review_id=row["pk"],
        channel=row["channel"],
        origin=row["origin"],
        reason=row["reason"],
        worth=row["worth"],
        state=row["state"],
        created_at=row["created_at"],
        trajectory_id=owners.get(row["target_id"]) if on_step else row["target_id"],
        step_id=row["target_id"] if on_step else None,
        claimed_by=row["claimed_by"],
        claimed_until=row["claimed_until"],
        skipped_by=tuple(from_json(row["skipped_by"], [])),
        verdict=row["verdict"],
        resolved_by=row["resolved_by"],
        comment=from_json(row["comment"], None),
        resolved_at=row["resolved_at"],
    )
