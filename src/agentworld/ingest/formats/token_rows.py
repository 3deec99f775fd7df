"""Rows of trainers with a prompt and a reply as lists of ids, under the names that these have: one call a row, or the
calls of a rollout in a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentworld.ingest.formats.chat_messages import ChatReader
from agentworld.ingest.formats.completion_facts import LOGPROBS, PROMPT_IDS, REPLY_IDS, facts_of_completion, ids_of
from agentworld.ingest.formats.lineage import goes_on
from agentworld.ingest.formats.media import Media
from agentworld.ingest.formats.noted import Values, kind_of
from agentworld.ingest.formats.outcomes import put_metadata, put_value
from agentworld.ingest.run import Run, RunFeedback, RunReward
from agentworld.records import Message, Step

OUTCOMES = ("reward", "score")
LABELS = ("is_correct", "correct", "success", "resolved")
_REPLY = (*REPLY_IDS, "completion_ids", "output_ids", "token_ids")
_PROMPT = (*PROMPT_IDS, "input_ids")
_LOGPROBS = (*LOGPROBS, "rollout_log_probs")
_MASKS = ("response_mask", "loss_mask", "completion_mask")
_TEXTS = ("response", "completion", "output", "text", "response_text", "generated_text")
_LISTS = ("steps", "trajectory", "turns")


def ids_at(record: Any, names: tuple[str, ...]) -> str | None:
    """The first of the names under which a record has a list of ids."""
    if not isinstance(record, dict):
        return None
    return next((name for name in names if _are_ids(record.get(name))), None)


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int for each in value[:4])


def is_row(value: Any) -> bool:
    """Whether it has ids of a prompt and of a reply, apart or in one list with the reply's length."""
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("tokens"), dict):
        return is_row(value["tokens"])
    if ids_at(value, ("tokens",)) is not None and type(value.get("response_length")) is int:
        return True
    return ids_at(value, _REPLY) is not None and ids_at(value, _PROMPT) is not None


def list_of_rows(value: Any) -> str | None:
    """The name under which a rollout has its calls."""
    if not isinstance(value, dict):
        return None
    return next(
        (name for name in _LISTS if isinstance(value.get(name), list) and any(map(is_row, value[name][:8]))), None
    )


def row_run(row: dict[str, Any], values: Values, place: str) -> Run:
    """One call as a run."""
    run = Run(native_id=None)
    step, read = _step(row, 0, run.media, values, place)
    run.steps = [step]
    _outcomes(run, row, values, place)
    put_metadata(run, row, read | set(LABELS), values, place)
    return run


def rows_run(rollout: dict[str, Any], name: str, values: Values, place: str) -> Run:
    """The calls of a rollout; ids of a prompt that do not begin with those of the call before are a fork."""
    run = Run(native_id=None)
    before: Step | None = None
    for number, row in enumerate(rollout[name]):
        where = f"{place}.{name}[{number}]"
        if not isinstance(row, dict):
            values.lost(where, f"a call must be an object, not {kind_of(row)}")
            continue
        step, read = _step(row, len(run.steps), run.media, values, where)
        if before is not None:
            step.parent_step_id = before.step_id
            step.fork_reason = None if goes_on(before, step) else "template"
        for key in OUTCOMES:
            reward = values.number(row, key, where)
            if reward is not None:
                run.rewards.append(RunReward(name=key, value=reward, step=step.step_id))
        rest = {key: value for key, value in row.items() if key not in read and value not in (None, "", [], {})}
        if (kept := values.bounded(rest, where)) is not None:
            step.metadata = {**step.metadata, **kept}
        run.steps.append(step)
        before = step
    run.agent = values.name(rollout, "name", place) if isinstance(rollout.get("name"), str) else None
    _outcomes(run, rollout, values, place)
    put_metadata(
        run, rollout, frozenset((name, "name", "prompt", "completion", "messages", *OUTCOMES, *LABELS)), values, place
    )
    return run


def _step(row: dict[str, Any], number: int, media: Media, values: Values, place: str) -> tuple[Step, frozenset[str]]:
    """One call as a step, and which fields of its row were read."""
    tokens = row["tokens"] if isinstance(row.get("tokens"), dict) else row
    names = _ids(tokens, values, place)
    logprobs = next((name for name in _LOGPROBS if isinstance(tokens.get(name), list)), None)
    if logprobs is not None:
        names["logprobs"] = tokens[logprobs]
    facts = ids_of(names, values, place)
    mask = next((name for name in _MASKS if isinstance(tokens.get(name), list)), None)
    about: dict[str, Any] = {}
    asked, reply = _said(row, media, values, place, about)
    step = Step(
        step_id=str(number),
        trajectory_id="",
        prompt_messages=asked,
        response_message=reply,
        model=values.name(row, "model", place) if isinstance(row.get("model"), str) else None,
        finish_reason=row["finish_reason"][:256] if isinstance(row.get("finish_reason"), str) else None,
        **facts,
    )
    answer = row.get("model_response", row.get("raw_response"))
    for key, value in facts_of_completion(answer, values, f"{place}.model_response").items():
        if getattr(step, key, None) in (None, 0.0):
            setattr(step, key, value)
    if mask is not None and step.response_ids is not None:
        step.response_mask = _mask(tokens[mask], len(step.response_ids), values, f"{place}.{mask}")
    if (others := values.bounded(about, f"{place} (other fields of messages)")) is not None:
        step.metadata = {"messages": others}
    read = {
        logprobs, mask, *names, *_REPLY, *_PROMPT, *_TEXTS, *OUTCOMES, "tokens", "response_length", "prompt",
        "messages", "chat_completions", "model", "finish_reason", "model_response", "raw_response",
    }  # fmt: skip
    if isinstance(answer, str) and reply is not None and answer != reply.text:
        read -= {"model_response", "raw_response"}  # It says the same otherwise, which is kept.
    return step, frozenset(name for name in read if name is not None)


def _ids(tokens: Mapping[str, Any], values: Values, place: str) -> dict[str, Any]:
    length = tokens.get("response_length")
    if ids_at(tokens, ("tokens",)) is not None and type(length) is int:
        whole = tokens["tokens"]
        if not 0 <= length <= len(whole):
            values.lost(f"{place}.response_length", f"a reply of {len(whole)} ids cannot be {length} long")
            return {}
        return {"prompt_ids": whole[: len(whole) - length], "response_ids": whole[len(whole) - length :]}
    reply, prompt = ids_at(tokens, _REPLY), ids_at(tokens, _PROMPT)
    found = {} if reply is None else {"response_ids": tokens[reply]}
    return found if prompt is None else {**found, "prompt_ids": tokens[prompt]}


def _said(
    row: Mapping[str, Any], media: Media, values: Values, place: str, about: dict[str, Any]
) -> tuple[list[Message] | None, Message | None]:
    """The prompt, as messages or as text, and the reply: where there is none apart, what the messages end with.
    `about`: takes what else messages have, by their places.
    """
    asked: list[Message] | None = None
    for name in ("messages", "chat_completions", "prompt"):
        given = row.get(name)
        if isinstance(given, list) and any(isinstance(each, dict) for each in given):
            said = ChatReader(values, media).conversation(given, f"{place}.{name}")
            about.update((f"{name}[{index}]", each) for index, each in said.about.items())
            asked = said.messages
            break
        if isinstance(given, str):
            asked = [Message(role="user", content=given)]
            break
    reply = _reply(row, media, values, place, about)
    if asked and asked[-1].role == "assistant" and (reply is None or reply.text == asked[-1].text):
        reply = asked.pop()
    if reply is None and isinstance(row.get("model_response"), str):
        reply = Message(role="assistant", content=row["model_response"])
    return asked, reply


def _reply(row: Mapping[str, Any], media: Media, values: Values, place: str, about: dict[str, Any]) -> Message | None:
    for name in _TEXTS:
        given = row.get(name)
        if isinstance(given, str):
            return Message(role="assistant", content=given)
        if isinstance(given, list) and given and all(isinstance(each, dict) for each in given):
            said = ChatReader(values, media).conversation(given, f"{place}.{name}")
            about.update((f"{name}[{index}]", each) for index, each in said.about.items())
            found = said.messages
            reply = next((message for message in found if message.role == "assistant"), None)
            if reply is not None:
                if len(found) > 1:
                    values.lost(f"{place}.{name}", "of several messages only the first of the assistant is the reply")
                return reply
    return None


def _mask(given: list[Any], length: int, values: Values, place: str) -> list[int] | None:
    """A mask of the reply; one over prompt and reply is cut to the reply."""
    if not all(isinstance(each, (int, bool)) and each in (0, 1) for each in given):
        values.lost(place, "a mask holds 0 and 1")
        return None
    return [int(each) for each in given[max(0, len(given) - length) :]]


def _outcomes(run: Run, record: Mapping[str, Any], values: Values, place: str) -> None:
    for key in OUTCOMES:
        if record.get(key) is not None:
            put_value(run, key, record[key], values, f"{place}.{key}")
    put_labels(run, record)


def put_labels(run: Run, record: Mapping[str, Any]) -> None:
    """Put what says whether a run was right."""
    for key in LABELS:
        if isinstance(record.get(key), bool):
            run.feedback.append(RunFeedback(kind="label", name=key, value=record[key]))
