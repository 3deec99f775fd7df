"""Token-in: the gateway renders prompts to ids itself, so that each prompt goes on bit for bit from the sampled ids.

A conversation's first prompt is rendered whole. A request that continues a step of ours, with the same tools and the
same renderer, keeps that step's prompt and reply as they are and adds the new messages (a bridge). Where a bridge is
not possible, the prompt is rendered anew and the step's fork reason says what differs.

A reply whose beginning stands last in the request is written on: from the ids of the step that ended there, or, where
the caller wrote it, from its rendering. What is put before the engine's first id is prompt, whoever said it.

History keeps its thinking (`thinking_retention: all`) unless the model's renderer settings say otherwise, as else each
user turn would strip it and start a new prompt. Which it is stands on each step (`thinking_retention`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from agentworld.capture.call import Call
from agentworld.capture.sessions import Session
from agentworld.config import ModelSettings
from agentworld.dialects.exchange import Delta, Request, ToolCallDelta
from agentworld.engines.detokenize import StopStrings, TextStream
from agentworld.engines.tokenizer import TokenizerAdapter, load_tokenizer
from agentworld.errors import ContextLengthError, EngineError, InvalidRequestError
from agentworld.forest import Tip
from agentworld.gateway.bridging import Prompt, begun, bridge, written_on
from agentworld.gateway.context import cap_limit
from agentworld.gateway.escape import Escaper, EscapingTokenizer
from agentworld.gateway.large import weight
from agentworld.gateway.rendering import RENDERING_FAULTS, Rendering, Renderings, render_messages
from agentworld.gateway.reply_parser import ReplyParser, open_parser
from agentworld.records import Message, Tool, new_id

INLINE_CHARACTERS = 8_000
"""Longer prompts are rendered in a thread, as that takes milliseconds."""


class TokenIn:
    """Prompts and replies of one model as ids."""

    def __init__(self, settings: ModelSettings) -> None:
        assert settings.tokenizer is not None
        self._settings = settings
        self.tokenizer: TokenizerAdapter = load_tokenizer(settings.tokenizer)
        self.vocabulary: str = self.tokenizer.digest.hex()
        self._escaping = EscapingTokenizer(self.tokenizer)
        self._control = [token.content for token in self.tokenizer.backend.get_added_tokens_decoder().values()]
        self._renderings = Renderings(settings, self.tokenizer, self._escaping)
        self.rendering({})

    def rendering(self, template: dict[str, Any]) -> Rendering:
        """The renderer for a request's template settings; InvalidRequestError for settings that it does not know."""
        return self._renderings.get(template)

    async def _rendering(self, template: dict[str, Any]) -> Rendering:
        """`rendering`, made beside the event loop where it has to be made."""
        known = self._renderings.known(template)
        return known if known is not None else await asyncio.to_thread(self._renderings.get, template)

    async def prepare(self, call: Call, session: Session) -> None:
        """Put the prompt's ids and the full sampling parameters on the call."""
        rendering = await self._rendering(call.request.template)
        known = call.match.depth if call.match is not None and self._base(call, session, rendering) is not None else 0
        if weight(call.request.messages[known:], INLINE_CHARACTERS) > INLINE_CHARACTERS:
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
        escaper = self._escaper()
        tools = self._tools(call.tools, escaper)
        prompt = self._prompt(call, session, rendering, tools, escaper)
        call.prompt_ids = prompt.ids
        call.renderer = rendering.digest
        call.metadata = {**call.metadata, "prompt": prompt.how, "thinking_retention": rendering.retention}
        if prompt.lead:
            call.metadata["prefilled"] = prompt.lead
        if escaper.count:
            call.metadata["escaped_control_tokens"] = escaper.count

    def _escaper(self) -> Escaper:
        return Escaper(self._control, refuse=self._settings.control_tokens == "refuse")

    def _tools(self, tools: Sequence[Tool], escaper: Escaper) -> Any:
        escaper.place = "the tools"
        return escaper.json(list(tools)) if tools else None

    def _prompt(self, call: Call, session: Session, rendering: Rendering, tools: Any, escaper: Escaper) -> Prompt:
        messages = call.request.messages
        tip = self._base(call, session, rendering)
        depth = call.match.depth if call.match is not None else 0
        reply = None
        if call.request.continue_final:
            if tip is not None and depth == len(messages):
                found = written_on(rendering, tip, session.leads.get(tip.step_id, 0))
                if found is not None:
                    return found
            *_, reply = render_messages(messages, escaper)
            messages = messages[:-1]
        ids = None
        how = "bridged"
        if tip is not None and depth < len(messages):
            marked = escaper.count
            ids = bridge(rendering, self.tokenizer, tip, render_messages(messages[depth:], escaper), tools)
            escaper.count = escaper.count if ids is not None else marked
        if ids is None:
            ids, how = self._whole(messages, rendering, tools, escaper), "rendered"
        if reply is None:
            return Prompt(ids, how)
        return begun(rendering, self.tokenizer, ids, how, reply, self._settings.name)

    def _whole(self, messages: Sequence[Message], rendering: Rendering, tools: Any, escaper: Escaper) -> list[int]:
        """The whole conversation as ids, whatever was sampled before."""
        rendered = render_messages(messages, escaper)
        try:
            return list(rendering.renderer.render_ids(rendered, tools=tools, add_generation_prompt=True))
        except RENDERING_FAULTS as error:
            raise InvalidRequestError(
                f"the conversation cannot be rendered for {self._settings.name}: {error}", path="messages"
            ) from error

    async def count(self, request: Request) -> int:
        """How many tokens the prompt has when it is rendered whole."""
        return await asyncio.to_thread(self._count, request)

    def _count(self, request: Request) -> int:
        escaper, rendering = self._escaper(), self.rendering(request.template)
        tools = self._tools(request.tools if request.sampling.tool_choice != "none" else (), escaper)
        if not request.continue_final:
            return len(self._whole(request.messages, rendering, tools, escaper))
        *_, reply = render_messages(request.messages, escaper)
        ids = self._whole(request.messages[:-1], rendering, tools, escaper)
        return len(begun(rendering, self.tokenizer, ids, "rendered", reply, self._settings.name).ids)

    def _base(self, call: Call, session: Session, rendering: Rendering) -> Tip | None:
        """The continued step, where its ids may be built upon: the same tools and the same renderer."""
        tip = call.match.tip if call.match is not None else None
        if tip is None or tip.ids is None or tip.tools != call.tools_key:
            return None
        return tip if session.renderers.get(tip.step_id) == rendering.digest else None

    async def read(self, deltas: AsyncIterator[Delta], call: Call) -> AsyncIterator[Delta]:
        """The engine's deltas with text, reasoning and tool calls read from their ids."""
        rendering = await self._rendering(call.request.template)
        parsers: dict[int, ReplyParser] = {}
        positions: dict[int, int] = {}
        watches: dict[int, _StopWatch] = {}
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
            if call.sampling.stop:
                watch = watches.get(delta.index) or _StopWatch(self.tokenizer, call.sampling.stop)
                watches[delta.index] = watch
                if watch.passed(delta.ids or []):
                    delta.fault = delta.fault or "the engine went on after a stop string"
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
                delta.entries = self.entries(delta.ids or [], delta.logprobs or [], delta.entries or [])
            yield delta

    def entries(
        self, ids: Sequence[int], logprobs: Sequence[float | None], tops: Sequence[dict[str, Any]] = ()
    ) -> list[dict[str, Any]]:
        """OpenAI log-probability objects for ids; `tops`: with alternatives as completions have them."""
        out = []
        for position, (token, value) in enumerate(zip(ids, logprobs, strict=False)):
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


class _StopWatch:
    """Tells whether ids come after a stop string, which the text of the reply ends at."""

    def __init__(self, tokenizer: TokenizerAdapter, stops: Sequence[str]) -> None:
        self._text = TextStream(tokenizer)
        self._stops = StopStrings(stops, include=False)

    def passed(self, ids: Sequence[int]) -> bool:
        """Take the ids of a piece."""
        for token in ids:
            if self._stops.found is not None:
                return True
            self._stops.feed(self._text.feed([token]))
        return False


def open_token_in(settings: ModelSettings) -> TokenIn:
    """Token-in for a model with a tokenizer; ConfigError where tokenizer or renderer cannot be had."""
    return TokenIn(settings)
