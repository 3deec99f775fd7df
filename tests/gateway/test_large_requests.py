"""Large bodies are read beside the event loop, and what cannot be taken is refused before work is done on it."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from agentworld.capture.sessions import Session, ids_key
from agentworld.dialects import responses
from agentworld.dialects.dialect import BY_ROUTE, RESPONSES
from agentworld.engines import vllm
from agentworld.gateway import admit, app, completion
from agentworld.gateway.large import INLINE_BYTES, PER_MESSAGE, apart, weight
from agentworld.gateway.token_in import TokenIn
from agentworld.records import FunctionCall, Message, ToolCall
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


class Places:
    """In which thread watched functions run: `found` holds, for each, whether it was the event loop's."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._loop = threading.get_ident()
        self.found: dict[str, set[bool]] = {}

    def watch(self, holder: Any, name: str) -> None:
        work = getattr(holder, name)

        def seen(*args: Any, **kwargs: Any) -> Any:
            self.found.setdefault(name, set()).add(threading.get_ident() == self._loop)
            return work(*args, **kwargs)

        self._patch.setattr(holder, name, seen)


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
            quick = watched("quick", dialect.quick) if dialect.quick is not None else None
            changed = msgspec.structs.replace(dialect, parse=watched("parse", dialect.parse), quick=quick)
            monkeypatch.setitem(BY_ROUTE, name, changed)
    async with running() as gateway:
        for text, in_loop in ((LONG, False), ("short", True)):
            places.clear()
            async with gateway.http.post(gateway.url + path, json=filled(BODIES[path], text)) as response:
                assert response.status == 200, await response.text()
            # What is short and usual is read at once.
            quickly = in_loop and BY_ROUTE[path].quick is not None
            reading = ("quick",) if quickly else ("decode_object", "parse")
            # The keys of what is short are worked out once somebody asks for one.
            keys = () if in_loop else ("message_keys",)
            assert places == {name: {in_loop} for name in (*reading, "digest", *keys)}


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


MANY = INLINE_BYTES // PER_MESSAGE + 1
PASTS: dict[str, list[dict[str, Any]]] = {
    "many messages": [{"role": "user", "content": str(place)} for place in range(MANY)],
    "a long message": [{"role": "user", "content": LONG}],
    "a long call": [
        {"role": "user", "content": "go"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": LONG},
        {"type": "function_call_output", "call_id": "c1", "output": "seen"},
    ],
    "little": [{"role": "user", "content": "hi"}],
}


@pytest.mark.parametrize("past", PASTS)
async def test_a_small_body_that_stands_for_a_long_past_is_long_work(
    past: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Places(monkeypatch)
    watched = ((responses, "parse"), (admit, "message_keys"), (admit, "match"), (Session, "recall"))
    async with running() as gateway:
        url = f"{gateway.url}/t/one/v1/responses"
        async with gateway.http.post(url, json={"input": PASTS[past]}) as response:
            assert response.status == 200, await response.text()
            first = await response.json()
        for holder, name in (*watched, (vllm, "wire_messages")):
            places.watch(holder, name)
        # In a trajectory that has not seen it, all of it is new.
        body = {"input": "more", "previous_response_id": first["id"]}
        async with gateway.http.post(f"{gateway.url}/t/two/v1/responses", json=body) as response:
            assert response.status == 200, await response.text()
        in_loop = past == "little"
        recalled = places.found.pop("recall")  # Its own reply is taken into the session in the loop, too.
        assert in_loop or False in recalled
        keys = () if in_loop else ("message_keys",)
        assert places.found == {name: {in_loop} for name in ("parse", *keys, "match", "wire_messages")}
        long = len(gateway.steps("two")[0].prompt_messages or ())
        assert long == {"many messages": MANY, "a long message": 1, "a long call": 3, "little": 1}[past] + 2


async def test_a_long_text_is_compared_with_earlier_ones_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(monkeypatch)
    places.watch(completion, "_split")
    monkeypatch.setattr(completion, "_COMPARED_AT_ONCE", 1)
    async with running("ok") as gateway:
        for text, in_loop in ((LONG, True), (f"{LONG}ok and", False), ("short", True)):
            async with gateway.http.post(f"{gateway.url}/t/one/v1/completions", json={"prompt": text}) as response:
                assert response.status == 200, await response.text()
            assert places.found == {"_split": {in_loop}}  # There is nothing to compare the first with.
            places.found.clear()
        assert [len(step.prompt_messages or ()) for step in gateway.steps("one")] == [1, 3, 1]


@pytest.mark.parametrize("kind", ["many", "calls", "little"])
async def test_a_prompt_without_much_text_can_be_long_to_render(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(monkeypatch)
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": "' + "x" * 9000 + '"}'}}
    end = {"role": "user", "content": "go"}
    said: dict[str, list[dict[str, Any]]] = {
        "many": [{"role": "user", "content": ""} for _ in range(50)],
        "calls": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        ],
        "little": [],
    }
    async with running("ok", tokens="token-in") as gateway:
        places.watch(TokenIn, "_render")
        status, body, _ = await gateway.chat({"messages": [*said[kind], end]})
        assert status == 200, body
        assert places.found == {"_render": {kind == "little"}}


def test_what_messages_weigh() -> None:
    call = ToolCall(id="c", function=FunctionCall("look", "x" * 10))
    messages = [
        Message(role="user", content="abc"),
        Message(role="assistant", content=None, reasoning="abcd", tool_calls=(call, call)),
    ]
    assert weight(messages) == 2 * PER_MESSAGE + 3 + 4 + 20
    assert weight(messages * 1000, 500) == weight(messages)  # Enough is enough.
    assert weight([]) == 0
