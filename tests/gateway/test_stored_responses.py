"""Responses by their id: their items, log-probabilities and input, in whatever order thinking and text came."""

from __future__ import annotations

import base64
import json
from typing import Any

import openai
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from agentworld.testing import ScriptedReply
from tests.engines.fakes import Said
from tests.engines.fakes.openai import OpenAIFake

from .harness import Harness, running

LOOK: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}}
PATCH: Any = {"type": "custom", "name": "apply_patch", "description": "Edits files"}
LOGPROBS: Any = ["message.output_text.logprobs"]
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(8)).decode()


class Interleaving:
    """An engine's stream of thinking, text, thinking, text, as vLLM's reasoning parsers send it."""

    pieces = (("reasoning", "hm"), ("content", "I "), ("content", "see"), ("reasoning", "but"), ("content", " no"))

    def __init__(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.answer)
        self.server = TestServer(app)

    async def answer(self, request: Any) -> Any:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for place, (name, text) in enumerate(self.pieces):
            entry = {"token": text, "logprob": -0.25 - place, "bytes": list(text.encode()), "top_logprobs": []}
            choice: dict[str, Any] = {
                "index": 0,
                "delta": {name: text},
                "token_ids": [65 + place],
                "logprobs": {"content": [entry]},
                "finish_reason": None,
            }
            body: dict[str, Any] = {"choices": [choice]}
            if place == 0:
                body["prompt_token_ids"] = [1, 2]
            await response.write(b"data: " + json.dumps(body).encode() + b"\n\n")
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        usage = {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": len(self.pieces)}}
        for last in (end, usage):
            await response.write(b"data: " + json.dumps(last).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response


async def streamed(client: openai.AsyncOpenAI, **given: Any) -> tuple[Any, list[Any]]:
    """The response at the end of a stream, and its items as they were done."""
    done, last = [], None
    async for event in await client.responses.create(model="m", stream=True, **given):
        if event.type == "response.output_item.done":
            done.append(event.item)
        last = event
    assert last is not None
    return last.response, done


async def test_items_of_interleaved_thinking_are_stored_as_they_were_streamed() -> None:
    engine = Interleaving()
    await engine.server.start_server()
    try:
        async with running(upstream=str(engine.server.make_url("")), driver="vllm") as gateway:
            client = gateway.client("/t/t1")
            response, done = await streamed(client, input="go", include=LOGPROBS)
            assert [item.type for item in done] == ["reasoning", "message", "reasoning", "message"]
            again = await client.responses.retrieve(response.id, include=LOGPROBS)
            assert again.output == response.output == done
            assert [len(item.content[0].logprobs) for item in again.output if item.type == "message"] == [3, 2]
            (step,) = gateway.steps("t1")
            assert step.excluded_reason is None
            assert (step.response_message.text, step.response_message.reasoning) == ("I see no", "hmbut")  # type: ignore[union-attr]
            # Each of them can be referred to by the id that the stream gave it.
            items: list[Any] = [{"role": "user", "content": "go"}]
            items += [{"type": "item_reference", "id": item.id} for item in done]
            await streamed(client, input=[*items, {"role": "user", "content": "more"}])
            before, after = gateway.steps("t1")
            assert after.parent_step_id == before.step_id
            assert after.prompt_messages[1] == before.response_message  # type: ignore[index]
    finally:
        await engine.server.close()


@pytest.mark.parametrize("tokens", ["engine", "token-in"])
@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities_that_were_asked_for_can_be_read_again(stream: bool, tokens: str) -> None:
    async with running("<think>\nhm\n</think>\n\nabc", tokens=tokens) as gateway:
        client = gateway.client("/t/t1")
        given: dict[str, Any] = {"input": "go", "include": LOGPROBS, "top_logprobs": 2}
        if stream:
            response, _ = await streamed(client, **given)
        else:
            response = await client.responses.create(model="m", **given)
        again = await client.responses.retrieve(response.id, include=LOGPROBS)
        assert again.output == response.output
        entries = again.output[-1].content[0].logprobs
        assert [entry.logprob for entry in entries] == gateway.steps("t1")[0].response_logprobs
        assert all(len(entry.top_logprobs) == 2 for entry in entries)
        assert (await client.responses.retrieve(response.id)).output[-1].content[0].logprobs == []


async def test_log_probabilities_that_nobody_asked_for_are_spelled_by_the_tokenizer() -> None:
    async with running("für", tokens="token-in") as gateway:
        client = gateway.client("/t/t1")
        response = await client.responses.create(model="m", input="go")
        again = await client.responses.retrieve(response.id, include=LOGPROBS)
        entries = again.output[0].content[0].logprobs
        (step,) = gateway.steps("t1")
        assert [entry.logprob for entry in entries] == step.response_logprobs
        assert bytes(byte for entry in entries for byte in entry.bytes).startswith("für".encode())
    async with running("für") as gateway:
        response = await gateway.client().responses.create(model="m", input="go")
        with pytest.raises(openai.BadRequestError) as caught:
            await gateway.client().responses.retrieve(response.id, include=LOGPROBS)
        assert caught.value.param == "include"
    async with running("für", tokens="none", driver="openai") as gateway:
        response = await gateway.client().responses.create(model="m", input="go")
        again = await gateway.client().responses.retrieve(response.id, include=LOGPROBS)
        assert again.output[0].content[0].logprobs == []


async def talked(gateway: Harness) -> Any:
    """A response whose input is a message with an image, two calls and their results."""
    client = gateway.client("/t/t1")
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "low"}
    parts = [{"type": "input_text", "text": "go"}, image]
    first = await client.responses.create(
        model="m", input=[{"role": "user", "content": parts}], tools=[LOOK, PATCH], instructions="Be brief."
    )
    outputs: list[Any] = [
        {"type": f"{item.type}_output", "call_id": item.call_id, "output": f"seen {item.type}"}
        for item in first.output
        if item.type in ("function_call", "custom_tool_call")
    ]
    return await client.responses.create(
        model="m", input=outputs, previous_response_id=first.id, tools=[LOOK, PATCH], instructions="Be brief."
    )


async def test_the_input_is_listed_with_what_went_before() -> None:
    said = Said(reasoning="hm", calls=(("look", "{}"), ("apply_patch", '{"input": "*** Begin"}')))
    async with OpenAIFake(said, ids=True) as fake, running(upstream=fake.url, driver="vllm") as gateway:
        response = await talked(gateway)
        client = gateway.client("/t/t1")
        items = [item async for item in client.responses.input_items.list(response.id, order="asc")]
        assert [item.type for item in items] == [
            *("message", "reasoning", "message", "function_call", "custom_tool_call"),
            *("function_call_output", "custom_tool_call_output"),
        ]
        assert [item.output for item in items[-2:]] == ["seen function_call", "seen custom_tool_call"]
        assert [item.call_id for item in items[-2:]] == [item.call_id for item in items[3:5]]
        text, image = items[0].content
        assert (text.text, image.detail, image.image_url) == ("go", "low", None)
        shown = await client.responses.input_items.list(
            response.id, order="asc", limit=1, include=["message.input_image.image_url"]
        )
        assert shown.data[0].content[1].image_url == f"data:image/png;base64,{PNG}"
        assert len({item.id for item in items}) == len(items)
        # Sent back as they are, they are the same conversation.
        back: list[Any] = [item.model_dump(exclude_none=True) for item in items]
        back[0]["content"][1]["image_url"] = f"data:image/png;base64,{PNG}"
        await client.responses.create(model="m", input=back, instructions="Be brief.", tools=[LOOK, PATCH])
        _, before, after = gateway.steps("t1")
        assert after.prompt_messages == before.prompt_messages


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_pages_hold_every_item_once(order: Any, limit: int) -> None:
    async with running("ok") as gateway:
        client = gateway.client("/t/t1")
        given: Any = [{"role": "user", "content": f"m{place}"} for place in range(5)]
        response = await client.responses.create(model="m", input=given)
        found, after, pages = [], openai.omit, 0
        while True:
            page: Any = await client.responses.input_items.list(response.id, order=order, limit=limit, after=after)
            found += [item.content[0].text for item in page.data]
            pages += 1
            if not page.has_more:
                break
            after = page.last_id
            assert (page.data[0].id, page.data[-1].id) == (page.first_id, page.last_id)
        texts = [f"m{place}" for place in range(5)]
        assert found == (texts if order == "asc" else texts[::-1])
        assert pages == -(-5 // limit)
        latest = await client.responses.input_items.list(response.id)
        assert [item.content[0].text for item in latest.data] == texts[::-1]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("order=up", "order"),
        *((f"limit={limit}", "limit") for limit in ("0", "101", "x", "", "-1", "1.0", "01", "9" * 5000)),
        ("after=msg_other", "after"),
        ("before=x", "before"),
        ("include[]=other", "include[0]"),
        ("limit=1&limit=2", "query"),
        ("&".join(f"a{place}=1" for place in range(100)), "query"),
        ("after=%ff", "query"),
    ],
)
async def test_a_query_that_asks_for_something_else_is_refused(query: str, param: str) -> None:
    async with running("ok") as gateway:
        response = await gateway.client().responses.create(model="m", input="hi")
        async with gateway.http.get(f"{gateway.url}/v1/responses/{response.id}/input_items?{query}") as answer:
            assert (answer.status, (await answer.json())["error"]["param"]) == (400, param)


async def test_a_stored_response_is_not_streamed() -> None:
    async with running("ok") as gateway:
        response = await gateway.client().responses.create(model="m", input="hi")
        for query, status in (("stream=true", 400), ("stream=false", 200), ("starting_after=3", 400)):
            async with gateway.http.get(f"{gateway.url}/v1/responses/{response.id}?{query}") as answer:
                assert answer.status == status, query


async def test_the_input_is_for_who_may_see_the_response() -> None:
    async with running("ok") as gateway:
        response = await gateway.client("/t/t1").responses.create(model="m", input="hi")
        for path, response_id in (("/t/other", response.id), ("", f"resp_exc_{'0' * 26}")):
            with pytest.raises(openai.NotFoundError):
                await gateway.client(path).responses.input_items.list(response_id)
        assert (await gateway.client("/t/t1").responses.input_items.list(response.id)).data
        url = f"{gateway.url}/v1/responses/{response.id}/input_items"
        async with gateway.http.post(url, json={}) as answer:
            assert answer.status == 405


async def test_a_response_is_read_again_after_a_restart(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    async with running(ScriptedReply(text="abc"), pool=url) as gateway:
        given: Any = {"input": "go", "include": LOGPROBS}
        response = await gateway.client().responses.create(model="m", **given)
    async with running("unused", pool=url) as gateway:
        again = await gateway.client().responses.retrieve(response.id, include=LOGPROBS)
        assert again.output == response.output
        assert len((await gateway.client().responses.input_items.list(response.id)).data) == 1
