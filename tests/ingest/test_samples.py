"""Whatever is in a file is in the runs that are read of it: of the repository's own files, and of samples."""

import os
from pathlib import Path

import pytest

from agentworld.ingest.reading import read_path
from tests.ingest.counting import counters, counts_of

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
