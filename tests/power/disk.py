"""What a disk keeps of a run when the power goes: what was synced, and any part of the rest.

The model is that of POSIX without any file system's extras. Writes to a file are durable once the file is synced, and
until then each 512-byte sector of each may or may not be there, the last one cut anywhere. A name that was made or
removed is so for good once its folder is synced; a new file's content without its name is lost.
"""

import itertools
import pickle
import random
from dataclasses import dataclass, field
from pathlib import Path

from tests.power.vfs import Watcher

SECTOR = 512
MODES = ("synced", "prefix", "scattered", "everything")


class Recorder(Watcher):
    """Keeps all that happens, in order, with marks of what a caller was told in between."""

    def __init__(self):
        self.events = []

    def mark(self, *told):
        self.events.append(("told", *told))

    def created(self, path):
        self.events.append(("created", path))

    def wrote(self, path, offset, data):
        self.events.append(("wrote", path, offset, data))

    def truncated(self, path, size):
        self.events.append(("truncated", path, size))

    def synced(self, path):
        self.events.append(("synced", path))

    def deleted(self, path):
        self.events.append(("deleted", path))

    def synced_folder(self, path):
        self.events.append(("synced_folder", path))

    def save(self, path):
        path.write_bytes(pickle.dumps(self.events))


@dataclass
class _File:
    durable: bytearray = field(default_factory=bytearray)
    waiting: list = field(default_factory=list)


class Disk:
    """The disk after the events that `follow` was given; `files` (path to content) were there long before."""

    def __init__(self, files=()):
        self._names = {path: _File(bytearray(content)) for path, content in dict(files).items()}
        self._durable_names = dict(self._names)
        self.told = []

    def follow(self, event):
        kind, *details = event
        if kind == "told":
            self.told.append(tuple(details))
        elif kind == "synced_folder":
            self._durable_names = dict(self._names)
        elif kind == "created":
            self._names[details[0]] = _File()
        elif kind == "deleted":
            del self._names[details[0]]
        elif kind == "synced":
            file = self._names[details[0]]
            for change in file.waiting:
                _apply(file.durable, change)
            file.waiting.clear()
        else:
            path, *change = details
            self._names[path].waiting.append((kind, *change))

    def after_power_loss(self, mode, chance):
        """The files by path; `mode` says what is there of what was not synced, `chance` is a random.Random."""
        names = dict(self._durable_names)
        for name in sorted(self._names.keys() | names.keys()):
            current, durable = self._names.get(name), names.get(name)
            if current is not durable and (mode == "everything" or (mode != "synced" and chance.random() < 0.5)):
                names.pop(name, None)
                if current is not None:
                    names[name] = current
        return {name: _content(file, mode, chance) for name, file in names.items()}


def _content(file, mode, chance):
    content = bytearray(file.durable)
    changes = list(file.waiting)
    if mode == "synced":
        changes = []
    elif mode == "prefix" and changes:
        changes = changes[: chance.randrange(len(changes)) + 1]
        last = changes.pop()
        if last[0] == "wrote":
            changes.append(("wrote", last[1], last[2][: chance.randrange(len(last[2]) + 1)]))
    elif mode == "scattered":
        changes = [part for change in changes for part in _sectors(change) if chance.random() < 0.5]
    for change in changes:
        _apply(content, change)
    return bytes(content)


def _sectors(change):
    if change[0] != "wrote":
        return [change]
    _, offset, data = change
    edges = [0, *range(SECTOR - offset % SECTOR, len(data), SECTOR), len(data)]
    return [("wrote", offset + first, data[first:last]) for first, last in itertools.pairwise(edges)]


def _apply(content, change):
    if change[0] == "truncated":
        del content[change[1] :]
        content.extend(bytes(change[1] - len(content)))
    else:
        _, offset, data = change
        if data:
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + len(data)] = data


def crash_points(events, number, seed):
    """Numbers of events after which the power goes: all right after something was told where these are few enough, and
    the rest anywhere.
    """
    chance = random.Random(seed)
    told = [place for place, event in enumerate(events, 1) if event[0] == "told"]
    chosen = set(chance.sample(told, min(len(told), number // 2)))
    anywhere = [place for place in range(len(events) + 1) if place not in chosen]
    return sorted(chosen | set(chance.sample(anywhere, min(len(anywhere), number - len(chosen)))))


def load(path: Path):
    """A recorder's events."""
    return pickle.loads(path.read_bytes())
