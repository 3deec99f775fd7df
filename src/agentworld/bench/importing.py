"""How fast files come in on one core, with parsing and durable commits, and what memory that takes."""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentworld.bench.figure import Figure
from agentworld.bench.record import Bench, one_core, seconds
from agentworld.ingest.loader import import_paths
from agentworld.ingest.wholes import Placing

MIB = 1024 * 1024
TURNS = 20
_NEW = 2_500  # characters of each turn: a tool's result and what the model says to it
_REQUIRED = 20.0  # MB a second
_MEMORY = 256.0  # MiB that an import may add, whatever the size of the file
_WORDS = 4_000


@dataclass
class ImportBench:
    """How much to measure: MiB of each format's file."""

    folder: Path
    size: int = 64
    seed: int = 7


class _Texts:
    """Texts of words, cut out of one long text, so that making them takes no time."""

    def __init__(self, seed: int) -> None:
        chosen = random.Random(seed)
        letters = "etaoinshrdlucmfw"
        words = ["".join(chosen.choices(letters, k=chosen.randint(2, 10))) for _ in range(_WORDS)]
        self._text = " ".join(chosen.choice(words) for _ in range(200_000))
        self._chosen = chosen

    def text(self, length: int) -> str:
        start = self._chosen.randrange(len(self._text) - length)
        return self._text[start : start + length]


def _chat(texts: _Texts, number: int) -> Iterator[Any]:
    """A row of OpenAI fine-tuning: a task, and turns of a tool call, its result and a reply."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"{number}: {texts.text(500)}"}]
    for turn in range(TURNS // 2):
        call = {"name": "search", "arguments": json.dumps({"query": texts.text(80)})}
        calls = [{"id": f"call_{turn}", "type": "function", "function": call}]
        messages.append({"role": "assistant", "content": texts.text(300), "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": texts.text(2 * _NEW - 800)})
        messages.append({"role": "assistant", "content": texts.text(400)})
        messages.append({"role": "user", "content": texts.text(100)})
    yield {"messages": messages[:-1]}


def _atif(texts: _Texts, number: int) -> Iterator[Any]:
    """An ATIF trajectory as a line."""
    steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": f"{number}: {texts.text(500)}"}]
    for turn in range(TURNS):
        call = {"tool_call_id": f"call_{turn}", "function_name": "run", "arguments": {"command": texts.text(80)}}
        result = {"source_call_id": f"call_{turn}", "content": texts.text(_NEW - 500)}
        steps.append(
            {
                "step_id": turn + 2,
                "source": "agent",
                "message": texts.text(200),
                "reasoning_content": texts.text(200),
                "tool_calls": [call],
                "observation": {"results": [result]},
                "metrics": {"prompt_tokens": 900 * turn, "completion_tokens": 120},
            }
        )
    agent = {"name": "bench", "version": "1", "model_name": "model"}
    yield {"schema_version": "ATIF-v1.4", "session_id": f"bench-{number}", "agent": agent, "steps": steps}


def _claude_code(texts: _Texts, number: int) -> Iterator[Any]:
    """The lines of a Claude Code session."""
    session = f"00000000-0000-4000-8000-{number:012d}"
    parent: str | None = None

    def line(kind: str, place: int, message: dict[str, Any]) -> dict[str, Any]:
        nonlocal parent
        made: dict[str, Any] = {
            "type": kind,
            "uuid": f"{number:08d}-0000-4000-8000-{place:012d}",
            "parentUuid": parent,
            "sessionId": session,
            "isSidechain": False,
            "timestamp": f"2025-01-01T00:{place // 60:02d}:{place % 60:02d}.000Z",
            "version": "2.0.0",
            "cwd": "/work",
            "message": message,
        }
        parent = made["uuid"]
        return made

    yield line("user", 0, {"role": "user", "content": f"{number}: {texts.text(500)}"})
    for turn in range(TURNS):
        said = {"type": "text", "text": texts.text(300)}
        call = {
            "type": "tool_use",
            "id": f"toolu_{number}_{turn}",
            "name": "Bash",
            "input": {"command": texts.text(80)},
        }
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": texts.text(_NEW - 400)}
        usage = {"input_tokens": 900 * turn, "output_tokens": 120}
        reply = {"id": f"msg_{number}_{turn}", "type": "message", "role": "assistant", "model": "model", "usage": usage}
        yield line("assistant", 2 * turn + 1, {**reply, "content": [said, call]})
        yield line("user", 2 * turn + 2, {"role": "user", "content": [result]})


class Section(NamedTuple):
    """One format: its name on the command line, its title, what makes the lines of one run, and whether each run has a
    file of its own.
    """

    name: str
    title: str
    run: Callable[[_Texts, int], Iterator[Any]]
    apart: bool = False


SECTIONS = (
    Section("openai-fine-tuning", "OpenAI fine-tuning, 20 replies a line", _chat),
    Section("atif", "ATIF, 20 replies a line", _atif),
    Section("claude-code", "Claude Code, a file for each session of 20 replies", _claude_code, apart=True),
)


def measure(bench: ImportBench, only: Sequence[str] = ()) -> Iterator[tuple[Section, list[Figure]]]:
    """The sections that are asked for, or all."""
    for section in SECTIONS:
        if not only or section.name in only:
            yield section, _measure(bench, section)


def _measure(bench: ImportBench, section: Section) -> list[Figure]:
    path = bench.folder / section.name
    runs = write(path, section, bench)
    files = sorted(path.iterdir())
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    with one_core():
        decoding = seconds(lambda: _decode(files))
        with _flat(bench.folder / "flat.db") as table:
            flat = seconds(lambda: _insert(files, table))
        with Bench(steps=0, url=None, folder=bench.folder).pool() as pool:
            # What a process loads for its first import of a format is no part of how fast files come in.
            import_paths(pool, files[:1], section.name, limit=1, placing=Placing(user="first"))
            taken = 0.0
            with _growth() as growth:
                taken = seconds(lambda: _import(pool, path, section.name, runs))
            again = seconds(lambda: _import(pool, path, section.name, 0))
    shutil.rmtree(path)
    return [
        Figure("import into SQLite", megabytes / taken, "MB/s", megabytes / flat, _REQUIRED),
        Figure("the same again, all of it known", megabytes / again, "MB/s", megabytes / decoding),
        Figure("memory that it adds", growth[0] / MIB, "MiB", None, _MEMORY, "less"),
    ]


def write(folder: Path, section: Section, bench: ImportBench) -> int:
    """Write files of that size into a new folder; returns how many runs are in them."""
    texts, encode, number, size = _Texts(bench.seed), msgspec.json.Encoder().encode, 0, 0
    folder.mkdir()
    while size < bench.size * MIB:
        lines = b"".join(encode(line) + b"\n" for line in section.run(texts, number))
        with (folder / f"{number if section.apart else 0}.jsonl").open("ab") as file:
            file.write(lines)
        size += len(lines)
        number += 1
    return number


def _lines(files: Sequence[Path]) -> Iterator[bytes]:
    for path in files:
        with path.open("rb") as file:
            yield from file


def _decode(files: Sequence[Path]) -> None:
    """What reading and decoding alone takes."""
    for line in _lines(files):
        msgspec.json.decode(line)


@contextmanager
def _flat(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE flat (line INTEGER PRIMARY KEY, document TEXT)")
        yield connection
    finally:
        connection.close()
        for file in path.parent.glob(path.name + "*"):
            file.unlink()


def _insert(files: Sequence[Path], connection: sqlite3.Connection) -> None:
    """The lines as they are into a table, decoded once, with a commit for each MiB."""
    waiting: list[tuple[str]] = []
    size = 0
    for line in _lines(files):
        msgspec.json.decode(line)
        waiting.append((line.decode(),))
        size += len(line)
        if size > MIB:
            connection.executemany("INSERT INTO flat (document) VALUES (?)", waiting)
            connection.commit()
            waiting, size = [], 0
    connection.executemany("INSERT INTO flat (document) VALUES (?)", waiting)
    connection.commit()


def _import(pool: Any, path: Path, format: str, expected: int) -> None:
    report = import_paths(pool, [path], format)
    counts = report.formats[format]
    if report.lost or counts.added != expected or counts.refused:
        raise AssertionError(f"{counts.added} of {expected} runs came in: {report.notes[:3]}")


@contextmanager
def _growth() -> Iterator[list[int]]:
    """How far the memory of this process grows inside, in bytes, in the list that it gives; 0 where nobody can say."""
    found = [0]
    try:
        Path("/proc/self/clear_refs").write_text("5")  # Forget the highest so far.
        before = _memory("VmRSS")
    except OSError:
        yield found
        return
    yield found
    found[0] = max(0, _memory("VmHWM") - before)


def _memory(name: str) -> int:
    said = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(said[1]) * 1024 if said else 0
