"""Token-in: the gateway renders prompts to ids itself, so that each prompt goes on bit for bit from the sampled ids.

A conversation's first prompt is rendered whole. A request that continues a step of ours, with the same tools and the
same renderer, keeps that step's prompt and reply as they are and adds the new messages (a bridge). Where a bridge is
not possible, the prompt is rendered anew and the step's fork reason says what differs.

History keeps its thinking (`thinking_retention: all`) unless the model's renderer settings say otherwise, as else each
user turn would strip it and start a new prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from agentworld.capture.call import Call
from agentworld.capture.sessions import Session
from agentworld.config import ModelSettings
from agentworld.dialects.exchange import Delta, Request, ToolCallDelta
from agentworld.engines.tokenizer import TokenizerAdapter, load_tokenizer
from agentworld.errors import ConfigError, ContextLengthError, EngineError, InvalidRequestError
from agentworld.gateway.context import cap_limit
from agentworld.gateway.escape import Escaper, EscapingTokenizer
from agentworld.gateway.reply_parser import ReplyParser, open_parser
from agentworld.records import Message, digest, new_id

INLINE_CHARACTERS = 8_000
"""Longer prompts are rendered in a thread, as that takes milliseconds."""

THINK_END = "</think>"
RENDERING_FAULTS = (ValueError, TypeError, KeyError, AssertionError, RecursionError)


class Rendering(msgspec.Struct, frozen=True):
    """A renderer with its settings. `digest` changes with whatever could change a prompt."""

    renderer: Any
    name: str
    digest: str
    stop_ids: tuple[int, ...]


class TokenIn:
    """Prompts and replies of one model as ids."""

    def __init__(self, settings: ModelSettings) -> None:
        assert settings.tokenizer is not None
        self._settings = settings
        self.tokenizer: TokenizerAdapter = load_tokenizer(settings.tokenizer)
        self.vocabulary: str = self.tokenizer.digest.hex()
        self._escaping = EscapingTokenizer(self.tokenizer)
        self._control = [token.content for token in self.tokenizer.backend.get_added_tokens_decoder().values()]
        self._renderings: dict[bytes, Rendering] = {}
        self.rendering({})

    def rendering(self, template: dict[str, Any]) -> Rendering:
        """The renderer for a request's template settings; InvalidRequestError for settings that it does not know."""
        key = msgspec.json.encode(template, order="sorted")
        known = self._renderings.get(key)
        if known is None:
            known = make_rendering(self._settings, self.tokenizer, self._escaping, template)
            if len(self._renderings) < 64:
                self._renderings[key] = known
        return known

    async def prepare(self, call: Call, session: Session) -> None:
        """Put the prompt's ids and the full sampling parameters on the call."""
        choice = call.request.sampling.tool_choice
        if choice not in (None, "auto", "none"):
            raise InvalidRequestError(
                "tool_choice required or a named function needs the engine's chat route, which token-in does not use",
                path="tool_choice",
                hint="Use auto, or serve this model with tokens = engine",
            )
        rendering = self.rendering(call.request.template)
        size = sum(len(message.text) for message in call.request.messages[call.match.depth if call.match else 0 :])
        if size > INLINE_CHARACTERS:
            await asyncio.to_thread(self._render, call, session, rendering)
        else:
            self._render(call, session, rendering)
        assert call.prompt_ids is not None
        sampling = call.sampling
        extra = tuple(token for token in rendering.stop_ids if token not in sampling.stop_token_ids)
        call.sampling = msgspec.structs.replace(sampling, stop_token_ids=(*sampling.stop_token_ids, *extra))
        self._check_length(call)

    def _check_length(self, call: Call) -> None:
        context, length = self._settings.context, len(call.prompt_ids or [])
        if context is None:
            return
        cap_limit(call, context, length)
        wanted = call.sampling.max_tokens or 1
        if length + wanted > context:
            raise ContextLengthError(
                f"the prompt has {length} tokens and {wanted} are asked for, but the context takes {context}",
                path="messages",
                hint="Shorten the conversation or max_tokens",
            )

    def _render(self, call: Call, session: Session, rendering: Rendering) -> None:
        escaper = Escaper(self._control)
        tools = escaper.json(call.tools) if call.tools else None
        prompt = self._bridge(call, session, rendering, tools, escaper)
        metadata = {"prompt": "bridged" if prompt is not None else "rendered"}
        if prompt is None:
            prompt = self._whole(call.request, rendering, tools, escaper)
        call.prompt_ids = list(prompt)
        call.renderer = rendering.digest
        call.metadata = {**call.metadata, **metadata}
        if escaper.count:
            call.metadata["escaped_control_tokens"] = escaper.count

    def _whole(self, request: Request, rendering: Rendering, tools: Any, escaper: Escaper) -> list[int]:
        """The whole conversation as ids, whatever was sampled before."""
        messages = [render_message(message, escaper) for message in request.messages]
        try:
            return list(rendering.renderer.render_ids(messages, tools=tools, add_generation_prompt=True))
        except RENDERING_FAULTS as error:
            raise InvalidRequestError(
                f"the conversation cannot be rendered for {self._settings.name}: {error}", path="messages"
            ) from error

    async def count(self, request: Request) -> int:
        """How many tokens the prompt has when it is rendered whole."""
        escaper = Escaper(self._control)
        tools = escaper.json(list(request.tools)) if request.tools and request.sampling.tool_choice != "none" else None
        rendering = self.rendering(request.template)
        return len(await asyncio.to_thread(self._whole, request, rendering, tools, escaper))

    def _bridge(
        self, call: Call, session: Session, rendering: Rendering, tools: Any, escaper: Escaper
    ) -> list[int] | None:
        """The continued step's ids and the new messages, or None where they cannot be joined."""
        tip = call.match.tip if call.match is not None else None
        if call.match is None or tip is None or tip.ids is None:
            return None
        new = call.request.messages[call.match.depth :]
        if not new or tip.tools != call.tools_key or session.renderers.get(tip.step_id) != rendering.digest:
            return None
        before = tip.ids.tolist()
        prompt, completion = before[: tip.prompt_length], before[tip.prompt_length :]
        closed = any(token in rendering.stop_ids for token in completion)
        if closed and completion[-1] not in rendering.stop_ids:
            # The reply went on after its close. Another close keeps the bridge from cutting it back to the first.
            completion = [*completion, rendering.stop_ids[0]]
        added = [render_message(message, escaper) for message in new]
        ids = _join(rendering, prompt, completion, added, tools)
        if ids is None and closed:
            ids = self._join_unfinished_thought(rendering, prompt, completion, added, tools)
        # Trust, but compare: the whole promise of token-in hangs on it.
        return ids if ids is not None and ids[: len(before)] == before else None

    def _join_unfinished_thought(
        self, rendering: Rendering, prompt: list[int], completion: list[int], added: list[dict[str, Any]], tools: Any
    ) -> list[int] | None:
        """The bridge over a reply that closed its turn inside a thought, which renderers refuse.

        What comes after a closed turn does not depend on what is in it. So the new messages are taken from the bridge
        over the same reply with its thought closed, and put after the reply as it is.
        """
        close = self.tokenizer.convert_tokens_to_ids(THINK_END)
        if not isinstance(close, int):
            return None
        end = next(at for at, token in enumerate(completion) if token in rendering.stop_ids)
        stand_in = [*completion[:end], close, completion[end]]
        ids = _join(rendering, prompt, stand_in, added, tools)
        length = len(prompt) + len(stand_in)
        if ids is None or ids[:length] != [*prompt, *stand_in]:
            return None
        return [*prompt, *completion, *ids[length:]]

    async def read(self, deltas: AsyncIterator[Delta], call: Call) -> AsyncIterator[Delta]:
        """The engine's deltas with text, reasoning and tool calls read from their ids."""
        rendering = self.rendering(call.request.template)
        parsers: dict[int, ReplyParser] = {}
        positions: dict[int, int] = {}
        async for delta in deltas:
            if delta.index < 0:
                yield delta
                continue
            parser = parsers.get(delta.index)
            if parser is None:
                parser = parsers[delta.index] = open_parser(rendering, self.tokenizer, call)
            if delta.ids is None and (delta.text or delta.finish_reason is not None):
                raise EngineError(
                    "the engine gave a reply without token ids, which token-in reads it from",
                    hint="Use an engine that knows return_token_ids, such as vLLM 0.10.2 or newer",
                )
            piece = parser.feed(delta.ids or [])
            if delta.finish_reason is not None:
                piece += parser.finish()
            begun = positions.get(delta.index, 0)
            positions[delta.index] = begun + len(piece.calls)
            delta.text, delta.reasoning = piece.text, piece.reasoning
            delta.tool_calls = tuple(
                ToolCallDelta(index=begun + place, id=new_id("call"), name=name, arguments=arguments)
                for place, (name, arguments) in enumerate(piece.calls)
            )
            if delta.finish_reason == "stop" and positions[delta.index]:
                delta.finish_reason = "tool_calls"
            if call.request.logprobs:
                delta.entries = self._entries(delta)
            yield delta

    def _entries(self, delta: Delta) -> list[dict[str, Any]]:
        """OpenAI log-probability objects for a delta's ids."""
        out = []
        tops = delta.entries or []
        for position, (token, value) in enumerate(zip(delta.ids or [], delta.logprobs or [], strict=False)):
            data = self.tokenizer.token_bytes(token)
            ranked = tops[position].get("tops", {}) if position < len(tops) else {}
            out.append(
                {
                    "token": data.decode("utf-8", "replace"),
                    "logprob": value if value is not None else -9999.0,
                    "bytes": list(data),
                    "top_logprobs": [
                        {"token": text, "logprob": number, "bytes": list(text.encode())}
                        for text, number in ranked.items()
                        if isinstance(number, int | float)
                    ],
                }
            )
        return out


def _join(
    rendering: Rendering, prompt: list[int], completion: list[int], added: list[dict[str, Any]], tools: Any
) -> list[int] | None:
    """The renderer's own bridge; None where it makes none."""
    try:
        joined = rendering.renderer.bridge_to_next_turn(prompt, completion, added, tools=tools)
    except RENDERING_FAULTS:
        return None
    return None if joined is None else list(joined.token_ids)


def open_token_in(settings: ModelSettings) -> TokenIn:
    """Token-in for a model with a tokenizer; ConfigError where tokenizer or renderer cannot be had."""
    return TokenIn(settings)


def make_rendering(
    settings: ModelSettings, tokenizer: TokenizerAdapter, escaping: EscapingTokenizer, template: dict[str, Any]
) -> Rendering:
    """The renderer that the model's settings name, or the one that fits its tokenizer."""
    from pydantic import TypeAdapter, ValidationError
    from renderers import RendererConfig, create_renderer

    options = dict(settings.renderer)
    options.setdefault("name", renderer_name(settings.name, tokenizer))
    kept = {"thinking_retention": "all"} if options["name"] not in ("default", "auto") else {}
    adapter: Any = TypeAdapter(RendererConfig)
    try:
        try:
            config = adapter.validate_python({**kept, **options})
        except ValidationError:
            # Some formats decide retention by settings of their own.
            config = adapter.validate_python(options)
    except ValidationError as error:
        raise ConfigError(
            f"the renderer settings of {settings.name} are wrong: {error.errors()[0]['msg']}", path="models.renderer"
        ) from error
    try:
        renderer = create_renderer(escaping, config, chat_template_kwargs=template or None)
    except (ValueError, TypeError, AssertionError, NotImplementedError) as error:
        if template:
            raise InvalidRequestError(f"chat_template_kwargs: {error}", path="chat_template_kwargs") from error
        raise ConfigError(
            f"the renderer {options['name']!r} does not fit the tokenizer of {settings.name}: {error}",
            path="models.renderer",
        ) from error
    described = msgspec.json.encode([config.model_dump(mode="json"), template, "cut-1"], order="sorted")
    return Rendering(
        renderer=renderer,
        name=options["name"],
        digest=digest(b"renderer", described, tokenizer.digest).hex(),
        stop_ids=tuple(renderer.get_stop_token_ids()),
    )


def renderer_name(model: str, tokenizer: TokenizerAdapter) -> str:
    """The renderer of a model that is known by name, or the one that renders like its own chat template."""
    from renderers.base import MODEL_RENDERER_MAP

    from agentworld.engines.chat_format import ChatFormat

    known = MODEL_RENDERER_MAP.get(model)
    if known is not None:
        return str(known)
    return "qwen3" if ChatFormat(tokenizer).family == "qwen3" else "default"


def render_message(message: Message, escaper: Escaper) -> dict[str, Any]:
    """A message as renderers take it. `developer` is `system` to them; several text parts are joined by newlines."""
    thinking = message.role == "assistant"
    parts = message.content if isinstance(message.content, tuple) else None
    text = message.text if parts is None else "\n".join(getattr(part, "text", "") for part in parts)
    out: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": escaper.text(text, thinking=thinking),
    }
    if message.reasoning is not None:
        out["reasoning_content"] = escaper.text(message.reasoning)
    if message.tool_calls:
        out["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": escaper.text(call.function.name),
                    "arguments": escaper.text(call.function.arguments),
                },
            }
            for call in message.tool_calls
        ]
    for name in ("tool_call_id", "name"):
        if getattr(message, name) is not None:
            out[name] = getattr(message, name)
    return out
