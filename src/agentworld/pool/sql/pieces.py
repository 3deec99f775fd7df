"""Nodes of one forest that the steps of one transaction need: looked up together, numbered, and inserted once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Table, and_, or_, select

from agentworld.pool.sql.statements import Statement, parameter, sql
from agentworld.pool.sql.transaction import Transaction

# A node whose row is known, one of this transaction by its digest, or none.
Ref = int | bytes | None
_KEPT_ENDS = 65_536
_FEW, _MANY = 16, 128  # nodes named in one query
_NOTHING = (b"", -1)  # No node has such a digest; fills up a query.


# The contents of a chain: one for each node, or all of them joined.
Data = Sequence[bytes] | bytes


class Run(NamedTuple):
    """New nodes, each the parent of the next: the row, the parent's row and the depth of the first, the digests and
    contents of all. Their rows follow each other.
    """

    row: int
    parent: int | None
    depth: int
    digests: Sequence[bytes]
    data: Any

    def parents(self) -> Iterator[int | None]:
        """The parent's row of each."""
        return itertools.chain((self.parent,), range(self.row, self.row + len(self.digests) - 1))


_Chain = tuple[Ref, Sequence[bytes], Data, int]  # under what, digests, contents, depth of the first


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

    `ends`: rows of the table that have no child; kept right. `width`: bytes of each content, where they are joined.
    """

    def __init__(self, table: Table, name: str, ends: set[int], width: int = 1, rooted: bool = True) -> None:
        self._name = name
        self._width = width
        self._ends = ends
        self._find = _finders(table, rooted)
        self.rows: dict[bytes, int] = {}
        self.chains: list[_Chain] = []

    def add(self, parent: Ref, digests: Sequence[bytes], data: Data, depth: int = 0) -> None:
        """A chain under `parent`; the first of its nodes is `depth` below the root."""
        self.chains.append((parent, digests, data, depth))

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
        for parent, digests, data, depth in self.chains:
            if digests[0] in rows:
                # A digest is over its parent's too: from the first that is new on, all are.
                known = next((place for place, digest in enumerate(digests) if digest not in rows), len(digests))
                if known == len(digests):
                    continue
                parent, depth = digests[known - 1], depth + known
                digests, data = digests[known:], data[known * self._width :]
            under = rows[parent] if isinstance(parent, bytes) else parent
            runs.append(Run(row, under, depth, digests, data))
            rows.update(zip(digests, itertools.count(row), strict=False))
            row += len(digests)
            ends.discard(under)
            ends.add(row - 1)
        txn.next_pk(self._name, row - first)
        return runs

    def _look_up(self, txn: Transaction) -> None:
        """Follow all chains together, a node further each time, as far as their nodes are there.

        A node is stored after its parent and deleted before it, so where one is missing, all below it are.
        """
        at: list[tuple[Ref, Sequence[bytes], int]] = [
            (parent, chain, 0) for parent, chain, _, _ in self.chains if parent not in self._ends
        ]
        later: list[tuple[Ref, Sequence[bytes], int]] = []
        while at:
            asked: dict[bytes, int | None] = {}
            waiting = []
            for parent, chain, place in at:
                if isinstance(parent, bytes):
                    if parent not in self.rows:
                        later.append((parent, chain, place))  # New in this transaction, or found in a later round.
                        continue
                    parent = self.rows[parent]
                if chain[place] not in self.rows:
                    asked[chain[place]] = parent
                waiting.append((chain, place))
            self._find_rows(txn, asked)
            at = [
                (chain[place], chain, place + 1)
                for chain, place in waiting
                if chain[place] in self.rows and place + 1 < len(chain)
            ]
            at += [waits for waits in later if waits[0] in self.rows]
            later = [waits for waits in later if waits[0] not in self.rows]

    def _find_rows(self, txn: Transaction, asked: Mapping[bytes, int | None]) -> None:
        roots = [(digest, 0) for digest, parent in asked.items() if parent is None]
        under = [(digest, parent) for digest, parent in asked.items() if parent is not None]
        for kind, keys in (("root", roots), ("under", under)):
            at = 0
            while at < len(keys):
                count = _FEW if len(keys) - at <= _FEW else _MANY
                named: dict[str, Any] = {}
                for place in range(count):
                    key = keys[at + place] if at + place < len(keys) else _NOTHING
                    named[f"d{place}"] = key[0]
                    if kind == "under":
                        named[f"p{place}"] = key[1]
                for found in txn.execute(self._find[kind, count], named):
                    self.rows[bytes(found["digest"])] = found["pk"]
                at += count


_statements: dict[str, dict[tuple[str, int], Statement]] = {}


def statements(table: Table, rooted: bool = True) -> list[Statement]:
    """Those that find few nodes of the table; those for many take long to compile and are seldom needed."""
    return [statement for (_, count), statement in _finders(table, rooted).items() if count == _FEW]


def _finders(table: Table, rooted: bool) -> dict[tuple[str, int], Statement]:
    known = _statements.get(table.name)
    if known is not None:
        return known
    columns: Any = table.c
    made: dict[tuple[str, int], Statement] = {}
    for count in (_FEW, _MANY):
        found = select(columns.pk, columns.digest)
        digests = [parameter(f"d{place}") for place in range(count)]
        at_root = columns.digest.in_(digests)
        if rooted:
            at_root = and_(columns.parent.is_(None), at_root)
            # Each is one look into the index on both engines; SQLite has no list of pairs.
            pairs = [
                and_(columns.parent == parameter(f"p{place}"), columns.digest == digest)
                for place, digest in enumerate(digests)
            ]
            made["under", count] = sql(found.where(or_(*pairs)))
        made["root", count] = sql(found.where(at_root))
    _statements[table.name] = made
    return made
