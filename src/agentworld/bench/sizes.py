"""How many bytes a step takes: from 16 to 64 rollouts of one task, so that what a pool has anyway does not count."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentworld.bench.figure import Figure
from agentworld.bench.record import Bench
from agentworld.pool.protocol import Pool
from agentworld.records import Step
from agentworld.testing.workload import OPENING_IDS, flat_bytes, in_turn_order, tool_trajectories

_TURNS, _NEW_IDS = 50, 500
_FEW, _MANY = 16, 64
_BATCH = 64


class Content(NamedTuple):
    """What rollouts hold, in bytes: each id once in 4, each log-probability in 4, texts once as one zlib stream."""

    unique: int
    flat: int
    text: int


def size(bench: Bench) -> list[Figure]:
    """Main file after a checkpoint; of PostgreSQL, tables and indexes after VACUUM FULL."""
    files, contents = [], []
    for rollouts in (_FEW, _MANY):
        work = list(tool_trajectories(1, rollouts, _TURNS, _NEW_IDS, bench.seed))
        with bench.pool() as pool:
            steps = list(in_turn_order(work))
            for at in range(0, len(steps), _BATCH):
                pool.append_steps(steps[at : at + _BATCH])
            files.append(_pool_bytes(bench, pool))
        contents.append(content(work))
    count = (_MANY - _FEW) * _TURNS
    few, many = contents
    pool_bytes = (files[1] - files[0]) / count
    flat = (many.flat - few.flat) / count
    bound = (many.unique + many.text - few.unique - few.text) / count
    required = (10.0, 1.25) if bench.url is None else (None, None)
    return [
        Figure(name="a step of a 50-turn trajectory", value=pool_bytes, beside=flat, unit="bytes", better="less"),
        Figure(name="smaller than flat rows", value=flat / pool_bytes, unit="times", required=required[0]),
        Figure(
            name="of 4 B an id + 4 B a log-probability + text by zlib",
            value=pool_bytes / bound,
            unit="times",
            required=required[1],
            better="less",
        ),
    ]


def content(work: Iterable[list[Step]]) -> Content:
    """Counted over trajectories of one task."""
    ids, logprobs, flat = OPENING_IDS, 0, 0
    texts: dict[bytes, None] = {}
    for steps in work:
        last = steps[-1]
        ids += _length(last.prompt_ids) + _length(last.response_ids) - OPENING_IDS
        for step in steps:
            logprobs += _length(step.response_logprobs)
            flat += flat_bytes(step)
        for message in (*(last.prompt_messages or ()), last.response_message):
            texts[msgspec.json.encode(message)] = None
    return Content(4 * ids + 4 * logprobs, flat, len(zlib.compress(b"".join(texts))))


def _length(values: list[int] | list[float | None] | None) -> int:
    return 0 if values is None else len(values)


def _pool_bytes(bench: Bench, pool: Pool) -> int:
    if bench.url is None:
        pool.close()  # Brings the log in.
        return Path(pool.url.removeprefix("sqlite:///")).stat().st_size
    from agentworld.bench.schemas import connected

    schema = pool.url.rpartition("schema=")[2]
    with connected(f"{bench.url}{'&' if '?' in bench.url else '?'}schema={schema}") as connection:
        names = [
            row[0]
            for row in connection.execute("SELECT relname FROM pg_stat_user_tables WHERE schemaname = %s", [schema])
        ]
        for name in names:
            connection.execute(f'VACUUM FULL "{name}"'.encode())
        row = connection.execute(
            "SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables WHERE schemaname = %s", [schema]
        ).fetchone()
    return int(row[0]) if row else 0
