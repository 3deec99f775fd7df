"""Checks of replies: refusals, empty ones, and whether the model acts itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentworld.curation.checks.finding import Found
from agentworld.curation.checks.private_rules import excerpt
from agentworld.curation.checks.reading import Run, Turn
from agentworld.curation.checks.registry import check
from agentworld.curation.checks.settings import CheckContext

_BEGINNING = 240  # characters in which a refusal is said
_REFUSAL = re.compile(
    r"\b(?:i(?:'m| am)(?: very| so| truly)? sorry,? (?:but |i )|i apologi[sz]e,? but |unfortunately,? |"
    r"as an ai\b[^.]{0,60}?)?"
    r"(?:i (?:must|have to|will have to|need to) (?:respectfully |politely )?decline\b|"
    r"i (?:respectfully )?decline to\b|"
    r"(?:i (?:can(?:'t|not)|can not|won't|will not|am (?:not able|unable) to)|"
    r"i'm (?:not able|unable) to)\s*(?:to\s)?(?:help|assist|comply|fulfil|fulfill|provide|do that|create|generate|"
    r"write|engage|support|continue|participate|share|discuss|answer that|answer this|with (?:that|this)|"
    r"do (?:this|so|it)(?=\s*(?:[.!,;]|\Z)|\s+(?:for you|task|request)\b)))",
    re.IGNORECASE,
)
_REFUSAL_WORDS = ("can", "won", "will not", "unable", "not able", "decline")
CALL_TAGS = ("<tool_call>", "<function_call>", "<invoke name=", "<function=", "[TOOL_CALLS]", "<|tool_call")
_ACTION = re.compile(r"^Action(?: Input)?:\s*\S", re.MULTILINE)


@check(
    "refusal",
    scope="step",
    says="The reply begins by refusing, in English, and calls no tool.",
    fails='Takes honest limits ("I cannot provide a proof, as none exists") for refusals. Overlooks other languages, '
    "polite evasion, and refusals that come later than the first 240 characters.",
)
def refusal(turn: Turn, run: Run, context: CheckContext) -> Iterator[Found]:
    reply = turn.reply
    if reply is None or reply.tool_calls:
        return
    beginning = reply.text[:_BEGINNING].replace("\u2019", "'")
    lower = beginning.lower()
    if not any(word in lower for word in _REFUSAL_WORDS):
        return
    match = _REFUSAL.search(beginning)
    if match is not None:
        yield Found(
            True, {"step": turn.step.step_id, "message": "reply", "excerpt": excerpt(reply.text, match.start())}
        )


@check(
    "empty_reply",
    scope="step",
    values="`empty`, or `reasoning_only`",
    says="The reply has neither text nor media nor calls; `reasoning_only` where it thought and said nothing.",
    fails="Takes models that end their turn in silence by design for broken ones.",
)
def empty_reply(turn: Turn, run: Run, context: CheckContext) -> Iterator[Found]:
    reply = turn.reply
    if reply is None or reply.tool_calls or reply.media or reply.text.strip():
        return
    value = "reasoning_only" if reply.reasoning and reply.reasoning.strip() else "empty"
    evidence = {"step": turn.step.step_id, "message": "reply", "finish_reason": turn.step.finish_reason}
    yield Found(value, evidence)


@check(
    "kind",
    scope="trajectory",
    values="`agentic` or `subtask`",
    says="`agentic`: the model itself emits the calls, as tool calls or in its text. `subtask`: it is asked and "
    "answers, while another program acts (a summary, a title, a classification).",
    fails="Agents that act through a text format that is none of the known ones, such as bare code blocks, are taken "
    "for subtasks; an answer that quotes a call is taken for one.",
)
def kind(run: Run, context: CheckContext) -> Iterator[Found]:
    if not any(turn.reply is not None for turn in run.turns):
        return
    calls = 0
    first: Turn | None = None
    for turn in run.kept:
        reply = turn.reply
        if reply is None:
            continue
        text = reply.text
        written = any(tag in text for tag in CALL_TAGS) or ("Action" in text and _ACTION.search(text) is not None)
        if reply.tool_calls or written:
            calls += len(reply.tool_calls) or 1
            first = first or turn
    if first is None:
        yield Found("subtask", {"replies": len(run.kept)})
    else:
        yield Found("agentic", {"step": first.step.step_id, "calls": calls, "replies": len(run.kept)})
