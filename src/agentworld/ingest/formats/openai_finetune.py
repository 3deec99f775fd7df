"""Training files of OpenAI's fine-tuning: chat with tools, weights, and preferences between two answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentworld.ingest.entry import Entry
from agentworld.ingest.format import Head, Notes, each_alone
from agentworld.ingest.formats.beside import beside
from agentworld.ingest.formats.branches import preference
from agentworld.ingest.formats.chat_messages import ChatReader, Conversation, tools_of
from agentworld.ingest.formats.noted import Values
from agentworld.ingest.run import Run, RunFeedback, linear_steps
from agentworld.records import Sampling

_CHAT = frozenset(("messages", "tools", "functions", "parallel_tool_calls", "tool_choice", "function_call", "metadata"))
_PREFERENCE = frozenset(("input", "preferred_output", "non_preferred_output"))
_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
_MESSAGE = frozenset(
    (
        "role", "content", "tool_calls", "function_call", "tool_call_id", "name", "weight", "refusal", "audio",
        "reasoning", "reasoning_content", "annotations",
    )
)  # fmt: skip
_ANSWERS = ("preferred_output", "non_preferred_output")


class OpenAIFineTuning:
    """See Format."""

    name = "openai-fine-tuning"
    title = "OpenAI fine-tuning (chat and preferences)"
    plain_chat = True
    bundles = staticmethod(each_alone)

    def claims(self, head: Head) -> bool:
        """By the fields of its rows, which has no others."""
        return bool(head.documents) and any(map(_is_row, head.documents))

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """One run a row."""
        for entry in bundle:
            values = Values(entry.name, note, beside(entry))
            for place, row in values.documents(entry):
                if isinstance(row, dict) and isinstance(row.get("messages"), list):
                    yield _chat(row, values, place)
                elif isinstance(row, dict) and "preferred_output" in row:
                    yield _preferred(row, values, place)
                else:
                    values.lost(place, "a row needs messages, or input with preferred_output")


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict):
        return False
    if row.keys() >= _PREFERENCE:
        return True
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages or not row.keys() <= _CHAT:
        return False
    some = [each for each in messages[:8] if isinstance(each, dict)]
    return bool(some) and all(map(_is_message, some))


def _is_message(message: dict[str, Any]) -> bool:
    """Whether it has the fields of a message of OpenAI chat, and no others."""
    role, content = message.get("role"), message.get("content")
    parts = content if isinstance(content, list) else []
    return (
        isinstance(role, str)
        and role in _ROLES
        and message.keys() <= _MESSAGE
        and not any(isinstance(part, dict) and "value" in part for part in parts)
    )


def _chat(row: dict[str, Any], values: Values, place: str) -> Run:
    run = Run(native_id=None)
    reader = ChatReader(values, run.media)
    said = reader.conversation(row["messages"], f"{place}.messages")
    run.steps, run.trailing = linear_steps(said.messages, **_asked(row, values, place))
    _weigh(run, said)
    _rest(run, row, said, values, place)
    return run


def _asked(given: Mapping[str, Any], values: Values, place: str) -> dict[str, Any]:
    """What goes on every step: the tools, and how they may be called."""
    functions = tools_of(given.get("functions"), values, f"{place}.functions")
    tools = tools_of(given.get("tools"), values, f"{place}.tools")
    fields: dict[str, Any] = {"tools": [*(tools or ()), *(functions or ())] or None}
    parallel, choice = given.get("parallel_tool_calls"), given.get("tool_choice", given.get("function_call"))
    if isinstance(parallel, bool) or choice is not None:
        fields["sampling"] = Sampling(
            parallel_tool_calls=parallel if isinstance(parallel, bool) else None, tool_choice=choice
        )
    return fields


def _weigh(run: Run, said: Conversation) -> None:
    """Weights of replies as labels of their steps, under a name that rules of curation do not set."""
    replies = [index for index, message in enumerate(said.messages) if message.role == "assistant"]
    for step, index in zip(run.steps, replies, strict=False):
        about = said.about.get(index, {})
        weight = about.pop("weight", None)
        if weight is not None:
            run.feedback.append(RunFeedback(kind="label", name="training_weight", value=weight, step=step.step_id))


def _preferred(row: dict[str, Any], values: Values, place: str) -> Run:
    run = Run(native_id=None)
    asked = values.object(row, "input", place) or {}
    reader = ChatReader(values, run.media)
    given = values.items(asked, "messages", f"{place}.input") or []
    before = reader.conversation(given, f"{place}.input.messages")
    answers = [
        reader.conversation(values.items(row, name, place) or [], f"{place}.{name}").messages for name in _ANSWERS
    ]
    preference(run, before.messages, answers[0], answers[1], _asked(asked, values, f"{place}.input"))
    _rest(run, {**asked, **{key: value for key, value in row.items() if key not in _PREFERENCE}}, before, values, place)
    return run


def _rest(run: Run, row: Mapping[str, Any], said: Conversation, values: Values, place: str) -> None:
    """What else the row and its messages have, as metadata."""
    rest = {key: value for key, value in row.items() if key not in _CHAT or key == "metadata"}
    about = {str(index): value for index, value in said.about.items() if value}
    for name, value in (("row", rest), ("messages", about)):
        if (kept := values.bounded(value, f"{place} ({name})")) is not None:
            run.metadata[name] = kept


FORMAT = OpenAIFineTuning()
