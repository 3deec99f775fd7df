"""Writing the forests: blocks, message nodes and tool sets, each stored once.

Caches of each trajectory's latest sequences make the work of a step linear in what is new: stored ids and messages are
compared, not hashed. A rollback drops what it undid from the caches, so that nothing is believed to be there that is
not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from sqlalchemy import insert, select

from agentworld.forest import BLOCK_SIZE, TokenArray, TokenPath, chain, common_prefix, exact_key, plan_tokens
from agentworld.forest.tokens import vocabulary_root
from agentworld.pool import schema
from agentworld.pool.sql.packing import pack_ids
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Message, Tool, digest

_blocks, _nodes, _tools = schema.token_blocks, schema.message_nodes, schema.tool_sets
_FIND_BLOCK = sql(select(_blocks.c.pk).where(_blocks.c.digest == parameter("digest")))
_ADD_BLOCK = sql(insert(_blocks).values({name: parameter(name) for name in ("pk", "digest", "parent", "ids")}))
_FIND_NODE = sql(select(_nodes.c.pk).where(_nodes.c.digest == parameter("digest")))
_ADD_NODE = sql(insert(_nodes).values({name: parameter(name) for name in ("pk", "digest", "parent", "depth", "body")}))
_FIND_TOOLS = sql(select(_tools.c.pk).where(_tools.c.digest == parameter("digest")))
_ADD_TOOLS = sql(insert(_tools).values({name: parameter(name) for name in ("pk", "digest", "body")}))

_json = msgspec.json.Encoder()
_message = msgspec.json.Decoder(Message)
_BRANCHES = 4  # sequences kept per trajectory, so that interleaved sub-agents do not push each other out
K = TypeVar("K")


class _TokenTip(NamedTuple):
    path: TokenPath
    ids: TokenArray
    rows: tuple[int, ...]
    size: int


class _MessageTip(NamedTuple):
    root: bytes
    messages: tuple[Message, ...]
    keys: tuple[bytes, ...]
    rows: tuple[int, ...]
    size: int


V = TypeVar("V", _TokenTip, _MessageTip)


class TipCache(Generic[V]):
    """The latest sequences of each trajectory, least recently used dropped beyond `limit` bytes (estimated)."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._tips: OrderedDict[str, list[V]] = OrderedDict()

    def get(self, trajectory_id: str) -> Sequence[V]:
        """The trajectory's latest sequences, newest last."""
        return self._tips.get(trajectory_id, ())

    def put(self, trajectory_id: str, tip: V, continued: V | None) -> None:
        """Keep `tip`, in place of the one that it continues."""
        tips = self._tips.setdefault(trajectory_id, [])
        self._tips.move_to_end(trajectory_id)
        drop = next((number for number, other in enumerate(tips) if other is continued), None)
        if drop is None and len(tips) >= _BRANCHES:
            drop = 0
        if drop is not None:
            self._held -= tips.pop(drop).size
        tips.append(tip)
        self._held += tip.size
        while self._held > self._limit and len(self._tips) > 1:
            _, dropped = self._tips.popitem(last=False)
            self._held -= sum(other.size for other in dropped)

    def drop(self, trajectory_id: str) -> None:
        """Forget the trajectory."""
        self._held -= sum(tip.size for tip in self._tips.pop(trajectory_id, ()))


class StoredTokens(NamedTuple):
    """Where a sequence went: the row of its last full block, its packed tail, and the content's digest."""

    block: int | None
    tail: bytes
    length: int
    content: bytes


class StoredMessages(NamedTuple):
    """The rows of a prompt's last message and of the reply, and the content's digest."""

    prompt: int | None
    reply: int | None
    content: bytes


class ForestWriter:
    """Stores sequences and conversations; used by the writing thread only."""

    def __init__(self, cache_bytes: int = 64 * 1024 * 1024) -> None:
        self._token_tips: TipCache[_TokenTip] = TipCache(cache_bytes)
        self._message_tips: TipCache[_MessageTip] = TipCache(cache_bytes)

    def add_tokens(self, txn: Transaction, trajectory_id: str, vocabulary: str | None, ids: TokenArray) -> StoredTokens:
        """Store prompt and reply as blocks."""
        root = vocabulary_root(vocabulary)
        tip, shared = self._nearest(trajectory_id, root, ids)
        path, new_blocks = plan_tokens(root, ids, (tip.path, tip.ids) if tip else None)
        rows = list(tip.rows[: len(path.digests) - len(new_blocks)]) if tip else []
        parent = rows[-1] if rows else None
        may_exist = True
        for block in new_blocks:
            found = txn.one(_FIND_BLOCK, {"digest": block.digest}) if may_exist else None
            if found is not None:
                parent = found[0]
            else:
                may_exist = False  # A block is stored after its parent, so below a missing one all are missing.
                packed = pack_ids(np.frombuffer(block.ids, dtype="<u4"))
                pk = txn.next_pk("token_blocks")
                txn.execute(_ADD_BLOCK, {"pk": pk, "digest": block.digest, "parent": parent, "ids": packed})
                parent = pk
                txn.count("blocks")
            assert parent is not None
            rows.append(parent)
        kept = _TokenTip(path, ids, tuple(rows), ids.nbytes + 64 * len(rows) + 256)
        continued = tip if tip is not None and shared == len(tip.ids) else None
        self._token_tips.put(trajectory_id, kept, continued)
        txn.on_rollback(lambda: self._token_tips.drop(trajectory_id))
        content = digest(path.digests[-1] if path.digests else root, path.tail.tobytes())
        return StoredTokens(parent, pack_ids(path.tail), path.length, content)

    def add_messages(
        self,
        txn: Transaction,
        trajectory_id: str,
        tools: bytes,
        prompt: Sequence[Message] | None,
        reply: Message | None,
    ) -> StoredMessages:
        """Store a prompt's messages and the reply under the digest of its tools."""
        messages = (*(prompt or ()), *((reply,) if reply is not None else ()))
        tip, shared = self._nearest_messages(trajectory_id, tools, messages)
        keys = chain(tools, messages, exact_key, tip.keys[:shared] if tip else ())
        rows = list(tip.rows[:shared]) if tip else []
        parent = rows[-1] if rows else None
        may_exist = True
        size = tip.size if tip else 256
        for depth in range(len(rows), len(messages)):
            found = txn.one(_FIND_NODE, {"digest": keys[depth]}) if may_exist else None
            if found is not None:
                parent = found[0]
            else:
                may_exist = False
                body = _json.encode(messages[depth])
                _message.decode(body)  # Structs that Python code built are not checked by themselves.
                pk = txn.next_pk("message_nodes")
                values = {"pk": pk, "digest": keys[depth], "parent": parent, "depth": depth, "body": body}
                txn.execute(_ADD_NODE, values)
                parent = pk
                txn.count("message_nodes")
                size += len(body) + 128
            assert parent is not None
            rows.append(parent)
        if messages:
            kept = _MessageTip(tools, messages, tuple(keys), tuple(rows), size)
            continued = tip if tip is not None and shared == len(tip.messages) else None
            self._message_tips.put(trajectory_id, kept, continued)
            txn.on_rollback(lambda: self._message_tips.drop(trajectory_id))
        length = len(prompt or ())
        content = digest(tools, keys[-1] if keys else b"", b"" if prompt is None else str(length).encode())
        return StoredMessages(rows[length - 1] if length else None, rows[-1] if reply is not None else None, content)

    def add_tools(self, txn: Transaction, tools: Sequence[Tool] | None) -> tuple[int | None, bytes]:
        """Store the tools as they are, key order included; returns their row and digest."""
        if tools is None:
            return None, digest(b"null")
        body = _json.encode(tools)
        own = digest(body)
        found = txn.one(_FIND_TOOLS, {"digest": own})
        if found is not None:
            return found[0], own
        pk = txn.next_pk("tool_sets")
        txn.execute(_ADD_TOOLS, {"pk": pk, "digest": own, "body": body})
        return pk, own

    def _nearest(self, trajectory_id: str, root: bytes, ids: TokenArray) -> tuple[_TokenTip | None, int]:
        best, longest = None, BLOCK_SIZE - 1  # Less than a block in common saves nothing.
        for tip in reversed(self._token_tips.get(trajectory_id)):
            if tip.path.root == root and (shared := common_prefix(ids, tip.ids)) > longest:
                best, longest = tip, shared
                if shared == len(tip.ids):
                    break
        return best, longest

    def _nearest_messages(
        self, trajectory_id: str, root: bytes, messages: Sequence[Message]
    ) -> tuple[_MessageTip | None, int]:
        best, longest = None, 0
        for tip in reversed(self._message_tips.get(trajectory_id)):
            if tip.root == root and (shared := _common_messages(tip.messages, messages)) > longest:
                best, longest = tip, shared
                if shared == len(tip.messages):
                    break
        return best, longest


def _common_messages(first: Sequence[Message], second: Sequence[Message]) -> int:
    shared = 0
    for mine, yours in zip(first, second, strict=False):
        if mine is not yours and mine != yours:
            break
        shared += 1
    return shared
