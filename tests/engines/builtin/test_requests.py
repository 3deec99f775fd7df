"""Where replies end, what is refused, what happens when a client leaves."""

import asyncio
import json

import pytest

from tests.engines.sse import choices, events, until

A, END = 97, 258


def force(*ids, weight=100):
    return {str(token_id): weight for token_id in ids}


async def test_the_end_of_turn_is_an_id_with_a_logprob_and_no_text(client):
    body = {"prompt": "x", "logit_bias": force(END), "logprobs": 0, "return_token_ids": True}
    reply = await client(body)
    choice = reply["choices"][0]
    assert (choice["token_ids"], choice["text"]) == ([END], "")
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", None)
    assert len(choice["logprobs"]["token_logprobs"]) == reply["usage"]["completion_tokens"] == 1
    ignored = (await client(body | {"ignore_eos": True, "max_tokens": 3}))["choices"][0]
    assert (ignored["token_ids"], ignored["finish_reason"]) == ([END] * 3, "length")


@pytest.mark.parametrize(
    ("stop", "text", "ids"),
    [
        ({"stop": ["aaa"]}, "", [A] * 3),
        ({"stop": "aa", "include_stop_str_in_output": True}, "aa", [A] * 2),
        ({"stop_token_ids": [A]}, "", [A]),
        ({"stop_token_ids": [A], "include_stop_str_in_output": True}, "a", [A]),
        ({"max_tokens": 4}, "aaaa", [A] * 4),
        ({"min_tokens": 3, "stop_token_ids": [A], "logit_bias": {"97": 100, "98": 90}}, "bbb", [98] * 3 + [A]),
    ],
)
async def test_every_way_to_stop_keeps_ids_logprobs_and_usage_together(client, stop, text, ids):
    body = {"prompt": "x", "logit_bias": force(A), "max_tokens": 9, "logprobs": 0, "return_token_ids": True}
    reply = await client(body | stop)
    choice = reply["choices"][0]
    assert (choice["text"], choice["token_ids"]) == (text, ids)
    assert reply["usage"]["completion_tokens"] == len(ids) == len(choice["logprobs"]["token_logprobs"])


async def test_penalties_and_bias_move_the_distribution(client):
    body = {"prompt": "x", "max_tokens": 30, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    biased = body | {"logit_bias": force(A, weight=40)}
    repeated = (await client(biased))["choices"][0]["token_ids"]
    penalised = (await client(biased | {"frequency_penalty": 2.0, "presence_penalty": 2.0}))["choices"][0]
    assert repeated == [A] * 30
    assert penalised["token_ids"].count(A) < 30
    once = (await client(body | {"repetition_penalty": 100.0}))["choices"][0]["token_ids"]
    assert len(set(once)) > len(set((await client(body))["choices"][0]["token_ids"]))


async def test_max_tokens_left_out_means_the_rest_of_the_context(start):
    client = await start(max_model_len=40)
    reply = await client({"prompt": [1] * 30, "ignore_eos": True})
    assert reply["usage"]["completion_tokens"] == 10
    assert reply["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("route", "body", "status", "code", "param"),
    [
        ("/v1/completions", {"prompt": [1] * 500, "max_tokens": 50}, 400, "context_length_exceeded", "messages"),
        ("/v1/completions", {"prompt": [1] * 512}, 400, "context_length_exceeded", "messages"),
        ("/v1/completions", {"prompt": []}, 400, "invalid_request", "prompt"),
        ("/v1/completions", {"prompt": [265]}, 400, "invalid_request", "prompt"),
        ("/v1/completions", {"prompt": "x", "stop_token_ids": [999]}, 400, "invalid_request", None),
        ("/v1/completions", {"prompt": "x", "model": "gpt-4"}, 404, "not_found", "model"),
        ("/v1/completions", {"prompt": "x", "n": "2"}, 400, "invalid_request", "n"),
        ("/v1/chat/completions", {"messages": []}, 400, "invalid_request", "messages"),
        ("/v1/other", {}, 404, "not_found", None),
        ("/reload", {"path": "/nowhere", "version": "1"}, 400, "invalid_request", "version"),
        ("/reload", {"version": 1}, 400, "invalid_request", "path"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_refusals_have_openais_shape(client, route, body, status, code, param, stream):
    got, raw = await client.raw(body | ({"stream": True} if stream else {}), route)
    error = json.loads(raw)["error"]
    assert (got, error["code"], error["param"]) == (status, code, param)
    assert error["type"] == "invalid_request_error"
    assert error["message"]


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b"\xff"])
async def test_what_is_not_a_json_object_is_refused(client, raw):
    async with client.session.post(client.url + "/v1/completions", data=raw) as reply:
        assert reply.status == 400
        assert (await reply.json())["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_its_row(client, stream):
    runner = client.engine._runner
    held = []
    step = runner._step

    def slow_once_alone(*arguments):
        # The reply cannot end by itself while the test waits for the abort.
        for sequence in runner._rows:
            sequence.limit = len(sequence.reply) + 100
        held.append(len(runner._rows))
        if len(runner._rows[0].tokens) < 400:
            step(*arguments)

    runner._step = slow_once_alone
    body = {"prompt": "x", "max_tokens": 400, "ignore_eos": True, "stream": stream}
    call = asyncio.ensure_future(client.session.post(client.url + "/v1/completions", json=body))
    await until(lambda: held and (call.done() or not stream))
    if stream:
        await (await call).content.readline()
        (await call).close()
    else:
        call.cancel()
    await until(lambda: not runner._rows)
    runner._step = step
    assert max(held) == 1
    await until(lambda: client.log.read_bytes().endswith(b"\n"))
    (line,) = client.logged()
    assert line["finish_reason"] == "abort"
    assert bool(line["token_ids"]) == stream
    assert (await client({"prompt": "x", "max_tokens": 2}))["usage"]["completion_tokens"] == 2


async def test_a_step_that_fails_is_an_error_to_its_callers_only(client, monkeypatch):
    def broken(*_):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(client.engine._runner, "_step", broken)
        status, raw = await client.raw({"prompt": "x"})
    assert status == 502
    assert "out of memory" in json.loads(raw)["error"]["message"]
    assert (await client({"prompt": "x", "max_tokens": 2}))["usage"]["completion_tokens"] == 2


async def test_more_requests_than_rows_wait_their_turn(start):
    client = await start(max_batch=2)
    body = {"prompt": ["a", "b", "c"], "n": 3, "max_tokens": 6, "ignore_eos": True, "stream": True}
    _, raw = await client.raw(body | {"return_token_ids": True})
    chunks, done = events(raw)
    assert done
    for index in range(9):
        assert sum(len(entry["token_ids"]) for entry in choices(chunks, index)) == 6


async def test_what_the_server_tells_of_itself(client):
    from agentworld.engines.tokenizer import byte_tokenizer

    async with client.session.get(client.url + "/v1/models") as reply:
        model = (await reply.json())["data"][0]
    async with client.session.get(client.url + "/health") as reply:
        assert (reply.status, (await reply.json())["policy_version"]) == (200, 0)
    assert model["max_model_len"] == 512
    assert model["vocabulary_digest"] == byte_tokenizer().digest.hex()
    assert (model["policy_version"], model["chat_format"]) == (0, "qwen3")
