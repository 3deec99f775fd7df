"""What the engine says it sampled is what a plain forward of the same weights says."""

import asyncio
import random

import pytest

from tests.engines.builtin.models import logits_of, rescore
from tests.engines.sse import choices, events, joined


def prompts(count, seed=0):
    chance = random.Random(seed)
    return [[chance.randrange(256) for _ in range(chance.randint(1, 60))] for _ in range(count)]


SETTINGS = [
    {"temperature": 1.0},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.3, "top_k": 7},
    {"temperature": 0.9, "min_p": 0.05},
    {"temperature": 0.8, "top_k": 30, "top_p": 0.8, "min_p": 0.01},
]


@pytest.mark.parametrize("mode", ["raw_logprobs", "processed_logprobs"])
async def test_logprobs_equal_a_full_forward_in_a_mixed_batch(client, model_directory, mode):
    async def ask(number, prompt):
        body = {
            "prompt": prompt,
            "max_tokens": 5 + 7 * (number % 4),
            "logprobs": 0,
            "return_token_ids": True,
            "logprobs_mode": mode,
            "seed": number,
            "n": 1 + number % 2,
            **SETTINGS[number % len(SETTINGS)],
        }
        return await client(body)

    asked = prompts(20)
    replies = await asyncio.gather(*(ask(number, prompt) for number, prompt in enumerate(asked)))
    assert {reply["logprobs_mode"] for reply in replies} == {mode}
    sampled = 0
    for number, (prompt, reply) in enumerate(zip(asked, replies, strict=True)):
        settings = SETTINGS[number % len(SETTINGS)] if mode == "processed_logprobs" else {}
        for choice in reply["choices"]:
            ids, given = choice["token_ids"], choice["logprobs"]["token_logprobs"]
            assert choice["prompt_token_ids"] == prompt
            assert given == pytest.approx(rescore(model_directory, prompt, ids, **settings), abs=1e-4)
            sampled += len(ids)
        assert reply["usage"]["completion_tokens"] == sum(len(c["token_ids"]) for c in reply["choices"])
    assert sampled > 300


async def test_temperature_zero_takes_the_best_and_reports_raw(client, model_directory):
    body = {"prompt": "hello", "max_tokens": 20, "temperature": 0, "logprobs": 3, "return_token_ids": True}
    reply = await client(body | {"logprobs_mode": "processed_logprobs"})
    choice = reply["choices"][0]
    ids, prompt = choice["token_ids"], list(b"hello")
    assert ids == logits_of(model_directory, prompt, ids).argmax(-1).tolist()
    assert reply["logprobs_mode"] == "raw_logprobs"
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(rescore(model_directory, prompt, ids), abs=1e-4)
    for token, value, row in zip(
        choice["logprobs"]["tokens"],
        choice["logprobs"]["token_logprobs"],
        choice["logprobs"]["top_logprobs"],
        strict=True,
    ):
        assert row[token] == value == max(row.values())


async def test_a_seed_gives_the_same_ids_alone_and_in_a_crowd(client):
    body = {"prompt": [5, 6, 7], "max_tokens": 25, "seed": 11, "ignore_eos": True, "return_token_ids": True}
    alone = (await client(body))["choices"][0]["token_ids"]
    crowd = [
        client({"prompt": prompt, "max_tokens": 30, "seed": number}) for number, prompt in enumerate(prompts(15, 3))
    ]
    again, *_ = await asyncio.gather(client(body), *crowd)
    other = await client(body | {"seed": 12})
    assert again["choices"][0]["token_ids"] == alone
    assert other["choices"][0]["token_ids"] != alone


async def test_choices_of_one_seed_differ_and_the_first_is_the_single_one(client):
    body = {"prompt": [5, 6, 7], "max_tokens": 25, "seed": 11, "return_token_ids": True}
    many = [choice["token_ids"] for choice in (await client(body | {"n": 4}))["choices"]]
    assert len({tuple(ids) for ids in many}) == 4
    assert many[0] == (await client(body))["choices"][0]["token_ids"]


@pytest.mark.parametrize("route", ["/v1/completions", "/v1/chat/completions"])
async def test_a_stream_carries_the_plain_reply(client, route):
    chat = "chat" in route
    opening = {"messages": [{"role": "user", "content": "hi"}], "logprobs": True} if chat else {"prompt": "hi"}
    body = opening | {"max_tokens": 60, "seed": 4, "return_token_ids": True, "n": 2}
    body.setdefault("logprobs", 0)
    plain = await client(body, route)
    status, raw = await client.raw(body | {"stream": True, "stream_options": {"include_usage": True}}, route)
    chunks, done = events(raw)
    assert (status, done) == (200, True)
    for choice in plain["choices"]:
        entries = choices(chunks, choice["index"])
        text, ids, logprobs = joined(entries)
        expected = choice["logprobs"]
        given = [e["logprob"] for e in expected["content"]] if chat else expected["token_logprobs"]
        assert text == (choice["message"]["content"] if chat else choice["text"])
        assert ids == choice["token_ids"]
        assert logprobs == pytest.approx(given, abs=1e-4)
        assert entries[-1]["finish_reason"] == choice["finish_reason"]
        firsts = [e.get("prompt_token_ids") for e in entries if e.get("prompt_token_ids")]
        assert firsts == ([] if chat else [list(b"hi")])
    if chat:
        assert [bool(chunk.get("prompt_token_ids")) for chunk in chunks] == [True] + [False] * (len(chunks) - 1)
        assert chunks[0]["prompt_token_ids"] == plain["prompt_token_ids"]
    assert chunks[-1]["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"]


async def test_the_token_log_holds_what_was_received_and_sampled(client):
    replies = [
        await client({"prompt": prompt, "max_tokens": 9, "return_token_ids": True, "request_id": f"r-{number}"})
        for number, prompt in enumerate(prompts(3))
    ]
    expected = [
        {
            "request_id": f"r-{number}",
            "index": 0,
            "prompt_token_ids": choice["prompt_token_ids"],
            "token_ids": choice["token_ids"],
            "finish_reason": choice["finish_reason"],
        }
        for number, reply in enumerate(replies)
        for choice in reply["choices"]
    ]
    assert [reply["id"] for reply in replies] == ["r-0", "r-1", "r-2"]
    assert client.logged() == expected


async def test_chat_prompts_are_the_renderers(client):
    from renderers import Qwen3RendererConfig, create_renderer

    from agentworld.engines.tokenizer import byte_tokenizer

    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hé"}]
    body = {"messages": messages, "tools": tools, "max_tokens": 2, "return_token_ids": True}
    reply = await client(body | {"chat_template_kwargs": {"enable_thinking": False}}, "/v1/chat/completions")
    renderer = create_renderer(byte_tokenizer(), Qwen3RendererConfig(enable_thinking=False))
    assert reply["prompt_token_ids"] == renderer.render_ids(messages, tools=tools, add_generation_prompt=True)


async def test_a_shared_beginning_is_computed_once_and_changes_nothing(client, model_directory):
    prompt = prompts(1, 9)[0] * 3
    body = {"prompt": prompt, "max_tokens": 20, "temperature": 0, "logprobs": 0, "return_token_ids": True}
    group = await client(body | {"n": 6, "temperature": 1.0, "logprobs_mode": "raw_logprobs"})
    assert group["usage"]["prompt_tokens_details"]["cached_tokens"] == len(prompt) - 1
    first = (await client(body))["choices"][0]
    turn = prompt + first["token_ids"] + [1, 2, 3]
    second = await client(body | {"prompt": turn})
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= len(prompt) + len(first["token_ids"]) - 1
    for asked, choice in [
        *((prompt, choice) for choice in group["choices"]),
        (prompt, first),
        (turn, second["choices"][0]),
    ]:
        scored = rescore(model_directory, asked, choice["token_ids"])
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(scored, abs=1e-4)


async def test_prompts_longer_than_a_chunk_join_running_ones(client, model_directory, monkeypatch):
    monkeypatch.setattr("agentworld.engines.builtin.runner.PREFILL_TOKENS", 32)
    asked = [prompts(1, seed)[0] * (1 + 3 * (seed % 3)) for seed in range(9)]
    body = {"max_tokens": 20, "logprobs": 0, "return_token_ids": True}
    replies = await asyncio.gather(*(client(body | {"prompt": prompt}) for prompt in asked))
    for prompt, reply in zip(asked, replies, strict=True):
        choice = reply["choices"][0]
        scored = rescore(model_directory, prompt, choice["token_ids"])
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(scored, abs=1e-4)
