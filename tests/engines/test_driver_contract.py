"""One suite over every engine driver; a new driver passes it or is not done."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from agentworld.config import ModelSettings
from agentworld.dialects import Delta, Request
from agentworld.dialects.chat import parse
from agentworld.engines.base import Engine, explicit, logprob_space, open_engine
from agentworld.engines.vllm import BuiltinEngine
from agentworld.errors import ConfigError, EngineError, EngineUnreachableError, InvalidRequestError
from agentworld.records import Policy, Sampling
from agentworld.testing import ScriptedEngine, ScriptedReply, WireFaults

DRIVERS = ["vllm", "builtin", "openai"]
TOKEN_DRIVERS = ["vllm", "builtin"]


def engine_for(driver: Any, url: str, timeout: float = 20.0) -> Engine:
    return open_engine(ModelSettings(name="scripted", upstream=url, driver=driver, api_key="sk"), timeout)


def request(**fields: Any) -> Request:
    return parse({"messages": [{"role": "user", "content": "hi"}], **fields})


async def chat(engine: Engine, asked: Request) -> list[Delta]:
    async with engine.chat(asked) as deltas:
        return [delta async for delta in deltas]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("suffix", ["", "/", "/v1"])
async def test_chat(driver: str, stream: bool, suffix: str) -> None:
    async with ScriptedEngine("für <think>") as scripted:
        engine = engine_for(driver, scripted.url + suffix)
        deltas = await chat(engine, request(stream=stream))
        assert "".join(delta.text for delta in deltas).startswith("für")
        assert [delta.finish_reason for delta in deltas if delta.finish_reason] == ["stop"]
        (call,) = scripted.requests
        if engine.capabilities.ids:
            ids = [token for delta in deltas for token in delta.ids or []]
            logprobs = [value for delta in deltas for value in delta.logprobs or []]
            assert ids == call.sampled_ids[0]
            assert len(logprobs) == len(ids)
            assert next(delta.prompt_ids for delta in deltas if delta.prompt_ids) == call.prompt_ids[0]
            usage = next(delta.usage for delta in deltas if delta.usage)
            assert (usage.prompt_tokens, usage.completion_tokens) == (len(call.prompt_ids[0]), len(ids))
        assert [card.name for card in await engine.models()] == ["scripted"]
        await engine.close()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_every_field_that_is_set_is_sent(driver: str) -> None:
    given = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 9,
        "stop": ["x"],
        "seed": 1,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "logit_bias": {"3": 1.0},
        "n": 2,
    }
    async with ScriptedEngine("ok") as scripted:
        engine = engine_for(driver, scripted.url)
        await chat(engine, request(**given))
        body = scripted.requests[0].body
        assert {name: body[name] for name in given} == given
        await engine.close()


@pytest.mark.parametrize("driver", TOKEN_DRIVERS)
async def test_no_default_of_the_engine_applies(driver: str) -> None:
    async with ScriptedEngine("ok") as scripted:
        engine = engine_for(driver, scripted.url)
        await chat(engine, request())
        body = scripted.requests[0].body
        assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (1.0, 1.0, -1, 0.0)
        assert (body["presence_penalty"], body["frequency_penalty"], body["repetition_penalty"]) == (0.0, 0.0, 1.0)
        assert ("logprobs_mode" in body) == (driver == "builtin")
        await engine.close()


@pytest.mark.parametrize("driver", TOKEN_DRIVERS)
@pytest.mark.parametrize("stream", [False, True])
async def test_generate_takes_ids(driver: str, stream: bool) -> None:
    async with ScriptedEngine("okay") as scripted:
        engine = engine_for(driver, scripted.url)
        prompt = [1, 2, 3, 250]
        async with engine.generate(prompt, request(stream=stream), Sampling(stop_token_ids=(258,))) as deltas:
            found = [delta async for delta in deltas]
        (call,) = scripted.requests
        assert (call.kind, call.prompt_ids) == ("completions", [prompt])
        assert [token for delta in found for token in delta.ids or []] == call.sampled_ids[0]
        assert next(delta.prompt_ids for delta in found if delta.prompt_ids) == prompt
        # Without a limit the reply may fill the context, not the sixteen tokens that the route defaults to.
        assert call.body["max_tokens"] is None
        await engine.close()


async def test_text_only_engines_refuse_what_they_lack() -> None:
    async with ScriptedEngine("ok") as scripted:
        engine = engine_for("openai", scripted.url)
        for fields in ({"top_k": 3}, {"min_p": 0.1}, {"repetition_penalty": 1.2}, {"chat_template_kwargs": {"a": 1}}):
            with pytest.raises(InvalidRequestError) as caught:
                await chat(engine, request(**fields))
            assert caught.value.path == next(iter(fields))
        with pytest.raises(InvalidRequestError):
            engine.generate([1], request(), Sampling())
        await chat(engine, request())
        assert "temperature" not in scripted.requests[0].body
        assert "return_token_ids" not in scripted.requests[0].body
        await engine.close()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_nothing_answers(driver: str) -> None:
    engine = engine_for(driver, "http://127.0.0.1:9")
    with pytest.raises(EngineUnreachableError):
        await chat(engine, request())
    with pytest.raises(EngineUnreachableError):
        await engine.models()
    await engine.close()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_leaving_the_call_cancels_it(driver: str) -> None:
    async with ScriptedEngine(ScriptedReply(text="x" * 3000, token_delay=0.002)) as scripted:
        engine = engine_for(driver, scripted.url)
        async with engine.chat(request(stream=True)) as deltas:
            async for delta in deltas:
                if delta.text:
                    break
        # The engine notices and the next call is served.
        await engine.models()
        assert not scripted.requests[0].finished
        await engine.close()


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_connection_that_breaks(driver: str) -> None:
    async with ScriptedEngine(ScriptedReply(text="abcdef", faults=WireFaults(drop_after=0))) as scripted:
        engine = engine_for(driver, scripted.url)
        with pytest.raises(EngineError):
            await chat(engine, request())
        await engine.close()


async def test_reload_of_the_builtin_engine() -> None:
    async with ScriptedEngine("ok") as scripted:
        engine = engine_for("builtin", scripted.url)
        assert isinstance(engine, BuiltinEngine)
        await engine.reload("weights", Policy("scripted", "r2", 7))
        deltas = await chat(engine, request())
        assert (deltas[0].policy_version, deltas[0].policy_run) == (7, "r2")
        await engine.close()


def test_drivers_that_are_not_there() -> None:
    with pytest.raises(ConfigError, match="not available"):
        engine_for("tgi", "http://127.0.0.1:9")


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(driver: str, status: int) -> None:
    async def lead_away(request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"location": f"{elsewhere.url}{request.path}"})

    async with ScriptedEngine("ok") as elsewhere, TestServer(leading(lead_away)) as server:
        engine = engine_for(driver, str(server.make_url("/")))
        with pytest.raises(EngineError, match=rf"redirects \(HTTP status {status}\)"):
            await chat(engine, request())
        with pytest.raises(EngineError, match="redirects"):
            await engine.models()
        if isinstance(engine, BuiltinEngine):
            with pytest.raises(EngineError, match="redirects"):
                await engine.reload("weights", Policy("scripted"))
        assert elsewhere.requests == []
        await engine.close()


def leading(handler: Any) -> web.Application:
    """An app that answers everything by one handler."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    return app


@pytest.mark.parametrize("driver", DRIVERS)
async def test_the_key_that_an_engine_repeats_stays_here(driver: str) -> None:
    async def repeat(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": f"who is {request.headers['authorization']}?"}}, status=401)

    async with TestServer(leading(repeat)) as server:
        engine = open_engine(
            ModelSettings(name="m", upstream=str(server.make_url("/")), driver=driver, api_key="s3cr3t"),  # type: ignore[arg-type]
            20.0,
        )
        for call in (chat(engine, request()), chat(engine, request(stream=True)), engine.models()):
            with pytest.raises(EngineError, match=r"who is Bearer \[key\]"):
                await call
        await engine.close()


@pytest.mark.parametrize(
    "upstream",
    [
        "http://user:pw@host",
        "http://user@host:8000/v1",
        "http://:pw@host",
        "host:8000",
        "ftp://host",
        "http://",
        "http://host:99999",
        "http://[::1",
        "http://host/?a=b",
        "",
    ],
)
def test_an_address_that_no_call_could_use_is_refused_at_the_start(upstream: str) -> None:
    with pytest.raises(ConfigError) as caught:
        engine_for("vllm", upstream)
    assert caught.value.path == "models.upstream"
    assert caught.value.hint
    assert "pw" not in caught.value.one_line()


def test_explicit_keeps_what_is_set() -> None:
    assert explicit(Sampling(temperature=0.0, top_p=0.5)) == Sampling(
        temperature=0.0,
        top_p=0.5,
        top_k=0,
        min_p=0.0,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        repetition_penalty=1.0,
    )


def test_logprob_spaces() -> None:
    assert logprob_space("processed_logprobs", "raw") == "processed"
    assert logprob_space(None, "processed") == "processed"
    assert logprob_space("raw_logprobs", "processed") == "raw"
    assert logprob_space("raw_logits", "raw") is None
