"""Whatever is in a file is in the runs that are read of it: of the repository's own files, and of samples."""

import math
import os
from pathlib import Path

import pytest

from agentworld.factory import open_pool
from agentworld.ingest.loader import import_paths
from agentworld.ingest.reading import read_path
from agentworld.ingest.report import FormatCounts
from agentworld.ingest.wholes import is_empty
from tests.ingest.counting import counters, counts_in, counts_of

FIXTURES = Path(__file__).parent / "fixtures"
SAMPLES = os.environ.get("AGENTWORLD_SAMPLES")


def _found():
    for name, module in counters().items():
        for path in sorted((FIXTURES / name).glob("*")):
            if not path.name.startswith("."):
                yield pytest.param(name, path, id=f"{name}-{path.name}")
        if SAMPLES:
            for pattern in module.SAMPLES:
                for path in sorted(Path(SAMPLES).glob(pattern)):
                    yield pytest.param(name, path, id=f"{name}-sample-{path.name}")


PATHS = list(_found())


@pytest.mark.parametrize(("name", "path"), PATHS)
def test_nothing_is_lost(name, path):
    runs, _ = read_path("auto", path)
    counted, found = counters()[name].count(path).compared(counts_of(runs))

    assert found == counted


@pytest.mark.parametrize(("name", "path"), PATHS)
def test_the_named_format_reads_the_same(name, path):
    by_content, notes = read_path("auto", path)
    named, named_notes = read_path(name, path)

    assert named == by_content
    assert [note for note in named_notes if note.lost] == [note for note in notes if note.lost]


@pytest.mark.parametrize(("name", "path"), PATHS)
def test_the_pool_holds_what_was_read(name, path):
    read, notes = read_path(name, path)
    runs = [run for run in read if not is_empty(run)]
    counted = counts_of(runs)
    rewards = [(run, reward) for run in runs for reward in run.rewards if math.isfinite(reward.value)]
    with open_pool("memory://") as pool:
        report = import_paths(pool, [path], name)
        stored = counts_in(pool)
        again = import_paths(pool, [path], name)

    counts = report.formats.get(name) or FormatCounts()
    assert (counts.refused, counts.added + counts.replaced + counts.known) == (0, len(runs))
    assert counts.empty == len(read) - len(runs)
    assert report.lost == sum(note.lost for note in notes)
    assert (counts.messages, counts.tool_calls) == (counted.messages, counted.tool_calls)
    if not counts.known:
        # The primary reward is there beside the one that it is.
        assert len(rewards) <= len(stored.rewards) <= len(rewards) + len(runs)
        stored.rewards = counted.rewards
        assert stored == counted
    again_counts = again.formats.get(name) or FormatCounts()
    assert (again_counts.known, again_counts.added, again_counts.replaced) == (len(runs), 0, 0)
