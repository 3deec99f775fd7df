"""Large bodies are read beside the event loop, and what cannot be taken is refused before work is done on it."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from agentworld.capture.sessions import ids_key
from agentworld.dialects import responses
from agentworld.dialects.dialect import BY_ROUTE, RESPONSES
from agentworld.gateway import admit, app
from agentworld.gateway.large import INLINE_BYTES, apart
from tests.gateway.harness import running

LONG = "x" * (INLINE_BYTES + 1)
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "{}"}]},
    "/v1/messages": {"max_tokens": 5, "messages": [{"role": "user", "content": "{}"}]},
    "/v1/responses": {"input": [{"role": "user", "content": "{}"}]},
    "/v1/completions": {"prompt": "{}"},
}


def filled(body: Any, text: str) -> Any:
    """The body with the text for `{}`."""
    if isinstance(body, dict):
        return {name: filled(item, text) for name, item in body.items()}
    if isinstance(body, list):
        return [filled(item, text) for item in body]
    return text if body == "{}" else body


async def test_only_what_is_large_goes_to_a_thread() -> None:
    here = threading.get_ident()
    assert await apart(INLINE_BYTES, threading.get_ident) == here
    assert await apart(INLINE_BYTES + 1, threading.get_ident) != here


@pytest.mark.parametrize("path", BODIES)
async def test_a_large_body_is_read_beside_the_loop(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The body, its fields, the digest of it and the keys of its messages: each as long as the body is."""
    loop, places = threading.get_ident(), dict[str, set[bool]]()

    def watched(name: str, work: Any) -> Any:
        def seen(*args: Any, **kwargs: Any) -> Any:
            places.setdefault(name, set()).add(threading.get_ident() == loop)
            return work(*args, **kwargs)

        return seen

    for holder, name in ((app, "decode_object"), (admit, "digest"), (admit, "message_keys"), (responses, "parse")):
        monkeypatch.setattr(holder, name, watched(name, getattr(holder, name)))
    for name, dialect in BY_ROUTE.items():
        if dialect is not RESPONSES:
            changed = msgspec.structs.replace(dialect, parse=watched("parse", dialect.parse))
            monkeypatch.setitem(BY_ROUTE, name, changed)
    async with running() as gateway:
        for text, in_loop in ((LONG, False), ("short", True)):
            places.clear()
            async with gateway.http.post(gateway.url + path, json=filled(BODIES[path], text)) as response:
                assert response.status == 200, await response.text()
            assert places == {name: {in_loop} for name in ("decode_object", "parse", "digest", "message_keys")}


async def test_ids_beyond_the_context_are_refused_before_they_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []

    def counted(prompt: tuple[int, ...]) -> bytes:
        hashed.append(len(prompt))
        return ids_key(prompt)

    monkeypatch.setattr(admit, "ids_key", counted)
    async with running(context=100) as gateway:
        for length, status in ((100, 400), (99, 200)):
            body = {"prompt": [65] * length, "max_tokens": 1}
            async with gateway.http.post(gateway.url + "/v1/completions", json=body) as response:
                said = await response.json()
                assert response.status == status, said
            if status == 400:
                assert (said["error"]["code"], said["error"]["param"]) == ("context_length_exceeded", "prompt")
    assert hashed == [99]


async def test_a_history_of_thousands_of_messages_is_one_call_like_others() -> None:
    talk = [{"role": role, "content": f"m{at}"} for at in range(5000) for role in ("user", "assistant")]
    async with running() as gateway:
        status, _, _ = await gateway.chat({"messages": [*talk, {"role": "user", "content": "end"}]}, "/t/one")
        assert status == 200
        (step,) = gateway.steps("one")
        assert len(step.prompt_messages or ()) == 10_001
