"""Checks of steps: the digest of what each said, computed again from its row and from where it points."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import func, select

from agentworld.forest import BLOCK_SIZE, vocabulary_root
from agentworld.pool import schema
from agentworld.pool.keeping.records import Problem, Progress
from agentworld.pool.sql.connections import Database, Row
from agentworld.pool.sql.packing import raw_logprobs, unpack_ids, unpack_logprobs
from agentworld.pool.sql.rows import PROMPT_IDS, PROMPT_MESSAGES, RESPONSE_IDS
from agentworld.pool.sql.statements import parameter, sql
from agentworld.pool.sql.step_digest import (
    SAID_BYTES,
    conversation_content,
    sequence_content,
    stored_digest,
    stored_parts,
)
from agentworld.records import digest

ROWS = 2_000  # that one look reads

_SAID = PROMPT_IDS | RESPONSE_IDS | PROMPT_MESSAGES
_HINT = "Restore the pool from a backup, or exclude the step from training"
_s, _b, _tools = schema.steps, schema.token_blocks, schema.tool_sets
_prompt, _reply = schema.message_nodes.alias("prompt"), schema.message_nodes.alias("reply")
_NAMES = (
    "pk step_id content present vocabulary id_count tail mask logprobs prompt_length response_length block prompt_node "
    "reply_node tools"
)
_STEPS = sql(
    select(
        *(_s.c[name] for name in _NAMES.split()),
        _b.c.digest.label("block_digest"),
        _tools.c.digest.label("tools_digest"),
        _prompt.c.digest.label("prompt_digest"),
        _prompt.c.depth.label("prompt_depth"),
        _reply.c.digest.label("reply_digest"),
        _reply.c.parent.label("reply_parent"),
    )
    .outerjoin_from(_s, _b, _b.c.pk == _s.c.block)
    .outerjoin(_tools, _tools.c.pk == _s.c.tools)
    .outerjoin(_prompt, _prompt.c.pk == _s.c.prompt_node)
    .outerjoin(_reply, _reply.c.pk == _s.c.reply_node)
    .where(_s.c.pk > parameter("above"), _s.c.pk <= parameter("upto"))
    .order_by(_s.c.pk)
)
_LAST = sql(select(func.coalesce(func.max(_s.c.pk), 0)))


def step_problems(database: Database, progress: Progress) -> Iterator[Problem]:
    """Steps whose ids, mask, log-probabilities, messages or tools are not those that were sent."""
    with database.reading() as reader:
        last = int(reader.execute(_LAST)[0][0])
    for above in range(0, last, ROWS):
        with database.reading() as reader:
            rows = reader.execute(_STEPS, {"above": above, "upto": above + ROWS})
        for row in rows:
            if (fault := _fault(row)) is not None:
                yield Problem("hash", "steps", row["step_id"], fault, _HINT)
        progress("steps", min(above + ROWS, last), last)


def _fault(row: Row) -> str | None:
    pointers = (("block", "block_digest"), ("tools", "tools_digest"), ("prompt_node", "prompt_digest"))
    if any(row[name] is not None and row[found] is None for name, found in (*pointers, ("reply_node", "reply_digest"))):
        return None  # A reference that leads nowhere, which is named as such.
    content = bytes(row["content"])
    if len(content) == SAID_BYTES:
        return None  # Taken by a pool of the first schema.
    if row["reply_node"] is not None and row["reply_parent"] != row["prompt_node"]:
        return "its reply does not follow its prompt"
    try:
        own = stored_digest(_parts(row))
    except ValueError as error:
        return f"its ids cannot be read: {error}"
    if own != content[SAID_BYTES:]:
        return "ids, mask, log-probabilities, messages or tools are not those that were sent"
    return None


def _parts(row: Row) -> bytes:
    present = row["present"] & _SAID
    tokens = None
    if present & (PROMPT_IDS | RESPONSE_IDS):
        block = row["block_digest"]
        last = vocabulary_root(row["vocabulary"]) if block is None else bytes(block)
        tail = unpack_ids(bytes(row["tail"] or b""), row["id_count"] % BLOCK_SIZE)
        first = row["prompt_length"] if present & PROMPT_IDS else row["response_length"]
        tokens = (sequence_content(last, tail.astype("<u4").tobytes()), first)
    tools = digest(b"null") if row["tools_digest"] is None else bytes(row["tools_digest"])
    ends = [row["reply_digest"], row["prompt_digest"]]
    end = next((bytes(found) for found in ends if found is not None), b"")
    length = (0 if row["prompt_node"] is None else row["prompt_depth"] + 1) if present & PROMPT_MESSAGES else None
    mask = None if row["mask"] is None else bytes(row["mask"])
    logprobs = raw_logprobs(unpack_logprobs(None if row["logprobs"] is None else bytes(row["logprobs"])))
    return stored_parts(mask, logprobs, tokens, conversation_content(tools, end, length), present)
