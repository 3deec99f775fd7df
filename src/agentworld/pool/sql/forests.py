"""Writing the forests: blocks, message nodes and tool sets, each stored once.

All steps of a transaction are traced first, in memory: what a sequence shares with the trajectory's latest ones is
compared, only the rest is hashed. Then the digests that may be there already are looked up together, and what is new is
inserted together. A rollback drops what it undid from the caches, so that nothing is believed to be there that is not.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from sqlalchemy import insert

from agentworld.forest import BLOCK_SIZE, TokenArray, exact_digest, hash_blocks
from agentworld.forest.tokens import vocabulary_root
from agentworld.pool import schema
from agentworld.pool.bounds import check_message
from agentworld.pool.exact_text import read_json, stored_json, stored_spoken
from agentworld.pool.media import media_uses_of
from agentworld.pool.sql.bodies import BodyWriter, pack_alone
from agentworld.pool.sql.packing import pack_blocks
from agentworld.pool.sql.pieces import Ends, Pieces, Ref, Run, finder, looks
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.step_digest import conversation_content, sequence_content
from agentworld.pool.sql.tips import MessageTip, TipCache, TokenTip
from agentworld.pool.sql.traces import (
    NO_TOOLS,
    Beginning,
    Beginnings,
    MessageTrace,
    TokenTrace,
    ToolTrace,
    beginning_of,
    said_length,
    unspoken,
)
from agentworld.pool.sql.transaction import Transaction
from agentworld.records import Message, Tool, digest, exact_json

_blocks, _nodes, _tools = schema.token_blocks, schema.message_nodes, schema.tool_sets
_ADD_BLOCK = sql(insert(_blocks).values({name: parameter(name) for name in ("pk", "digest", "parent", "ids")}))
_NODE_COLUMNS = ("pk", "digest", "parent", "depth", "body", "coding")
_ADD_NODE = sql(insert(_nodes).values({name: parameter(name) for name in _NODE_COLUMNS}))
_ADD_TOOLS = sql(insert(_tools).values({name: parameter(name) for name in ("pk", "digest", "body", "coding")}))
_ADD_USE = sql(insert(schema.media_uses).values(node=parameter("node"), digest=parameter("digest")))
_LOOK_BLOCKS, _LOOK_NODES = looks(_blocks), looks(_nodes)
STATEMENTS = (_ADD_BLOCK, _ADD_NODE, _ADD_TOOLS, *_LOOK_BLOCKS, *_LOOK_NODES)
GENERATION = "gc.generation"  # grows whenever content is deleted

_NO_IDS: TokenArray = np.zeros(0, dtype="<u4")
_KNOWN_TOOL_SETS = 256
_KNOWN_TOOL_BYTES = 64 * 1024
"""Larger sets are digested each time, so that those that are known take 16 MiB at most."""
_BLOCK_BYTES = BLOCK_SIZE * 4
# Without either of these bytes JSON is stored as it is spoken; see stored_spoken.
_BACKSLASH, _FIRST_MAPPED = 0x5C, 0xF4
_FRAMES_OF_WHOLE = 4  # branches of one conversation; few, so that their memory stays in the processor's caches


def _uses(new: Sequence[Run]) -> list[dict[str, object]]:
    """Which blobs new messages show."""
    return [
        {"node": row, "digest": found}
        for run in new
        for row, body in enumerate(run.data, run.row)
        if b'"type":"media"' in body
        for found in media_uses_of(read_json(body, Message))
    ]


def _ref(tip: MessageTip, length: int) -> Ref:
    """The last of so many of its nodes."""
    if not length:
        return None
    return tip.rows[length - 1] if length <= len(tip.rows) else tip.keys[length - 1]


class ForestWriter:
    """Stores sequences and conversations; used by the writing thread only.

    In each transaction `begin`, then for each step `trace_...` (which changes nothing) and `keep_...`, then `finish`.
    """

    def __init__(self, cache_bytes: int = 64 * 1024 * 1024) -> None:
        self._token_tips: TipCache[TokenTip] = TipCache(cache_bytes)
        self._message_tips: TipCache[MessageTip] = TipCache(cache_bytes)
        self._bodies = BodyWriter()
        self._whole_bodies = BodyWriter(_FRAMES_OF_WHOLE)
        self._tool_rows: dict[bytes, int] = {}
        self._tool_digests: dict[bytes, bytes] = {}
        self._generation = (0, 0)
        # Rollouts of one task have one prompt. The trajectory that began last with it, whose tips say what it is.
        self._token_beginnings, self._message_beginnings = Beginnings(), Beginnings()
        self._ends = Ends()
        self._finders = finder(_blocks), finder(_nodes), finder(_tools, rooted=False)
        self._start()

    def begin(self, txn: Transaction, undisturbed: bool = False) -> None:
        """Begin what `finish` writes; caches that a deletion by whatever process made doubtful are dropped, or a crash
        of the engine. `undisturbed`: whether nobody has written to the pool since the latest transaction.
        """
        generation = txn.counter(GENERATION), txn.connection.era
        if generation != self._generation:
            self.clear()
            self._generation = generation
        if not undisturbed:
            self._ends.clear()
        self._start()
        touched, tools = self._touched, self._new_tools
        txn.on_rollback(lambda: self._undo(touched, tools))

    def clear(self) -> None:
        """Forget everything that is believed to be stored."""
        self._token_tips.clear()
        self._message_tips.clear()
        self._bodies.clear()
        self._whole_bodies.clear()
        self._tool_rows.clear()
        self._ends.clear()

    def forget(self, trajectory_id: str) -> None:
        """Forget the latest sequences of a trajectory that has ended."""
        self._token_tips.drop(trajectory_id)
        self._message_tips.drop(trajectory_id)

    # --- tokens -----------------------------------------------------------------------------------------------
    def trace_tokens(
        self, trajectory_id: str, vocabulary: str | None, prompt: TokenArray | None, response: TokenArray | None
    ) -> TokenTrace:
        """The path of prompt then reply."""
        prompt = _NO_IDS if prompt is None else prompt
        response = _NO_IDS if response is None else response
        root = vocabulary_root(vocabulary)
        best, longest = None, BLOCK_SIZE - 1  # Less than a block in common saves nothing.
        tips = self._token_tips.get(trajectory_id)
        begins: Beginning | None = None
        said = b""
        if not tips:
            said = prompt.tobytes()
            if len(prompt) >= BLOCK_SIZE:
                begins = root, len(prompt), hash(said)
                tips = self._token_tips.get(self._token_beginnings.latest(begins))
        for tip in reversed(tips):
            if tip.root == root and (shared := tip.shared(prompt, response)) > longest:
                best, longest = tip, shared
                if shared == tip.length:
                    break
        length, first, last = len(prompt) + len(response), 0, root
        if best is None:
            data = (said or prompt.tobytes()) + response.tobytes()
        else:
            first = longest // BLOCK_SIZE
            begin, last = first * BLOCK_SIZE, best.digests[first - 1]
            if begin <= len(prompt):
                data = prompt[begin:].tobytes() + response.tobytes()
            else:
                data = response[begin - len(prompt) :].tobytes()
        digests = hash_blocks(last, data)
        tail = data[len(digests) * _BLOCK_BYTES :]
        content = sequence_content(digests[-1] if digests else last, tail)
        return TokenTrace(best, longest, root, first, digests, data, tail, length, content, begins)

    def keep_tokens(self, trajectory_id: str, trace: TokenTrace) -> Ref:
        """Store the sequence with the others of the transaction; returns its last full block."""
        self._touched.add(trajectory_id)
        old, first = trace.tip, trace.first
        parent: Ref = None
        if old is not None:
            parent = old.rows[first - 1] if first <= len(old.rows) else old.digests[first - 1]
        if trace.digests:
            self._new_blocks.add(parent, trace.digests, trace.data[: len(trace.digests) * _BLOCK_BYTES])
        if old is not None and trace.shared == old.length and trace.begins is None:
            tip = old
            tip.append(trace.data[4 * tip.length - first * _BLOCK_BYTES :])
            tip.digests += trace.digests
            self._token_tips.grew(trajectory_id, tip, tip.weigh())
        else:
            tip = TokenTip(trace.root)
            if old is not None:
                tip.append(old.first(first * BLOCK_SIZE))
                tip.digests += old.digests[:first]
                tip.rows += old.rows[:first]
            tip.append(trace.data)
            tip.digests += trace.digests
            tip.weigh()
            self._token_tips.put(trajectory_id, tip)
            if trace.begins is not None:
                self._token_beginnings.note(trace.begins, trajectory_id)
        if len(tip.rows) < len(tip.digests):
            self._unresolved.append((tip, self._new_blocks))
        return trace.digests[-1] if trace.digests else parent

    # --- messages ---------------------------------------------------------------------------------------------
    def trace_tools(self, tools: Sequence[Tool] | None) -> ToolTrace:
        """The tools as they are, key order included."""
        if tools is None:
            return NO_TOOLS
        body = exact_json.encode(tools)
        if len(body) > _KNOWN_TOOL_BYTES:
            return ToolTrace(digest(body), body)
        known = self._tool_digests.get(body)
        if known is None:
            if len(self._tool_digests) >= _KNOWN_TOOL_SETS:
                self._tool_digests.clear()
            known = self._tool_digests[body] = digest(body)
        return ToolTrace(known, body)

    def keep_tools(self, trace: ToolTrace, tools: Sequence[Tool] | None) -> Ref:
        """Store the tool set with the others of the transaction."""
        if trace.body is None:
            return None
        known = self._tool_rows.get(trace.digest)
        if known is not None:
            return known
        self._new_tools.add(None, [trace.digest], [stored_json(tools)])
        return trace.digest

    def trace_messages(
        self, trajectory_id: str, tools: bytes, prompt: Sequence[Message] | None, reply: Message | None
    ) -> MessageTrace:
        """The path of a prompt's messages and the reply under the digest of its tools."""
        if prompt is None and reply is None:
            return unspoken(tools)
        messages = [*(prompt or ()), reply] if reply is not None else list(prompt or ())
        best, longest = None, 0
        tips = self._message_tips.get(trajectory_id)
        begins = None if tips else beginning_of(tools, prompt)
        if begins is not None:
            tips = self._message_tips.get(self._message_beginnings.latest(begins))
        # Of another's the last message is not taken over: what begins here has a node of its own.
        most = len(messages) if begins is None else len(messages) - 1
        for tip in reversed(tips):
            if tip.root == tools and (shared := min(tip.shared(messages), most)) > longest:
                best, longest = tip, shared
                if shared == len(tip.messages):
                    break
        keys, bodies, parts = [], [], False
        parent = best.keys[longest - 1] if best is not None else tools
        for message in messages[longest:] if longest else messages:
            spoken = exact_json.encode(message)
            check_message(message, spoken)  # Structs that Python code built are not checked by themselves.
            parent = exact_digest(parent, spoken)
            keys.append(parent)
            is_odd = _BACKSLASH in spoken or _FIRST_MAPPED in spoken
            bodies.append(stored_spoken(message, spoken) if is_odd else spoken)
            if message.content.__class__ is not str and message.content is not None:
                parts = True
        last = parent if messages else b""
        length = len(prompt or ())
        content = conversation_content(tools, last, None if prompt is None else length)
        return MessageTrace(best, longest, tools, messages, keys, bodies, length, content, parts, begins)

    def keep_messages(self, trajectory_id: str, trace: MessageTrace) -> tuple[Ref, Ref]:
        """Store the conversation with the others of the transaction; returns the prompt's and the path's last node."""
        if not trace.messages:
            return None, None
        self._touched.add(trajectory_id)
        old, shared = trace.tip, trace.shared
        if old is not None and shared == len(old.messages) and trace.begins is None:
            tip = old
        else:
            tip = MessageTip(trace.root)
            if old is not None:
                tip.keys += old.keys[:shared]
                tip.rows += old.rows[:shared]
                if trace.begins is None:
                    tip.messages += old.messages[:shared]
                    tip.weight = old.weight  # The messages are the same objects, so this is too much at most.
                else:
                    # Its own, so that none is held for longer than it counts.
                    tip.messages += trace.messages[:shared]
                    tip.weight += said_length(tip.messages)
        if trace.keys:
            parent = _ref(tip, shared)
            apart = not self._message_tips.get(trajectory_id)
            self._new_nodes.add(parent, trace.keys, trace.bodies, shared, apart)
            if trace.parts:
                self._has_parts = True
            tip.keys += trace.keys
            tip.messages += trace.messages[shared:]
            tip.weight += sum(map(len, trace.bodies))
        if tip is old:
            self._message_tips.grew(trajectory_id, tip, tip.weigh())
        else:
            tip.weigh()
            self._message_tips.put(trajectory_id, tip)
            if trace.begins is not None:
                self._message_beginnings.note(trace.begins, trajectory_id)
        if len(tip.rows) < len(tip.keys):
            self._unresolved.append((tip, self._new_nodes))
        last = _ref(tip, len(trace.messages))
        return last if trace.prompt_length == len(trace.messages) else _ref(tip, trace.prompt_length), last

    # --- writing ----------------------------------------------------------------------------------------------
    def finish(self, txn: Transaction, *, whole: bool = False) -> None:
        """Look up what may be there, insert what is new; now `blocks`, `nodes` and `tool_sets` know every row.

        `whole`: the conversations end with this transaction, each with all of its steps in a row.
        """
        bodies = self._whole_bodies if whole else self._bodies
        if new := self._new_blocks.resolve(txn):
            packed = pack_blocks(b"".join([run.data for run in new]))
            digests = itertools.chain.from_iterable([run.digests for run in new])
            parents: list[int | None] = []
            for run in new:
                parents.append(run.parent)
                parents += range(run.row, run.row + len(run.digests) - 1)
            rows = list(zip(itertools.count(new[0].row), digests, parents, packed, strict=False))
            txn.many_in_order(_ADD_BLOCK, rows)
            txn.count("blocks", len(rows))
        if new := self._new_nodes.resolve(txn):
            nodes = []
            for run in new:
                if whole and run.apart:
                    # What ended there is not gone on with. The next begins in memory that the processor has at hand.
                    bodies.leave(run.parent)
                row, depth = run.row, run.depth
                for own, parent, body in zip(run.digests, run.parents(), run.data, strict=True):
                    coding, data = bodies.pack(row, parent, body)
                    nodes.append((row, own, parent, depth, data, coding))
                    row, depth = row + 1, depth + 1
            txn.many_in_order(_ADD_NODE, nodes)
            txn.count("message_nodes", len(nodes))
            if self._has_parts:
                txn.many(_ADD_USE, _uses(new))
            self._whole_bodies.clear()
        if self._new_tools.chains:
            sets = []
            for run in self._new_tools.resolve(txn):
                coding, data = pack_alone(run.data[0])
                sets.append((run.row, run.digests[0], data, coding))
            txn.many_in_order(_ADD_TOOLS, sets)
            txn.count("tool_sets", len(sets))
            if len(self._tool_rows) >= _KNOWN_TOOL_SETS:
                self._tool_rows.clear()
            self._tool_rows.update(self._new_tools.rows)
        for tip, pieces in self._unresolved:
            keys = tip.digests if isinstance(tip, TokenTip) else tip.keys
            tip.rows += map(pieces.rows.__getitem__, keys[len(tip.rows) :])
        self._unresolved.clear()

    @property
    def blocks(self) -> Mapping[bytes, int]:
        """The rows of the transaction's blocks, by digest."""
        return self._new_blocks.rows

    @property
    def nodes(self) -> Mapping[bytes, int]:
        """The rows of its message nodes."""
        return self._new_nodes.rows

    @property
    def tool_sets(self) -> Mapping[bytes, int]:
        """The rows of its tool sets."""
        return self._new_tools.rows

    def _start(self) -> None:
        self._touched: set[str] = set()
        self._has_parts = False  # any of the new messages
        self._unresolved: list[tuple[TokenTip | MessageTip, Pieces]] = []
        find_blocks, find_nodes, find_tools = self._finders
        self._new_blocks = Pieces(find_blocks, "token_blocks", self._ends.blocks, _BLOCK_BYTES, _LOOK_BLOCKS)
        self._new_nodes: Pieces = Pieces(find_nodes, "message_nodes", self._ends.nodes, look=_LOOK_NODES)
        self._new_tools = Pieces(find_tools, "tool_sets", set())

    def _undo(self, touched: set[str], tools: Pieces) -> None:
        for trajectory_id in touched:
            self._token_tips.drop(trajectory_id)
            self._message_tips.drop(trajectory_id)
        for key in tools.rows:
            self._tool_rows.pop(key, None)
        self._bodies.clear()
        self._whole_bodies.clear()
        self._ends.clear()
