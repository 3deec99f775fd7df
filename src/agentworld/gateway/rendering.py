"""Renderers: a model's messages as ids, with everything that could change a prompt in one digest."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import msgspec

from agentworld.config import ModelSettings
from agentworld.engines.tokenizer import TokenizerAdapter
from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.gateway.escape import Escaper, EscapingTokenizer
from agentworld.records import Message, digest

MAX_KEPT = 64
MAX_KEPT_BYTES = 4096
TEMPLATE = "template"
"""The retention of a model's own chat template."""
RENDERING_FAULTS = (ValueError, TypeError, KeyError, AssertionError, RecursionError)


class Rendering(msgspec.Struct, frozen=True):
    """A renderer with its settings. `digest` changes with whatever could change a prompt; `retention`: which thinking
    of earlier turns stays in prompts (`all`, `tool_cycle` or `template`).
    """

    renderer: Any
    name: str
    digest: str
    stop_ids: tuple[int, ...]
    retention: str


class Renderings:
    """The renderers of one model, one for each template settings that requests come with. From any thread.

    Making one takes milliseconds and up. Those used last are kept, `MAX_KEPT` of them, and what several calls want at
    once is made once. One for settings of over `MAX_KEPT_BYTES` is for those who wait for it alone, as what callers
    write must not pile up.
    """

    def __init__(self, settings: ModelSettings, tokenizer: TokenizerAdapter, escaping: EscapingTokenizer) -> None:
        self._of = (settings, tokenizer, escaping)
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, Future[Rendering]] = OrderedDict()

    def known(self, template: dict[str, Any]) -> Rendering | None:
        """The renderer where it is there, made without a fault."""
        key, _ = _key(template)
        with self._lock:
            made = self._kept.get(key)
            if made is None or not made.done():
                return None
            self._kept.move_to_end(key)
        return made.result()

    def get(self, template: dict[str, Any]) -> Rendering:
        """The renderer, made or waited for; InvalidRequestError for settings that it does not know."""
        key, size = _key(template)
        with self._lock:
            made = self._kept.get(key)
            begins = made is None
            if made is None:
                made = self._kept[key] = Future()
                if len(self._kept) > MAX_KEPT:
                    self._kept.popitem(last=False)  # Who waits for it has it all the same.
            self._kept.move_to_end(key)
        if begins:
            try:
                made.set_result(make_rendering(*self._of, template))
                stays = size <= MAX_KEPT_BYTES
            except BaseException as error:
                made.set_exception(error)
                stays = False  # Callers could fill the place with what fails.
            if not stays:
                with self._lock:
                    if self._kept.get(key) is made:
                        del self._kept[key]
        return made.result()


def _key(template: dict[str, Any]) -> tuple[bytes, int]:
    """A key that is short, whatever a caller sends as settings, and how long those are."""
    data = msgspec.json.encode(template, order="sorted")
    return digest(b"template", data), len(data)


def make_rendering(
    settings: ModelSettings, tokenizer: TokenizerAdapter, escaping: EscapingTokenizer, template: dict[str, Any]
) -> Rendering:
    """The renderer that the model's settings name, or the one that fits its tokenizer."""
    from pydantic import TypeAdapter, ValidationError
    from renderers import RendererConfig, create_renderer

    options = dict(settings.renderer)
    options.setdefault("name", renderer_name(settings.name, tokenizer))
    kept = {"thinking_retention": "all"} if options["name"] not in ("default", "auto") else {}
    if options.get("thinking_retention") == TEMPLATE:
        kept = {}
        del options["thinking_retention"]
    adapter: Any = TypeAdapter(RendererConfig)
    try:
        try:
            config = adapter.validate_python({**kept, **options})
        except ValidationError:
            # Some formats decide retention by settings of their own.
            config = adapter.validate_python(options)
    except ValidationError as error:
        wrong = error.errors()[0]
        field = wrong["loc"][-1] if len(wrong["loc"]) > 1 else None  # Behind the name of the renderer.
        raise ConfigError(
            f"the renderer settings of {settings.name} are wrong: {wrong['msg']}",
            path="models.renderer" if field is None else f"models.renderer.{field}",
            hint=f"Or {TEMPLATE}, what the chat template does by itself" if field == "thinking_retention" else None,
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
        retention=str(getattr(renderer, "effective_thinking_retention", TEMPLATE)),
    )


def renderer_name(model: str, tokenizer: TokenizerAdapter) -> str:
    """The renderer of a model that is known by name, or the one that renders like its own chat template."""
    from renderers.base import MODEL_RENDERER_MAP

    from agentworld.engines.chat_format import ChatFormat

    known = MODEL_RENDERER_MAP.get(model)
    if known is not None:
        return str(known)
    return "qwen3" if ChatFormat(tokenizer).family == "qwen3" else "default"


def render_messages(messages: Sequence[Message], escaper: Escaper) -> list[dict[str, Any]]:
    """Messages as renderers take them; what is refused in them is named by its place."""
    out = []
    for position, message in enumerate(messages):
        escaper.place = f"message {position} ({message.role})"
        out.append(render_message(message, escaper))
    return out


def render_message(message: Message, escaper: Escaper) -> dict[str, Any]:
    """A message as renderers take it. `developer` is `system` to them; several text parts are joined by newlines."""
    own = message.role == "assistant"
    parts = message.content if isinstance(message.content, tuple) else None
    text = message.text if parts is None else "\n".join(getattr(part, "text", "") for part in parts)
    out: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": escaper.text(text, own=own, thinking=own),
    }
    if message.reasoning is not None:
        out["reasoning_content"] = escaper.text(message.reasoning, own=own)
    if message.tool_calls:
        out["tool_calls"] = [
            {
                "id": escaper.text(call.id, own=own),
                "type": "function",
                "function": {
                    "name": escaper.text(call.function.name, own=own),
                    "arguments": escaper.text(call.function.arguments, own=own),
                },
            }
            for call in message.tool_calls
        ]
    for name in ("tool_call_id", "name"):
        if (value := getattr(message, name)) is not None:
            out[name] = escaper.text(value, own=own)
    return out
