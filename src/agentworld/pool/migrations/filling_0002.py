"""What migration 0002 computes from the rows that are there."""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

_TABLES_WITH_KEYS = (
    "annotations batches dead_letters events exchanges feedback groups media message_nodes rewards steps token_blocks "
    "tombstones tool_sets trajectories"
)
_CHUNK = 5_000


def fill() -> None:
    """Fill the new columns, groups, keys and counters."""
    _count_steps()
    _open_groups()
    _place_leased_units()
    _seed_keys()
    _seed_counters()


def _count_steps() -> None:
    connection = op.get_bind()
    columns = (
        "pk trajectory channel present mask logprobs prompt_node reply_node response_length sampled excluded_reason"
    )
    steps = sa.table("steps", *map(sa.column, columns.split()))
    counted = "pk channel usable_steps lacks sampled_tokens readiness ready_seq"
    trajectories = sa.table("trajectories", *map(sa.column, counted.split()))
    channels = {row.pk: row.channel for row in connection.execute(sa.select(trajectories.c.pk, trajectories.c.channel))}
    totals: dict[int, list[int]] = {}
    for rows in _chunks(connection, steps):
        changed = []
        for row in rows:
            mask = row.mask
            sampled = row.response_length or 0 if row.present & 2 else 0
            if mask is not None:
                sampled = sum(byte.bit_count() for byte in bytes(mask)[4:])
            changed.append({"row": row.pk, "number": sampled})
            if row.excluded_reason is not None or row.channel != channels[row.trajectory]:
                continue
            lacks = (
                (0 if row.present & 2 else 1)
                | (0 if row.logprobs is not None else 2)
                | (0 if row.present & 4 and row.reply_node is not None else 4)
            )
            total = totals.setdefault(row.trajectory, [0, 0, 0])
            total[0] += 1
            total[1] |= lacks
            total[2] += sampled
        connection.execute(
            sa.update(steps).where(steps.c.pk == sa.bindparam("row")).values(sampled=sa.bindparam("number")), changed
        )
    if totals:
        connection.execute(
            sa.update(trajectories)
            .where(trajectories.c.pk == sa.bindparam("row"))
            .values(
                usable_steps=sa.bindparam("usable"), lacks=sa.bindparam("bits"), sampled_tokens=sa.bindparam("tokens")
            ),
            [{"row": pk, "usable": a, "bits": b, "tokens": c} for pk, (a, b, c) in totals.items()],
        )
    connection.execute(
        sa.update(trajectories)
        .where(trajectories.c.readiness.in_(["complete", "ready"]))
        .values(ready_seq=trajectories.c.pk)
    )


def _chunks(connection: sa.Connection, steps: sa.TableClause) -> Iterator[list[Any]]:
    after = 0
    while True:
        rows = list(
            connection.execute(sa.select(steps).where(steps.c.pk > after).order_by(steps.c.pk).limit(_CHUNK)).fetchall()
        )
        if not rows:
            return
        yield rows
        after = rows[-1].pk


def _open_groups() -> None:
    op.execute(
        "INSERT INTO groups (pk, group_id, channel, size, state, created_at, members, ended, served, ready_seq) "
        "SELECT min(pk), group_id, min(channel), max(group_size), 'open', min(created_at), count(*), 0, "
        "sum(CASE WHEN readiness IN ('complete', 'ready') THEN 1 ELSE 0 END), max(ready_seq) "
        "FROM trajectories WHERE group_id IS NOT NULL GROUP BY group_id"
    )
    # A rollout has ended once one attempt at it counts, or all have failed; without an index each is one of its own.
    op.execute(
        "UPDATE groups SET ended = (SELECT count(*) FROM (SELECT 1 AS one FROM trajectories t "
        "WHERE t.group_id = groups.group_id GROUP BY t.rollout_index, "
        "CASE WHEN t.rollout_index IS NULL THEN t.pk ELSE 0 END "
        "HAVING max(CASE WHEN t.status IN ('finished', 'truncated') THEN 1 ELSE 0 END) = 1 "
        "OR max(CASE WHEN t.status = 'open' THEN 1 ELSE 0 END) = 0) AS over)"
    )
    op.execute("UPDATE groups SET state = 'closed', closed_by = 'size', closed_at = created_at WHERE ended >= size")
    for prefix, table, column in (("groups.", "groups", "state"), ("readiness.", "trajectories", "readiness")):
        op.execute(
            f"INSERT INTO counters (name, value) SELECT '{prefix}' || {column}, count(*) FROM {table} GROUP BY {column}"
        )


def _place_leased_units() -> None:
    """What a batch holds goes back to where it was found, in the channel that it was found in."""
    for unit, table, key, place in (
        ("step", "steps", "step_id", "trajectory * 1048576 + f.step_index"),
        ("trajectory", "trajectories", "trajectory_id", "pk"),
        ("group", "groups", "group_id", "pk"),
    ):
        found = f"FROM {table} f WHERE f.{key} = batch_units.key"
        op.execute(
            f"UPDATE batch_units SET row_pk = (SELECT f.pk {found}), place = (SELECT f.{place} {found}), rank = 0 "
            f"WHERE batch IN (SELECT pk FROM batches WHERE unit = '{unit}')"
        )
        op.execute(
            f"UPDATE batches SET channel = (SELECT min(f.channel) FROM batch_units u JOIN {table} f ON f.{key} = u.key "
            f"WHERE u.batch = batches.pk) WHERE unit = '{unit}'"
        )
    op.execute("UPDATE batches SET channel = 'train' WHERE channel IS NULL")


def _seed_keys() -> None:
    connection = op.get_bind()
    # Pools of the first schema let SQLite count too.
    counts = connection.dialect.name == "sqlite" and sa.inspect(connection).has_table("sqlite_sequence")
    for name in _TABLES_WITH_KEYS.split():
        highest = connection.execute(sa.text(f"SELECT coalesce(max(pk), 0) FROM {name}")).scalar_one()
        if counts:
            used = connection.execute(sa.text("SELECT seq FROM sqlite_sequence WHERE name = :name"), {"name": name})
            highest = max(highest, used.scalar() or 0)
        connection.execute(
            sa.text("INSERT INTO counters (name, value) VALUES (:name, :value)"),
            {"name": f"pk.{name}", "value": highest},
        )
    connection.execute(
        sa.text(
            "INSERT INTO counters (name, value) SELECT 'pk.ready_seq', coalesce(max(ready_seq), 0) FROM trajectories"
        )
    )


def _seed_counters() -> None:
    for name, number, table in (
        ("'channels.trajectories.' || channel", "count(*)", "trajectories"),
        ("'channels.steps.' || channel", "count(*)", "steps"),
        ("'deliveries.' || state || '.' || consumer", "count(*)", "deliveries WHERE state <> 'available'"),
    ):
        op.execute(f"INSERT INTO counters (name, value) SELECT {name}, {number} FROM {table} GROUP BY 1")
    op.execute("INSERT INTO counters (name, value) SELECT 'tool_sets', count(*) FROM tool_sets")
    op.execute("INSERT INTO counters (name, value) SELECT 'tokens_sampled', coalesce(sum(sampled), 0) FROM steps")
