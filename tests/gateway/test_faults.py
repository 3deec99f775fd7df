"""What goes wrong: engines that break, clients that leave, pools that fail. One clear error, nothing half-written."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import openai
import pytest

from agentworld.errors import PoolFullError
from agentworld.pool.memory import MemoryPool
from agentworld.records import Exchange
from agentworld.testing import ScriptedReply, WireFaults

from .harness import Harness, running, until

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
MODES = ["engine", "token-in"]


def reply(**faults: Any) -> ScriptedReply:
    return ScriptedReply(text="für 数", faults=WireFaults(**faults))


async def streamed(gateway: Harness, path: str = "/t/t1") -> tuple[str, str | None]:
    """Text and finish reason of a streamed call."""
    text, finish = "", None
    client = gateway.client(path)
    async for event in await client.chat.completions.create(model="m", messages=HELLO, stream=True):
        for choice in event.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    return text, finish


@pytest.mark.parametrize("tokens", MODES)
@pytest.mark.parametrize(
    "faults",
    [{"split": 1}, {"split": 3}, {"empty_choices": True}, {"keep_alive": True}, {"without_done": True}],
    ids=str,
)
async def test_odd_streams_are_read_whole(tokens: str, faults: dict[str, Any]) -> None:
    async with running(reply(**faults), tokens=tokens) as gateway:
        assert await streamed(gateway) == ("für 数", "stop")
        (step,) = gateway.steps("t1")
        assert step.excluded_reason is None
        assert step.response_ids == gateway.engine.requests[0].sampled_ids[0]


@pytest.mark.parametrize("tokens", MODES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        ({"id_count": -1}, "quarantined"),
        ({"id_count": 1}, "quarantined"),
    ],
    ids=str,
)
async def test_counts_that_disagree_quarantine_the_step(
    tokens: str, stream: bool, faults: dict[str, Any], reason: str
) -> None:
    async with running(reply(**faults), tokens=tokens) as gateway:
        if stream:
            assert (await streamed(gateway))[1] == "stop"
        else:
            assert (await gateway.say("hello", "/t/t1"))[0] == 200
        (step,) = gateway.steps("t1")
        assert step.readiness == "excluded"
        assert reason in (step.excluded_reason or "")


async def test_ids_that_were_demanded_and_did_not_come() -> None:
    async with running(reply(without_ids=True), tokens="engine") as gateway:
        assert (await gateway.say("hello", "/t/t1"))[0] == 200
        (step,) = gateway.steps("t1")
        assert step.readiness == "excluded"
        assert "no token ids" in (step.excluded_reason or "")


async def test_a_token_in_reply_without_ids_is_an_error() -> None:
    async with running(reply(without_ids=True), tokens="token-in") as gateway:
        status, body, _ = await gateway.say("hello", "/t/t1")
        assert (status, body["error"]["code"]) == (502, "engine_error")
        assert gateway.steps("t1") == []


async def test_auto_without_ids_is_text_only_and_says_so() -> None:
    async with running(reply(without_ids=True), tokens="auto") as gateway:
        assert (await gateway.say("hello", "/t/t1"))[0] == 200
        (step,) = gateway.steps("t1")
        assert (step.token_source, step.excluded_reason, step.response_ids) == ("none", None, None)
        async with gateway.http.get(gateway.url + "/readyz") as response:
            assert (await response.json())["models"][0]["tokens"] == "none"


@pytest.mark.parametrize("tokens", MODES)
@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities_that_are_no_numbers_become_null(tokens: str, stream: bool) -> None:
    async with running(reply(nan_logprobs=True), tokens=tokens) as gateway:
        if stream:
            await streamed(gateway)
        else:
            status, body, _ = await gateway.chat({"messages": HELLO, "logprobs": True}, "/t/t1")
            assert status == 200
            assert body["choices"][0]["logprobs"]["content"][0]["logprob"] == -9999.0
        (step,) = gateway.steps("t1")
        assert step.response_logprobs is not None
        assert set(step.response_logprobs) == {None}
        assert len(step.response_logprobs) == len(step.response_ids or [])


@pytest.mark.parametrize("tokens", MODES)
@pytest.mark.parametrize("faults", [{"drop_after": 0}, {"malformed": True}], ids=str)
async def test_a_plain_reply_that_breaks_is_an_error_on_record(tokens: str, faults: dict[str, Any]) -> None:
    async with running(reply(**faults), tokens=tokens) as gateway:
        status, body, _ = await gateway.say("hello", "/t/t1")
        assert (status, body["error"]["code"], body["error"]["type"]) == (502, "engine_error", "server_error")
        assert gateway.steps("t1") == []
        (exchange,) = gateway.pool.list_exchanges("t1")
        assert exchange.error is not None
        assert exchange.error["code"] == "engine_error"


@pytest.mark.parametrize("tokens", MODES)
@pytest.mark.parametrize("faults", [{"drop_after": 3}, {"malformed": True}], ids=str)
async def test_a_stream_that_breaks_ends_with_an_error_event(tokens: str, faults: dict[str, Any]) -> None:
    async with running(reply(**faults), tokens=tokens) as gateway:
        with pytest.raises(openai.APIError) as caught:
            await streamed(gateway)
        assert "Traceback" not in str(caught.value)
        assert gateway.steps("t1") == []
        assert [bool(exchange.error) for exchange in gateway.pool.list_exchanges("t1")] == [True]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "body", "expected", "code"),
    [
        (400, {"error": {"message": "bad stop", "type": "x", "param": "stop", "code": 400}}, 400, "invalid_request"),
        (
            400,
            {"error": {"message": "This model's maximum context length is 8 tokens.", "code": 400}},
            400,
            "context_length_exceeded",
        ),
        (429, {"error": {"message": "full"}}, 429, "rate_limit_exceeded"),
        (401, {"error": {"message": "who"}}, 502, "engine_error"),
        (404, {"error": {"message": "no model"}}, 502, "engine_error"),
        (500, "<html>Traceback (most recent call last)</html>", 502, "engine_error"),
        (503, {"detail": "loading"}, 503, "engine_unreachable"),
    ],
)
async def test_errors_of_the_engine_reach_the_caller(
    status: int, body: Any, expected: int, code: str, stream: bool
) -> None:
    async with running(ScriptedReply(status=status, error_body=body)) as gateway:
        got, answer, headers = await gateway.chat({"messages": HELLO, "stream": stream}, "/t/t1")
        assert (got, answer["error"]["code"]) == (expected, code)
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        assert headers["x-agentworld-trajectory"] == "t1"
        (exchange,) = gateway.pool.list_exchanges("t1")
        assert exchange.error is not None
        assert exchange.error["status"] == expected


async def test_a_prompt_over_the_engines_context() -> None:
    for tokens in MODES:
        async with running("x", tokens=tokens, engine={"max_model_len": 64}) as gateway:
            with pytest.raises(openai.BadRequestError) as caught:
                client = gateway.client("/t/t1")
                await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "long " * 50}])
            assert caught.value.code == "context_length_exceeded"
            trajectory = gateway.pool.get_trajectory("t1")
            assert (trajectory.status, trajectory.step_count) == ("open", 0)


async def test_nothing_answers_at_the_engine() -> None:
    async with running(upstream="http://127.0.0.1:9") as gateway:
        status, body, headers = await gateway.say("hello")
        assert (status, body["error"]["code"]) == (503, "engine_unreachable")
        assert "127.0.0.1:9" in body["error"]["message"]
        assert "retry-after" in headers


async def test_an_engine_that_is_too_slow() -> None:
    slow = ScriptedReply(text="x", first_token_delay=30.0)
    async with running(slow, serve={"upstream_timeout": 0.2}) as gateway:
        status, body, _ = await gateway.say("hello")
        assert (status, body["error"]["code"]) == (504, "engine_timeout")


@pytest.mark.parametrize("tokens", MODES)
async def test_a_client_that_leaves_mid_stream(tokens: str) -> None:
    async with running(ScriptedReply(text="word " * 2000, token_delay=0.005), tokens=tokens) as gateway:
        client = gateway.client("/t/t1")
        stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
        seen = ""
        async for event in stream:
            seen += event.choices[0].delta.content or ""
            if len(seen) > 12:
                break
        await stream.close()
        await until(lambda: gateway.gateway.in_flight == 0)
        (step,) = gateway.steps("t1")
        assert step.finish_reason == "abort"
        assert step.readiness == "excluded"
        assert step.response_message is not None
        assert step.response_message.text.startswith(seen)
        (call,) = gateway.engine.requests
        count = len(call.sampled_ids[0])
        assert step.response_ids == call.sampled_ids[0][: len(step.response_ids or [])]
        # The engine stopped working on it.
        assert not call.finished
        await asyncio.sleep(0.05)
        assert len(call.sampled_ids[0]) <= count + 1


async def test_a_client_that_leaves_before_a_plain_reply() -> None:
    async with running(ScriptedReply(text="x", first_token_delay=30.0)) as gateway:
        call = asyncio.create_task(gateway.say("hello", "/t/t1"))
        await until(lambda: len(gateway.engine.requests) == 1)
        call.cancel()
        await until(lambda: gateway.gateway.in_flight == 0)
        (exchange,) = gateway.pool.list_exchanges("t1")
        assert exchange.error is not None
        assert exchange.error["code"] == "client_closed_request"
        assert gateway.steps("t1") == []


class HeldPool(MemoryPool):
    """A pool whose commits wait until they are let go, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Future[Any], Exchange]] = []
        self.fail = False

    def submit_exchange(self, exchange: Exchange) -> Future[Any]:
        future: Future[Any] = Future()
        if self.fail:
            future.set_exception(PoolFullError("the disk is full", hint="Free some space"))
        else:
            self.held.append((future, exchange))
        return future

    def let_go(self) -> None:
        future, exchange = self.held.pop()
        future.set_result(super().submit_exchange(exchange).result())


@pytest.mark.parametrize("tokens", MODES)
async def test_the_finish_is_sent_only_once_the_step_is_durable(tokens: str) -> None:
    pool = HeldPool()
    async with running("abc", tokens=tokens, pool=pool) as gateway:
        seen: list[Any] = []

        async def read() -> None:
            client = gateway.client("/t/t1")
            async for event in await client.chat.completions.create(model="m", messages=HELLO, stream=True):
                seen.append(event.choices[0])

        reading = asyncio.create_task(read())
        await until(lambda: len(pool.held) == 1)
        await until(lambda: "".join(choice.delta.content or "" for choice in seen) == "abc")
        assert all(choice.finish_reason is None for choice in seen)
        pool.let_go()
        await reading
        assert seen[-1].finish_reason == "stop"
        assert len(gateway.steps("t1")) == 1

        plain = asyncio.create_task(gateway.say("x", "/t/t2"))
        await until(lambda: len(pool.held) == 1)
        assert not plain.done()
        pool.let_go()
        assert (await plain)[0] == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_disk_is_an_error_and_no_reply(stream: bool) -> None:
    pool = HeldPool()
    pool.fail = True
    async with running("abc", pool=pool) as gateway:
        if stream:
            with pytest.raises(openai.APIError) as caught:
                await streamed(gateway)
            assert "disk is full" in str(caught.value)
        else:
            status, body, _ = await gateway.say("x", "/t/t1")
            assert (status, body["error"]["code"]) == (507, "pool_full")


async def test_bodies_that_are_wrong() -> None:
    async with running(serve={"max_body_bytes": 1000}) as gateway:
        url = gateway.url + "/v1/chat/completions"
        for data, status, param in (
            (b"{", 400, None),
            (b"[]", 400, None),
            (b"\xff\xfe", 400, None),
            (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400, None),
            (b'{"messages": "x"}', 400, "messages"),
            (b'{"messages": [{"role": "robot", "content": "x"}]}', 400, "messages[0].role"),
            (b'{"messages": [{"role": "user", "content": "x"}], "temperature": "hot"}', 400, "temperature"),
            (b'{"messages": [{"role": "user", "content": "x"}], "temprature": 1}', 400, "temprature"),
            (b'{"messages": [{"role": "user", "content": "' + b"x" * 1000 + b'"}]}', 413, None),
            (b"[" * 900, 400, None),
        ):
            async with gateway.http.post(url, data=data) as response:
                body = await response.json()
                assert (response.status, body["error"]["param"]) == (status, param), data[:60]
                assert body["error"]["message"]
        assert gateway.engine.requests == []


async def test_paths_that_are_wrong() -> None:
    async with running() as gateway:
        for method, path, status in (
            ("GET", "/nothing", 404),
            ("GET", "/v1/chat/completions", 405),
            ("POST", "/v1/embeddings", 404),
            ("POST", "/t/t1/v1/embeddings", 404),
            ("POST", "/t/%20/v1/chat/completions", 400),
            ("POST", "/t/a/g/%2e%2e/v1/chat/completions", 400),
        ):
            async with gateway.http.request(method, gateway.url + path, json={}) as response:
                assert (response.status, "error" in await response.json()) == (status, True), path


async def test_a_fault_of_ours_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as gateway:

        def broken(*_: Any) -> Any:
            raise RuntimeError("secret detail")

        monkeypatch.setattr(gateway.gateway.models, "find", broken)
        status, body, _ = await gateway.say("x")
        assert (status, body["error"]["code"]) == (500, "internal_error")
        assert "secret" not in body["error"]["message"]
