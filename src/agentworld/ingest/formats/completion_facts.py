"""What an answer of an engine says beside its text: the model, usage, why it ended, ids and log-probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentworld.ingest.formats.noted import Values, as_time
from agentworld.records import Usage

_USAGE = (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens"))
_MORE = ("routed_experts", "sampling_mask")
PROMPT_IDS = ("prompt_token_ids", "prompt_ids")
REPLY_IDS = ("generation_token_ids", "completion_token_ids", "output_token_ids", "response_token_ids", "response_ids")
LOGPROBS = ("generation_log_probs", "completion_logprobs", "output_log_probs", "response_logprobs", "logprobs")


def usage_of(given: Any) -> Usage | None:
    """Usage as chat or Responses count it; what is no count is absent."""
    if not isinstance(given, dict):
        return None
    for prompt, completion in _USAGE:
        counts = [given.get(prompt), given.get(completion)]
        if any(type(count) is int for count in counts):
            kept = [count if type(count) is int and 0 <= count < 2**31 else 0 for count in counts]
            return Usage(prompt_tokens=kept[0], completion_tokens=kept[1])
    return None


def facts_of_completion(completion: Any, values: Values, place: str, choice: int = 0) -> dict[str, Any]:
    """Fields of a step out of a chat completion as an engine or LiteLLM gives it, with vLLM's ids where it has them."""
    if not isinstance(completion, dict):
        return {}
    facts: dict[str, Any] = {}
    if (model := values.name(completion, "model", place)) is not None:
        facts["model"] = model
    if (usage := usage_of(completion.get("usage"))) is not None:
        facts["usage"] = usage
    created = as_time(completion.get("created"))
    if created is not None:
        facts["created_at"] = created
    choices = completion.get("choices")
    chosen = choices[choice] if isinstance(choices, list) and choice < len(choices) else None
    if not isinstance(chosen, dict):
        return facts
    where = f"{place}.choices[{choice}]"
    if (reason := values.name(chosen, "finish_reason", where)) is not None:
        facts["finish_reason"] = reason
    message = chosen.get("message")
    for record, at in ((message, f"{where}.message"), (chosen, where)):
        if isinstance(record, dict) and (found := ids_of(record, values, at)):
            facts.update(found)
            break
    else:
        meta = chosen.get("meta_info")
        if isinstance(meta, dict) and (found := ids_of_pairs(meta, values, f"{where}.meta_info")):
            facts.update(found)
        else:
            _vllm(completion, chosen, facts, values, place, where)
    return facts


def ids_of_pairs(meta: Mapping[str, Any], values: Values, place: str) -> dict[str, Any]:
    """Fields of a step out of SGLang's `output_token_logprobs`: elements `[log-probability, id, text]`, or objects."""
    pairs = values.items(meta, "output_token_logprobs", place)
    if pairs is None:
        return {}
    where = f"{place}.output_token_logprobs"
    good = [pair for each in pairs if (pair := _pair(each)) is not None]
    if len(good) < len(pairs):
        values.lost(where, "an element must be [log-probability, id]; none is kept")
        return {}
    record = {"ids": [pair[1] for pair in good], "logprobs": [pair[0] for pair in good]}
    ids = values.ids(record, "ids", where)
    if ids is None:
        return {}
    logprobs = values.logprobs(record, "logprobs", where)
    return {
        "response_ids": ids,
        "response_length": len(ids),
        "response_logprobs": logprobs,
        "token_source": "submitted",
    }


def _pair(given: Any) -> tuple[Any, Any] | None:
    if isinstance(given, list) and len(given) >= 2:
        return given[0], given[1]
    if isinstance(given, dict) and "logprob" in given and ("token_id" in given or "id" in given):
        return given["logprob"], given.get("token_id", given.get("id"))
    return None


def ids_of(record: Mapping[str, Any], values: Values, place: str) -> dict[str, Any]:
    """Fields of a step out of a record that has ids beside its text.

    Nothing is repaired: counts that disagree are said, and the pool decides.
    """
    prompt = _first(PROMPT_IDS, record)
    reply = _first(REPLY_IDS, record)
    if reply is None:
        return {}
    ids = values.ids(record, reply, place)
    if ids is None:
        return {}
    for name in _MORE:
        if record.get(name) is not None:
            values.lost(f"{place}.{name}", "it is left out: of tokens the ids, a mask and log-probabilities are kept")
    found: dict[str, Any] = {"response_ids": ids, "response_length": len(ids), "token_source": "submitted"}
    asked = values.ids(record, prompt, place) if prompt is not None else None
    if asked is not None:
        found.update(prompt_ids=asked, prompt_length=len(asked))
    logprobs = _first(LOGPROBS, record)
    if logprobs is not None and isinstance(record[logprobs], list):
        found["response_logprobs"] = values.logprobs(record, logprobs, place)
        _agree(found, values, place)
    return found


def _first(names: tuple[str, ...], record: Mapping[str, Any]) -> str | None:
    return next((name for name in names if record.get(name) is not None), None)


def _agree(found: dict[str, Any], values: Values, place: str) -> None:
    logprobs = found.get("response_logprobs")
    if logprobs is not None and len(logprobs) != len(found["response_ids"]):
        values.said(
            place,
            f"it has {len(found['response_ids'])} ids of the reply and {len(logprobs)} log-probabilities",
            hint="The pool keeps the step out of training",
        )


def _vllm(
    completion: Mapping[str, Any],
    chosen: Mapping[str, Any],
    facts: dict[str, Any],
    values: Values,
    place: str,
    where: str,
) -> None:
    """vLLM's own fields: the prompt's ids are the answer's, the reply's are the choice's."""
    content = _of_content(chosen.get("logprobs"))
    ids = values.ids(chosen, "token_ids", where)
    if ids is None:
        named = [_named_id(each) for each in content]
        ids = [each for each in named if each is not None] if named and None not in named else None
    if ids is None:
        return
    facts.update(response_ids=ids, response_length=len(ids), token_source="submitted")
    asked = values.ids(completion, "prompt_token_ids", place)
    if asked is None:
        asked = values.ids(chosen, "prompt_token_ids", where)
    if asked is not None:
        facts.update(prompt_ids=asked, prompt_length=len(asked))
    if content:
        record = {"logprob": [each.get("logprob") for each in content]}
        facts["response_logprobs"] = values.logprobs(record, "logprob", f"{where}.logprobs")
        _agree(facts, values, where)


def _of_content(logprobs: Any) -> list[dict[str, Any]]:
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        return []
    return content


def _named_id(entry: Mapping[str, Any]) -> int | None:
    """The id of an entry that names its token `token_id:5`."""
    token = entry.get("token")
    if not isinstance(token, str) or not token.startswith("token_id:"):
        return None
    digits = token.removeprefix("token_id:")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 10 else None
