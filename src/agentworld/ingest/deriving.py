"""Ids for steps that have only text, by a tokenizer that the user names: rendered as the gateway renders prompts.

Such ids are what the model would have been shown and would have sampled for this text; nobody knows what it did sample.
So the step says `derived`, and has no log-probabilities. A reply that its ids would not give back stays text.
"""

from __future__ import annotations

import json
from typing import Any

from agentworld.config import ModelSettings
from agentworld.engines.tokenizer import load_tokenizer
from agentworld.gateway.escape import Escaper, EscapingTokenizer
from agentworld.gateway.rendering import RENDERING_FAULTS, make_rendering, render_messages
from agentworld.records import Message, Step


class Deriver:
    """Renders steps with one tokenizer and the renderer that fits it; ConfigError where there is none."""

    def __init__(self, tokenizer: str) -> None:
        self._tokenizer = load_tokenizer(tokenizer)
        escaping = EscapingTokenizer(self._tokenizer)
        self._control = [token.content for token in self._tokenizer.backend.get_added_tokens_decoder().values()]
        # No engine is asked: the settings only choose the renderer.
        settings = ModelSettings(name=self._tokenizer.name_or_path or tokenizer, upstream="", tokenizer=tokenizer)
        self._rendering = make_rendering(settings, self._tokenizer, escaping, {})
        self.vocabulary: str = self._tokenizer.digest.hex()

    def derive(self, step: Step) -> str | None:
        """Put ids on a step that has none; says why where it cannot."""
        if step.response_ids is not None or step.response_message is None or step.prompt_messages is None:
            return None
        messages = [*step.prompt_messages, step.response_message]
        if any(message.media for message in messages):
            return "it shows media, which are not rendered"
        escaper = Escaper(self._control)
        try:
            tools = escaper.json(step.tools) if step.tools else None
            rendered = render_messages(messages, escaper)
            renderer = self._rendering.renderer
            prompt = list(renderer.render_ids(rendered[:-1], tools=tools, add_generation_prompt=True))
            whole = renderer.render(rendered, tools=tools)
            ids, sampled = list(whole.token_ids), list(whole.sampled_mask)
            if ids[: len(prompt)] != prompt:
                return "the template writes the reply otherwise than after its prompt"
            reply, mask = self._reply(ids[len(prompt) :], sampled[len(prompt) :])
            if (what := self._unlike(reply, prompt, step.response_message, step.tools)) is not None:
                return f"the reply's ids would not be read back as the reply's {what}"
        except (*RENDERING_FAULTS, UnicodeEncodeError) as error:
            return f"it cannot be rendered: {str(error)[:200]}"
        step.prompt_ids, step.response_ids, step.response_mask = prompt, reply, mask
        step.prompt_length, step.response_length = len(prompt), len(reply)
        step.token_source, step.vocabulary = "derived", self.vocabulary
        step.metadata = {**step.metadata, "renderer": self._rendering.digest}
        return None

    def _reply(self, ids: list[int], sampled: list[bool]) -> tuple[list[int], list[int] | None]:
        """The reply up to the end of its turn, and which of it a model samples; without the template's own ending."""
        if sampled:
            end = max((at + 1 for at, own in enumerate(sampled) if own), default=0)
            mask = [int(own) for own in sampled[:end]]
            return ids[:end], None if all(mask) else mask
        stops = set(self._rendering.stop_ids)
        end = max((at + 1 for at, token in enumerate(ids) if token in stops), default=len(ids))
        return ids[:end], None

    def _unlike(self, ids: list[int], prompt: list[int], said: Message, tools: Any) -> str | None:
        """What of a reply its ids would give back otherwise; None where they give all of it back."""
        stops = set(self._rendering.stop_ids)
        own = ids[:-1] if ids and ids[-1] in stops else ids
        parsed = self._rendering.renderer.parse_response(own, tools=tools, prompt_ids=prompt)
        calls = [(call.name, _value(call.arguments)) for call in parsed.tool_calls]
        wanted = [(call.function.name, _value(call.function.arguments)) for call in said.tool_calls]
        for what, mine, its in (
            ("reasoning", said.reasoning or "", parsed.reasoning_content or ""),
            ("text", said.text, parsed.content),
        ):
            if mine != its:
                return f"{what}, which has white space around it" if mine.strip() == its.strip() else what
        return None if calls == wanted else "calls"


def _value(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
