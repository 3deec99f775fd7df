"""Runs that a pool has under other ids than an import gives them now: earlier versions knew them by their content
alone, or by the name of their session alone, and some were exported from this pool.

What is there of them is known, or outgrown, as under the id that they have now; what was deleted stays deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agentworld.ingest.growth import has_all, relation
from agentworld.ingest.kinship import Kin
from agentworld.ingest.versions import is_same, there, versions
from agentworld.pool.protocol import Pool
from agentworld.records import WholeOutcome, WholeTrajectory

_PAGE = 1000


class Former(msgspec.Struct, frozen=True):
    """What is there of a run. `outcome`: known or deleted, where nothing is to be stored; `name`: under
    which id; `outgrown`: ids of parts of it, whose place it takes.
    """

    outcome: WholeOutcome | None = None
    name: str = ""
    outgrown: tuple[str, ...] = ()


class FormerImports:
    """Looks for them in a pool. Which were deleted is read once, and kept as hashes of their ids."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._deleted: set[int] | None = None

    def find(self, whole: WholeTrajectory, kin: Kin) -> Former:
        """What is there of a run, or was, under another id than its own."""
        for name in there(self._pool, [kin.content] if kin.content is not None else ()):
            return Former("known", name)
        for found in versions(self._pool, kin.alone) if kin.alone is not None else ():
            if is_same(found, whole):
                return Former("known", found.trajectory_id)
        outgrown: list[str] = []
        for found in reversed(versions(self._pool, kin.former)) if kin.former is not None else ():
            related = "earlier" if is_same(found, whole) else relation(self._pool, whole, found)
            if related == "earlier":
                return Former("known", found.trajectory_id)
            if related == "later":
                outgrown.append(found.trajectory_id)
        for found in there(self._pool, [kin.exported] if kin.exported is not None else ()).values():
            if has_all(self._pool, whole, found):
                return Former("known", found.trajectory_id)
            return Former()
        names = [name for name in (kin.content, kin.former, kin.exported) if name is not None]
        if not outgrown and (deleted := self._among_deleted(names)) is not None:
            return Former("deleted", deleted)
        return Former(outgrown=tuple(outgrown))

    def _among_deleted(self, names: Sequence[str]) -> str | None:
        if self._deleted is None:
            self._deleted = set()
            after = 0
            while page := self._pool.tombstones(after, _PAGE):
                after = page[-1].sequence
                self._deleted.update(hash(each.target_id) for each in page if each.kind == "trajectory")
        return next((name for name in names if hash(name) in self._deleted), None)
