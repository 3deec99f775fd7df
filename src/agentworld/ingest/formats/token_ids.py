"""Answers of engines with the ids that they took and gave: SGLang's generate, vLLM's chat, chat with ids, flat rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentworld.ingest.entry import Entry
from agentworld.ingest.format import Head, Notes, each_alone
from agentworld.ingest.formats.chat_messages import ChatReader, tools_of
from agentworld.ingest.formats.completion_facts import REPLY_IDS, facts_of_completion, ids_of, ids_of_pairs
from agentworld.ingest.formats.lineage import Budget, goes_on, untold
from agentworld.ingest.formats.nemo_gym import asked_of, put_steps
from agentworld.ingest.formats.noted import Values, as_finite
from agentworld.ingest.formats.outcomes import put_metadata, put_value
from agentworld.ingest.formats.response_items import ItemReader, as_chat
from agentworld.ingest.formats.token_rows import (
    LABELS,
    OUTCOMES,
    ids_at,
    is_row,
    list_of_rows,
    put_labels,
    row_run,
    rows_run,
)
from agentworld.ingest.run import Run
from agentworld.records import Message, Sampling, Step, Usage

_PAIR = frozenset(("request", "response"))
_META = ("weight_version", "cached_tokens", "routed_experts")


class TokenIds:
    """See Format."""

    name = "token-ids"
    title = "Answers with token ids (SGLang generate, vLLM chat, chat messages with ids, flat rows)"
    bundles = staticmethod(each_alone)

    def claims(self, head: Head) -> bool:
        """By ids of a reply in one of the places where engines and trainers put them."""
        return any(_kind(value) is not None for value in head.documents)

    def runs(self, bundle: Sequence[Entry], note: Notes) -> Iterator[Run]:
        """One run an answer, or a conversation."""
        for entry in bundle:
            values = Values(entry.name, note)
            for place, value in values.documents(entry):
                yield from _runs(value, values, place)


def _kind(value: Any) -> str | None:
    if not isinstance(value, dict) or "responses_create_params" in value:
        return None
    response = value.get("response")
    if isinstance(value.get("request"), dict):
        answers = response[:8] if isinstance(response, list) else [response]
        if any(isinstance(each, dict) and _answer(each) is not None for each in answers):
            return "pair"
    if (kind := _answer(value)) is not None:
        return kind
    if _has_ids(value.get("messages")):
        return "messages"
    if value.get("object") == "response" and _has_ids(value.get("output")):
        return "items"
    if is_row(value):
        return "row"
    if list_of_rows(value) is not None:
        return "rows"
    if isinstance(value.get("trajectories"), list) and any(list_of_rows(each) for each in value["trajectories"][:8]):
        return "episode"
    if len(value) <= 16 and any(_kind(each) in ("messages", "items") for each in value.values()):
        return "several"
    return None


def _answer(value: Mapping[str, Any]) -> str | None:
    """`chat` for a chat completion with ids, `generate` for an answer of SGLang."""
    meta, choices = value.get("meta_info"), value.get("choices")
    if isinstance(choices, list) and any(isinstance(each, dict) and _is_generated(each) for each in choices[:8]):
        return "chat"
    if isinstance(meta, dict) and (_is_generated(value) or isinstance(value.get("output_ids"), list)):
        return "generate"
    if isinstance(choices, list) and any(
        isinstance(each, dict)
        and (isinstance(each.get("token_ids"), list) or ids_at(each.get("message"), REPLY_IDS) is not None)
        for each in choices[:8]
    ):
        return "chat"
    return None


def _is_generated(value: Mapping[str, Any]) -> bool:
    meta = value.get("meta_info")
    return isinstance(meta, dict) and isinstance(meta.get("output_token_logprobs"), list)


def _has_ids(values: Any) -> bool:
    return isinstance(values, list) and any(ids_at(each, REPLY_IDS) is not None for each in values)


def _runs(value: Any, values: Values, place: str) -> Iterator[Run]:
    kind = _kind(value)
    if kind == "pair":
        several = isinstance(value["response"], list)
        for number, each in enumerate(value["response"] if several else [value["response"]]):
            where = f"{place}.response[{number}]" if several else f"{place}.response"
            inner = _answer(each) if isinstance(each, dict) else None
            if inner == "generate":
                yield _generated(value["request"], each, values, f"{place}.request", where)
            elif inner == "chat":
                yield _chat(value["request"], each, values, f"{place}.request", where)
            else:
                values.lost(where, "it has no ids of a reply")
    elif kind == "generate":
        yield _generated({}, value, values, place, place)
    elif kind == "chat":
        yield _chat({}, value, values, place, place)
    elif kind == "messages":
        yield _conversation(value, values, place)
    elif kind == "items":
        yield _items(value, values, place)
    elif kind == "row":
        yield row_run(value, values, place)
    elif kind == "rows":
        yield rows_run(value, list_of_rows(value) or "", values, place)
    elif kind == "episode":
        yield from _episode(value, values, place)
    elif kind == "several":
        for name, each in value.items():
            if isinstance(each, dict) and isinstance(each.get("messages"), list):
                yield _conversation(each, values, f"{place}.{name}")
            elif _kind(each) is not None:
                yield from _runs(each, values, f"{place}.{name}")
            else:
                values.lost(f"{place}.{name}", "it has no ids of a reply")
    else:
        values.lost(place, "it has no ids of a reply")


# --- answers -----------------------------------------------------------------------------------------------------
def _generated(request: Mapping[str, Any], answer: Mapping[str, Any], values: Values, asked: str, place: str) -> Run:
    """An answer of SGLang's generate: ids and log-probabilities stand together, `[log-probability, id, text]`."""
    run = Run(native_id=None)
    meta = values.object(answer, "meta_info", place) or {}
    where = f"{place}.meta_info"
    facts = ids_of_pairs(meta, values, where)
    if facts.get("response_ids") is None:
        facts = {"response_ids": values.ids(answer, "output_ids", place)}
    prompt = values.ids(request, "input_ids", asked)
    if prompt is None:
        given = values.items(meta, "input_token_logprobs", where) or []
        ids = [pair[1] if isinstance(pair, list) and len(pair) >= 2 else None for pair in given]
        prompt = values.ids({"ids": ids}, "ids", f"{where}.input_token_logprobs") if ids else None
    if facts["response_ids"] is None:
        prompt = None  # Ids of a prompt alone are of no use, and would keep the text out.
    ended = meta.get("finish_reason")
    sampling = values.object(request, "sampling_params", asked) or {}
    step = Step(
        step_id="0",
        trajectory_id="",
        prompt_messages=_text_prompt(request),
        response_message=Message(role="assistant", content=values.text(answer, "text", place)),
        prompt_ids=prompt,
        finish_reason=values.name(ended, "type", f"{where}.finish_reason") if isinstance(ended, dict) else None,
        usage=_counted(meta),
        sampling=Sampling(
            temperature=as_finite(sampling.get("temperature")),
            top_p=as_finite(sampling.get("top_p")),
            max_tokens=values.count(sampling, "max_new_tokens", f"{asked}.sampling_params"),
        ),
        metadata={key: kept for key in _META if (kept := values.bounded(meta.get(key), f"{where}.{key}")) is not None},
        **facts,
    )
    run.steps = [_measured(step)]
    return run


def _text_prompt(request: Mapping[str, Any]) -> list[Message] | None:
    text = request.get("text")
    return [Message(role="user", content=text)] if isinstance(text, str) else None


def _counted(meta: Mapping[str, Any]) -> Usage | None:
    counts = [meta.get(name) for name in ("prompt_tokens", "completion_tokens")]
    if not any(type(count) is int for count in counts):
        return None
    kept = [count if type(count) is int and 0 <= count < 2**31 else 0 for count in counts]
    return Usage(prompt_tokens=kept[0], completion_tokens=kept[1])


def _measured(step: Step) -> Step:
    """Lengths and source as the ids say."""
    if step.response_ids is not None:
        step.token_source, step.response_length = "submitted", len(step.response_ids)
    if step.prompt_ids is not None:
        step.prompt_length = len(step.prompt_ids)
    return step


def _chat(request: Mapping[str, Any], answer: Mapping[str, Any], values: Values, asked: str, place: str) -> Run:
    """A chat completion: each choice is a step of its own."""
    run = Run(native_id=None)
    prompt: list[Message] | None = None
    tools = tools_of(request.get("tools"), values, f"{asked}.tools")
    if isinstance(request.get("messages"), list):
        reader = ChatReader(values, run.media)
        prompt = reader.conversation(request["messages"], f"{asked}.messages").messages
    elif isinstance(request.get("prompt"), str):
        prompt = [Message(role="user", content=request["prompt"])]
    names = {"prompt_ids": request.get("input_ids", request.get("prompt"))}
    given = values.ids(names, "prompt_ids", asked) if isinstance(names["prompt_ids"], list) else None
    for number, choice in enumerate(answer["choices"]):
        where = f"{place}.choices[{number}]"
        message = choice.get("message") if isinstance(choice, dict) else None
        if isinstance(choice, dict) and message is None and isinstance(choice.get("text"), str):
            message = {"content": choice["text"]}  # of completions, which have no messages
        if not isinstance(message, dict):
            values.lost(where, "a choice needs a message")
            continue
        reply = ChatReader(values, run.media).message({"role": "assistant", **message}, f"{where}.message")
        facts = facts_of_completion(answer, values, place, number)
        if facts.get("response_ids") is not None and facts.get("prompt_ids") is None:
            facts["prompt_ids"] = given
        run.steps.append(
            Step(
                step_id=str(len(run.steps)),
                trajectory_id="",
                exchange_id="0",
                choice_index=number,
                fork_reason="parallel" if run.steps else None,
                prompt_messages=prompt,
                tools=tools,
                response_message=reply,
                **facts,
            )
        )
    run.created_at = next((step.created_at for step in run.steps), 0.0)
    return run


def _episode(episode: dict[str, Any], values: Values, place: str) -> Iterator[Run]:
    """The rollouts of several agents at one task, each by itself."""
    for number, each in enumerate(episode["trajectories"]):
        where = f"{place}.trajectories[{number}]"
        name = list_of_rows(each)
        if name is None:
            values.lost(where, "it has no calls with ids")
            continue
        run = rows_run(each, name, values, where)
        put_labels(run, episode)
        put_metadata(run, episode, frozenset(("trajectories", *LABELS)), values, place)
        yield run


# --- conversations -----------------------------------------------------------------------------------------------
def _conversation(record: dict[str, Any], values: Values, place: str) -> Run:
    """Messages of chat; those that an engine gave have their ids beside them."""
    run = Run(native_id=None)
    reader = ChatReader(values, run.media)
    tools = tools_of(record.get("tools"), values, f"{place}.tools")
    messages: list[Message] = []
    before: Step | None = None
    budget = Budget(values, place)
    for number, item in enumerate(record["messages"]):
        where = f"{place}.messages[{number}]"
        if not isinstance(item, dict):
            values.lost(where, "a message must be an object")
            continue
        message = reader.message(item, where)
        if message.role == "assistant" and budget.allows(len(messages)):
            step = Step(
                step_id=str(len(run.steps)),
                trajectory_id="",
                parent_step_id=None if before is None else before.step_id,
                prompt_messages=list(messages),
                tools=tools,
                response_message=message,
                model=values.name(record, "model", place),
                **ids_of(item, values, where),
            )
            if before is not None and not goes_on(before, step):
                step.fork_reason = "template"
            run.steps.append(step)
            before = step
        messages.append(message)
    run.trailing = untold(run.steps, messages)
    _outcomes(run, record, values, place)
    put_metadata(run, record, frozenset(("messages", "tools", "model", *OUTCOMES)), values, place)
    return run


def _items(response: dict[str, Any], values: Values, place: str) -> Run:
    """A response with the items of a conversation, with what it was asked where that is there."""
    run = Run(native_id=None)
    reader = ChatReader(values, run.media)
    asked = asked_of(response, reader, place)
    items = ItemReader(reader)
    items.read(response["output"], f"{place}.output")
    items.close()
    tools = tools_of(as_chat(response.get("tools")), values, f"{place}.tools")
    fields = {"model": values.name(response, "model", place), "tools": tools}
    put_steps(run, asked, items.turns, fields, Budget(values, place))
    _outcomes(run, response, values, place)
    return run


def _outcomes(run: Run, record: Mapping[str, Any], values: Values, place: str) -> None:
    for key in OUTCOMES:
        if record.get(key) is not None:
            put_value(run, key, record[key], values, f"{place}.{key}")


FORMAT = TokenIds()
