"""What a SQLite pool writes, keeps and reads, beside a flat table in the same process.

    python benchmarks/pool.py [--rollouts 16] [--turns 50] [--group-prompt 3000] [--turn-tokens 120]

Rollouts of one task share their first prompt; each turn's prompt is the whole previous sequence plus a tool result. The
flat table is what a plain logger would keep: one row a step with all ids as uint32 and log-probabilities as float32,
committed one step at a time by one process, with the same journal and `synchronous=FULL`.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from agentworld.pool.sqlite import SqlitePool
from agentworld.records import Step

VOCABULARY = 151_643


def rollouts(arguments: argparse.Namespace) -> list[list[Step]]:
    """Steps of every rollout, in turn order."""
    random = np.random.default_rng(7)
    shared = random.integers(0, VOCABULARY, arguments.group_prompt).tolist()
    made = []
    for number in range(arguments.rollouts):
        ids, steps = list(shared), []
        for turn in range(arguments.turns):
            reply = random.integers(0, VOCABULARY, arguments.turn_tokens // 2).tolist()
            steps.append(
                Step(
                    step_id=f"r{number}-{turn}",
                    trajectory_id=f"r{number}",
                    group_id="g",
                    prompt_ids=list(ids),
                    response_ids=reply,
                    response_logprobs=(-random.random(len(reply))).tolist(),
                    token_source="submitted",
                )
            )
            ids += reply + random.integers(0, VOCABULARY, arguments.turn_tokens // 2).tolist()
        made.append(steps)
    return made


def write_flat(path: Path, work: list[list[Step]]) -> float:
    """Seconds to write one row a step."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE steps (id TEXT PRIMARY KEY, split INTEGER, ids BLOB, logprobs BLOB)")
    begin = time.perf_counter()
    for turn in zip(*work, strict=True):
        for step in turn:
            ids = np.asarray([*(step.prompt_ids or []), *(step.response_ids or [])], dtype="<u4").tobytes()
            logprobs = np.asarray(step.response_logprobs, dtype="<f4").tobytes()
            connection.execute(
                "INSERT INTO steps VALUES (?, ?, ?, ?)", (step.step_id, len(step.prompt_ids or []), ids, logprobs)
            )
    seconds = time.perf_counter() - begin
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return seconds


def read_flat(path: Path) -> tuple[float, int]:
    """Seconds to read every sequence as an array, and how many ids there were."""
    connection = sqlite3.connect(path)
    begin = time.perf_counter()
    total = sum(len(np.frombuffer(row[0], dtype="<u4")) for row in connection.execute("SELECT ids FROM steps"))
    return time.perf_counter() - begin, total


def write_pool(pool: SqlitePool, work: list[list[Step]], threads: int) -> float:
    """Seconds for `threads` threads to append step by step, each waiting for its own commit."""

    def run(mine: list[list[Step]]) -> None:
        for turn in zip(*mine, strict=True):
            for future in [pool.submit_steps([step]) for step in turn]:
                future.result()

    begin = time.perf_counter()
    running = [threading.Thread(target=run, args=(work[number::threads],)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return time.perf_counter() - begin


def read_pool(pool: SqlitePool, work: list[list[Step]]) -> float:
    """Seconds to read every step with its ids, trajectory by trajectory."""
    begin = time.perf_counter()
    for steps in work:
        cursor = None
        while True:
            page = pool.list_steps(trajectory_id=steps[0].trajectory_id, include=("tokens",), cursor=cursor)
            cursor = page.next_cursor
            if cursor is None:
                break
    return time.perf_counter() - begin


def size(path: Path) -> int:
    """Bytes of the database file."""
    return path.stat().st_size


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=16)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--group-prompt", type=int, default=3000)
    parser.add_argument("--turn-tokens", type=int, default=120)
    parser.add_argument("--threads", type=int, default=4)
    arguments = parser.parse_args()
    work = rollouts(arguments)
    count = sum(len(steps) for steps in work)
    with tempfile.TemporaryDirectory() as folder:
        flat, tree = Path(folder) / "flat.db", Path(folder) / "pool.db"
        flat_seconds = write_flat(flat, work)
        flat_read, total = read_flat(flat)
        pool = SqlitePool(tree)
        pool_seconds = write_pool(pool, work, arguments.threads)
        pool_read = read_pool(pool, work)
        stats = pool.stats()
        pool.close()
        print(f"{count} steps, {total:,} ids flat, {stats.tokens_stored:,} stored")
        print(f"{'':24}{'flat table':>14}{'pool':>14}")
        print(f"{'steps/s written':24}{count / flat_seconds:14,.0f}{count / pool_seconds:14,.0f}")
        print(f"{'bytes':24}{size(flat):14,}{size(tree):14,}")
        print(f"{'ids/s read':24}{total / flat_read:14,.0f}{total / pool_read:14,.0f}")


if __name__ == "__main__":
    main()
