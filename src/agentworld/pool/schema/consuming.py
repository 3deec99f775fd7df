"""Shared state, consumers, batches and deliveries, pins and tombstones."""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Index, LargeBinary, Table, UniqueConstraint, text

from agentworld.pool.schema.base import Text, Whole, growing, metadata

policies = Table(
    "policies",
    metadata,
    Column("model", Text, primary_key=True),
    Column("run", Text, primary_key=True),
    Column("version", Whole, nullable=False),
    Column("current", Whole, nullable=False),  # 1 for the run of the model that speaks now
)

counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Whole, nullable=False),
)

# Worker processes of gateways: what each said of itself last. One that ended without a word is known by its silence.
gateway_workers = Table(
    "gateway_workers",
    metadata,
    Column("worker", Text, primary_key=True),
    Column("in_flight", Whole, nullable=False),
    Column("pauses", Whole, nullable=False),  # the latest pause that it knew of
    Column("seen_at", Float, nullable=False),
)

consumers = Table(
    "consumers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("epoch", Whole, nullable=False),
)

# How far a consumer has taken what became fit to be served into its backlog.
positions = Table(
    "positions",
    metadata,
    Column("consumer", Text, ForeignKey("consumers.name"), primary_key=True),
    Column("unit", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("ready_seq", Whole, nullable=False),
    Column("seed", Whole, nullable=False, server_default="0"),  # that the backlog is shuffled with
)

# Every unit of a backlog. An index for this part alone answers no statement that does not say so: units are looked
# up by their keys, and PostgreSQL, before it has statistics, could not tell that another index finds all units.
IN_ORDER = text("row_pk >= 0")


def _index_in_order(*columns: str) -> Index:
    return Index(
        f"backlog_by_{columns[0]}",
        *("consumer", "unit", "channel", *columns),
        sqlite_where=IN_ORDER,
        postgresql_where=IN_ORDER,
    )


# What a consumer may still lease; a lease takes its units out, a release puts them back.
backlog = Table(
    "backlog",
    metadata,
    Column("consumer", Text, primary_key=True),
    Column("unit", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("row_pk", Whole, nullable=False),  # pk of the step, trajectory, group or feedback
    Column("place", Whole, nullable=False),  # the order in which units became fit to be served
    Column("rank", Float, nullable=False),  # the priority, negated: with the place it ascends
    Column("shuffle", Whole, nullable=False),  # order by chance
    Column("mark", Whole, nullable=False),  # grows each time the unit comes in, comes back, or changes
    _index_in_order("place"),
    _index_in_order("rank", "place"),
    _index_in_order("shuffle", "place"),
    _index_in_order("mark"),
)

batches = growing(
    "batches",
    Column("batch_id", Text, nullable=False, unique=True),
    Column("consumer", Text, ForeignKey("consumers.name"), nullable=False),
    Column("unit", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("epoch", Whole, nullable=False),
    Column("deadline", Float, nullable=False),
    Column("state", Text, nullable=False),
    Column("channel", Text),
    Column("spec", Text),  # JSON
    Column("created_at", Float),
    Column("ended_at", Float),
    Index("batches_by_state", "state", "deadline"),
    Index("batches_by_consumer", "consumer", "state"),
)

batch_units = Table(
    "batch_units",
    metadata,
    Column("batch", Whole, ForeignKey("batches.pk"), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("row_pk", Whole),  # this and the next two as in the backlog, for when the unit comes back
    Column("place", Whole),
    Column("rank", Float),
    Column("rewards", Text),  # as they were at the lease, JSON
    Index("batch_units_by_key", "key"),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("consumer", Text, ForeignKey("consumers.name"), primary_key=True),
    Column("unit", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("state", Text, nullable=False),  # available, leased, acknowledged, dropped or poisoned
    Column("batch", Whole, ForeignKey("batches.pk")),
    Column("count", Whole, nullable=False),
    Column("reason", Text),  # why it was dropped or poisoned
    Index(
        "deliveries_poisoned",
        "consumer",
        sqlite_where=text("state = 'poisoned'"),
        postgresql_where=text("state = 'poisoned'"),
    ),
)

# See pool.call_marks. The trajectory of a call that is on its way need not be there yet.
call_marks = Table(
    "call_marks",
    metadata,
    Column("mark", LargeBinary, primary_key=True),
    Column("trajectory_id", Text, primary_key=True),
    Column("said", Text, nullable=False),  # asked, answered, failed or reply
    Column("at", Float, nullable=False),
    Index("call_marks_by_trajectory", "trajectory_id"),
    Index("call_marks_asked", "at", sqlite_where=text("said = 'asked'"), postgresql_where=text("said = 'asked'")),
)

pins = Table(
    "pins",
    metadata,
    Column("owner_kind", Text, primary_key=True),  # such as dataset
    Column("owner", Text, primary_key=True),
    Column("target", Text, primary_key=True),
    Column("target_id", Text, primary_key=True),
    Column("created_at", Float, nullable=False),
    Index("pins_by_target", "target", "target_id"),
)

# What was deleted on request stays named, so that it does not come back and its absence is explained.
tombstones = growing(
    "tombstones",
    Column("kind", Text, nullable=False),  # trajectory, step or user
    Column("target_id", Text, nullable=False),
    Column("reason", Text),
    Column("at", Float, nullable=False),
    UniqueConstraint("kind", "target_id"),
)
