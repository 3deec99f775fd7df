"""OpenAI completions: request body -> canonical request, strictly.

The prompt goes to the engine as it is, without a chat template: text as text, ids as ids. One call has one prompt, as
an exchange has one; `echo`, `suffix` and `best_of` are taken only where they ask for nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.dialects.chat import read_sampling, read_stream_options
from agentworld.dialects.exchange import Request
from agentworld.dialects.fields import MAX_ID, Fields
from agentworld.errors import InvalidRequestError
from agentworld.records import Message

DIALECT = "completions"
MAX_LOGPROBS = 20
DEFAULT_MAX_TOKENS = 16
"""What the API gives where the caller sets no limit."""

# Change nothing in what is sampled; any value is taken.
HARMLESS = frozenset(
    {"user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier", "cache_salt", "priority"}
    | {"request_id", "spaces_between_special_tokens"}
)
_NEUTRAL: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("add_special_tokens", (True,)),
    ("allowed_token_ids", ([],)),
    ("bad_words", ([],)),
    ("detokenize", (True,)),
    ("echo", (False,)),
    ("ignore_eos", (False,)),
    ("include_stop_str_in_output", (False,)),
    ("length_penalty", (1.0, 1)),
    ("parallel_tool_calls", ()),
    ("skip_special_tokens", (True,)),
    ("suffix", ("",)),
    ("tools", ([],)),
    ("use_beam_search", (False,)),
)


def parse(body: dict[str, Any]) -> Request:
    """A decoded body as a request; InvalidRequestError names the JSON path of what is wrong."""
    fields = Fields(body)
    model = fields.take("model", str) or ""
    prompt = _prompt(fields)
    stream = fields.take("stream", bool) or False
    include_usage = read_stream_options(fields)
    top = fields.integer("logprobs", 0, MAX_LOGPROBS)
    return_token_ids = fields.take("return_token_ids", bool) or False
    for name, values in _NEUTRAL:
        fields.neutral(name, *values)
    sampling = read_sampling(fields, None)
    if sampling.max_tokens is None:
        sampling = msgspec.structs.replace(sampling, max_tokens=max(DEFAULT_MAX_TOKENS, sampling.min_tokens or 0))
    best_of = fields.integer("best_of", 1)
    if best_of not in (None, sampling.n):
        raise InvalidRequestError(
            "best_of beyond n is not supported, as replies that nobody sees would be sampled",
            path="best_of",
            hint="Leave it out, and ask for as many replies with n",
        )
    fields.finish(HARMLESS)
    return Request(
        dialect=DIALECT,
        model=model,
        messages=(Message(role="user", content=prompt),) if isinstance(prompt, str) else (),
        prompt=prompt,
        sampling=sampling,
        stream=stream,
        include_usage=include_usage,
        logprobs=top is not None,
        top_logprobs=top or 0,
        return_token_ids=return_token_ids,
        notes={"completion": "text" if isinstance(prompt, str) else "ids"},
    )


def _prompt(fields: Fields) -> str | tuple[int, ...]:
    value = fields.raw("prompt")
    if value is None:
        raise InvalidRequestError("prompt is missing", path="prompt")
    if isinstance(value, list) and value and isinstance(value[0], str | list):
        if len(value) > 1:
            raise InvalidRequestError(
                f"{len(value)} prompts in one call are not supported, as each call becomes one exchange on record",
                path="prompt",
                hint="Send one call for each prompt",
            )
        value = value[0]
    if isinstance(value, str) and value:
        return value
    # Whole-list checks, as prompts hold many ids.
    if isinstance(value, list) and value and set(map(type, value)) == {int}:
        if min(value) < 0 or max(value) > MAX_ID:
            raise fields.refuse("prompt", f"token ids from 0 to {MAX_ID}")
        return tuple(value)
    raise fields.refuse("prompt", "a text or a list of token ids, and not empty")
