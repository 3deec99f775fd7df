"""Messages as trainers take them: the shape of OpenAI chat, with reasoning as `reasoning_content`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from agentworld.curation.exports.columns import NotPlain, check_text
from agentworld.curation.exports.options import Arguments, Thinking
from agentworld.errors import NotFoundError
from agentworld.records import MediaPart, Message, TextPart, ToolCall

_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
Media = Callable[[str], bytes]


_MOST_RENDERED = 20_000
_MOST_IMAGE_BYTES = 64 << 20


class _Rendered(NamedTuple):
    """What became of a message, which is held so that its id stays its own: `images`, their digests, or `reason`."""

    message: Message
    said: dict[str, Any]
    images: list[str]
    reason: str | None = None


class Renderer:
    """Renders messages as serving does: `developer` is `system`, texts of one message are joined by newlines.

    `media` reads the bytes of an image; null refuses images.
    """

    def __init__(self, *, thinking: Thinking = "keep", arguments: Arguments = "json", media: Media | None = None):
        self.thinking = thinking
        self.arguments = arguments
        self._media = media
        self._rendered: dict[tuple[int, bool, bool], _Rendered] = {}
        self._images: dict[str, bytes] = {}
        self._image_bytes = 0

    def forget(self) -> None:
        """Let go of what was rendered: rows of one trajectory repeat its messages, those of the next have others."""
        self._rendered.clear()
        self._images.clear()
        self._image_bytes = 0

    def messages(
        self, messages: Sequence[Message], images: list[dict[str, Any]] | None = None, *, last: int | None = None
    ) -> list[dict[str, Any]]:
        """The messages; their images are added to `images`. `last`: the one that keeps its reasoning under `last`,
        of these the last one of the assistant where nothing is said; -1 for none.
        """
        if last is None:
            own = [index for index, message in enumerate(messages) if message.role == "assistant"]
            last = own[-1] if own else -1
        return [self.message(each, images, is_last=index == last) for index, each in enumerate(messages)]

    def message(self, message: Message, images: list[dict[str, Any]] | None = None, *, is_last: bool) -> dict[str, Any]:
        """One message, which others may be given too; raises NotPlain with the reason where it cannot be said."""
        keeps = message.reasoning is not None and (self.thinking == "keep" or (self.thinking == "last" and is_last))
        key = (id(message), keeps, images is not None)
        rendered = self._rendered.get(key)
        if rendered is None:
            if len(self._rendered) >= _MOST_RENDERED:
                self._rendered.clear()
            rendered = self._rendered[key] = self._render(message, keeps=keeps, with_images=images is not None)
        if rendered.reason is not None:
            raise NotPlain(rendered.reason)
        if images is not None:
            images += [self._image(digest) for digest in rendered.images]
        return rendered.said

    def _render(self, message: Message, *, keeps: bool, with_images: bool) -> _Rendered:
        images: list[str] = []
        try:
            return _Rendered(message, self._said(message, images if with_images else None, keeps=keeps), images)
        except NotPlain as reason:
            return _Rendered(message, {}, images, str(reason))

    def _said(self, message: Message, images: list[str] | None, *, keeps: bool) -> dict[str, Any]:
        role = "system" if message.role == "developer" else message.role
        out: dict[str, Any] = {"role": role, "content": self._content(message, images)}
        if keeps:
            out["reasoning_content"] = message.reasoning
        if message.tool_calls:
            out["tool_calls"] = [self._call(call) for call in message.tool_calls]
        if message.tool_call_id is not None:
            out["tool_call_id"] = message.tool_call_id
        if message.name is not None:
            out["name"] = message.name
        check_text(out)  # Loaders leave half a surrogate pair out without a word.
        return out

    def _content(self, message: Message, images: list[str] | None) -> Any:
        parts = message.content if isinstance(message.content, tuple) else (TextPart(message.content or ""),)
        if self._media is None or images is None:
            if message.media:
                raise NotPlain("media")
            # As it is served: templates take null for the word None, and parts for nothing at all.
            return "\n".join(part.text for part in parts if isinstance(part, TextPart))
        # All contents are parts, as loaders put the images of a row before its first text otherwise.
        return [self._part(each, images) for each in parts]

    @staticmethod
    def _part(part: TextPart | MediaPart, images: list[str]) -> dict[str, Any]:
        if isinstance(part, TextPart):
            return {"type": "text", "text": part.text}
        if not part.media_type.startswith("image/"):
            raise NotPlain("media_without_images")
        images.append(part.digest)
        return {"type": "image"}

    def _image(self, digest: str) -> dict[str, Any]:
        data = self._images.get(digest)
        if data is None:
            assert self._media is not None
            try:
                data = self._media(digest)
            except NotFoundError:
                raise NotPlain("media_not_there") from None
            if self._image_bytes + len(data) <= _MOST_IMAGE_BYTES:
                self._images[digest] = data
                self._image_bytes += len(data)
        return {"bytes": data, "path": None}

    def _call(self, call: ToolCall) -> dict[str, Any]:
        arguments: Any = call.function.arguments
        if self.arguments == "json":
            arguments = arguments_value(arguments)
        return {"id": call.id, "type": call.type, "function": {"name": call.function.name, "arguments": arguments}}


def arguments_value(arguments: str) -> dict[str, Any]:
    """The arguments of a call as an object; NotPlain where they are no object of JSON, or one that has a key twice."""
    if not arguments.strip():
        return {}
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise NotPlain("arguments_without_json") from None
    if not isinstance(value, dict):
        raise NotPlain("arguments_without_json")
    if _pairs_in(value) != _pairs_in_text(arguments):
        raise NotPlain("arguments_key_twice")
    return value


def _pairs_in(value: Any) -> int:
    """How many keys with values there are, at any depth."""
    found, left = 0, [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            found += len(one)
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
    return found


def _pairs_in_text(text: str) -> int:
    """The same of JSON: colons that stand outside of strings."""
    return _STRINGS.sub("", text).count(":")


def check_prompt(prompt: Sequence[Message] | None) -> None:
    """NotPlain where nothing was asked, as trainers look at the first message of a prompt, or where its last message is
    the beginning of the reply, which trainers end before they begin another.
    """
    if not prompt:
        raise NotPlain("without_prompt")
    if prompt[-1].role == "assistant":
        raise NotPlain("prefilled")


def plain_text(messages: Sequence[Message], renderer: Renderer, *, last: bool = True) -> str:
    """Texts of messages, a blank line between two; reasoning before its answer, tool calls as `name(arguments)`.

    `last`: whether the messages end with the last reply, whose reasoning may be kept alone.
    """
    found: list[str] = []
    for place, message in enumerate(messages):
        keeps = renderer.thinking == "keep" or (renderer.thinking == "last" and last and place == len(messages) - 1)
        found += [message.reasoning] if message.reasoning and keeps else []
        found += [message.text] if message.text else []
        found += [f"{call.function.name}({call.function.arguments})" for call in message.tool_calls]
    return "\n\n".join(found)
