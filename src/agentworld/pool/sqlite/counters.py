"""The counters of a SQLite pool as its writing connection knows them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

# Those of primary keys and other sequences, of which nearly every transaction asks for several.
_KEYS = "pk."
_ALL_KEYS = "SELECT name, value FROM counters WHERE name >= 'pk.' AND name < 'pk/'"
_ONE = "SELECT value FROM counters WHERE name = ?"


class Counters:
    """Each is read when it is first asked for: a pool has some for each consumer that it ever had.

    They are those of the state that the connection's transaction began with, since a transaction writes its own last.
    """

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw
        self._known: dict[str, int] = {}
        self._has_keys = False

    def get(self, name: str, default: int, /) -> int:
        """The value of a counter, `default` where there is none."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._read(name, default)
        return known

    def add(self, changes: Mapping[str, int]) -> None:
        """What a transaction of this connection has added, now that it is committed."""
        known = self._known
        for name, change in changes.items():
            if name in known:
                known[name] += change
            elif self._has_keys and name.startswith(_KEYS):
                known[name] = change  # There was none.

    def _read(self, name: str, default: int) -> int:
        if not name.startswith(_KEYS):
            found = self._raw.execute(_ONE, (name,)).fetchone()
            return default if found is None else int(found[0])
        if not self._has_keys:
            self._known.update(self._raw.execute(_ALL_KEYS).fetchall())
            self._has_keys = True
        return self._known.get(name, default)
