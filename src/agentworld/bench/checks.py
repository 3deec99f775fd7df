"""What checks cost on one core: a pass over a pool beside reading it alone, what is new, and near-duplicates."""

from __future__ import annotations

import hashlib
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from agentworld.bench.figure import Figure
from agentworld.bench.record import Bench, one_core, seconds
from agentworld.curation.checks import CheckContext, CheckSettings, PoolCheck, chosen, known, pool_checks, run_checks
from agentworld.curation.checks.near_duplicates import SimilarTexts
from agentworld.curation.checks.reading import Run
from agentworld.curation.running import CurateSettings, plan_of, run_curation
from agentworld.curation.running.report import Progress, RunReport, no_progress
from agentworld.pool.protocol import Pool
from agentworld.records import BatchTrajectory, Reward, Step
from agentworld.testing.workload import tool_trajectories

TURNS = 20
_ROLLOUTS = 8
_WORDS = 200  # of a text, as a reply of 270 tokens has
_VOCABULARY = 20_000
_COPIES = 0.1  # of the texts are earlier ones with one word changed
_ALL_TEXTS = 100_000
_AT_ONCE = 50  # trajectories, after which checks over the pool say what follows
_READ = 1_000  # trajectories that are read without being checked


@dataclass
class ChecksBench:
    """How much to measure: trajectories of 20 steps with `ids` new ids each, 4 characters an id, and texts that
    near-duplicates are searched among.

    Nothing is held but names of trajectories, what a pool keeps in its caches, and what checks remember, so that
    memory stays about the same; the file of the pool takes 75 KB a trajectory of 500 ids a step. `progress` is told
    how far each part is.
    """

    folder: Path
    trajectories: int = 400
    ids: int = 500
    texts: int = _ALL_TEXTS
    seed: int = 7
    progress: Progress = no_progress


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
    with one_core(), Bench(steps=0, url=None, folder=bench.folder, seed=bench.seed).pool() as pool:
        first, new = _fill(pool, tasks, bench), _fill(pool, max(tasks // 10, 1), bench, seed=bench.seed + 1)
        _read_all(pool, new)  # Warms up.
        some = _some(first)
        reading = seconds(lambda: _read_all(pool, some)) / len(some)
        states: dict[str, bytes] = {}
        checking = seconds(lambda: states.update(_check(pool, first, context, {}, bench.progress))) / len(first)
        again = seconds(lambda: _check(pool, new, context, states, bench.progress)) / len(new)
    return [
        Figure("reading and checking", TURNS / checking, "steps/s", beside=TURNS / reading, required=2_000.0),
        Figure("checking what was read", TURNS / max(checking - reading, 1e-9), "steps/s"),
        Figure("what is new, with states of all", TURNS / again, "steps/s"),
    ]


def _fill(pool: Pool, tasks: int, bench: ChecksBench, *, seed: int | None = None, rewards: bool = False) -> list[str]:
    """Rollouts of so many tasks, a task at once. Their steps have messages and counts, and no ids, as checks read none
    where there are messages.
    """
    names: list[str] = []
    trajectories = tool_trajectories(tasks, _ROLLOUTS, TURNS, bench.ids, bench.seed if seed is None else seed)
    while rollouts := list(islice(trajectories, _ROLLOUTS)):
        pool.append_steps([_text_only(step) for steps in rollouts for step in steps])
        ids = [steps[0].trajectory_id for steps in rollouts]
        for name in ids:
            pool.complete_trajectory(name, "finished")
        if rewards:
            at = len(names)
            pool.add_rewards([Reward(value=float((at + n) % 3 == 0), trajectory_id=i) for n, i in enumerate(ids)])
        names += ids
        bench.progress("filling", len(names), tasks * _ROLLOUTS)
    return names


def _text_only(step: Step) -> Step:
    return msgspec.structs.replace(
        step,
        prompt_ids=None,
        response_ids=None,
        response_logprobs=None,
        logprob_space=None,
        vocabulary=None,
        token_source="none",
    )


def _some(names: list[str]) -> list[str]:
    """A thousand at most, evenly apart: what reading alone takes of each is known by them."""
    return names[:: max(len(names) // _READ, 1)]


def _read(pool: Pool, names: Iterable[str]) -> Iterator[BatchTrajectory]:
    for name in names:
        steps = pool.list_steps(trajectory_id=name, limit=1_000, include=("messages",)).items
        yield BatchTrajectory(trajectory=pool.get_trajectory(name), steps=list(steps))


def _read_all(pool: Pool, names: Iterable[str]) -> None:
    for _ in _read(pool, names):
        pass


def _check(
    pool: Pool, names: list[str], context: CheckContext, states: dict[str, bytes], progress: Progress
) -> dict[str, bytes]:
    settings = context.settings
    checks: dict[str, PoolCheck] = {
        name: make.load(states[name], settings) if name in states else make(settings)
        for name, make in pool_checks(context).items()
    }
    for number, record in enumerate(_read(pool, names), 1):
        run = Run(record)
        run_checks(run, context)
        for each in checks.values():
            each.add(run)
        if number % _AT_ONCE == 0:
            for each in checks.values():
                each.result()
            progress("checking", number, len(names))
    for each in checks.values():
        each.result()
    return {name: each.save() for name, each in checks.items()}


def whole_run(bench: ChecksBench) -> list[Figure]:
    """`agentworld curate run` over a pool that has rewards: everything, then a tenth as much that is new, one that is
    new, and nothing.

    All deterministic checks, reading and writing of labels included. Beside it: reading the same alone. Rates are for a
    second of CPU time, which is that of one core, so that what else the machine does counts less.
    """
    plan = plan_of(CurateSettings(run=tuple(sorted(set(known()) - {"near_duplicate"}))))
    tasks = max(bench.trajectories // _ROLLOUTS, 1)
    with one_core(), Bench(steps=0, url=None, folder=bench.folder, seed=bench.seed).pool() as pool:

        def run() -> RunReport:
            return run_curation(pool, plan, progress=bench.progress)

        first = _fill(pool, tasks, bench, rewards=True)
        _read_all(pool, first[:_ROLLOUTS])  # Warms up.
        some = _some(first)
        reading = cpu_seconds(lambda: _read_all(pool, some)) / len(some)
        whole = cpu_seconds(run) / len(first)
        new = _fill(pool, max(tasks // 10, 1), bench, seed=bench.seed + 1, rewards=True)
        more = cpu_seconds(run) / len(new)
        reading_new = cpu_seconds(lambda: _read_all(pool, _some(new))) / len(_some(new))
        _fill(pool, 1, bench, seed=bench.seed + 2)
        one = cpu_seconds(run)
        nothing = cpu_seconds(run)
    return [
        Figure("everything, with its labels", TURNS / whole, "steps/CPU s", beside=TURNS / reading, required=2_000.0),
        Figure("what is new", TURNS / more, "steps/CPU s", beside=TURNS / reading_new),
        Figure(f"{_ROLLOUTS} trajectories are new", 1_000 * one, "ms", better="less"),
        Figure("nothing is new", 1_000 * nothing, "ms", better="less"),
        Figure("memory at most", peak_bytes() / 2**20, "MiB", better="less"),
    ]


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
    return took, digests, peak_bytes(), missed / max(copies, 1), wrong / max(count - copies, 1)


def peak_bytes() -> int:
    """The most memory that this process has had at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


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
