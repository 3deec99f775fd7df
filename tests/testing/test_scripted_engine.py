import json
import math
import os
import subprocess
import sys

import aiohttp
import pytest

from agentworld.testing import ScriptedEngine, ScriptedReply, WireFaults, byte_tokenizer
from agentworld.testing.scripted_engine import default_logprob, load_script
from tests.engines.sse import choices, events, joined, until

TOOLS = [{"type": "function", "function": {"name": "f"}}]
CALL = 'See é.\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
ASK = {"messages": [{"role": "user", "content": "hi"}], "return_token_ids": True, "logprobs": True}
STREAM = ASK | {"stream": True, "stream_options": {"include_usage": True}}
TOKENIZER = byte_tokenizer()


def scripted_shout(request):
    return request.messages[-1]["content"].upper()


async def post(engine, body, route="/v1/chat/completions"):
    async with aiohttp.ClientSession() as session, session.post(engine.url + route, json=body) as reply:
        return reply.status, await reply.read()


async def test_a_plain_chat_reply_has_ids_logprobs_and_usage():
    async with ScriptedEngine("héllo") as engine:
        status, raw = await post(engine, ASK | {"top_logprobs": 2})
    body = json.loads(raw)
    choice = body["choices"][0]
    ids = TOKENIZER.encode("héllo<|im_end|>")
    assert status == 200
    assert choice["message"] == {"role": "assistant", "content": "héllo"}
    assert choice["token_ids"] == ids
    assert body["prompt_token_ids"] == TOKENIZER.encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    assert body["usage"]["completion_tokens"] == len(ids)
    assert body["usage"]["prompt_tokens"] == len(body["prompt_token_ids"])
    entries = choice["logprobs"]["content"]
    assert [e["logprob"] for e in entries] == [default_logprob(i, p) for p, i in enumerate(ids)]
    assert all(len(e["top_logprobs"]) == 2 for e in entries)
    assert [e["bytes"] for e in entries] == [list(TOKENIZER.token_bytes(i)) for i in ids]
    assert choice["finish_reason"] == "stop"
    assert body["logprobs_mode"] == "raw_logprobs"
    assert engine.requests[0].sampled_ids == [ids]
    assert engine.requests[0].finished


@pytest.mark.parametrize("text", ["héllo 😀 ", CALL, "<think>\nwhy\n</think>\n\nso", "x<tool_call>{", "\n\n a \n"])
@pytest.mark.parametrize("tools", [None, TOOLS])
async def test_a_stream_says_what_the_plain_reply_says(text, tools):
    extra = {"tools": tools} if tools else {}
    async with ScriptedEngine(text) as engine:
        _, plain = await post(engine, ASK | extra)
        _, streamed = await post(engine, STREAM | extra)
    body, (chunks, done) = json.loads(plain), events(streamed)
    message, entries = body["choices"][0]["message"], choices(chunks)
    content, ids, logprobs = joined(entries)
    assert done
    assert content == (message["content"] or "")
    assert "".join(e["delta"].get("reasoning") or "" for e in entries) == message.get("reasoning", "")
    calls = [call["function"] for e in entries for call in e["delta"].get("tool_calls") or []]
    assert calls == [call["function"] for call in message.get("tool_calls", [])]
    assert ids == body["choices"][0]["token_ids"]
    assert len(logprobs) == len(ids)
    assert [bool(c.get("prompt_token_ids")) for c in chunks] == [True] + [False] * (len(chunks) - 1)
    assert [e["finish_reason"] for e in entries if e["finish_reason"]] == [body["choices"][0]["finish_reason"]]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == body["usage"]


async def test_completions_of_several_prompts_and_choices():
    async with ScriptedEngine(lambda request: f"{request.prompt_text}{request.choice}") as engine:
        _, raw = await post(
            engine,
            {"prompt": ["a", "b"], "n": 2, "logprobs": 1, "return_token_ids": True},
            "/v1/completions",
        )
        _, streamed = await post(
            engine,
            {"prompt": ["a", "b"], "n": 2, "logprobs": 1, "return_token_ids": True, "stream": True},
            "/v1/completions",
        )
    body, (chunks, _) = json.loads(raw), events(streamed)
    assert [c["text"] for c in body["choices"]] == ["a0", "a1", "b2", "b3"]
    assert [c["prompt_token_ids"] for c in body["choices"]] == [[97], [97], [98], [98]]
    assert body["usage"]["prompt_tokens"] == 2
    for choice in body["choices"]:
        entries = choices(chunks, choice["index"])
        assert joined(entries) == (choice["text"], choice["token_ids"], choice["logprobs"]["token_logprobs"])
        assert [e["prompt_token_ids"] for e in entries] == [choice["prompt_token_ids"]] + [None] * (len(entries) - 1)
        assert len(choice["logprobs"]["tokens"]) == len(choice["token_ids"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "text", "ids", "finish", "reason"),
    [
        ({"max_tokens": 3}, "hel", "hel", "length", None),
        ({"stop": ["lo"]}, "hel", "hello", "stop", "lo"),
        ({"stop": ["lo"], "include_stop_str_in_output": True}, "hello", "hello", "stop", "lo"),
        ({"stop_token_ids": [101]}, "h", "he", "stop", 101),
        ({"skip_special_tokens": False}, "hello wo", "hello wo<|im_end|>", "stop", None),
    ],
)
async def test_where_a_reply_ends(body, text, ids, finish, reason, stream):
    async with ScriptedEngine("hello wo") as engine:
        _, raw = await post(engine, (STREAM if stream else ASK) | body)
    if stream:
        chunks, _ = events(raw)
        got_text, got_ids, logprobs = joined(choices(chunks))
        last, used = choices(chunks)[-1], chunks[-1]["usage"]
    else:
        reply = json.loads(raw)
        last, used = reply["choices"][0], reply["usage"]
        got_text, got_ids = last["message"]["content"], last["token_ids"]
        logprobs = last["logprobs"]["content"]
    assert (got_text, got_ids) == (text, TOKENIZER.encode(ids))
    assert (last["finish_reason"], last["stop_reason"]) == (finish, reason)
    assert used["completion_tokens"] == len(got_ids) == len(logprobs)


async def test_a_cut_call_says_length_and_no_call():
    async with ScriptedEngine(CALL) as engine:
        _, raw = await post(engine, ASK | {"tools": TOOLS, "max_tokens": 20})
    choice = json.loads(raw)["choices"][0]
    assert choice["finish_reason"] == "length"
    assert "tool_calls" not in choice["message"]
    assert choice["message"]["content"].startswith("See é.\n<tool_call>")


async def test_a_list_of_replies_is_used_in_order_and_ends():
    async with ScriptedEngine(["one", ScriptedReply(ids=[98], finish_reason="length")]) as engine:
        replies = [await post(engine, ASK) for _ in range(3)]
    assert json.loads(replies[0][1])["choices"][0]["message"]["content"] == "one"
    second = json.loads(replies[1][1])["choices"][0]
    assert (second["token_ids"], second["finish_reason"]) == ([98], "length")
    assert replies[2][0] == 500


async def test_a_policy_that_changes_inside_a_reply_is_told():
    async with ScriptedEngine(ScriptedReply(text="abc", token_delay=0.001)) as engine:
        engine.set_policy(3, "run-1")
        play = engine._play

        async def switching(job, index, reply):
            async for tokens in play(job, index, reply):
                yield tokens
                if tokens.ids == [98]:
                    engine.set_policy(4, "run-1")

        engine._play = switching
        _, raw = await post(engine, STREAM)
        _, after = await post(engine, ASK)
    chunks, _ = events(raw)
    assert chunks[0]["policy_version"] == 3
    assert choices(chunks)[-1]["version_spans"] == [[0, 3], [2, 4]]
    assert json.loads(after)["policy_version"] == 4
    assert json.loads(after)["policy_run"] == "run-1"
    assert "version_spans" not in json.loads(after)["choices"][0]


async def test_a_reply_is_cut_where_the_weights_are_of_another_run():
    async with ScriptedEngine("abc", version=3) as engine:
        play = engine._play

        async def switching(job, index, reply):
            async for tokens in play(job, index, reply):
                yield tokens
                engine.set_policy(0, "other")

        engine._play = switching
        _, raw = await post(engine, {**ASK, "n": 2})
    reply = json.loads(raw)
    told = [(choice["finish_reason"], choice["token_ids"]) for choice in reply["choices"]]
    assert told == [("abort", [97]), ("abort", [])]
    assert (reply["policy_version"], reply["policy_run"]) == (3, None)


@pytest.mark.parametrize("size", [1, 2, 7])
async def test_splitting_changes_no_byte(size):
    faults = WireFaults(split=size, empty_choices=True, keep_alive=True)
    async with ScriptedEngine(ScriptedReply(text="é😀", faults=faults)) as engine:
        _, raw = await post(engine, STREAM)
    chunks, done = events(raw)
    assert done
    assert joined(choices(chunks))[0] == "é😀"
    assert raw.count(b": ping\n") == sum(1 for chunk in chunks if chunk["choices"]) + 1
    assert b": ping\n\n" not in raw
    assert sum(1 for chunk in chunks if not chunk["choices"]) > sum(1 for chunk in chunks if chunk["choices"])


@pytest.mark.parametrize("body", [ASK, STREAM])
async def test_dropped_connections(body):
    reply = ScriptedReply(text="abcdef", faults=WireFaults(drop_after=2))
    got = b""
    async with ScriptedEngine(reply) as engine, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            async with session.post(engine.url + "/v1/chat/completions", json=body) as response:
                async for piece in response.content.iter_any():
                    got += piece
    assert b"DONE" not in got
    if body is ASK:
        assert got == b""
    else:
        assert joined(choices(events(got)[0]))[0] == "ab"


async def test_wrong_counts_missing_ids_and_nan():
    async def ask(faults, body=ASK):
        async with ScriptedEngine(ScriptedReply(text="abc", faults=faults)) as engine:
            return (await post(engine, body))[1]

    short = json.loads(await ask(WireFaults(id_count=-1)))
    assert len(short["choices"][0]["token_ids"]) == short["usage"]["completion_tokens"] - 1
    chunks, _ = events(await ask(WireFaults(id_count=2), STREAM))
    assert len(joined(choices(chunks))[1]) == chunks[-1]["usage"]["completion_tokens"] + 2
    chunks, _ = events(await ask(WireFaults(without_ids=True), STREAM))
    assert joined(choices(chunks))[1] == []
    nan = json.loads(await ask(WireFaults(nan_logprobs=True)))
    assert all(math.isnan(entry["logprob"]) for entry in nan["choices"][0]["logprobs"]["content"])
    with pytest.raises(json.JSONDecodeError):
        json.loads(await ask(WireFaults(malformed=True)))
    with pytest.raises(json.JSONDecodeError):
        events(await ask(WireFaults(malformed=True), STREAM))
    chunks, done = events(await ask(WireFaults(without_done=True, without_usage=True), STREAM))
    assert not done
    assert not any("usage" in chunk for chunk in chunks)


async def test_errors_on_demand_and_for_real():
    busy = ScriptedReply(status=429, error_body={"error": {"message": "busy"}})
    async with ScriptedEngine(busy, max_model_len=30) as engine:
        assert await post(engine, ASK) == (429, b'{"error":{"message":"busy"}}')
        status, raw = await post(engine, ASK | {"max_tokens": 20})
        assert (status, json.loads(raw)["error"]["code"]) == (400, "context_length_exceeded")
        status, raw = await post(engine, ASK | {"model": "other"})
        assert (status, json.loads(raw)["error"]["param"]) == (404, "model")
        status, raw = await post(engine, {"prompt": [300]}, "/v1/completions")
        assert (status, json.loads(raw)["error"]["param"]) == (400, "prompt")
        status, raw = await post(engine, {}, "/v1/nothing")
        assert (status, json.loads(raw)["error"]["code"]) == (404, "not_found")
        bad = aiohttp.request("POST", engine.url + "/v1/completions", data=b'{"prompt":')
        async with bad as reply:
            assert reply.status == 400
            assert "not valid JSON" in (await reply.json())["error"]["message"]


async def test_a_fault_of_the_engine_is_an_error_in_shape(caplog):
    def broken(request):
        raise ZeroDivisionError("by script")

    async with ScriptedEngine(broken) as engine:
        for body in (ASK, STREAM):
            status, raw = await post(engine, body)
            error = json.loads(raw)["error"]
            assert (status, error["type"], error["code"]) == (500, "server_error", "internal_error")
            assert "by script" in error["message"]
    assert "POST /v1/chat/completions failed" in caplog.text


async def test_a_lone_surrogate_is_refused():
    raw = b'{"messages": [{"role": "user", "content": "\\ud800"}]}'
    async with ScriptedEngine() as engine, aiohttp.ClientSession() as session:
        reply = await session.post(engine.url + "/v1/chat/completions", data=raw)
        assert reply.status == 400


async def test_a_client_that_leaves_is_noticed(tmp_path):
    log = tmp_path / "tokens.jsonl"
    reply = ScriptedReply(text="a" * 10_000, token_delay=0.001)
    async with ScriptedEngine(reply, log_tokens=log) as engine, aiohttp.ClientSession() as session:
        async with session.post(engine.url + "/v1/chat/completions", json=STREAM) as response:
            await response.content.readline()
            response.close()
        await until(lambda: log.read_bytes().endswith(b"\n"))
    line = json.loads(log.read_text())
    assert line["finish_reason"] == "abort"
    assert len(line["token_ids"]) < 10_000
    assert not engine.requests[0].finished


async def test_the_models_route_names_the_vocabulary():
    async with ScriptedEngine(model="m", version=2) as engine, aiohttp.ClientSession() as session:
        async with session.get(engine.url + "/v1/models") as reply:
            model = (await reply.json())["data"][0]
        async with session.get(engine.url + "/health") as reply:
            assert reply.status == 200
        async with session.post(engine.url + "/reload", json={"path": "p", "version": 5}) as reply:
            assert (await reply.json())["policy"]["version"] == 5
    assert model["id"] == "m"
    assert model["vocabulary_digest"] == TOKENIZER.digest.hex()
    assert model["policy_version"] == 2


def test_it_runs_in_a_thread_for_callers_without_a_loop():
    from urllib.request import Request, urlopen

    with ScriptedEngine("hi") as engine:
        request = Request(f"{engine.url}/v1/chat/completions", json.dumps(ASK).encode(), {"X-Request-Id": "r-1"})
        with urlopen(request, timeout=100) as reply:
            assert json.load(reply)["id"] == "r-1"
    assert engine.requests[0].id == "r-1"
    with pytest.raises(RuntimeError, match="not running"):
        _ = engine.url


def test_it_runs_as_a_process(tmp_path):
    from urllib.request import Request, urlopen

    log = tmp_path / "tokens.jsonl"
    command = [sys.executable, "-m", "agentworld.testing.scripted_engine", "--log-tokens", str(log)]
    command += ["--script", "tests.testing.test_scripted_engine:scripted_shout"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            body = json.dumps(ASK | {"request_id": "r-2"}).encode()
            with urlopen(Request(f"{url}/v1/chat/completions", body), timeout=100) as reply:
                answer = json.load(reply)
        finally:
            process.terminate()
        assert process.wait(timeout=100) == 0
    assert answer["choices"][0]["message"]["content"] == "HI"
    assert json.loads(log.read_text()) == {
        "request_id": "r-2",
        "index": 0,
        "prompt_token_ids": answer["prompt_token_ids"],
        "token_ids": answer["choices"][0]["token_ids"],
        "finish_reason": "stop",
    }


@pytest.mark.parametrize("reference", ["nothing", "no.such.module:f", "json:nothing"])
def test_a_script_that_is_not_there_says_so(reference):
    from agentworld.errors import ConfigError

    with pytest.raises(ConfigError):
        load_script(reference)


async def test_the_openai_client_reads_it():
    openai = pytest.importorskip("openai")
    call = {"model": "scripted", "messages": ASK["messages"], "tools": TOOLS}
    content, calls = "", []
    async with ScriptedEngine(CALL) as engine:
        client = openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="x")
        plain = await client.chat.completions.create(**call)
        async for chunk in await client.chat.completions.create(**call, stream=True):
            content += chunk.choices[0].delta.content or ""
            calls += chunk.choices[0].delta.tool_calls or []
        await client.close()
    assert plain.choices[0].finish_reason == "tool_calls"
    assert plain.choices[0].message.content == content == "See é."
    assert [call.function.arguments for call in calls] == ['{"x": 1}']
    assert plain.choices[0].message.tool_calls[0].function.name == "f"
