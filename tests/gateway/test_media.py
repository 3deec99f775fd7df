"""Images on their way through the gateway: to the engine, into the pool, and into what is on record."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from agentworld.pool.media import media_digest
from agentworld.records import MediaPart
from tests.engines.fakes import FakeEngine, Said
from tests.engines.fakes.anthropic import AnthropicFake
from tests.engines.fakes.llamacpp import LlamaCppFake
from tests.engines.fakes.openai import OpenAIFake
from tests.engines.fakes.sglang import SglangFake
from tests.gateway.test_drivers import gateway

PNG = b"\x89PNG\r\n\x1a\n" + b"a cat"
DIGEST = media_digest(PNG).hex()
LONG = Said(prompt_ids=tuple(range(1000, 1300)))


def address(data: bytes = PNG) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


def see(data: bytes = PNG) -> dict[str, Any]:
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": address(data)}}]
    return {"role": "user", "content": parts}


FAKES: dict[str, Any] = {
    "vllm": lambda: OpenAIFake(ids=True),
    "sglang": SglangFake,
    "llamacpp": LlamaCppFake,
    "openai": OpenAIFake,
}


@pytest.mark.parametrize("driver", list(FAKES))
async def test_an_image_goes_to_the_engine_and_into_the_pool(driver: str) -> None:
    async with FAKES[driver]() as fake, gateway(driver, fake) as running:
        status, answer = await running.post("/t/x/v1/chat/completions", {"messages": [see()]})
        assert status == 200, answer
        sent = fake.asked[-1].body["messages"][0]["content"]
        assert sent[1] == {"type": "image_url", "image_url": {"url": address()}}
        medium = running.pool.get_media(DIGEST)
        assert (medium.data, medium.media_type) == (PNG, "image/png")
        step = running.step()
        assert step.prompt_messages is not None
        assert step.prompt_messages[0].media == (MediaPart(digest=DIGEST, media_type="image/png"),)
        assert step.excluded_reason is None
        # The next turn repeats it; it goes on from the first, and the engine gets it again.
        reply = json.loads(answer)["choices"][0]["message"]
        again = {"messages": [see(), reply, {"role": "user", "content": "and now?"}]}
        status, answer = await running.post("/t/x/v1/chat/completions", again)
        assert status == 200, answer
        assert running.steps()[1].parent_step_id == step.step_id
        assert fake.asked[-1].body["messages"][0]["content"][1]["image_url"]["url"] == address()


async def test_an_image_of_the_other_api_goes_as_base64() -> None:
    async with AnthropicFake() as fake, gateway("anthropic", fake) as running:
        status, answer = await running.post("/v1/chat/completions", {"messages": [see()], "max_tokens": 5})
        assert status == 200, answer
        source = fake.asked[-1].body["messages"][0]["content"][1]["source"]
        assert base64.b64decode(source["data"]) == PNG
        assert running.pool.get_media(DIGEST).data == PNG


async def test_token_in_leaves_prompts_with_images_to_the_engine() -> None:
    async with SglangFake() as fake, gateway("sglang", fake, tokenizer="byte") as running:
        await running.post("/t/x/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
        assert fake.asked[-1].path == "/generate"
        first = running.steps()[0]
        assert first.response_message is not None
        reply = {"role": "assistant", "content": first.response_message.content}
        body = {"messages": [{"role": "user", "content": "hi"}, reply, see()]}
        status, answer = await running.post("/t/x/v1/chat/completions", body)
        assert (status, fake.asked[-1].path) == (200, "/v1/chat/completions"), answer
        second = running.steps()[1]
        assert (second.token_source, second.metadata["prompt"]) == ("engine", "media")
        assert (second.prompt_ids, second.response_ids) == (list(fake.said.prompt_ids), fake.said.ids)
        assert (second.parent_step_id, second.fork_reason) == (first.step_id, "template")
        # What goes on from there shows the image still.
        body["messages"] += [{"role": "assistant", "content": fake.said.text}, {"role": "user", "content": "so?"}]
        await running.post("/t/x/v1/chat/completions", body)
        third = running.steps()[2]
        assert (third.metadata["prompt"], third.parent_step_id) == ("media", second.step_id)


async def test_other_images_share_no_block_of_tokens() -> None:
    """Place holders are the same ids whatever they stand for."""

    async def shared(*images: bytes) -> int:
        async with OpenAIFake(LONG, ids=True) as fake, gateway("vllm", fake) as running:
            for number, data in enumerate(images):
                await running.post(f"/t/x{number}/v1/chat/completions", {"messages": [see(data)]})
            stats = running.pool.stats()
            return stats.tokens_flat - stats.tokens_stored

    assert (await shared(PNG, PNG), await shared(PNG, PNG + b"!")) == (256, 0)


BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [see()]},
    "/v1/responses": {
        "input": [{"role": "user", "content": [{"type": "input_image", "image_url": address()}]}],
    },
    "/v1/messages": {
        "max_tokens": 9,
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": address()[22:]}}
                ],
            }
        ],
    },
}


@pytest.mark.parametrize("route", list(BODIES))
async def test_models_that_see_no_images_say_so(route: str) -> None:
    async with OpenAIFake(ids=True) as fake:
        async with gateway("vllm", fake, media=False) as running:
            status, answer = await running.post(route, BODIES[route])
            assert status == 400
            error = json.loads(answer)["error"]
            assert "model takes text only" in error["message"]
            assert error["type"] == "invalid_request_error"
            assert fake.asked == []
            assert running.steps() == []
        async with gateway("vllm", fake) as running:
            status, answer = await running.post(route, BODIES[route])
            assert status == 200, answer


async def test_a_response_that_is_gone_on_from_still_shows_its_image() -> None:
    async with OpenAIFake(ids=True) as fake, gateway("vllm", fake) as running:
        _, answer = await running.post("/v1/responses", BODIES["/v1/responses"])
        body = {"previous_response_id": json.loads(answer)["id"], "input": "and now?"}
        status, answer = await running.post("/v1/responses", body)
        assert status == 200, answer
        (shown,) = fake.asked[-1].body["messages"][0]["content"]
        assert shown["image_url"]["url"] == address()


async def test_an_image_without_ids_says_nothing_of_texts() -> None:
    """llama.cpp gives ids for texts only; an image that comes first does not make the model text-only."""
    async with LlamaCppFake() as fake, gateway("llamacpp", fake) as running:
        await running.post("/v1/chat/completions", {"messages": [see()]})
        await running.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
        assert [step.token_source for step in running.steps()] == ["none", "engine"]


async def test_tokens_of_images_are_not_counted_here() -> None:
    fake: FakeEngine
    async with SglangFake() as fake, gateway("sglang", fake, tokenizer="byte") as running:
        body = {"messages": BODIES["/v1/messages"]["messages"]}
        status, answer = await running.post("/v1/messages/count_tokens", body)
        assert (status, json.loads(answer)["type"]) == (404, "error")
