"""What checks cost on one core: a pass over a pool beside reading it alone, what is new, and near-duplicates."""

from __future__ import annotations

import hashlib
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from agentworld.bench.record import Bench, Better, one_core, seconds
from agentworld.curation.checks import CheckContext, CheckSettings, PoolCheck, chosen, known, pool_checks, run_checks
from agentworld.curation.checks.near_duplicates import SimilarTexts
from agentworld.curation.checks.reading import Run
from agentworld.curation.running import CurateSettings, plan_of, run_curation
from agentworld.pool.protocol import Pool
from agentworld.records import BatchTrajectory, Reward
from agentworld.testing.workload import tool_trajectories

TURNS = 20
_ROLLOUTS = 8
_NEW_IDS = 500
_WORDS = 200  # of a text, as a reply of 270 tokens has
_VOCABULARY = 20_000
_COPIES = 0.1  # of the texts are earlier ones with one word changed
_ALL_TEXTS = 100_000


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One measured value, and of what is done without checks in the same run.

    `required`: what must be reached, at least where `better` is "more", at most where it is "less".
    """

    name: str
    value: float
    unit: str
    beside: float | None = None
    required: float | None = None
    better: Better = "more"

    @property
    def met(self) -> bool | None:
        """Whether the requirement is met; None without one."""
        if self.required is None:
            return None
        return self.value >= self.required if self.better == "more" else self.value <= self.required


@dataclass
class ChecksBench:
    """How much to measure: trajectories of 20 steps, and texts that near-duplicates are searched among."""

    folder: Path
    trajectories: int = 400
    texts: int = _ALL_TEXTS
    seed: int = 7


class Section(NamedTuple):
    """One table: its name on the command line, its title, and what measures it."""

    name: str
    title: str
    measure: Callable[[ChecksBench], list[Figure]]


def one_pass(bench: ChecksBench) -> list[Figure]:
    """Every deterministic check over a pool that is read on the way: all but near-duplicates.

    The incremental pass loads the states that the first one saved, and goes over a tenth as much that is new.
    """
    context = CheckContext(checks=chosen(known()) - {"near_duplicate"})
    tasks = max(bench.trajectories // _ROLLOUTS, 1)
    more = max(tasks // 10, 1)
    with one_core(), Bench(steps=0, url=None, folder=bench.folder, seed=bench.seed).pool() as pool:
        first, new = _fill(pool, tasks, bench.seed), _fill(pool, more, bench.seed + 1)
        for _ in _read(pool, new):  # Warms up.
            pass
        reading = seconds(lambda: list(_read(pool, first)))
        states: dict[str, bytes] = {}
        checking = seconds(lambda: states.update(_check(pool, first, context, {})))
        again = seconds(lambda: _check(pool, new, context, states))
    steps = len(first) * TURNS
    return [
        Figure("reading and checking", steps / checking, "steps/s", beside=steps / reading, required=2_000.0),
        Figure("checking what was read", steps / max(checking - reading, 1e-9), "steps/s"),
        Figure("what is new, with states of all", len(new) * TURNS / again, "steps/s"),
    ]


def _fill(pool: Pool, tasks: int, seed: int) -> list[str]:
    names = []
    for steps in tool_trajectories(tasks, _ROLLOUTS, TURNS, _NEW_IDS, seed):
        pool.append_steps(steps)
        pool.complete_trajectory(steps[0].trajectory_id, "finished")
        names.append(steps[0].trajectory_id)
    return names


def _read(pool: Pool, names: Iterable[str]) -> Iterator[BatchTrajectory]:
    for name in names:
        steps = pool.list_steps(trajectory_id=name, limit=1_000, include=("messages",)).items
        yield BatchTrajectory(trajectory=pool.get_trajectory(name), steps=list(steps))


def _check(pool: Pool, names: Iterable[str], context: CheckContext, states: dict[str, bytes]) -> dict[str, bytes]:
    settings = context.settings
    checks: dict[str, PoolCheck] = {
        name: make.load(states[name], settings) if name in states else make(settings)
        for name, make in pool_checks(context).items()
    }
    for record in _read(pool, names):
        run = Run(record)
        run_checks(run, context)
        for each in checks.values():
            each.add(run)
    for each in checks.values():
        each.result()
    return {name: each.save() for name, each in checks.items()}


def whole_run(bench: ChecksBench) -> list[Figure]:
    """`agentworld curate run` over a pool that has rewards: everything, then a tenth as much that is new, then nothing.

    All deterministic checks, reading and writing of labels included. Beside it: reading the same alone. Rates are for a
    second of CPU time, which is that of one core, so that what else the machine does counts less.
    """
    plan = plan_of(CurateSettings(run=tuple(sorted(set(known()) - {"near_duplicate"}))))
    tasks = max(bench.trajectories // _ROLLOUTS, 1)
    with one_core(), Bench(steps=0, url=None, folder=bench.folder, seed=bench.seed).pool() as pool:
        first = _rewarded(pool, _fill(pool, tasks, bench.seed))
        for _ in _read(pool, first[:_ROLLOUTS]):  # Warms up.
            pass
        reading = cpu_seconds(lambda: list(_read(pool, first)))
        whole = cpu_seconds(lambda: run_curation(pool, plan))
        new = _rewarded(pool, _fill(pool, max(tasks // 10, 1), bench.seed + 1))
        reading_new = cpu_seconds(lambda: list(_read(pool, new)))
        more = cpu_seconds(lambda: run_curation(pool, plan))
        nothing = cpu_seconds(lambda: run_curation(pool, plan))
    steps, new_steps = len(first) * TURNS, len(new) * TURNS
    return [
        Figure("everything, with its labels", steps / whole, "steps/CPU s", beside=steps / reading, required=2_000.0),
        Figure("what is new", new_steps / more, "steps/CPU s", beside=new_steps / reading_new),
        Figure("nothing is new", 1_000 * nothing, "ms", better="less"),
    ]


def _rewarded(pool: Pool, names: list[str]) -> list[str]:
    for start in range(0, len(names), 500):
        part = names[start : start + 500]
        pool.add_rewards([Reward(value=float(at % 3 == 0), trajectory_id=name) for at, name in enumerate(part)])
    return names


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of this process, all its threads together, that the work takes."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def near_duplicates(bench: ChecksBench) -> list[Figure]:
    """Texts of 200 words, a tenth of them earlier ones with one word changed, in a process of its own.

    Beside it: a digest of each text, which finds exact copies only.
    """
    with multiprocessing.get_context("spawn").Pool(1) as process:
        took, digests, memory, missed, wrong = process.apply(search, (bench.texts, bench.seed))
    whole = bench.texts >= _ALL_TEXTS
    return [
        Figure(f"{bench.texts:,} texts", took, "s", beside=digests, required=300.0 if whole else None, better="less"),
        Figure("memory at most", memory / 2**20, "MiB", required=4_096.0 if whole else None, better="less"),
        Figure("copies not found", 100 * missed, "%", better="less"),
        Figure("others taken for copies", 100 * wrong, "%", better="less"),
    ]


def search(count: int, seed: int) -> tuple[float, float, int, float, float]:
    """(seconds, seconds of digests, peak bytes of the process, share of copies missed, share of others found)."""
    settings = CheckSettings()
    random = np.random.default_rng([seed, 9])
    words = np.array([f"word{number}" for number in range(_VOCABULARY)])
    made: list[list[str]] = []
    texts = SimilarTexts(settings.similar, settings.shingle, max(settings.remembered, count), settings.shortest_text)
    took = digests = 0.0
    copies = missed = wrong = 0
    with one_core():
        for number in range(count):
            is_copy = bool(made) and random.random() < _COPIES
            chosen_words = list(made[random.integers(len(made))]) if is_copy else words[_draw(random)].tolist()
            if is_copy:
                chosen_words[int(random.integers(_WORDS))] = "changed"
            elif len(made) < 1_000:
                made.append(chosen_words)
            text = " ".join(chosen_words)
            begin = time.perf_counter()
            found = texts.add(str(number), text)
            middle = time.perf_counter()
            hashlib.blake2b(text.encode(), digest_size=16).digest()
            digests += time.perf_counter() - middle
            took += middle - begin
            copies += is_copy
            missed += is_copy and found is None
            wrong += not is_copy and found is not None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return took, digests, peak, missed / max(copies, 1), wrong / max(count - copies, 1)


def _draw(random: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return random.integers(0, _VOCABULARY, _WORDS)


SECTIONS = [
    Section("pass", "deterministic checks over trajectories of 20 steps, on one core", one_pass),
    Section("run", "agentworld curate run over trajectories of 20 steps, on one core", whole_run),
    Section("near", "near-duplicates by MinHash, on one core", near_duplicates),
]


def measure(bench: ChecksBench, names: Iterable[str]) -> Iterator[tuple[Section, list[Figure]]]:
    """The figures of the named sections, all where none is named, each as soon as it is there."""
    wanted = set(names)
    for section in SECTIONS:
        if not wanted or section.name in wanted:
            yield section, section.measure(bench)
