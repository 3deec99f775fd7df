"""OpenAI-compatible APIs: a body of their own dialect goes on, others are translated."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agentworld.dialects import Request, chat, messages, responses
from agentworld.engines.base import Engine
from agentworld.errors import InvalidRequestError
from agentworld.records import Sampling
from tests.engines.fakes import driver
from tests.engines.fakes.openai import OpenAIFake

SAID = [{"role": "user", "content": "hi"}]


async def sent(engine: Engine, fake: OpenAIFake, request: Request) -> dict[str, Any]:
    async with engine.chat(request) as deltas:
        assert [delta async for delta in deltas]
    body: dict[str, Any] = fake.asked[-1].body
    return body


async def test_a_body_of_its_own_dialect_goes_on_as_it_came() -> None:
    body = {
        "model": "theirs",
        "messages": SAID,
        "max_completion_tokens": 9,
        "temperature": 0.5,
        "service_tier": "flex",
        "metadata": {"a": "b"},
        "prompt_cache_key": "k",
        "stream": True,
    }
    ours = {"return_token_ids": True, "skip_special_tokens": True, "top_k": -1, "repetition_penalty": 1.0, "min_p": 0}
    async with OpenAIFake() as fake:
        engine = driver("openai", fake.url)
        request = msgspec.structs.replace(chat.parse({**body, **ours}), raw={**body, **ours})
        expected = {**body, "model": "model", "stream_options": {"include_usage": True}}
        assert await sent(engine, fake, request) == expected
        # A parameter that the settings fix holds all the same, under the caller's own spelling.
        fixed = msgspec.structs.replace(request.sampling, seed=3, max_tokens=5)
        out = await sent(engine, fake, msgspec.structs.replace(request, sampling=fixed))
        assert out == {**expected, "seed": 3, "max_completion_tokens": 5}
        await engine.close()


async def test_a_limit_that_the_settings_add_has_a_name() -> None:
    async with OpenAIFake() as fake:
        engine = driver("openai", fake.url)
        request = chat.parse({"messages": SAID})
        fixed = msgspec.structs.replace(request, raw={"messages": SAID}, sampling=Sampling(max_tokens=5))
        assert (await sent(engine, fake, fixed))["max_tokens"] == 5
        await engine.close()


@pytest.mark.parametrize(
    ("upstream", "name"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://x.openai.azure.com", "max_completion_tokens"),
        ("https://notopenai.com", "max_tokens"),
        ("http://127.0.0.1:9", "max_tokens"),
    ],
)
def test_the_limit_is_spelled_as_the_service_takes_it(upstream: str, name: str) -> None:
    engine = driver("openai", upstream)
    request = messages.parse({"messages": SAID, "max_tokens": 7})
    body = engine._translated(request)  # type: ignore[attr-defined]
    assert {key: value for key, value in body.items() if key.startswith("max_")} == {name: 7}


async def test_neutral_values_of_fields_that_it_lacks_are_left_out() -> None:
    async with OpenAIFake() as fake:
        engine = driver("openai", fake.url)
        neutral = {"top_k": 0, "min_p": 0, "min_tokens": 0, "repetition_penalty": 1.0, "stop_token_ids": []}
        body = await sent(engine, fake, chat.parse({"messages": SAID, **neutral}))
        assert not set(neutral) & set(body)
        with pytest.raises(InvalidRequestError):
            await sent(engine, fake, chat.parse({"messages": SAID, "repetition_penalty": 1.1}))
        await engine.close()


async def test_effort_has_a_field_of_its_own() -> None:
    """Other dialects hand it over as a setting of the template."""
    async with OpenAIFake() as fake:
        engine = driver("openai", fake.url, efforts=("none", "high"))
        for template, expected in (
            ({"reasoning_effort": "high", "verbosity": "low"}, {"reasoning_effort": "high", "verbosity": "low"}),
            ({"enable_thinking": False}, {"reasoning_effort": "none"}),
        ):
            body = await sent(engine, fake, chat.parse({"messages": SAID, "chat_template_kwargs": template}))
            assert {name: body[name] for name in ("reasoning_effort", "verbosity") if name in body} == expected
            assert "chat_template_kwargs" not in body
        for template in ({"enable_thinking": True}, {"enable_thinking": False, "other": 1}):
            with pytest.raises(InvalidRequestError):
                await sent(engine, fake, chat.parse({"messages": SAID, "chat_template_kwargs": template}))
        await engine.close()


async def test_the_effort_of_messages_is_sent_too() -> None:
    async with OpenAIFake() as fake:
        for efforts, given, expected in (
            (None, {"output_config": {"effort": "low"}}, "low"),
            (None, {"output_config": {"effort": "max"}}, "high"),
            (None, {"thinking": {"type": "enabled", "budget_tokens": 2000}}, "medium"),
            (None, {"thinking": {"type": "adaptive"}}, None),
            (None, {"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}, None),
            (("none",), {"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}, "none"),
        ):
            engine = driver("openai", fake.url, efforts=efforts)
            body = await sent(engine, fake, messages.parse({"messages": SAID, "max_tokens": 7, **given}))
            assert body.get("reasoning_effort") == expected
            await engine.close()


ALL = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@pytest.mark.parametrize(
    ("upstream", "efforts", "expected"),
    [
        ("https://api.openai.com/v1", None, dict(zip(ALL, ALL, strict=True))),
        (
            "https://api.example.com",
            None,
            dict(zip(ALL, (None, "low", "low", "medium", "high", "high", "high"), strict=True)),
        ),
        (
            "https://api.example.com",
            ("none", "low", "high"),
            dict(zip(ALL, ("none", "low", "low", "low", "high", "high", "high"), strict=True)),
        ),
        ("https://api.openai.com/v1", ("none",), {"none": "none", **dict.fromkeys(ALL[1:])}),
        ("https://api.openai.com/v1", (), dict.fromkeys(ALL)),
    ],
)
def test_an_effort_that_the_api_does_not_take_is_the_nearest_or_refused(
    upstream: str, efforts: Any, expected: dict[str, str | None]
) -> None:
    engine: Any = driver("openai", upstream, efforts=efforts)
    for effort, sends in expected.items():
        request = responses.parse({"input": "hi", "reasoning": {"effort": effort}})
        if sends is None:
            with pytest.raises(InvalidRequestError) as caught:
                engine._effort(request, request.template)
            assert caught.value.path == "reasoning_effort"
        else:
            assert engine._effort(request, request.template) == {"reasoning_effort": sends}
    assert engine._effort(responses.parse({"input": "hi"}), {}) == {}


async def test_the_effort_of_a_body_that_goes_on_is_the_callers_affair() -> None:
    async with OpenAIFake() as fake:
        engine = driver("openai", fake.url)
        for effort in ALL:
            body = {"messages": SAID, "reasoning_effort": effort, "verbosity": "medium"}
            out = await sent(engine, fake, msgspec.structs.replace(chat.parse(body), raw=body))
            assert out == {**body, "model": "model"}
        await engine.close()
