"""Nodes of one forest that the steps of one transaction need: looked up together, numbered, and inserted once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Integer, LargeBinary, ScalarSelect, Table, bindparam, case, func, select

from agentworld.pool.schema import Whole
from agentworld.pool.sql.statements import Statement, json_list, numbers_by_name, parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records.ids import DIGEST_SIZE

# A node whose row is known, one of this transaction by its digest, or none.
Ref = int | bytes | None
_KEPT_ENDS = 65_536
_LOOKS = 2
_ROOT = 0  # in the place of a parent's row
_NOTHING = bytes(DIGEST_SIZE)  # in the place of a digest; no node has it


# The contents of a chain: one for each node, or all of them joined.
Data = Sequence[bytes] | bytes


class Run(NamedTuple):
    """New nodes, each the parent of the next: the row, the parent's row and the depth of the first, the digests and
    contents of all. Their rows follow each other. `apart`: whether they begin another trajectory than those before.
    """

    row: int
    parent: int | None
    depth: int
    digests: Sequence[bytes]
    data: Any
    apart: bool = False

    def parents(self) -> Iterator[int | None]:
        """The parent's row of each."""
        return itertools.chain((self.parent,), range(self.row, self.row + len(self.digests) - 1))


_Chain = tuple[Ref, Sequence[bytes], Data, int, bool]  # under what, digests, contents, depth of the first, apart


class Ends:
    """Rows of blocks and nodes that are known to have no child, as the process wrote them and nobody has written since.

    What follows them, as the next turn of a conversation does, need not be looked for.
    """

    def __init__(self) -> None:
        self.blocks: set[int] = set()
        self.nodes: set[int] = set()

    def clear(self) -> None:
        """Forget all."""
        self.blocks.clear()
        self.nodes.clear()


class Pieces:
    """Chains of nodes, each under its parent. `rows`: the row of every node of this transaction, once resolved.

    `find`: the table's `finder`; `look`: its `looks`; `ends`: its rows that have no child, kept right; `width`: bytes
    of each content, where they are joined.
    """

    def __init__(
        self,
        find: Statement,
        name: str,
        ends: set[int],
        width: int = 1,
        look: tuple[Statement, Statement] | None = None,
    ) -> None:
        self._look = look
        self._name = name
        self._width = width
        self._ends = ends
        self._find = find
        self.rows: dict[bytes, int] = {}
        self.chains: list[_Chain] = []

    def add(self, parent: Ref, digests: Sequence[bytes], data: Data, depth: int = 0, apart: bool = False) -> None:
        """A chain under `parent`; the first of its nodes is `depth` below the root. `apart`: see Run."""
        self.chains.append((parent, digests, data, depth, apart))

    def resolve(self, txn: Transaction) -> list[Run]:
        """Find what is there and number what is not; returns the new nodes, parents first, in the order of rows."""
        if not self.chains:
            return []
        self._look_up(txn)
        rows, ends = self.rows, self._ends
        if len(ends) > _KEPT_ENDS:
            ends.clear()
        row = first = txn.next_pk(self._name, 0)
        runs: list[Run] = []
        begins = False
        for parent, digests, data, depth, apart in self.chains:
            begins = begins or apart
            if digests[0] in rows:
                # A digest is over its parent's too: from the first that is new on, all are.
                known = next((place for place, digest in enumerate(digests) if digest not in rows), len(digests))
                if known == len(digests):
                    continue
                parent, depth = digests[known - 1], depth + known
                digests, data = digests[known:], data[known * self._width :]
            under = rows[parent] if isinstance(parent, bytes) else parent
            runs.append(Run(row, under, depth, digests, data, begins))
            begins = False
            rows.update(zip(digests, itertools.count(row), strict=False))
            row += len(digests)
            ends.discard(under)
            ends.add(row - 1)
        txn.next_pk(self._name, row - first)
        return runs

    def _follow(self, txn: Transaction, parent: Ref, digests: Sequence[bytes]) -> list[tuple[Ref, Sequence[bytes]]]:
        """Find the first nodes of a lone chain, of which mostly the first or the second is new, each by a look that
        costs half of what a whole chain's does. Returns what is left to be found.
        """
        under = self.rows.get(parent) if isinstance(parent, bytes) else parent
        if under is None and parent is not None:
            return []  # Its parent is a node of this transaction.
        assert self._look is not None
        below, at_root = self._look
        for digest in digests[:_LOOKS]:
            found = (
                txn.execute(at_root, {"digest": digest})
                if under is None
                else txn.execute(below, {"digest": digest, "parent": under})
            )
            if not found:
                return []
            under = self.rows[digest] = found[0][0]
        return [(under, digests[_LOOKS:])] if len(digests) > _LOOKS else []

    def _look_up(self, txn: Transaction) -> None:
        """Find what is there of all chains, in one query for those whose parents are known.

        A node is stored after its parent and deleted before it, so where one is missing, all below it are.
        """
        waiting = [(one[0], one[1]) for one in self.chains if one[0] not in self._ends]
        if len(waiting) == 1 and self._look and not txn.connection.works_ahead:
            waiting = self._follow(txn, *waiting[0])
        while waiting:
            begins: dict[str, int] = {}
            digests: list[bytes] = []
            later: list[tuple[Ref, Sequence[bytes]]] = []
            for parent, chain in waiting:
                under = self.rows.get(parent) if isinstance(parent, bytes) else parent or _ROOT
                if under is None:
                    later.append((parent, chain))
                    continue
                begins[str(len(digests))] = under
                digests += chain
                digests.append(_NOTHING)
            if not begins:
                return  # Those that are left are under nodes of this transaction.
            for found in txn.execute(self._find, {"begins": json_list(begins), "digests": b"".join(digests)}):
                self.rows[digests[found[0] - 1]] = found[1]
            del self.rows[_NOTHING]  # The beginnings come too.
            waiting = later


def looks(table: Table) -> tuple[Statement, Statement]:
    """What finds the row of one node under a parent, and of one without."""
    columns: Any = table.c
    found = select(columns.pk).where(columns.digest == parameter("digest"))
    return sql(found.where(columns.parent == parameter("parent"))), sql(found.where(columns.parent.is_(None)))


_finders: dict[str, Statement] = {}


def finder(table: Table, rooted: bool = True) -> Statement:
    """Follows chains of digests as far as their nodes are there: the place behind each node's digest, and its row.

    `digests`: those of all chains joined, with _NOTHING at the end of each; `begins`: the place of the first of each
    chain, with the row of its parent, _ROOT without one. `rooted`: whether the table's nodes have parents.
    """
    known = _finders.get(table.name)
    if known is not None:
        return known
    columns: Any = table.c
    first, under = numbers_by_name("begins").subquery("begun").c
    chain = select(first.cast(Whole).label("place"), under.label("row")).cte("chain", recursive=True)
    begin = (chain.c.place * DIGEST_SIZE + 1).cast(Integer)
    joined = bindparam("digests", required=False, type_=LargeBinary())
    digest = func.substr(joined, begin, DIGEST_SIZE)

    def row(*conditions: ColumnElement[bool]) -> ScalarSelect[Any]:
        # Each step is a look into the index: neither engine can tell how far a join would go.
        return select(columns.pk).where(*conditions, columns.digest == digest).correlate(chain).scalar_subquery()

    below: ColumnElement[Any] = row()
    if rooted:
        at_root, under_row = row(columns.parent.is_(None)), row(columns.parent == chain.c.row)
        below = case((chain.c.row == _ROOT, at_root), else_=under_row)
    chain = chain.union_all(select(chain.c.place + 1, below).where(chain.c.row.is_not(None)))
    found = _finders[table.name] = sql(select(chain.c.place, chain.c.row).where(chain.c.row.is_not(None)))
    return found
