"""Canonical request -> body of Anthropic's Messages API.

System and developer messages become `system`, wherever they stood. Results of tools are blocks of the user's next
message. Ids of tool calls that the API would not take, or that repeat, are changed, as they only tie results to calls
within one request. Thinking of earlier turns is left out: without the service's signature it takes none back.
`max_tokens` is `DEFAULT_MAX_TOKENS` where the caller set none, which the step's metadata says.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from agentworld.dialects.exchange import Request
from agentworld.dialects.messages_blocks import arguments_object
from agentworld.errors import InvalidRequestError
from agentworld.records import MediaPart, Message, Sampling, Tool

DEFAULT_MAX_TOKENS = 8192
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NEUTRAL = {
    "min_p": (None, 0.0),
    "min_tokens": (None, 0),
    "stop_token_ids": ((),),
    "seed": (None,),
    "n": (1,),
    "presence_penalty": (None, 0.0),
    "frequency_penalty": (None, 0.0),
    "repetition_penalty": (None, 1.0),
    "logit_bias": (None,),
}


def translated(request: Request) -> dict[str, Any]:
    """The body without model and stream; InvalidRequestError for what the API has no place for."""
    _refuse(request)
    sampling = request.sampling
    body: dict[str, Any] = {"max_tokens": sampling.max_tokens or DEFAULT_MAX_TOKENS}
    system = [
        {"type": "text", "text": message.text}
        for message in request.messages
        if message.role in ("system", "developer") and message.text
    ]
    if system:
        body["system"] = system
    body["messages"] = _Conversation(request).messages()
    for name in ("temperature", "top_p"):
        if getattr(sampling, name) is not None:
            body[name] = getattr(sampling, name)
    if sampling.top_k:
        body["top_k"] = sampling.top_k
    if sampling.stop:
        body["stop_sequences"] = list(sampling.stop)
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        choice = _choice(sampling)
        if choice is not None:
            body["tool_choice"] = choice
    output: dict[str, Any] = {}
    if sampling.response_format is not None:
        output["format"] = _format(sampling.response_format)
    effort = request.template.get("reasoning_effort")
    if effort is not None:
        output["effort"] = "low" if effort == "minimal" else effort
    if output:
        body["output_config"] = output
    if request.template.get("enable_thinking") is False:
        body["thinking"] = {"type": "disabled"}
    return body


def refuse_unknown(sampling: Sampling) -> None:
    """InvalidRequestError for a sampling field that the API lacks, be it the caller's or one that a channel fixes."""
    for name, neutral in _NEUTRAL.items():
        if getattr(sampling, name) not in neutral:
            raise InvalidRequestError(
                f"{name} is not known to Anthropic's API",
                path=name,
                hint="Leave it out of the request, or of what the channel fixes",
            )


def _refuse(request: Request) -> None:
    refuse_unknown(request.sampling)
    if request.logprobs:
        raise InvalidRequestError("Anthropic's API gives no log-probabilities", path="logprobs", hint="Leave it out")
    unknown = request.template.keys() - {"reasoning_effort", "enable_thinking"}
    if unknown or request.template.get("enable_thinking") not in (None, False):
        raise InvalidRequestError(
            "of template settings Anthropic's API knows enable_thinking: false and reasoning_effort only",
            path="chat_template_kwargs",
            hint="Leave it out, or call this model by /v1/messages to set thinking",
        )


def _tool(tool: Tool) -> dict[str, Any]:
    function = tool["function"]
    out: dict[str, Any] = {"name": function["name"]}
    if function.get("description"):
        out["description"] = function["description"]
    out["input_schema"] = function.get("parameters") or {"type": "object", "properties": {}}
    if function.get("strict"):
        out["strict"] = True
    return out


def _choice(sampling: Sampling) -> dict[str, Any] | None:
    choice = sampling.tool_choice
    out: dict[str, Any]
    if isinstance(choice, dict):
        out = {"type": "tool", "name": choice["function"]["name"]}
    elif choice is None and sampling.parallel_tool_calls is not False:
        return None
    else:
        out = {"type": {None: "auto", "required": "any"}.get(choice, choice)}
    if sampling.parallel_tool_calls is False and out["type"] != "none":
        out["disable_parallel_tool_use"] = True
    return out


def _format(response_format: dict[str, Any]) -> dict[str, Any]:
    described = response_format.get("json_schema")
    schema = described.get("schema") if isinstance(described, dict) else None
    if response_format.get("type") != "json_schema" or not isinstance(schema, dict):
        raise InvalidRequestError(
            "Anthropic's API takes a response_format of type json_schema only",
            path="response_format",
            hint="Send a JSON schema",
        )
    return {"type": "json_schema", "schema": schema}


class _Conversation:
    """Messages in turns of user and assistant."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._turns: list[dict[str, Any]] = []
        self._used: set[str] = set()
        self._ids: dict[str, list[str]] = {}

    def messages(self) -> list[dict[str, Any]]:
        """All turns; those without anything that the API takes are left out."""
        for message in self._request.messages:
            if message.role == "assistant":
                self._add("assistant", self._assistant(message))
            elif message.role == "tool":
                self._add("user", [self._result(message)])
            elif message.role == "user":
                self._add("user", self._parts(message))
        return self._turns

    def _add(self, role: str, blocks: list[dict[str, Any]]) -> None:
        if not blocks:
            return
        if self._turns and self._turns[-1]["role"] == role:
            self._turns[-1]["content"].extend(blocks)
        else:
            self._turns.append({"role": role, "content": blocks})

    def _parts(self, message: Message) -> list[dict[str, Any]]:
        if not isinstance(message.content, tuple):
            return [{"type": "text", "text": message.text}] if message.text else []
        out: list[dict[str, Any]] = []
        for part in message.content:
            if isinstance(part, MediaPart):
                out.append(self._image(part))
            elif part.text:
                out.append({"type": "text", "text": part.text})
        return out

    def _image(self, part: MediaPart) -> dict[str, Any]:
        data = self._request.media.get(part.digest)
        if data is None or not part.media_type.startswith("image/"):
            raise InvalidRequestError(f"media of type {part.media_type} cannot be sent to this model", path="messages")
        source = {"type": "base64", "media_type": part.media_type, "data": base64.b64encode(data).decode()}
        return {"type": "image", "source": source}

    def _assistant(self, message: Message) -> list[dict[str, Any]]:
        text = message.text
        out: list[dict[str, Any]] = [{"type": "text", "text": text}] if text.strip() else []
        self._ids = {}
        for call in message.tool_calls:
            own = call.id if _ID.fullmatch(call.id) and call.id not in self._used else f"call_{len(self._used)}"
            while own in self._used:
                own += "_"
            self._used.add(own)
            self._ids.setdefault(call.id, []).append(own)
            value = arguments_object(call.function.arguments)
            out.append({"type": "tool_use", "id": own, "name": call.function.name, "input": value})
        return out

    def _result(self, message: Message) -> dict[str, Any]:
        known = message.tool_call_id or ""
        waiting = self._ids.get(known) or [known]
        # Calls of one turn may share an id; their results come in the order of the calls.
        own = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        out: dict[str, Any] = {"type": "tool_result", "tool_use_id": own}
        content = self._parts(message)
        if content:
            out["content"] = content
        return out
