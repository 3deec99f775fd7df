"""Engine, gateway, runner and trainer as processes that learn a small task, and what a kill of any of them may not do.

The policy is a model of random weights; its rewards are how much of an answer is made of some letters, which it learns
in few updates. The harness does what a supervisor does: it starts again what has ended, the engine with the weights of
the newest checkpoint.
"""

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from agentworld.pool import open_store
from agentworld.records import Policy
from agentworld.trainers.checkpoint import latest_checkpoint, read_record
from agentworld.trainers.metrics import read_lines
from tests.faults.test_kill import port_is_free

ROOT = Path(__file__).parent.parent.parent
ROLES = ("engine", "gateway", "runner", "trainer")
LETTERS = "aeiou"
SECONDS = 240.0
REST_SECONDS = 2.0  # before what ended by itself is started again, as supervisors do
_CHECKER = f"""def check(answer, reference):
    said = answer.strip()
    return sum(letter in {LETTERS!r} for letter in said) / max(len(said), 1)
"""
_RUN = """
name = "letters"
model = "pocket"
url = "{gateway}"
rollouts = 4
concurrency = 8
retries = 1
max_staleness = 2
batch = 24
[sampling]
temperature = 1.0
max_tokens = 12
seed = {seed}
[[agents]]
kind = "loop"
[[task_sets]]
file = "tasks.jsonl"
heldout = 0.0
checker = "letters:check"
"""
_TRAIN = """
pool = "{pool}"
model = "pocket"
out = "{out}"
run = "faults"
batches = {batches}
timeout = 60
[batch]
groups = 3
rollouts = 2
order = "freshest"
max_staleness = 2
lease_seconds = 30
[settings]
method = "grpo"
learning_rate = 1e-2
rows_per_update = 4
seed = {seed}
threads = 1
[publish]
engine = "{engine}"
model = "pocket"
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class TrainingCrew:
    """The four processes over one pool in `folder`; used as a context manager."""

    def __init__(self, folder, batches, seed):
        self.folder, self.batches = folder, batches
        self.out = folder / "out"
        self.pool_url = f"sqlite:///{folder}/pool.db"
        self.killed, self.ended = Counter(), Counter()
        self._ports = {"engine": free_port(), "gateway": free_port()}
        self._working, self._rests = {}, {}
        address = {role: f"http://127.0.0.1:{port}" for role, port in self._ports.items()}
        tasks = "".join(f'{{"prompt": "letters {number}", "reference": ""}}\n' for number in range(400))
        texts = {
            "letters.py": _CHECKER,
            "tasks.jsonl": tasks,
            "run.toml": _RUN.format(gateway=address["gateway"], seed=seed),
            "train.toml": _TRAIN.format(
                pool=self.pool_url, out=self.out, batches=batches, engine=address["engine"], seed=seed
            ),
        }
        for name, text in texts.items():
            (folder / name).write_text(text)
        self._address = address

    def __enter__(self):
        pool = open_store(self.pool_url)  # The run speaks from the beginning, so that staleness counts from there.
        pool.set_policy(Policy("pocket", run="faults"))
        pool.close()
        for role in ROLES:
            # At the first start each waits for whom it calls.
            self._working[role] = self._start(role)
            if role in self._ports:
                self.until(lambda port=self._ports[role]: not port_is_free(port), role, again=False)
        return self

    def __exit__(self, *_):
        for role in list(self._working):
            self._end(role)

    def start_missing(self):
        """Start what is not running; the trainer only while there is something left to train."""
        for role in ROLES:
            process = self._working.get(role)
            if process is not None and process.poll() is None:
                continue
            if process is not None:
                self.ended[role] += 1
                self._rests[role] = time.monotonic() + REST_SECONDS
                self._end(role)
            if time.monotonic() < self._rests.get(role, 0.0):
                continue
            if role in self._ports and not port_is_free(self._ports[role]):
                continue  # What was killed still lets go of it.
            self._working[role] = self._start(role)

    def kill(self, role):
        """kill -9 of the whole process group, or of its first process alone where that has children who follow it."""
        process = self._working.pop(role)
        process.kill()
        process.wait(SECONDS)
        self.killed[role] += 1

    def runs(self, role):
        return role in self._working and self._working[role].poll() is None

    def finished(self):
        """Whether the trainer has done all of its batches and ended well."""
        process = self._working.get("trainer")
        return self.version() >= self.batches and process is not None and process.poll() == 0

    def version(self):
        """Of the newest checkpoint; one that is taken away while it is looked at counts as the one before."""
        newest = latest_checkpoint(self.out)
        return 0 if newest is None else read_record(newest).version

    def until(self, condition, what, *, again=True):
        """Wait, and start again what ends by itself meanwhile."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}: {self.said()}"
            if again and not self.finished():
                self.start_missing()
            time.sleep(0.02)

    def said(self):
        """The last words of each."""
        return {role: (self.folder / f"{role}.log").read_text()[-600:] for role in ROLES}

    def _start(self, role):
        log = (self.folder / f"{role}.log").open("ab")
        variables = {name: value for name, value in os.environ.items() if not name.startswith("AGENTWORLD_")}
        try:
            return subprocess.Popen(
                [sys.executable, "-m", "agentworld", *self._command(role)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**variables, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
        finally:
            log.close()

    def _command(self, role):
        if role == "trainer":
            return ["train", str(self.folder / "train.toml")]
        if role == "runner":
            return ["run", str(self.folder / "run.toml"), "--quiet"]
        port = ["--port", str(self._ports[role])]
        if role == "gateway":
            return [
                "serve", "--pool", self.pool_url, "--upstream", self._address["engine"], "--driver", "builtin",
                "--model", "pocket", "--tokenizer", "pocket", "--tokens", "token-in", "--log-level", "warning", *port,
            ]  # fmt: skip
        newest = latest_checkpoint(self.out)
        if newest is None:
            return ["engine", "--model", "pocket", "--run", "faults", *port]
        version = str(read_record(newest).version)
        return ["engine", "--model", "pocket", "--weights", str(newest), "--version", version, "--run", "faults", *port]

    def _end(self, role):
        process = self._working.pop(role)
        if process.poll() is None:
            process.kill()
        process.wait(SECONDS)


def problems(crew):
    """What the run lost, doubled or mixed up, in words; everybody has ended."""
    record = read_record(latest_checkpoint(crew.out))
    applied = record.applied
    pool = open_store(crew.pool_url)
    try:
        if record.version != crew.batches or len(set(applied)) != len(applied) or len(applied) != crew.batches:
            yield f"{record.version} versions with {len(set(applied))} of {len(applied)} batches, not {crew.batches}"
        trained, batches = Counter(), {}
        for batch_id in applied:
            batches[batch_id] = batch = pool.get_batch(batch_id)
            if batch.state != "acked":
                yield f"batch {batch_id} is in the weights and {batch.state}"
            for unit in batch.units:
                steps = [
                    step.step_id
                    for trajectory_id in unit.trajectories or _members(pool, unit.key)
                    for step in pool.list_steps(trajectory_id=trajectory_id).items
                ]
                if not steps:
                    yield f"unit {unit.key} of {batch_id} has no steps"
                trained.update(steps)
        yield from (f"step {name} was trained {times} times" for name, times in trained.items() if times > 1)
        for batch in pool.list_batches(consumer="policy", limit=1000).items:
            if batch.state == "acked" and batch.batch_id not in batches:
                yield f"batch {batch.batch_id} is acknowledged and in no weights"
            if batch.state == "leased":
                yield f"batch {batch.batch_id} is leased by nobody"
        told = [line.step for line in read_lines(crew.out / "metrics.jsonl") if line.kind == "train"]
        if told != list(range(1, crew.batches + 1)):
            yield f"the curve has the versions {told}"
        if pool.gateway_state().policies["pocket"].version != crew.batches:
            yield f"the pool says that {pool.gateway_state().policies['pocket']} speaks"
        yield from (f"check: {problem}" for problem in pool.check())
    finally:
        pool.close()


def _members(pool, group_id):
    return [one.trajectory_id for one in pool.list_trajectories(group_id=group_id).items if one.readiness == "ready"]
