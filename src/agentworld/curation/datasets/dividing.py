"""The first pass over a selection: which trajectories there are, what belongs together, and where each goes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from agentworld.curation.datasets.chosen import Chosen
from agentworld.curation.datasets.clusters import Texts
from agentworld.curation.datasets.reading import rows_of, whole_trajectory
from agentworld.curation.datasets.scratch import Scratch
from agentworld.curation.datasets.splits import Division, Numbers, divide, key_name
from agentworld.curation.datasets.tasks import begun_with, first_messages, named_task, task_text, user_text
from agentworld.pool.dataset_rules import digested_task, group_digest
from agentworld.pool.keeping.records import Progress
from agentworld.pool.protocol import Pool
from agentworld.records import DatasetRow, DatasetVersion, Message, Selection, Splits, Trajectory
from agentworld.records.ids import digest

_CHUNK = 100
_SELECTED = "selected (trajectory_id TEXT PRIMARY KEY, key INTEGER) WITHOUT ROWID"
_KEYS = "keys (number INTEGER PRIMARY KEY, key BLOB UNIQUE, task BLOB)"
_KEPT = "kept (said BLOB PRIMARY KEY, number INTEGER) WITHOUT ROWID"


class Placed(NamedTuple):
    """A trajectory of the selection. `key`: the number of its key. `task`: the key of its task, as the first of its key
    has it; None where nothing tells it.
    """

    trajectory_id: str
    key: int
    task: str | None


class Divided(msgspec.Struct):
    """How many trajectories there are, and the division of their keys; the scratch has the rest."""

    count: int
    division: Division
    splits: Splits
    scratch: Scratch

    def pages(self, size: int) -> Iterator[list[Placed]]:
        """The trajectories in the order of their ids, so many at a time."""
        after = ""
        while True:
            found = self.scratch.all(
                "SELECT trajectory_id, selected.key, task FROM selected JOIN keys ON number = selected.key "
                "WHERE trajectory_id > ? ORDER BY trajectory_id LIMIT ?",
                (after, size),
            )
            if not found:
                return
            yield [
                Placed(name, key, None if task is None else task.decode("utf-8", "surrogatepass"))
                for name, key, task in found
            ]
            after = found[-1][0]

    def split_of(self, key: int) -> str:
        """The split of a key."""
        return list(self.splits.fractions)[int(self.division.split[key])]


def divide_selection(
    pool: Pool, selection: Selection, parents: Sequence[DatasetVersion], scratch: Scratch, progress: Progress
) -> Divided:
    """The first pass."""
    chosen = Chosen(selection)
    scratch.make(_SELECTED)
    count = 0
    for some in chosen.trajectories(pool):
        count += scratch.many("INSERT OR IGNORE INTO selected VALUES (?, NULL)", [(one,) for one in some])
        progress("select", count, None)
    keys = _Keys(selection.splits, scratch, bool(parents))
    try:
        done, after = 0, ""
        while found := scratch.all(
            f"SELECT trajectory_id FROM selected WHERE trajectory_id > ? ORDER BY trajectory_id LIMIT {_CHUNK}",
            (after,),
        ):
            names = [one for (one,) in found]
            records = chosen.records(pool, names)
            placed = [(keys.add(pool, records.get(one), one), one) for one in names]
            scratch.many("UPDATE selected SET key = ? WHERE trajectory_id = ?", placed)
            done, after = done + len(names), names[-1]
            progress("group", done, count)
        _add_parents(pool, keys, scratch, parents)
        division = divide(keys.names, keys.sizes, keys.texts, selection.splits, keys.had())
    finally:
        keys.texts.close()
    return Divided(count, division, selection.splits, scratch)


class _Keys:
    """What is kept together in any case, numbered. The texts of a key are those of all its trajectories."""

    def __init__(self, splits: Splits, scratch: Scratch, parents: bool) -> None:
        self.names = bytearray()
        self.sizes = array("i")
        self.texts = Texts(scratch)
        self._splits = splits
        self._place = {split: place for place, split in enumerate(splits.fractions)}
        self._scratch = scratch
        self._parents = parents
        self._votes: list[array[int]] = [array("i") for _ in splits.fractions] if parents else []
        scratch.make(_KEYS, _KEPT)

    def add(self, pool: Pool, record: Trajectory | None, trajectory_id: str) -> int:
        """Take in a trajectory of the selection; returns the number of its key."""
        number = self._of(pool, record, trajectory_id)
        self.sizes[number] += 1
        return number

    def find(self, row: DatasetRow) -> int | None:
        """The number of the key that a parent's row is of, if that is there; also where its trajectory is not."""
        said = None
        if self._splits.by == "task" and row.task_key is not None:
            said = digested_task(row.task_key)
        elif self._splits.by == "group":
            said = row.group_key
        if said is None:
            return None
        found: int | None = self._scratch.one("SELECT number FROM kept WHERE said = ?", (said.encode(),))
        return found

    def add_other(self, pool: Pool, trajectory_id: str) -> int | None:
        """Take in a trajectory of a parent that is not selected, for its text; None where nothing of it is there."""
        record = whole_trajectory(pool, trajectory_id) if self._splits.near_duplicates is not None else None
        return None if record is None else self._of(pool, record, trajectory_id)

    def vote(self, number: int, split: str) -> None:
        """A parent has a row of that key in that split."""
        if split in self._place:
            votes = self._votes[self._place[split]]
            votes.extend([0] * (len(self.sizes) - len(votes)))
            votes[number] += 1

    def had(self) -> Numbers | None:
        """(keys, splits), how many rows of each parents have in each; None without parents."""
        if not self._parents:
            return None
        found = np.zeros((len(self.sizes), len(self._votes)), np.int64)
        for place, votes in enumerate(self._votes):
            found[: len(votes), place] = votes
        return found

    def _of(self, pool: Pool, record: Trajectory | None, trajectory_id: str) -> int:
        task = None if record is None else named_task(record)
        said: list[Message] | None = None
        if task is None and record is not None:
            said = _begun(pool, record)
            task = begun_with(said)
        key = self._key(record, task, trajectory_id)
        name = digest(key.encode("utf-8", "surrogatepass"))
        number: int | None = self._scratch.one("SELECT number FROM keys WHERE key = ?", (name,))
        if number is None:
            number = self._new(key, name, task)
        if self._splits.near_duplicates is not None and record is not None:
            text = task_text(record) or user_text(_begun(pool, record) if said is None else said)
            self.texts.add(number, text)
        return number

    def _new(self, key: str, name: bytes, task: str | None) -> int:
        number = len(self.sizes)
        self.names += key_name(self._splits, key)
        self.sizes.append(0)
        stored = None if task is None else task.encode("utf-8", "surrogatepass")
        self._scratch.all("INSERT INTO keys VALUES (?, ?, ?)", (number, name, stored))
        kind, _, said = key.partition(":")
        if self._parents and kind != "trajectory":
            kept = digested_task(said) if kind == "task" else group_digest(said)
            self._scratch.all("INSERT OR REPLACE INTO kept VALUES (?, ?)", (kept.encode(), number))
        return number

    def _key(self, record: Trajectory | None, task: str | None, trajectory_id: str) -> str:
        if self._splits.by == "task" and task is not None:
            return f"task:{task}"
        if self._splits.by == "group" and record is not None and record.group_id is not None:
            return f"group:{record.group_id}"
        return f"trajectory:{trajectory_id}"


def _begun(pool: Pool, record: Trajectory) -> list[Message]:
    page = pool.list_steps(trajectory_id=record.trajectory_id, include=("messages",), limit=1)
    return first_messages(page.items[0] if page.items else None)


def _add_parents(pool: Pool, keys: _Keys, scratch: Scratch, parents: Iterable[DatasetVersion]) -> None:
    """Tell where parents have what is selected, what is of the same task, and what may be nearly the same."""
    for parent in parents:
        for row in rows_of(pool, parent.version):
            number = scratch.one("SELECT key FROM selected WHERE trajectory_id = ?", (row.trajectory_id,))
            numbers = {number if number is not None else keys.add_other(pool, row.trajectory_id), keys.find(row)}
            for each in numbers:
                if each is not None:
                    keys.vote(each, row.split)
