"""A pool's day in one process, whose file access is recorded.

Run as `python -m tests.power.workload KIND FOLDER EVENTS [PRAGMA]`. KIND is `work`, or `migrate` for a pool of an
earlier schema that is opened and closed. What is written can be told from its number, so that whoever opens what a
crash left knows what must be there. PRAGMA is run on each connection of the pool, to see what the pool would lose with
weaker settings; with `unsynced` in its place the pool leaves out what it waits for beside SQLite.
"""

import sys
from pathlib import Path

from agentworld.pool import open_store
from agentworld.pool.sqlite import database, disk_marks, session
from agentworld.records import BatchSpec, Message, NewTrajectory, Policy, Step
from tests.power.disk import Recorder
from tests.power.vfs import watched

SHARED = list(range(700))
ROUNDS = 6
STEPS = 12
RARELY = (session.CHECKPOINT_BYTES, session.TRUNCATE_BYTES, session.PRESSED_SECONDS)
PRESSED = (200_000, 400_000, 0.0)


def numbered_step(number):
    """Step `number`: shares its opening with all others and takes a page or two of its own."""
    return Step(
        step_id=f"s{number}",
        trajectory_id=f"t{number // STEPS}",
        prompt_ids=[*SHARED, *range(number, number + 100)],
        response_ids=[number, 1],
        response_logprobs=[-0.5, -1.0],
        prompt_messages=[Message(role="user", content=f"question {number} " + "long " * (number % 400))],
        response_message=Message(role="assistant", content=f"answer {number}"),
        token_source="submitted",
        policy=Policy("m", "r", 0),
    )


def medium(number):
    """A blob of a page or two."""
    return number.to_bytes(4, "big") * 1500


def work(url, told, number=0):
    """One opening of the pool: appends alone and in groups, an end with a reward, a lease that is acknowledged, a blob,
    a deletion, and a rewrite of the whole file at the end.

    `told(kind, ...)` is called as soon as the pool says that something is done; `number` is the first step's.
    """
    pool = open_store(url)
    told("opened")
    try:
        for place in range(ROUNDS):
            told("medium", pool.put_media(medium(number), "image/png"), number)
            pool.create_trajectory(NewTrajectory(trajectory_id=f"t{number // STEPS}"))
            waiting = []
            for more in range(STEPS):
                waiting.append((number + more, pool.submit_steps([numbered_step(number + more)])))
                if more % 3 == 0:
                    _tell(waiting, told)
            _tell(waiting, told)
            pool.complete_trajectory(f"t{number // STEPS}", "finished", 1.0)
            told("completed", f"t{number // STEPS}")
            number += STEPS
            batch = pool.lease(BatchSpec(method="reinforce", size=1, lease_seconds=10_000), "c")
            assert batch is not None
            told("leased", batch.batch_id)
            if number // STEPS % 2:
                pool.ack(batch.batch_id, batch.epoch)
                told("acked", batch.items[0].key)
            if place == ROUNDS // 2:
                gone = f"t{number // STEPS - 2}"
                told("deleting", gone)
                pool.delete_trajectories([gone])
                told("deleted", gone)
                pool.collect()
        pool.purge()
    finally:
        pool.close()
    told("closed")
    return number


def _tell(waiting, told):
    for number, future in waiting:
        assert [result.outcome for result in future.result(60)] == ["stored"]
        told("stored", number)
    waiting.clear()


def watch_marks(recorder, log, sync):
    """Waits for the disk that the pool makes beside SQLite's own; they do not happen where `sync` says so."""

    def synced_log(descriptor):
        if sync:
            sync_log(descriptor)
            recorder.synced(log)

    def synced(folder):
        sync_folder(folder)
        recorder.synced_folder(folder)

    sync_log, sync_folder = disk_marks.sync_log, disk_marks.sync
    disk_marks.sync_log, disk_marks.sync = synced_log, synced


def main(kind, folder, events, pragma=None):
    if pragma not in (None, "unsynced"):
        original = database.SqliteDatabase.connect

        def connect(self, *arguments):
            connection = original(self, *arguments)
            connection.execute(f"PRAGMA {pragma}")
            return connection

        database.SqliteDatabase.connect = connect
    recorder = Recorder()
    watch_marks(recorder, f"{folder}/pool.db-wal", pragma != "unsynced")
    url, number = f"sqlite:///{folder}/pool.db", 0
    with watched(recorder, folder):
        if kind == "migrate":
            open_store(url).close()
        else:
            # A checkpoint waits for the disk too, so it would hide that something else did not.
            for pressed in (True, False):
                limits = PRESSED if pressed else RARELY
                session.CHECKPOINT_BYTES, session.TRUNCATE_BYTES, session.PRESSED_SECONDS = limits
                number = work(url, recorder.mark, number)
    recorder.save(events)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
