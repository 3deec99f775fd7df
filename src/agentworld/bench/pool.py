"""The sections of `agentworld bench pool`, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from agentworld.bench import leasing, reading, sizes, writing
from agentworld.bench.figure import Figure
from agentworld.bench.record import Bench


class Section(NamedTuple):
    """One table: its name on the command line, its title, and what measures it."""

    name: str
    title: str
    measure: Callable[[Bench], list[Figure]]


SECTIONS = [
    Section("write", "durable writes, 500 new ids a step, on one core", writing.write),
    Section("size", "bytes, marginal from 16 to 64 rollouts", sizes.size),
    Section("read", "sequences as arrays, on one core", reading.read),
    Section("lease", "leases in small and large pools, by one and by eight consumers", leasing.lease),
    Section("page", "pages filtered on indexed fields, and the overview", reading.page),
]


def measure(bench: Bench, names: Iterable[str]) -> Iterator[tuple[Section, list[Figure]]]:
    """The figures of the named sections, all where none is named, each as soon as it is there."""
    wanted = set(names)
    for section in SECTIONS:
        if not wanted or section.name in wanted:
            yield section, section.measure(bench)
