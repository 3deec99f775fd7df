"""Commits that let go of the pool's lock before they are on the disk, and why nobody sees what is not.

A write commits with `synchronous_commit = off`, so that the next writer need not wait for the disk, and is acknowledged
after a second, tiny transaction that does wait. The server's log is written in order: with it everything is on the
disk that came before, also of other processes. A crash of the server takes back the latest commits, never one that
others were built upon without these. So three rules are needed:

- A write is acknowledged, whatever it found or wrote, once the log of before is on the disk.
- A read notes how far the log went when its state was taken, and gives nothing to its caller before the disk has that.
- A crash begins a new era. What a process remembers of rows is forgotten with the first look at another era: the time
  at which the server's statistics began, which it loses in a crash alone (from version 15 on).

A server that has synchronous standbys shows a commit once these have it, and older ones name no era; there, each
commit waits for the disk under the lock.
"""

from __future__ import annotations

import threading

ERAS_FROM = 15  # version of the server
_ERA = "CAST(extract(epoch FROM (pg_stat_get_wal()).stats_reset) AS FLOAT)"
_STANDBYS = "current_setting('synchronous_standby_names') <> ''"
_WAIT = "pg_logical_emit_message(true, 'agentworld', '')"  # A commit of nothing else would not wait for the disk.


class Flushing:
    """What is sent to a server for these rules. `version`: the server's; `durable`: its commits wait by themselves."""

    def __init__(self, version: int, durable: bool) -> None:
        self._has_eras = version >= ERAS_FROM
        self._waits = "" if durable else "set_config('synchronous_commit', 'on', true), "
        self._guard = threading.Lock()
        self._eras: dict[float | None, int] = {}

    @property
    def begin(self) -> str:
        """As a write transaction begins."""
        waits = "current_setting('synchronous_commit')" if not self._waits else "'on'"
        mode = f"CASE WHEN {_STANDBYS} THEN {waits} ELSE 'off' END" if self._has_eras else waits
        return f"SELECT set_config('synchronous_commit', {mode}, true)"

    @property
    def after_write(self) -> str:
        """After the commit of a write transaction; once it is done, all before is on the disk."""
        # Nothing waits where nothing was written.
        return (
            f"SELECT {self._waits}CASE WHEN pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn() THEN {_WAIT} END"
        )

    @property
    def era(self) -> str:
        """An expression that gives the mark of the server's era."""
        return _ERA if self._has_eras else "CAST(NULL AS FLOAT)"

    @property
    def ask(self) -> str:
        """As a read transaction begins: up to where the log must be on the disk before the read is shown, null where it
        is, and the mark of the server's era.
        """
        if not self._has_eras:
            return f"SELECT NULL, {self.era}"
        # What is in the log of a standby is on the primary's disk.
        return (
            f"SELECT CASE WHEN pg_is_in_recovery() OR {_STANDBYS} THEN NULL "
            "WHEN pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn() THEN pg_current_wal_insert_lsn() END, "
            f"{self.era}"
        )

    def after_read(self, place: str | None) -> list[str]:
        """After the commit of a read transaction; once it is done, the log is on the disk up to the place."""
        if place is None:
            return []
        return [f"SELECT {self._waits}CASE WHEN pg_current_wal_flush_lsn() < '{place}'::pg_lsn THEN {_WAIT} END"]

    def number(self, era: float | None) -> int:
        """The number of an era by its mark; new ones have higher numbers."""
        with self._guard:
            return self._eras.setdefault(era, len(self._eras))
