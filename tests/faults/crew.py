"""Starts workers on a pool, kills some at random, round after round, and says what the pool lost or doubled."""

import multiprocessing
import random
import time
from collections import Counter

from agentworld.errors import StaleLeaseError
from agentworld.pool import open_store
from agentworld.records import BatchSpec
from tests.faults import workers
from tests.power.survivors import listed

# Who works, how many of them, and what they are called in a round's choice of whom to kill.
ROLES = {
    "writer": (workers.write, 2),
    "consumer": (workers.consume, 2),
    "trainer": (workers.train, 1),
    "keeper": (workers.keep, 1),
}
SECONDS = 60.0
_processes = multiprocessing.get_context("forkserver")


class Crew:
    """The workers of one pool. Their notes are in `folder`: a file a worker, and one for all lives of the trainer."""

    def __init__(self, url, folder):
        self.url, self.folder = url, folder
        self.killed = Counter()
        self._lives = Counter()
        self._working = {}
        _processes.set_forkserver_preload(["tests.faults.workers"])

    def __enter__(self):
        self.fill_up()
        return self

    def __exit__(self, *_):
        self.kill("everyone")

    def fill_up(self):
        """Start who is missing."""
        for role, (work, count) in ROLES.items():
            for place in range(count):
                if (role, place) not in self._working:
                    self._lives[role, place] += 1
                    name = f"{role}{place}x{self._lives[role, place]}"
                    notes = self.folder / (role if role == "trainer" else name)
                    process = _processes.Process(target=work, args=(self.url, str(notes), name), daemon=True)
                    process.start()
                    self._working[role, place] = process

    def kill(self, whom):
        """kill -9 of one of a role, or of everyone."""
        for key in [key for key in self._working if whom in (key[0], "everyone")][: None if whom == "everyone" else 1]:
            process = self._working.pop(key)
            assert process.is_alive(), f"{key} ended by itself with {process.exitcode}"
            process.kill()
            process.join(SECONDS)
        self.killed[whom] += 1

    def size(self):
        """How much the workers have noted."""
        return sum(path.stat().st_size for path in self.folder.iterdir())

    def wait_for_notes(self, size):
        """Until that much more is noted."""
        enough, deadline = self.size() + size, time.monotonic() + SECONDS
        while self.size() < enough:
            assert time.monotonic() < deadline, "the workers are stuck"
            for key, process in self._working.items():
                assert process.is_alive(), f"{key} ended by itself with {process.exitcode}"
            time.sleep(0.002)

    def noted(self, kind):
        """The words of all workers' notes of a kind."""
        return [words for path in sorted(self.folder.iterdir()) for words in workers.noted(path, kind)]


def kill_rounds(url, folder, rounds, seed, *, extra=None):
    """Kill someone in each of `rounds`; `extra`: more whom and how ({name: function}). Returns (killed, problems)."""
    chance, extra = random.Random(seed), extra or {}
    choices = [*ROLES, "everyone", *extra]
    with Crew(url, folder) as crew:
        for number in range(rounds):
            crew.wait_for_notes(chance.randrange(1, 600))
            time.sleep(chance.uniform(0.0, 0.02))  # The moment of the kill is what is being varied.
            # In turn, so that few rounds have each; shuffled by where the moment falls.
            whom = choices[number % len(choices)]
            if whom in extra:
                extra[whom]()
                crew.killed[whom] += 1
            else:
                crew.kill(whom)
            crew.fill_up()
        crew.wait_for_notes(600)
    return crew.killed, problems(crew)


def problems(crew):
    """What the pool lost, doubled or mixed up, in words; everybody is dead by now."""
    pool = open_store(crew.url)
    try:
        found = [*_steps(pool, crew), *_shared(pool, crew), *_trained(pool, crew)]
        return found + [f"check: {problem}" for problem in pool.check()]
    finally:
        pool.close()


def _steps(pool, crew):
    steps = listed(pool)
    counted = Counter(step.step_id for step in steps)
    yield from (f"{step_id} is there {count} times" for step_id, count in counted.items() if count > 1)
    yield from (f"{words[1]} is lost" for words in crew.noted("step") if words[1] not in counted)
    deleted = {words[1] for words in crew.noted("deleted")}
    places = {}
    for step in steps:
        if step.trajectory_id.startswith(workers.GONE):
            if step.trajectory_id in deleted:
                yield f"{step.step_id} was deleted and is there"
            continue  # Half of it may be deleted.
        place = places[step.trajectory_id] = places.get(step.trajectory_id, -1) + 1
        sent = workers.made_step(step.trajectory_id, place)
        for name in ("step_id", "prompt_ids", "response_ids", "response_logprobs", "prompt_messages"):
            if getattr(step, name) != getattr(sent, name):
                yield f"{step.step_id} has another {name}"
        if step.step_index != place:
            yield f"{step.step_id} is at {step.step_index}, not {place}"
    stats = pool.stats()
    if stats.steps != len(steps):
        yield f"{stats.steps} steps are counted, {len(steps)} are there"


def _drained(pool, consumer, seconds):
    """Batches of all that is left for a consumer, acknowledged; leases of the dead run out after `seconds`."""
    taken, deadline = [], time.monotonic() + seconds
    while True:
        batch = pool.lease(BatchSpec(method="reinforce", size=1000, min_size=1, lease_seconds=60.0), consumer)
        if batch is not None:
            pool.ack(batch.batch_id, batch.epoch)
            taken.append((batch.batch_id, batch.epoch, [item.key for item in batch.items]))
        elif time.monotonic() > deadline:
            return taken
        else:
            time.sleep(0.05)


def _is_acked(pool, batch_id, epoch):
    """Whether a lease whose time is over was acknowledged: only then it may be again."""
    try:
        pool.ack(batch_id, epoch)
    except StaleLeaseError:
        return False
    return True


def _shared(pool, crew):
    drained = _drained(pool, "shared", workers.SPEC.lease_seconds + 0.2)
    leases = [(words[1], int(words[2]), words[3:]) for words in crew.noted("leased")] + drained
    acked = {batch_id for batch_id, epoch, _ in leases if _is_acked(pool, batch_id, epoch)}
    yield from (f"the acknowledgement of {words[1]} is lost" for words in crew.noted("acked") if words[1] not in acked)
    counted = Counter(key for batch_id, _, keys in leases if batch_id in acked for key in keys)
    yield from _once(crew, counted, "acknowledged")


def _trained(pool, crew):
    applied = crew.noted("applied")
    unknown = pool.resume("trainer", [words[1] for words in applied])["unknown"]
    yield from (f"the lease {batch_id} is lost" for batch_id in unknown)
    counted = Counter(key for words in applied for key in words[2:])
    counted.update(key for _, _, keys in _drained(pool, "trainer", 0.0) for key in keys)
    yield from _once(crew, counted, "applied")


def _once(crew, counted, what):
    yield from (f"{key} was {what} {count} times" for key, count in counted.items() if count > 1)
    yield from (f"{words[1]} was never {what}" for words in crew.noted("ready") if words[1] not in counted)
