"""Nodes of one forest that the steps of one transaction need: looked up together, numbered, and inserted once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Table, select

from agentworld.pool.sql.statements import Statement, parameter, sql
from agentworld.pool.sql.transaction import Transaction

# A node whose row is known, one of this transaction by its digest, or none.
Ref = int | bytes | None
_FEW, _MANY = 16, 128  # digests named in one query


class NewPiece(NamedTuple):
    """A node to insert."""

    row: int
    digest: bytes
    parent: int | None
    depth: int
    data: bytes


class Pieces:
    """Chains of nodes, each under its parent. `rows`: the row of every node of this transaction, once resolved."""

    def __init__(self, table: Table, name: str) -> None:
        self._name = name
        self._find = _finders(table)
        self.rows: dict[bytes, int] = {}
        self.chains: list[Sequence[bytes]] = []
        self._nodes: dict[bytes, tuple[Ref, int, bytes]] = {}

    def add(self, parent: Ref, digests: Sequence[bytes], data: Sequence[bytes], depth: int = 0) -> None:
        """A chain under `parent`; the first of its nodes is `depth` below the root."""
        self.chains.append(digests)
        for digest, content in zip(digests, data, strict=True):
            if digest not in self._nodes:
                self._nodes[digest] = (parent, depth, content)
            parent = digest
            depth += 1

    def resolve(self, txn: Transaction) -> list[NewPiece]:
        """Find what is there and number what is not; returns the new nodes, parents first."""
        if not self.chains:
            return []
        # A node is stored after its parent and deleted before it, so where a chain's first node is missing, all are.
        self._look_up(txn, {chain[0] for chain in self.chains})
        begun = [chain for chain in self.chains if len(chain) > 1 and chain[0] in self.rows]
        self._look_up(txn, {digest for chain in begun for digest in chain[1:]})
        missing = [(digest, node) for digest, node in self._nodes.items() if digest not in self.rows]
        row = txn.next_pk(self._name, len(missing)) if missing else 0
        new = []
        for digest, (parent, depth, data) in missing:
            self.rows[digest] = row
            new.append(NewPiece(row, digest, self.row(parent), depth, data))
            row += 1
        return new

    def row(self, ref: Ref) -> int | None:
        """The row of a node."""
        return self.rows[ref] if isinstance(ref, bytes) else ref

    def _look_up(self, txn: Transaction, digests: Iterable[bytes]) -> None:
        wanted = [digest for digest in digests if digest not in self.rows]
        at = 0
        while at < len(wanted):
            count = _FEW if len(wanted) - at <= _FEW else _MANY
            asked = wanted[at : at + count]
            # A digest is never empty, so the empty ones that fill up the list find nothing.
            asked += [b""] * (count - len(asked))
            for found in txn.execute(self._find[count], {f"d{place}": value for place, value in enumerate(asked)}):
                self.rows[bytes(found["digest"])] = found["pk"]
            at += count


_statements: dict[str, dict[int, Statement]] = {}


def _finders(table: Table) -> dict[int, Statement]:
    known = _statements.get(table.name)
    if known is None:
        columns: Any = table.c
        known = _statements[table.name] = {
            count: sql(
                select(columns.pk, columns.digest).where(
                    columns.digest.in_([parameter(f"d{place}") for place in range(count)])
                )
            )
            for count in (_FEW, _MANY)
        }
    return known
