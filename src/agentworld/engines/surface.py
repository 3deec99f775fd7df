"""Requests of the completion routes, read strictly: what is unsupported or has the wrong type is refused.

The dialect is vLLM's. A sampling field is either honoured or refused with HTTP 400; none is ignored.
Left out on purpose: guided decoding (a backend that can demand tool calls and JSON says so), images and audio, beam
search and echo.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from agentworld.errors import AgentWorldError, ContextLengthError, InvalidRequestError

LogprobsMode = Literal["raw_logprobs", "processed_logprobs"]
LOGPROBS_MODES: tuple[LogprobsMode, ...] = ("raw_logprobs", "processed_logprobs")
MAX_LOGPROBS = 20
"""Most alternatives a token may be reported with, as in the OpenAI and vLLM defaults."""
MAX_CHOICES = 256

_ROLES = ("system", "developer", "user", "assistant", "tool")

# Fields that change nothing in what is sampled here: any value is taken.
_INERT = frozenset(
    {"user", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention"}
    | {"safety_identifier", "cache_salt", "priority", "spaces_between_special_tokens"}
)
# Fields that would change the reply and are not supported, with the values that mean "not asked for".
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "add_special_tokens": (False,),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "continue_final_message": (False,),
    "detokenize": (True,),
    "documents": ([],),
    "echo": (False,),
    "functions": ([],),
    "include_reasoning": (True,),
    "length_penalty": (1.0,),
    "logits_processors": ([],),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "use_beam_search": (False,),
}


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are drawn. Defaults are neutral: the model's own distribution."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 means all."""
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None
    max_tokens: int | None = None
    """None means the rest of the context."""
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One validated call of `/v1/chat/completions` or `/v1/completions`."""

    kind: Literal["chat", "completions"]
    sampling: Sampling
    model: str | None = None
    messages: tuple[dict[str, Any], ...] = ()
    """As a chat template takes them: text content, `system` for `developer`, `reasoning_content`."""
    tools: tuple[dict[str, Any], ...] = ()
    """Empty when `tool_choice` is none."""
    parallel_tool_calls: bool = True
    template: dict[str, Any] = msgspec.field(default_factory=dict)
    prompts: tuple[str | tuple[int, ...], ...] = ()
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    logprobs: int | None = None
    """How many alternatives to report beside each token; None for no log-probabilities at all."""
    logprobs_mode: LogprobsMode | None = None
    prompt_logprobs: int | None = None
    """How many of the likeliest to report in each place of the prompt, beside what stands there."""
    return_token_ids: bool = False
    tokens_as_ids: bool = False
    skip_special_tokens: bool = True
    include_stop: bool = False
    request_id: str | None = None


def openai_error(error: AgentWorldError) -> dict[str, Any]:
    """The error body of the OpenAI API: ``{"error": {"message", "type", "param", "code"}}``."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    message = error.advice()
    return {"error": {"message": message, "type": kind, "param": error.path, "code": error.code}}


def resolve_max_tokens(sampling: Sampling, prompt_length: int, context: int) -> int:
    """Tokens that this prompt may still get in a context of `context` tokens; refuses what does not fit."""
    if prompt_length == 0:
        raise InvalidRequestError("the prompt is empty", path="prompt")
    asked = sampling.max_tokens
    if prompt_length + (asked or 1) > context:
        wanted = f"{asked} in the completion" if asked is not None else "at least 1 in the completion"
        raise ContextLengthError(
            f"This model's maximum context length is {context} tokens. However, you requested "
            f"{prompt_length + (asked or 1)} tokens ({prompt_length} in the messages, {wanted}). "
            "Please reduce the length of the messages or completion.",
            path="messages",
        )
    return asked if asked is not None else context - prompt_length


def parse_request(body: Any, kind: Literal["chat", "completions"], guided: bool = False) -> GenerationRequest:
    """Read a decoded JSON body. Null means absent, as in vLLM.

    `guided`: the backend holds replies to a demanded tool call (`tool_choice`) and to JSON (`response_format`), which
    it finds in the body.
    """
    if not isinstance(body, Mapping):
        raise InvalidRequestError("the body must be a JSON object")
    fields = _Fields(body)
    common: dict[str, Any] = {
        "kind": kind,
        "model": fields.take("model", str, None),
        "n": fields.integer("n", 1, low=1, high=MAX_CHOICES),
        "stream": fields.flag("stream", False),
        "logprobs_mode": fields.choice("logprobs_mode", LOGPROBS_MODES, None),
        "return_token_ids": fields.flag("return_token_ids", False),
        "tokens_as_ids": fields.flag("return_tokens_as_token_ids", False),
        "skip_special_tokens": fields.flag("skip_special_tokens", True),
        "include_stop": fields.flag("include_stop_str_in_output", False),
        "request_id": fields.take("request_id", str, None),
    }
    options = fields.take("stream_options", dict, None)
    if options is not None:
        if not common["stream"]:
            raise InvalidRequestError("stream_options needs stream: true", path="stream_options")
        inner = _Fields(options, "stream_options.")
        common["include_usage"] = inner.flag("include_usage", False)
        common["continuous_usage"] = inner.flag("continuous_usage_stats", False)
        inner.finish()
    limit = fields.integer("max_tokens", None, low=1)
    if kind == "chat":
        newer = fields.integer("max_completion_tokens", None, low=1)
        limit = newer if newer is not None else limit
        common |= _chat_fields(fields, guided)
    else:
        common["prompts"] = _prompts(fields.raw("prompt"))
        common["logprobs"] = fields.integer("logprobs", None, low=0, high=MAX_LOGPROBS)
        common["prompt_logprobs"] = fields.integer("prompt_logprobs", None, low=0, high=MAX_LOGPROBS)
        if common["prompt_logprobs"] is not None and common["stream"]:
            raise InvalidRequestError("prompt_logprobs are not streamed", path="prompt_logprobs")
    if guided:
        _format(fields.take("response_format", dict, None))
    common["sampling"] = _sampling(fields, limit)
    best_of = fields.integer("best_of", None, low=1)
    if best_of not in (None, common["n"]):
        raise InvalidRequestError("best_of is not supported beyond n", path="best_of")
    fields.finish()
    return GenerationRequest(**common)


def _sampling(fields: _Fields, max_tokens: int | None) -> Sampling:
    stop = fields.raw("stop")
    stops = [stop] if isinstance(stop, str) else ([] if stop is None else stop)
    if not isinstance(stops, list) or any(not isinstance(text, str) or not text for text in stops):
        raise InvalidRequestError("stop must be a non-empty string or a list of them", path="stop")
    top_k = fields.integer("top_k", 0, low=-1)
    min_tokens = fields.integer("min_tokens", 0, low=0)
    if max_tokens is not None and min_tokens > max_tokens:
        raise InvalidRequestError("min_tokens is larger than max_tokens", path="min_tokens")
    if min_tokens and stops:
        raise InvalidRequestError("min_tokens together with stop strings is not supported", path="min_tokens")
    return Sampling(
        temperature=fields.number("temperature", 1.0, low=0.0, high=100.0),
        top_p=fields.number("top_p", 1.0, low=0.0, high=1.0, open_low=True),
        top_k=max(top_k, 0),
        min_p=fields.number("min_p", 0.0, low=0.0, high=1.0),
        presence_penalty=fields.number("presence_penalty", 0.0, low=-2.0, high=2.0),
        frequency_penalty=fields.number("frequency_penalty", 0.0, low=-2.0, high=2.0),
        repetition_penalty=fields.number("repetition_penalty", 1.0, low=0.0, high=100.0, open_low=True),
        logit_bias=_logit_bias(fields.take("logit_bias", dict, None)),
        seed=fields.integer("seed", None, low=-(2**63), high=2**63 - 1),
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop=tuple(stops),
        stop_token_ids=_ids(fields.raw("stop_token_ids") or [], "stop_token_ids"),
        ignore_eos=fields.flag("ignore_eos", False),
    )


def _logit_bias(given: dict[str, Any] | None) -> tuple[tuple[int, float], ...]:
    pairs = []
    for key, value in (given or {}).items():
        path = f"logit_bias.{key[:40]}"
        if not (key.isascii() and key.isdecimal() and len(key) <= 10):
            raise InvalidRequestError("logit_bias keys must be token ids", path=path)
        if isinstance(value, bool) or not isinstance(value, int | float) or not -100 <= value <= 100:
            raise InvalidRequestError("logit_bias values must be numbers from -100 to 100", path=path)
        pairs.append((int(key), float(value)))
    return tuple(pairs)


def _ids(value: Any, path: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise InvalidRequestError(f"{path} must be a list of token ids", path=path)
    for position, item in enumerate(value):
        if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < 2**31:
            raise InvalidRequestError("a token id must be a whole number from 0", path=f"{path}[{position}]")
    return tuple(value)


def _prompts(value: Any) -> tuple[str | tuple[int, ...], ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not value:
        raise InvalidRequestError("prompt must be a string, a list of token ids, or a list of either", path="prompt")
    if not isinstance(value[0], str | list):
        return (_ids(value, "prompt"),)
    out: list[str | tuple[int, ...]] = []
    for position, item in enumerate(value):
        out.append(item if isinstance(item, str) else _ids(item, f"prompt[{position}]"))
    return tuple(out)


def _format(given: dict[str, Any] | None) -> None:
    kind = None if given is None else given.get("type")
    if kind not in (None, "text", "json_object", "json_schema"):
        raise InvalidRequestError("the type must be text, json_object or json_schema", path="response_format.type")
    described = given.get("json_schema") if given is not None and kind == "json_schema" else {"schema": {}}
    if not isinstance(described, dict) or not isinstance(described.get("schema"), dict):
        raise InvalidRequestError("response_format has no schema", path="response_format.json_schema.schema")


def _demanded(choice: Any, tools: list[Any]) -> None:
    names = [tool["function"]["name"] for tool in tools]
    if choice == "required" and names:
        return
    if isinstance(choice, dict) and choice.get("type") == "function":
        function = choice.get("function")
        if isinstance(function, dict) and function.get("name") in names:
            return
    raise InvalidRequestError("tool_choice must be auto, none, required or a function of tools", path="tool_choice")


def _chat_fields(fields: _Fields, guided: bool) -> dict[str, Any]:
    tops = fields.integer("top_logprobs", None, low=0, high=MAX_LOGPROBS)
    wanted = fields.flag("logprobs", False)
    if tops and not wanted:
        raise InvalidRequestError("top_logprobs needs logprobs: true", path="top_logprobs")
    tools = fields.take("tools", list, None) or []
    for position, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise InvalidRequestError("a tool must be {type: function, function: {name}}", path=f"tools[{position}]")
    choice = fields.raw("tool_choice")
    if choice not in (None, "auto", "none") and guided:
        _demanded(choice, tools)
    elif choice not in (None, "auto", "none"):
        raise InvalidRequestError("tool_choice must be auto or none here", path="tool_choice")
    return {
        "logprobs": (tops or 0) if wanted else None,
        "messages": tuple(_messages(fields.raw("messages"))),
        "tools": () if choice == "none" else tuple(tools),
        "parallel_tool_calls": fields.flag("parallel_tool_calls", True),
        "template": fields.take("chat_template_kwargs", dict, None) or {},
    }


def _messages(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise InvalidRequestError("messages must be a list with at least one message", path="messages")
    return [_message(item, f"messages[{position}]") for position, item in enumerate(value)]


def _message(item: Any, path: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise InvalidRequestError("a message must be an object", path=path)
    role = item.get("role")
    if role not in _ROLES:
        raise InvalidRequestError(f"role must be one of {', '.join(_ROLES)}", path=f"{path}.role")
    out: dict[str, Any] = {
        "role": "system" if role == "developer" else role,
        "content": _text(item.get("content"), f"{path}.content"),
    }
    for key in ("name", "tool_call_id"):
        if item.get(key) is not None:
            out[key] = item[key]
    reasoning = item.get("reasoning_content") or item.get("reasoning")
    if reasoning is not None:
        if not isinstance(reasoning, str):
            raise InvalidRequestError("reasoning must be a string", path=f"{path}.reasoning")
        out["reasoning_content"] = reasoning
    calls = item.get("tool_calls")
    if calls:
        out["tool_calls"] = _tool_calls(calls, f"{path}.tool_calls")
    return out


def _tool_calls(calls: Any, path: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise InvalidRequestError("tool_calls must be a list", path=path)
    for position, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise InvalidRequestError("a tool call must hold function.name", path=f"{path}[{position}]")
    return calls


def _text(content: Any, path: str) -> str:
    """Text of a message; several text parts are joined by a newline, as vLLM does for string templates."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise InvalidRequestError("content must be a string, null or a list of text parts", path=path)
    texts = []
    for position, part in enumerate(content):
        text = part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str):
            raise InvalidRequestError("only text parts are supported", path=f"{path}[{position}]")
        texts.append(text)
    return "\n".join(texts)


class _Fields:
    """Takes fields out of a body one by one, so that what nobody took can be refused."""

    def __init__(self, body: Mapping[str, Any], prefix: str = "") -> None:
        self._left = {key: value for key, value in body.items() if value is not None}
        self._prefix = prefix

    def raw(self, name: str) -> Any:
        return self._left.pop(name, None)

    def _refuse(self, name: str, wanted: str) -> InvalidRequestError:
        return InvalidRequestError(f"{self._prefix}{name} must be {wanted}", path=self._prefix + name)

    def take(self, name: str, kind: type, default: Any) -> Any:
        value = self.raw(name)
        if value is not None and not isinstance(value, kind):
            wanted = "a string" if kind is str else "an object" if kind is dict else "a list"
            raise self._refuse(name, wanted)
        return default if value is None else value

    def flag(self, name: str, default: bool) -> bool:
        value = self.raw(name)
        if value is not None and not isinstance(value, bool):
            raise self._refuse(name, "true or false")
        return default if value is None else value

    def choice(self, name: str, allowed: tuple[str, ...], default: Any) -> Any:
        value = self.raw(name)
        if value is not None and value not in allowed:
            raise self._refuse(name, f"one of {', '.join(allowed)}")
        return default if value is None else value

    def integer(self, name: str, default: Any, *, low: int, high: int | None = None) -> Any:
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise self._refuse(name, f"a whole number from {low}")
        if high is not None and value > high:
            raise self._refuse(name, f"at most {high}")
        return value

    def number(self, name: str, default: float, *, low: float, high: float, open_low: bool = False) -> float:
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._refuse(name, "a number")
        if value < low or value > high or (open_low and value == low):
            raise self._refuse(name, f"{'above' if open_low else 'from'} {low:g} to {high:g}")
        return float(value)

    def finish(self) -> None:
        for name, value in self._left.items():
            if self._prefix == "" and (name in _INERT or value in _NEUTRAL.get(name, ())):
                continue
            raise InvalidRequestError(
                f"{self._prefix}{name} is not supported by this engine",
                path=self._prefix + name,
                hint="Leave the field out",
            )
