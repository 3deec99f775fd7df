"""What a pool must hold after a crash, by what its callers had been told before."""

import sqlite3

from agentworld.errors import AgentWorldError, NotFoundError
from agentworld.pool import open_store
from agentworld.records import BatchSpec
from tests.power.workload import STEPS, medium, numbered_step

EVERYTHING = ("tokens", "messages", "logprobs")


def problems(folder, told):
    """What is wrong with the pool in `folder`, in words; it is opened, read, consumed from and written to."""
    try:
        pool = open_store(f"sqlite:///{folder}/pool.db")
    except AgentWorldError as error:
        return [f"does not open: {error}"]
    try:
        found = [*_content(pool, told), *_deliveries(pool, told)]
        found += [f"check: {problem}" for problem in pool.check()]
        if (outcome := pool.append_steps([numbered_step(1_000_000)])[0].outcome) != "stored":
            found.append(f"a new step is {outcome}")
    except Exception as error:  # Of a damaged pool anything may come, and whatever it is, the pool is not what it was.
        return [f"does not work: {error!r}"]
    finally:
        pool.close()
    return [*found, *unsound(folder / "pool.db")]


def unsound(path):
    """What SQLite itself finds wrong with a file."""
    connection = sqlite3.connect(path)
    found = [f"integrity: {row[0]}" for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
    found += [f"reference: {tuple(row)}" for row in connection.execute("PRAGMA foreign_key_check")]
    connection.close()
    return found


def listed(pool, include=EVERYTHING):
    """All steps of a pool."""
    steps, cursor = [], None
    while True:
        page = pool.list_steps(cursor=cursor, limit=500, include=include)
        steps += page.items
        cursor = page.next_cursor
        if cursor is None:
            return steps


def _content(pool, told):
    steps = listed(pool)
    ids = [step.step_id for step in steps]
    deleting = {details[0] for kind, *details in told if kind == "deleting"}
    numbers = [details[0] for kind, *details in told if kind == "stored"]
    stored = {f"s{number}" for number in numbers if f"t{number // STEPS}" not in deleting}
    deleted = {details[0] for kind, *details in told if kind == "deleted"}
    yield from (f"{step.step_id} was deleted and is there" for step in steps if step.trajectory_id in deleted)
    yield from (f"{step_id} is lost" for step_id in sorted(stored - set(ids)))
    if len(ids) != len(set(ids)):
        yield f"{len(ids) - len(set(ids))} steps are there twice"
    for step in steps:
        sent = numbered_step(int(step.step_id[1:]))
        for name in ("prompt_ids", "response_ids", "response_logprobs", "prompt_messages", "response_message"):
            if getattr(step, name) != getattr(sent, name):
                yield f"{step.step_id} has another {name}"
    for trajectory_id in {details[0] for kind, *details in told if kind == "completed"} - deleting:
        try:
            trajectory = pool.get_trajectory(trajectory_id)
        except NotFoundError:
            yield f"{trajectory_id} is lost"
            continue
        if (trajectory.status, trajectory.reward) != ("finished", 1.0):
            yield f"the end of {trajectory_id} is lost"
    for digest, number in [details for kind, *details in told if kind == "medium"]:
        try:
            if pool.get_media(digest).data != medium(number):
                yield f"the medium {digest} has another content"
        except NotFoundError:
            yield f"the medium {digest} is lost"
    if pool.stats().steps != len(steps):
        yield f"{pool.stats().steps} steps are counted, {len(steps)} are there"
    sequences = []
    while more := [event.sequence for event in pool.events(len(sequences), limit=1000)]:
        sequences += more
    if sequences != list(range(1, len(sequences) + 1)):
        yield "events have gaps"


def _deliveries(pool, told):
    acked = {details[0] for kind, *details in told if kind == "acked"}
    completed = {details[0] for kind, *details in told if kind == "completed"}
    leased = [details[0] for kind, *details in told if kind == "leased"]
    pool.resume("c", [])
    batch = pool.lease(BatchSpec(method="reinforce", size=1000, min_size=1, lease_seconds=10), "c")
    delivered = {item.key for item in batch.items} if batch is not None else set()
    yield from (f"{key} was acknowledged and comes again" for key in sorted(acked & delivered))
    unknown = pool.resume("c", leased)["unknown"]
    yield from (f"the lease {batch_id} is lost" for batch_id in unknown)
    completed -= {details[0] for kind, *details in told if kind == "deleting"}
    if len(completed - acked - delivered) > 1:  # The one whose acknowledgement was on its way may be done.
        yield f"{sorted(completed - acked - delivered)} come no more"
