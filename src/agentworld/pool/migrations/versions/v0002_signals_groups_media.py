"""Signals by their target's id, groups, annotations, media, the backlog of each consumer, pins and tombstones.

What the new columns count is computed from what is there, and primary keys go on from the highest that was ever used.
"""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from agentworld.pool.schema import Text, Whole

revision = "0002"
down_revision = "0001"

_TABLES_WITH_KEYS = (
    "annotations batches dead_letters events exchanges feedback groups media message_nodes rewards steps token_blocks "
    "tombstones tool_sets trajectories"
)
_CHUNK = 5_000


def upgrade() -> None:
    """Create, extend and fill."""
    _create_tables()
    _extend_tables()
    _find_nodes_by_parent()
    _rekey_rewards()
    _make_deliveries_free_of_batches()
    _count_steps()
    _open_groups()
    _place_leased_units()
    _seed_keys()
    _seed_counters()


def _create_tables() -> None:
    op.create_table(
        "media",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("media_type", Text, nullable=True),
        sa.Column("size", Whole, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("digest"),
    )
    op.create_table(
        "media_uses",
        sa.Column("node", Whole, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["message_nodes.pk"]),
        sa.PrimaryKeyConstraint("node", "digest"),
    )
    op.create_index("media_uses_by_digest", "media_uses", ["digest"])
    op.create_table(
        "feedback",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("feedback_id", Text, nullable=False),
        sa.Column("kind", Text, nullable=False),
        sa.Column("target", Text, nullable=False),
        sa.Column("target_id", Text, nullable=False),
        sa.Column("other_id", Text, nullable=True),
        sa.Column("name", Text, nullable=True),
        sa.Column("value", Text, nullable=True),
        sa.Column("comment", Text, nullable=True),
        sa.Column("source", Text, nullable=False),
        sa.Column("of_trajectory", Text, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("feedback_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("feedback_by_target", "feedback", ["target", "target_id"])
    op.create_table(
        "annotations",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("target", Text, nullable=False),
        sa.Column("target_id", Text, nullable=False),
        sa.Column("name", Text, nullable=False),
        sa.Column("source", Text, nullable=False),
        sa.Column("dtype", Text, nullable=False),
        sa.Column("shape", Text, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("per_token", Whole, nullable=False),
        sa.Column("of_trajectory", Text, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("target", "target_id", "name"),
    )
    op.create_table(
        "awaited",
        sa.Column("target", Text, nullable=False),
        sa.Column("target_id", Text, nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("target", "target_id"),
    )
    op.create_table(
        "groups",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("group_id", Text, nullable=False),
        sa.Column("channel", Text, nullable=False),
        sa.Column("size", Whole, nullable=True),
        sa.Column("timeout_at", sa.Float(), nullable=True),
        sa.Column("failures", Text, nullable=True),
        sa.Column("state", Text, nullable=False),
        sa.Column("closed_by", Text, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("closed_at", sa.Float(), nullable=True),
        sa.Column("members", Whole, nullable=False),
        sa.Column("ended", Whole, nullable=False),
        sa.Column("served", Whole, nullable=False),
        sa.Column("ready_seq", Whole, nullable=True),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("group_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("groups_by_timeout", "groups", ["state", "timeout_at"])
    op.create_index("groups_by_ready_seq", "groups", ["ready_seq"])
    op.create_table(
        "positions",
        sa.Column("consumer", Text, nullable=False),
        sa.Column("unit", Text, nullable=False),
        sa.Column("channel", Text, nullable=False),
        sa.Column("ready_seq", Whole, nullable=False),
        sa.Column("seed", Whole, nullable=False, server_default="0"),
        sa.ForeignKeyConstraint(["consumer"], ["consumers.name"]),
        sa.PrimaryKeyConstraint("consumer", "unit", "channel"),
    )
    op.create_table(
        "backlog",
        sa.Column("consumer", Text, nullable=False),
        sa.Column("unit", Text, nullable=False),
        sa.Column("channel", Text, nullable=False),
        sa.Column("key", Text, nullable=False),
        sa.Column("row_pk", Whole, nullable=False),
        sa.Column("place", Whole, nullable=False),
        sa.Column("rank", sa.Float(), nullable=False),
        sa.Column("shuffle", Whole, nullable=False),
        sa.PrimaryKeyConstraint("consumer", "unit", "channel", "key"),
    )
    op.create_index("backlog_by_place", "backlog", ["consumer", "unit", "channel", "place"])
    op.create_index("backlog_by_rank", "backlog", ["consumer", "unit", "channel", "rank", "place"])
    op.create_index("backlog_by_shuffle", "backlog", ["consumer", "unit", "channel", "shuffle", "place"])
    op.create_table(
        "pins",
        sa.Column("owner_kind", Text, nullable=False),
        sa.Column("owner", Text, nullable=False),
        sa.Column("target", Text, nullable=False),
        sa.Column("target_id", Text, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("owner_kind", "owner", "target", "target_id"),
    )
    op.create_index("pins_by_target", "pins", ["target", "target_id"])
    op.create_table(
        "tombstones",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("kind", Text, nullable=False),
        sa.Column("target_id", Text, nullable=False),
        sa.Column("reason", Text, nullable=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("kind", "target_id"),
        sqlite_autoincrement=True,
    )


def _extend_tables() -> None:
    def counted(name: str) -> sa.Column[int]:
        return sa.Column(name, Whole, nullable=False, server_default="0")

    new: dict[str, list[sa.Column[Any]]] = {
        "trajectories": [
            sa.Column("sampling", Text),
            sa.Column("user_id", Text),
            sa.Column("priority", sa.Float(), nullable=False, server_default="0"),
            sa.Column("labels", Text),
            sa.Column("annotations", Text),
            counted("usable_steps"),
            counted("lacks"),
            counted("sampled_tokens"),
            counted("masked"),
            sa.Column("ready_seq", Whole),
        ],
        "steps": [counted("sampled"), sa.Column("annotations", Text)],
        "message_nodes": [counted("coding")],
        "tool_sets": [counted("coding")],
        "batches": [
            sa.Column("channel", Text),
            sa.Column("spec", Text),
            sa.Column("created_at", sa.Float()),
            sa.Column("ended_at", sa.Float()),
        ],
        "dead_letters": [sa.Column("kind", Text, nullable=False, server_default="step")],
        "batch_units": [
            sa.Column("row_pk", Whole),
            sa.Column("place", Whole),
            sa.Column("rank", sa.Float()),
            sa.Column("rewards", Text),
        ],
    }
    for table, added in new.items():
        for column in added:
            op.add_column(table, column)
    op.drop_index("trajectories_by_readiness", "trajectories")
    op.drop_index("trajectories_by_group", "trajectories")
    indexes: dict[str, dict[str, list[str]]] = {
        "trajectories": {
            "readiness": ["readiness", "pk"],
            "group": ["group_id", "rollout_index"],
            "channel": ["channel", "pk"],
            "status": ["status", "pk"],
            "creation": ["created_at"],
            "reward": ["reward"],
            "policy": ["policy_model", "policy_run", "policy_version"],
            "user": ["user_id"],
            "priority": ["priority"],
            "ready_seq": ["ready_seq"],
        },
        "steps": {
            "block": ["block"],
            "creation": ["created_at"],
            "channel": ["channel", "pk"],
        },
        "batches": {"consumer": ["consumer", "state"]},
        "batch_units": {"key": ["key"]},
    }
    for table, named in indexes.items():
        for name, columns in named.items():
            op.create_index(f"{table}_by_{name}", table, columns)
    for name in ("prompt_node", "reply_node", "tools", "reward"):
        there = sa.text(f"{name} IS NOT NULL")
        op.create_index(f"steps_by_{name}", "steps", [name], sqlite_where=there, postgresql_where=there)


def _find_nodes_by_parent() -> None:
    for table in ("token_blocks", "message_nodes"):
        if op.get_bind().dialect.name == "sqlite":
            # The constraint has no name there; giving it one takes a copy of the table, which drops it.
            named = {"uq": "uq_%(table_name)s_%(column_0_name)s"}
            with op.batch_alter_table(table, naming_convention=named) as copied:
                copied.drop_constraint(f"uq_{table}_digest", type_="unique")
        else:
            op.drop_constraint(f"{table}_digest_key", table, type_="unique")
        op.create_index(f"{table}_by_parent", table, ["parent", "digest"], unique=True)


def _rekey_rewards() -> None:
    op.create_table(
        "rewards_by_id",
        sa.Column("pk", Whole, autoincrement=False, nullable=False),
        sa.Column("target", Text, nullable=False),
        sa.Column("target_id", Text, nullable=False),
        sa.Column("name", Text, nullable=False),
        sa.Column("source", Text, nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("details", Text, nullable=True),
        sa.Column("of_trajectory", Text, nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("pk"),
        sa.UniqueConstraint("target", "target_id", "name", "source"),
    )
    for target in ("step", "trajectory"):
        table = "steps" if target == "step" else "trajectories"
        op.execute(
            f"INSERT INTO rewards_by_id (pk, target, target_id, name, source, value, details, created_at) "
            f"SELECT r.pk, r.target, t.{target}_id, r.name, r.source, r.value, r.details, r.created_at "
            f"FROM rewards r JOIN {table} t ON t.pk = r.target_pk WHERE r.target = '{target}'"
        )
    op.drop_table("rewards")
    op.rename_table("rewards_by_id", "rewards")
    if op.get_bind().dialect.name == "postgresql":
        # SQLite has no names for these.
        for end in ("pkey", "target_target_id_name_source_key"):
            op.execute(f"ALTER TABLE rewards RENAME CONSTRAINT rewards_by_id_{end} TO rewards_{end}")


def _make_deliveries_free_of_batches() -> None:
    with op.batch_alter_table("deliveries") as table:
        table.alter_column("batch", existing_type=Whole, nullable=True)
        table.add_column(sa.Column("reason", Text))
    poisoned = sa.text("state = 'poisoned'")
    op.create_index("deliveries_poisoned", "deliveries", ["consumer"], sqlite_where=poisoned, postgresql_where=poisoned)


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


def _seed_keys() -> None:
    connection = op.get_bind()
    on_sqlite = connection.dialect.name == "sqlite"
    for name in _TABLES_WITH_KEYS.split():
        highest = connection.execute(sa.text(f"SELECT coalesce(max(pk), 0) FROM {name}")).scalar_one()
        if on_sqlite:
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
