"""The first pass over a selection: which trajectories there are, what belongs together, and where each goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from agentworld.curation.datasets.chosen import Chosen
from agentworld.curation.datasets.clusters import Texts
from agentworld.curation.datasets.reading import rows_of, whole_trajectory
from agentworld.curation.datasets.splits import Division, divide
from agentworld.curation.datasets.tasks import begun_with, first_messages, named_task, task_text, user_text
from agentworld.pool.dataset_rules import digested_task, group_digest
from agentworld.pool.keeping.records import Progress
from agentworld.pool.protocol import Pool
from agentworld.records import DatasetRow, DatasetVersion, Message, Selection, Splits, Trajectory

_CHUNK = 100


class Divided(msgspec.Struct):
    """Trajectories in the order of their ids, the number of the key of each, and the division of the keys.

    `tasks`: of each key, the key of its task, or None where nothing tells it.
    """

    trajectory_ids: list[str]
    key_of: list[int]
    tasks: list[str | None]
    division: Division
    splits: Splits


def divide_selection(
    pool: Pool, selection: Selection, parents: Sequence[DatasetVersion], progress: Progress
) -> Divided:
    """The first pass."""
    chosen = Chosen(selection)
    ids: set[str] = set()
    for some in chosen.trajectories(pool):
        ids.update(some)
        progress("select", len(ids), None)
    names = sorted(ids)
    del ids
    keys = _Keys(selection.splits)
    key_of: list[int] = []
    for begin in range(0, len(names), _CHUNK):
        some = names[begin : begin + _CHUNK]
        records = chosen.records(pool, some)
        key_of += [keys.add(pool, records.get(one), one) for one in some]
        progress("group", begin + len(some), len(names))
    _add_parents(pool, keys, names, key_of, parents)
    division = divide(keys.keys, keys.sizes, keys.texts, selection.splits, keys.had)
    return Divided(names, key_of, keys.tasks, division, selection.splits)


class _Keys:
    """What is kept together in any case, numbered. The texts of a key are those of all its trajectories."""

    def __init__(self, splits: Splits) -> None:
        self.keys: list[str] = []
        self.sizes: list[int] = []
        self.tasks: list[str | None] = []
        self.had: dict[int, dict[str, int]] = {}
        self.texts = Texts()
        self._by = splits.by
        self._alike = splits.near_duplicates is not None
        self._number: dict[str, int] = {}
        self._digested: dict[str, int] = {}  # by what rows keep of a task or a group

    def add(self, pool: Pool, record: Trajectory | None, trajectory_id: str) -> int:
        """Take in a trajectory of the selection; returns the number of its key."""
        number = self._of(pool, record, trajectory_id)
        self.sizes[number] += 1
        return number

    def find(self, row: DatasetRow) -> int | None:
        """The number of the key that a parent's row is of, if that is there; also where its trajectory is not."""
        if self._by == "task" and row.task_key is not None:
            return self._digested.get(digested_task(row.task_key))
        return self._digested.get(row.group_key) if self._by == "group" and row.group_key is not None else None

    def add_other(self, pool: Pool, trajectory_id: str) -> int | None:
        """Take in a trajectory of a parent that is not selected, for its text; None where nothing of it is there."""
        record = whole_trajectory(pool, trajectory_id) if self._alike else None
        return None if record is None else self._of(pool, record, trajectory_id)

    def vote(self, number: int, split: str) -> None:
        """A parent has a row of that key in that split."""
        of = self.had.setdefault(number, {})
        of[split] = of.get(split, 0) + 1

    def _of(self, pool: Pool, record: Trajectory | None, trajectory_id: str) -> int:
        task = None if record is None else named_task(record)
        said: list[Message] | None = None
        if task is None and record is not None:
            said = _begun(pool, record)
            task = begun_with(said)
        key = self._key(record, task, trajectory_id)
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = len(self.keys)
            self.keys.append(key)
            self.sizes.append(0)
            self.tasks.append(task)
            kind, _, name = key.partition(":")
            if kind != "trajectory":
                self._digested[digested_task(name) if kind == "task" else group_digest(name)] = number
        if self._alike and record is not None:
            text = task_text(record) or user_text(_begun(pool, record) if said is None else said)
            self.texts.add(number, text)
        return number

    def _key(self, record: Trajectory | None, task: str | None, trajectory_id: str) -> str:
        if self._by == "task" and task is not None:
            return f"task:{task}"
        if self._by == "group" and record is not None and record.group_id is not None:
            return f"group:{record.group_id}"
        return f"trajectory:{trajectory_id}"


def _begun(pool: Pool, record: Trajectory) -> list[Message]:
    page = pool.list_steps(trajectory_id=record.trajectory_id, include=("messages",), limit=1)
    return first_messages(page.items[0] if page.items else None)


def _add_parents(
    pool: Pool, keys: _Keys, names: Sequence[str], key_of: Sequence[int], parents: Iterable[DatasetVersion]
) -> None:
    """Tell where parents have what is selected, what is of the same task, and what may be nearly the same."""
    place: dict[str, int] = {}
    for parent in parents:
        if not place:
            place = dict(zip(names, key_of, strict=True))
        for row in rows_of(pool, parent.version):
            number = place.get(row.trajectory_id)
            numbers = {number if number is not None else keys.add_other(pool, row.trajectory_id), keys.find(row)}
            for each in numbers:
                if each is not None:
                    keys.vote(each, row.split)
