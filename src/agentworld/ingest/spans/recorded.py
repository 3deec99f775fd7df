"""Whether a call that a span tells of is a step that is on record."""

from __future__ import annotations

from agentworld.ingest.spans.call_ids import with_ids
from agentworld.ingest.spans.loose import named
from agentworld.ingest.spans.node import Node
from agentworld.ingest.spans.runs import said
from agentworld.records import Step

_SLACK = 0.05
"""Seconds by which clocks of one machine and their rounding may differ."""


def is_other(record: Step, node: Node) -> bool:
    """Whether a span says something else than the step that has its id."""
    call = node.call
    assert call is not None
    if record.metadata.get("span_id") != node.id:
        return False
    prompt = with_ids(call.prompt)
    replies = [with_ids([*prompt, reply.message])[-1] for reply in call.replies]
    at = record.choice_index
    return (
        (record.prompt_messages or []) != prompt
        or at >= len(replies)
        or (record.exchange_id is None) != (len(replies) == 1)
        or record.response_message != replies[at]
        or record.model != named(call.model)
    )


def is_same(step: Step, node: Node) -> bool:
    """Whether a step and a span are one call: another span within or around this one told of it, or the gateway
    recorded it while this one lasted. They have one reply then.
    """
    call = node.call
    assert call is not None
    if step.response_message is None or said(step.response_message) != said(call.replies[0].message):
        return False
    told_by = step.metadata.get("span_id")
    if told_by is not None:
        return node.parent == told_by or step.metadata.get("parent_span") == node.id
    if not node.start or not step.created_at or step.latency_ms is None:
        return False
    begin, end = step.created_at, step.created_at + step.latency_ms / 1000
    shown, asked = (messages[-1].text if messages else "" for messages in (step.prompt_messages, call.prompt))
    return node.start <= begin + _SLACK and end <= node.end + _SLACK and shown == asked
