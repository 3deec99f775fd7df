"""Images: one part whatever API brings them, and refusals that name their place."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.dialects import chat, media, messages, responses
from agentworld.dialects.chat_reply import wire_messages
from agentworld.dialects.exchange import Request
from agentworld.errors import InvalidRequestError
from agentworld.records import MediaPart, Message, TextPart

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"
HEADS = {
    "image/png": PNG[:8],
    "image/jpeg": b"\xff\xd8\xff\xe0",
    "image/gif": b"GIF89a",
    "image/webp": b"RIFF\x10\0\0\0WEBP",
}


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def url(data: bytes = PNG, said: str = "image/png") -> str:
    return f"data:{said};base64,{encoded(data)}"


def in_chat(address: str, **image: Any) -> Request:
    part = {"type": "image_url", "image_url": {"url": address, **image}}
    return chat.parse({"messages": [{"role": "user", "content": [{"type": "text", "text": "see"}, part]}]})


def in_messages(address: str, where: str = "user") -> Request:
    head, _, data = address.partition(";base64,")
    source = {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    blocks: list[dict[str, Any]] = [{"type": "text", "text": "see"}, {"type": "image", "source": source}]
    if where == "tool":
        blocks = [{"type": "tool_result", "tool_use_id": "c", "content": blocks}]
    return messages.parse({"max_tokens": 9, "messages": [{"role": "user", "content": blocks}]})


def in_responses(address: str, where: str = "user") -> Request:
    parts = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": address}]
    item: dict[str, Any] = {"role": "user", "content": parts}
    if where == "tool":
        item = {"type": "function_call_output", "call_id": "c", "output": parts}
    return responses.parse({"input": [item]})


APIS: list[Callable[[str], Request]] = [in_chat, in_messages, in_responses]


@pytest.mark.parametrize("parse", APIS)
@pytest.mark.parametrize("kind", list(HEADS))
def test_an_image_is_one_part_whatever_brings_it(parse: Callable[[str], Request], kind: str) -> None:
    data = HEADS[kind] + b"more"
    request = parse(url(data, kind))
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    assert request.messages[-1].content == (TextPart(text="see"), MediaPart(digest=digest, media_type=kind))
    assert request.media == {digest: data}


@pytest.mark.parametrize("parse", [in_messages, in_responses])
def test_tools_show_images_too(parse: Callable[[str, str], Request]) -> None:
    request = parse(url(), "tool")
    assert (request.messages[0].role, [part.media_type for part in request.messages[0].media]) == (
        "tool",
        ["image/png"],
    )


@given(st.binary(max_size=200), st.sampled_from(sorted(HEADS)))
def test_engines_get_the_bytes_that_came(rest: bytes, kind: str) -> None:
    address = url(HEADS[kind] + rest, kind)
    request = in_chat(address, detail="low")
    (sent,) = wire_messages(request, developer=False)
    assert sent["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": address, "detail": "low"}},
    ]


@pytest.mark.parametrize("parse", APIS)
@pytest.mark.parametrize(
    "address",
    [
        url(said="image/jpeg"),
        url(b"<svg/>", "image/svg+xml"),
        url(b""),
        url()[:-1] + "!",
        url(said="text/html"),
        url(said=""),
    ],
)
def test_bytes_that_are_not_what_is_said_are_refused(parse: Callable[[str], Request], address: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse(address)
    assert caught.value.path is not None
    assert caught.value.path.split(".")[0] in ("messages[0]", "input[0]")


@pytest.mark.parametrize(
    "address",
    ["https://example.com/a.png", "file:///etc/passwd", "data:image/png,abc", "", f"data:{';a' * 100};base64,iVBORw=="],
)
def test_nothing_is_fetched(address: str) -> None:
    with pytest.raises(InvalidRequestError, match="not fetched from elsewhere"):
        in_chat(address)
    with pytest.raises(InvalidRequestError, match="not fetched from elsewhere"):
        in_responses(address)


def test_a_url_source_is_a_data_url_or_refused() -> None:
    block = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/secret.png"}}
    with pytest.raises(InvalidRequestError) as caught:
        messages.parse({"max_tokens": 9, "messages": [{"role": "user", "content": [block]}]})
    assert caught.value.path == "messages[0].content[0].source.url"


def test_aliases_and_parameters_of_the_type() -> None:
    request = in_chat("data:image/JPG;charset=utf-8;base64," + encoded(HEADS["image/jpeg"]))
    assert request.messages[0].media[0].media_type == "image/jpeg"


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "MAX_IMAGES", 2)
    part = {"type": "image_url", "image_url": url()}
    chat.parse({"messages": [{"role": "user", "content": [part, part]}]})
    with pytest.raises(InvalidRequestError, match="at most 2 images"):
        chat.parse({"messages": [{"role": "user", "content": [part, part, part]}]})
    monkeypatch.setattr(media, "MAX_IMAGE_BYTES", 9)
    with pytest.raises(InvalidRequestError, match="at most 9 bytes"):
        in_chat(url(PNG + b"x" * 20))


def test_only_users_and_tools_show_images() -> None:
    part = {"type": "image_url", "image_url": {"url": url()}}
    for role in ("system", "developer", "assistant"):
        with pytest.raises(InvalidRequestError) as caught:
            chat.parse({"messages": [{"role": role, "content": [part]}, {"role": "user", "content": "x"}]})
        assert caught.value.path == "messages[0].content[0].type"


def test_apis_without_images_of_tools_get_them_from_the_user() -> None:
    images = media.Images()
    shown = images.data_url(url(), "x")

    def result(call: str) -> Message:
        return Message(role="tool", content=(TextPart(text=call), shown), tool_call_id=call)

    alone = Message(role="tool", content=(shown,), tool_call_id="c")
    said = (result("a"), alone, Message(role="user", content="go"), result("b"))
    sent = wire_messages(
        Request(dialect="chat", model="", messages=said, media=images.media), developer=True, images_of_tools=False
    )
    image = {"type": "image_url", "image_url": {"url": url()}}
    assert [(each["role"], each["content"]) for each in sent] == [
        ("tool", [{"type": "text", "text": "a"}]),
        ("tool", ""),
        ("user", [image, image]),
        ("user", "go"),
        ("tool", [{"type": "text", "text": "b"}]),
        ("user", [image]),
    ]
