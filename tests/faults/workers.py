"""Processes that write to a pool and consume from it until they are killed, and note what the pool told them.

A note is one line, written by one system call as soon as the pool has answered, so that a kill cannot take it back.
Whatever the pool refuses for the moment (its server is being started again) is sent again, unchanged.
"""

import os
import random
import signal
import threading
import time

from agentworld.errors import PoolError, StaleLeaseError
from agentworld.pool import open_store
from agentworld.pool.postgres import session
from agentworld.records import BatchSpec, Message, NewTrajectory, Policy, Step

STEPS = 3
GONE = "gone."  # What the ids of trajectories begin with that are there to be deleted.
SHARED = list(range(300))
SPEC = BatchSpec(method="reinforce", size=4, min_size=1, lease_seconds=1.0)
PATIENCE = 60.0


class Notes:
    """A file that one line after the other is added to."""

    def __init__(self, path):
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, *words):
        os.write(self._descriptor, (" ".join(str(word) for word in words) + "\n").encode())


def insisting(call):
    """What `call` gives, once the pool takes it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except PoolError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def made_step(trajectory_id, place):
    """The step at `place` of a trajectory: what is in it follows from where it is."""
    number = sum(trajectory_id.encode()) * 7 + place
    return Step(
        step_id=f"{trajectory_id}:{place}",
        trajectory_id=trajectory_id,
        prompt_ids=[*SHARED, *range(number, number + 60)],
        response_ids=[number, place],
        response_logprobs=[-0.5, -1.0],
        prompt_messages=[Message(role="user", content=f"question {number}")],
        response_message=Message(role="assistant", content=f"answer {number}"),
        token_source="submitted",
        policy=Policy("m", "r", 0),
    )


def write(url, notes, name):
    """Trajectories of STEPS steps, some sent together and some one by one, each ended with a reward."""
    pool, notes, chance, number = insisting(lambda: open_store(url)), Notes(notes), random.Random(name), 0
    while True:
        trajectory_id = f"{name}-{number}"
        number += 1
        insisting(lambda: pool.create_trajectory(NewTrajectory(trajectory_id=trajectory_id)))  # noqa: B023
        steps = [made_step(trajectory_id, place) for place in range(STEPS)]
        for sent in [steps] if chance.random() < 0.5 else [[step] for step in steps]:
            results = insisting(lambda: pool.append_steps(sent))  # noqa: B023
            # A duplicate is what was stored before the connection was lost.
            assert {result.outcome for result in results} <= {"stored", "duplicate"}, results
            for result in results:
                notes.add("step", result.step_id)
        insisting(lambda: pool.complete_trajectory(trajectory_id, "finished", 1.0))  # noqa: B023
        notes.add("ready", trajectory_id)


def consume(url, notes, name):
    """One of several who share a consumer's name: leases that are acknowledged, given back or held too long."""
    pool, notes, chance = insisting(lambda: open_store(url)), Notes(notes), random.Random(name)
    while True:
        batch = insisting(lambda: pool.lease(SPEC, "shared"))
        if batch is None:
            time.sleep(0.005)
            continue
        notes.add("leased", batch.batch_id, batch.epoch, *(item.key for item in batch.items))
        time.sleep(chance.choice([0.0, 0.0, 0.01]))
        end = pool.release if chance.random() < 0.1 else pool.ack
        try:
            insisting(lambda: end(batch.batch_id, batch.epoch))  # noqa: B023
        except StaleLeaseError:
            continue  # It took longer than the lease, so another has them.
        if end == pool.ack:
            notes.add("acked", batch.batch_id)


def train(url, notes, name):
    """A trainer with its checkpoint, which are its notes: what was applied is noted before it is acknowledged."""
    pool, chance = insisting(lambda: open_store(url)), random.Random(name)
    insisting(lambda: pool.resume("trainer", applied_batches(notes)))
    notes = Notes(notes)
    spec = BatchSpec(method="reinforce", size=4, min_size=1, lease_seconds=600.0)
    while True:
        batch = insisting(lambda: pool.lease(spec, "trainer"))
        if batch is None:
            time.sleep(0.005)
            continue
        time.sleep(chance.choice([0.0, 0.0, 0.01]))
        notes.add("applied", batch.batch_id, *(item.key for item in batch.items))
        insisting(lambda: pool.ack(batch.batch_id, batch.epoch))  # noqa: B023


def keep(url, notes, name):
    """Deletes trajectories whose content others share, and collects garbage."""
    pool, notes, number = insisting(lambda: open_store(url)), Notes(notes), 0
    while True:
        trajectory_id = f"{GONE}{name}-{number}"
        number += 1
        insisting(lambda: pool.append_steps([made_step(trajectory_id, place) for place in range(STEPS)]))  # noqa: B023
        insisting(lambda: pool.delete_trajectories([trajectory_id]))  # noqa: B023
        notes.add("deleted", trajectory_id)
        insisting(pool.collect)


def applied_batches(notes):
    """The batches in a trainer's checkpoint."""
    return [words[1] for words in noted(notes, "applied")]


def noted(notes, kind):
    """The words of the notes of a kind."""
    try:
        with open(notes) as file:
            return [words for words in map(str.split, file) if words[0] == kind]
    except FileNotFoundError:
        return []


def write_some(url, barrier, notes, name, count):
    """Open the pool at the same moment as others, and append `count` steps."""
    notes = Notes(notes)
    barrier.wait(PATIENCE)
    pool = open_store(url)
    for place in range(count):
        results = pool.append_steps([made_step(name, place)])
        assert results[0].outcome == "stored", results
        notes.add("step", results[0].step_id)
    pool.close()
    notes.add("closed", name)


def stop_while_writing(url, pid_file, idle_seconds=20):
    """Stop this process in the middle of a transaction; once it is told to go on, it writes.

    `idle_seconds`: after which a server ends the transaction of a process that has stopped.
    """
    session.IDLE_SECONDS = idle_seconds
    pool, notes = open_store(url), Notes(pid_file)
    notes.add("pid", os.getpid())

    def stopping(txn):
        # To this thread, which then goes no further; sent to the process, another might take it a moment later.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    try:
        pool._writer.submit(stopping).result(PATIENCE)
        notes.add("kept")
    except PoolError:
        notes.add("ended")
    assert pool.append_steps([made_step("stopped", 0)])[0].outcome == "stored"
    pool.close()
