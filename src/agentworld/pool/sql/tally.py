"""What a trajectory's row counts over its steps, while steps are appended, and counted anew where steps drop out."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from typing import Any

import msgspec
from sqlalchemy import func, select, update

from agentworld.pool import schema
from agentworld.pool.exact_text import stored_json
from agentworld.pool.intake import Prepared
from agentworld.pool.lacks import lacks
from agentworld.pool.sql.connections import Row
from agentworld.pool.sql.lookups import among_texts
from agentworld.pool.sql.rows import PROMPT_MESSAGES, RESPONSE_IDS
from agentworld.pool.sql.statements import json_list, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.pool.usual_steps import stored_text_of
from agentworld.records import Sampling

_s, _t = schema.steps, schema.trajectories
_POLICY = ("policy_model", "policy_run", "policy_version")
_COUNTED = (
    "step_count",
    "prompt_tokens",
    "response_tokens",
    "last_step",
    "usable_steps",
    "lacks",
    "sampled_tokens",
    "sampling",
)
COLUMNS = (*_POLICY, *_COUNTED)
_CONSTANT = frozenset((type(None), str, int, float, bool, tuple))
_KEPT = 8192  # trajectories
_LOAD = sql(
    select(
        *(_t.c[name] for name in ("pk", "trajectory_id", "status", "channel", "group_id", *_POLICY, *_COUNTED))
    ).where(among_texts(_t.c.trajectory_id, "ids"))
)
_SELDOM = (*_POLICY, "sampling")
_OFTEN = tuple(name for name in _COUNTED if name not in _SELDOM)
# The second is apart, as SQLite writes the entry of an index anew whenever a statement names its column.
_SAVE, _SAVE_SELDOM = (
    sql(
        update(_t).where(_t.c.pk == parameter("row")).values({name: parameter(name) for name in names}),
        ("row", *names),
    )
    for names in (_OFTEN, _SELDOM)
)
_saved, _saved_seldom = (operator.attrgetter("pk", *names) for names in (_OFTEN, _SELDOM))
_USABLE = sql(
    select(_s.c.present, _s.c.logprobs.is_not(None).label("has_logprobs"), _s.c.reply_node, _s.c.sampled)
    .join_from(_s, _t, _s.c.trajectory == _t.c.pk)
    .where(_t.c.pk == parameter("row"), _s.c.excluded_reason.is_(None), _s.c.channel == _t.c.channel)
)
_RECOUNT = sql(
    update(_t)
    .where(_t.c.pk == parameter("row"))
    .values(
        usable_steps=parameter("usable"),
        lacks=parameter("bits"),
        sampled_tokens=parameter("number"),
        last_step=select(func.max(_s.c.pk))
        .where(_s.c.trajectory == parameter("row"), _s.c.excluded_reason.is_(None))
        .scalar_subquery(),
    )
)
STATEMENTS = (_LOAD, _SAVE, _SAVE_SELDOM)


_columns = operator.attrgetter(*COLUMNS)


class Tally:
    """One trajectory while a transaction appends to it.

    `restated`: whether its policy or its sampling are not those of its row; `said`: the record that `sampling` is of,
    where it is known.
    """

    __slots__ = (*_POLICY, *_COUNTED, "channel", "group_id", "pk", "restated", "said", "status")

    def __init__(self, pk: int, channel: str, group_id: str | None) -> None:
        """That of an open trajectory without steps."""
        self.pk = pk
        self.status = "open"
        self.channel = channel
        self.group_id = group_id
        self.policy_model: str | None = None
        self.policy_run: str | None = None
        self.policy_version: int | None = None
        self.step_count = 0
        self.prompt_tokens = 0
        self.response_tokens = 0
        self.last_step: int | None = None
        self.usable_steps = 0
        self.lacks = 0
        self.sampled_tokens = 0
        self.sampling: str | None = None  # as JSON
        self.said: Sampling | None = None
        self.restated = False

    @staticmethod
    def of(row: Row) -> Tally:
        """That of a trajectory which is there."""
        tally = Tally(row["pk"], row["channel"], row["group_id"])
        for name in ("status", *COLUMNS):
            setattr(tally, name, row[name])
        return tally

    def columns(self) -> tuple[Any, ...]:
        """What the row counts, in the order of COLUMNS."""
        return _columns(self)

    def is_sampling(self, sampling: Sampling) -> bool:
        """Whether the trajectory is sampled so, which the first step that says how decides."""
        if sampling is self.said:
            return True
        known = stored_text_of(sampling)
        text = stored_json(sampling).decode() if known is None else known
        if self.sampling is None:
            self.sampling, self.restated = text, True
        if self.sampling != text:
            return False
        # A record cannot change, but what it holds may.
        if known is not None or _CONSTANT.issuperset(map(type, msgspec.structs.astuple(sampling))):
            self.said = sampling
        return True

    def add(self, pk: int, prepared: Prepared, channel: str, excluded: bool) -> None:
        """Count one more step, whose row is `pk`."""
        self.step_count += 1
        self.prompt_tokens += prepared.prompt_length or 0
        self.response_tokens += prepared.response_length or 0
        spoke = prepared.step.policy
        if spoke is not None:
            # As rules.oldest_policy, without records.
            if self.policy_model is None:
                self.policy_model, self.policy_run, self.policy_version = spoke.model, spoke.run, spoke.version
                self.restated = True
            elif spoke.version < (self.policy_version or 0) and (self.policy_model, self.policy_run) == (
                spoke.model,
                spoke.run,
            ):
                self.policy_version, self.restated = spoke.version, True
        if excluded:
            return
        self.last_step = pk
        if channel == self.channel:
            self.usable_steps += 1
            self.lacks |= prepared.lacks
            self.sampled_tokens += prepared.sampled


NOTHING: tuple[Any, ...] = Tally(0, "", None).columns()
"""What a trajectory's row counts before its first step."""


class Tallies:
    """Those of the latest trajectories, kept from transaction to transaction; used by the writing thread only."""

    def __init__(self) -> None:
        self._held: dict[str, Tally] = {}

    def load(self, txn: Transaction, trajectory_ids: Iterable[str], undisturbed: bool) -> dict[str, Tally]:
        """By id those of the trajectories that are there, among others; new ones are added to it.

        `undisturbed`: whether nobody has written to the pool since the latest `save`, which was not undone.
        """
        if not undisturbed or len(self._held) > _KEPT:
            self._held = {}
        held = self._held
        if unknown := [name for name in trajectory_ids if name not in held]:
            found = txn.execute(_LOAD, {"ids": json_list(unknown)})
            held.update([(row["trajectory_id"], Tally.of(row)) for row in found])
        return held

    def save(self, txn: Transaction, changed: Collection[Tally]) -> None:
        """Write what was counted."""
        if not changed:
            return
        txn.many_in_order(_SAVE, list(map(_saved, changed)))
        if restated := [tally for tally in changed if tally.restated]:
            txn.many_in_order(_SAVE_SELDOM, list(map(_saved_seldom, restated)))
            for tally in restated:
                tally.restated = False


def recount_usable(txn: Transaction, trajectory: int) -> None:
    """Count `usable_steps`, `lacks`, `sampled_tokens` and `last_step` of a trajectory anew from its steps."""
    usable = bits = sampled = 0
    for row in txn.execute(_USABLE, {"row": trajectory}):
        usable += 1
        present = row["present"]
        bits |= lacks(
            bool(present & RESPONSE_IDS),
            bool(row["has_logprobs"]),
            bool(present & PROMPT_MESSAGES),
            row["reply_node"] is not None,
        )
        sampled += row["sampled"]
    txn.execute(_RECOUNT, {"row": trajectory, "usable": usable, "bits": bits, "number": sampled})
