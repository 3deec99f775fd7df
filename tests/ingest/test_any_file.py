"""No file makes an importer stumble: fixtures of every format, with keys dropped, types swapped, bytes cut off."""

import copy
import json
import os
import random
from pathlib import Path

import pytest

from agentworld.factory import open_pool
from agentworld.ingest import reading
from agentworld.ingest.files import BytesEntry
from agentworld.ingest.formats import formats
from agentworld.ingest.loader import Importer

FIXTURES = Path(__file__).parent / "fixtures"
ODD = [
    None, True, 0, -1, 10**30, 1.5, "", "x", "\ud800", "\x00", [], {}, [None], [[]], {"a": None}, ["x"], [{}],
    {"type": "text"}, [{"type": "text", "text": 5}], "[" * 50, "{}", '{"a": 1}', "2024-99-99T00:00:00Z", "data:,",
]  # fmt: skip
ROUNDS = int(os.environ.get("AGENTWORLD_FUZZ_ROUNDS", "6"))
SEED = os.environ.get("AGENTWORLD_FUZZ_SEED", "")


def files():
    for name in formats():
        for path in sorted((FIXTURES / name).glob("*")):
            paths = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
            yield pytest.param(name, paths, id=f"{name}-{path.name}")


def parsed(path):
    """A file's documents and how to write them again, or None where it is no JSON."""
    data = path.read_bytes()
    try:
        return [json.loads(data)], lambda documents: json.dumps(documents[0]).encode()
    except ValueError:
        pass
    documents = []
    for line in data.splitlines():
        try:
            documents.append(json.loads(line))
        except ValueError:
            continue
    return (documents, lambda rows: b"\n".join(json.dumps(row).encode() for row in rows)) if documents else None


def places(value):
    """Every container with each of its keys."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def mutate(documents, chosen):
    """Change a few places: drop, swap, repeat, exchange."""
    documents = copy.deepcopy(documents)
    for _ in range(chosen.choice([1, 1, 2, 5, 20])):
        found = list(places(documents))
        if not found:
            break
        container, key = chosen.choice(found)
        what = chosen.randrange(4)
        if what == 0 and container is not documents:
            del container[key]
        elif what == 1:
            container[key] = copy.deepcopy(chosen.choice(ODD))
        elif what == 2:
            other, place = chosen.choice(found)
            container[key] = copy.deepcopy(other[place])
        elif isinstance(container, list):
            container.insert(key, copy.deepcopy(container[key]))
        if len(json.dumps(documents)) > 300_000:
            break
    return documents


def raised(format, bundle, error):
    raise error


@pytest.mark.parametrize(("name", "paths"), list(files()))
def test_a_file_that_was_changed_anywhere_is_read_as_far_as_it_goes(name, paths, monkeypatch):
    monkeypatch.setattr(reading, "_stumbled", raised)
    chosen = random.Random(f"{SEED}{name}{[path.name for path in paths]}")
    originals = {path: parsed(path) for path in paths}
    for _ in range(ROUNDS):
        entries = []
        for path in paths:
            data = path.read_bytes()
            if originals[path] is not None and chosen.random() < 0.9:
                documents, write = originals[path]
                data = write(mutate(documents, chosen))
            if chosen.random() < 0.2:
                data = data[: chosen.randrange(len(data) + 1)]
            entries.append(BytesEntry(data, f"{paths[0].parent.name}/{path.name}"))
        with open_pool("memory://") as pool:
            importer = Importer(pool)
            for asked in ("auto", name):
                for entry in entries:
                    entry.forget()
                for read in reading.read_entries(asked, entries, importer.report.take):
                    importer._take(read)
            importer._store()
        assert [note.why for note in importer.report.notes if "cannot be stored" in note.why] == []
