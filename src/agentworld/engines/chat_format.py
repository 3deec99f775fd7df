"""A model's chat format: messages to prompt ids, reply ids to content, reasoning and tool calls.

Qwen3's format has a dedicated renderer; any other model uses its own Jinja template, without tool calls.
`renderers` is imported on first use: it costs over half a second.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from agentworld.engines.tokenizer import QWEN_CONTROL_TOKENS, TokenizerAdapter
from agentworld.errors import InvalidRequestError

_PROBE: list[dict[str, Any]] = [
    {"role": "system", "content": "a"},
    {"role": "user", "content": "b"},
]
_PROBE_TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
]


class ParsedReply(msgspec.Struct, frozen=True):
    """A reply as a message. `tool_calls` holds (name, arguments as JSON text) of the well-formed calls."""

    content: str
    reasoning: str | None = None
    tool_calls: tuple[tuple[str, str], ...] = ()


class ChatFormat:
    """Renders and parses for one tokenizer. `family` is `qwen3` or `template`."""

    def __init__(self, tokenizer: TokenizerAdapter) -> None:
        self.tokenizer = tokenizer
        self._renderers: dict[str, Any] = {}
        self.family = "qwen3" if self._is_qwen3() else "template"
        ids = tokenizer.convert_tokens_to_ids
        self._think_end = ids("</think>")
        self.markup_ids: frozenset[int] = frozenset(i for i in (ids("<think>"), ids("<tool_call>")) if i is not None)
        """Ids after which the text of a reply is no longer plain content."""

    def _is_qwen3(self) -> bool:
        known = self.tokenizer.convert_tokens_to_ids([text for text, _ in QWEN_CONTROL_TOKENS])
        if any(i is None for i in known):
            return False
        if self.tokenizer.chat_template is None:
            return True
        # The same tokens serve several generations of templates: only one that renders alike is the same format.
        for tools in (None, _PROBE_TOOLS):
            ours = self._qwen3({}).render_ids(_PROBE, tools=tools, add_generation_prompt=True)
            theirs = self.tokenizer.apply_chat_template(_PROBE, tools=tools, add_generation_prompt=True)
            if ours != theirs:
                return False
        return True

    def _qwen3(self, options: dict[str, Any]) -> Any:
        unknown = set(options) - {"enable_thinking"}
        if unknown:
            name = min(unknown)
            raise InvalidRequestError(
                f"chat_template_kwargs.{name} is unknown to this model's chat format",
                path=f"chat_template_kwargs.{name}",
                hint="Qwen3 takes enable_thinking",
            )
        thinking = options.get("enable_thinking", True)
        if not isinstance(thinking, bool):
            raise InvalidRequestError(
                "chat_template_kwargs.enable_thinking must be true or false",
                path="chat_template_kwargs.enable_thinking",
            )
        key = f"qwen3:{thinking}"
        if key not in self._renderers:
            from renderers import Qwen3RendererConfig, create_renderer

            self._renderers[key] = create_renderer(self.tokenizer, Qwen3RendererConfig(enable_thinking=thinking))
        return self._renderers[key]

    def _default(self) -> Any:
        if "default" not in self._renderers:
            from renderers import DefaultRendererConfig, create_renderer

            self._renderers["default"] = create_renderer(self.tokenizer, DefaultRendererConfig())
        return self._renderers["default"]

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a turn."""
        renderer = self._qwen3({}) if self.family == "qwen3" else self._default()
        return tuple(renderer.get_stop_token_ids())

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] = (),
        options: dict[str, Any] | None = None,
    ) -> list[int]:
        """Prompt ids that end with the opening of the assistant's turn. `options` are template settings."""
        given = list(messages)
        if self.family == "qwen3":
            renderer = self._qwen3(options or {})
            return list(renderer.render_ids(given, tools=list(tools) or None, add_generation_prompt=True))
        settings = dict(options or {})
        for name in settings.keys() & {"tools", "messages", "tokenize", "add_generation_prompt"}:
            raise InvalidRequestError(f"chat_template_kwargs.{name} is reserved", path=f"chat_template_kwargs.{name}")
        plain = self.tokenizer.apply_chat_template(given, add_generation_prompt=True, **settings)
        if not tools:
            return list(plain)
        full = self.tokenizer.apply_chat_template(given, tools=tools, add_generation_prompt=True, **settings)
        if full == plain:
            raise InvalidRequestError("this model's chat template has no place for tools", path="tools")
        return list(full)

    def parse(
        self,
        ids: Sequence[int],
        *,
        prompt_ids: Sequence[int],
        tools: Sequence[dict[str, Any]] = (),
        parallel: bool = True,
        skip_special_tokens: bool = True,
    ) -> ParsedReply:
        """Read a reply, given without its stop token.

        Tool calls are looked for only where tools were offered. A call that is cut or malformed stays in the
        content as it was written. With `parallel=False` only the first call is kept.
        """
        body = list(ids)

        def text(part: list[int]) -> str:
            return self.tokenizer.decode(part, skip_special_tokens=skip_special_tokens)

        if self.family != "qwen3":
            parsed = self._default().parse_response(body, prompt_ids=list(prompt_ids))
            if not parsed.reasoning_content:
                return ParsedReply(text(body))
            return ParsedReply(parsed.content.lstrip("\n"), parsed.reasoning_content.strip("\n"))
        parsed = self._qwen3({}).parse_response(body, prompt_ids=list(prompt_ids))
        reasoning = parsed.reasoning_content
        if parsed.reasoning_complete is False:
            return ParsedReply("", (reasoning or "").strip("\n"))
        attempts = [call for call in parsed.tool_calls if call.token_span is not None]
        start = 0
        if self._think_end in body and (reasoning or self._opens_thinking(body, prompt_ids)):
            start = body.index(self._think_end) + 1
        elif reasoning and attempts:  # the call itself ended the reasoning
            start = attempts[0].token_span[0]
        calls = [call for call in attempts if str(call.status) == "ok"] if tools else []
        if not parallel:
            calls = calls[:1]
        pieces, position = [], start
        for call in attempts:
            begin, end = call.token_span
            if call in calls or (not parallel and tools and str(call.status) == "ok"):
                pieces.append(text(body[position:begin]))
                position = max(end, position)
        pieces.append(text(body[position:]))
        content = "".join(pieces)
        if start:
            content = content.lstrip("\n")
        if calls:
            content = content.rstrip()
        return ParsedReply(content, reasoning, tuple((call.name, _arguments(call)) for call in calls))

    def _opens_thinking(self, body: list[int], prompt_ids: Sequence[int]) -> bool:
        """Whether the reply starts inside or with a think block, which may be empty."""
        from renderers.reasoning import prompt_ends_in_reasoning, scan_reasoning

        stops = set(self.stop_ids)
        prefilled = prompt_ends_in_reasoning(self.tokenizer, list(prompt_ids), stop_ids=stops)
        return scan_reasoning(self.tokenizer, body, prefilled=prefilled).text is not None


def _arguments(call: Any) -> str:
    if isinstance(call.arguments, str):
        return call.arguments
    return json.dumps(call.arguments, ensure_ascii=False)
