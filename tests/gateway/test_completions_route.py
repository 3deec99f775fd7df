"""The completions route end to end, with the official client: prompts go to the engine as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest

from agentworld.records import Message
from agentworld.testing import ScriptedReply
from agentworld.testing.wire_faults import WireFaults

from .harness import running

MODES = ["engine", "token-in"]


@pytest.mark.parametrize("tokens", MODES)
async def test_a_text_goes_without_a_template(tokens: str) -> None:
    async with running("upon a time", tokens=tokens) as gateway:
        client = gateway.client("/t/t1")
        plain = await client.completions.create(model="m", prompt="once ", max_tokens=50)
        streamed = ""
        finish = None
        async for chunk in await client.completions.create(model="m", prompt="once ", max_tokens=50, stream=True):
            streamed += chunk.choices[0].text
            finish = chunk.choices[0].finish_reason or finish
        assert (plain.choices[0].text, plain.choices[0].finish_reason) == ("upon a time", "stop")
        assert (streamed, finish) == ("upon a time", "stop")
        ids = list(b"once ")
        assert [call.prompt_ids[0] for call in gateway.engine.requests] == [ids, ids]
        assert {call.kind for call in gateway.engine.requests} == {"completions"}
        first, second = gateway.steps("t1")
        assert (first.dialect, first.token_source, first.prompt_ids) == ("completions", tokens, ids)
        assert first.response_ids == gateway.engine.requests[0].sampled_ids[0]
        assert first.prompt_messages == [Message(role="user", content="once ")]
        assert first.response_message == Message(role="assistant", content="upon a time")
        assert (first.fork_reason, second.fork_reason, second.excluded_reason) == (None, "parallel", None)


@pytest.mark.parametrize("tokens", MODES)
async def test_ids_go_as_they_are(tokens: str) -> None:
    async with running("abc", tokens=tokens) as gateway:
        answer = await gateway.client("/t/t1").completions.create(
            model="m", prompt=[5, 259, 7], max_tokens=50, extra_body={"return_token_ids": True}
        )
        (step,) = gateway.steps("t1")
        assert gateway.engine.requests[0].prompt_ids == [[5, 259, 7]]
        assert (step.prompt_ids, step.token_source, step.excluded_reason) == ([5, 259, 7], "token-in", None)
        assert not step.prompt_messages
        extra = answer.choices[0].model_extra or {}
        assert (extra["prompt_token_ids"], extra["token_ids"]) == ([5, 259, 7], step.response_ids)


@pytest.mark.parametrize("tokens", MODES)
async def test_ids_that_go_on_continue_their_step(tokens: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    prompt = [72, 73]
    async with running("abc", tokens=tokens, pool=url) as gateway:
        client = gateway.client("/t/t1")
        for _ in range(2):
            answer = await client.completions.create(
                model="m", prompt=prompt, max_tokens=2, extra_body={"return_token_ids": True}
            )
            prompt = [*prompt, *(answer.choices[0].model_extra or {})["token_ids"], 10]
    async with running("abc", tokens=tokens, pool=url) as gateway:
        client = gateway.client("/t/t1")
        await client.completions.create(model="m", prompt=prompt, max_tokens=2)
        await client.completions.create(model="m", prompt=[*prompt[:-1], 11], max_tokens=2)
        await client.completions.create(model="m", prompt=prompt, max_tokens=2)
        await client.completions.create(model="m", prompt=[90], max_tokens=2)
        steps = gateway.steps("t1")
    ids = [step.step_id for step in steps]
    assert [step.parent_step_id for step in steps] == [None, ids[0], ids[1], ids[1], ids[1], None]
    assert [step.fork_reason for step in steps] == [None, None, None, "history_rewritten", "parallel", "subagent"]


@pytest.mark.parametrize("tokens", MODES)
async def test_text_that_goes_on_continues_its_step(tokens: str) -> None:
    async with running([ScriptedReply(text="hello", finish_reason="length"), "bye", "x"], tokens=tokens) as gateway:
        client = gateway.client("/t/t1")
        prompt = "Q: hi\nA: "
        for rest in ("\nQ: and?\nA: ", "\nQ: so?\nA: "):
            answer = await client.completions.create(model="m", prompt=prompt, max_tokens=50)
            prompt += answer.choices[0].text + rest
        await client.completions.create(model="m", prompt=prompt, max_tokens=50)
        first, second, third = gateway.steps("t1")
        assert second.parent_step_id == first.step_id
        assert third.parent_step_id == second.step_id
        assert "".join(message.text for message in third.prompt_messages or []) == prompt
        assert [message.role for message in third.prompt_messages or []] == [
            *("user", "assistant", "user", "assistant", "user")
        ]
        whole = [*(first.prompt_ids or []), *(first.response_ids or [])]
        assert (second.prompt_ids or [])[: len(whole)] == whole
        assert second.fork_reason is None
        if tokens == "token-in":
            assert second.metadata["prompt"] == "bridged"
            # The second reply ended with an end of turn, which its text does not show and the caller left out.
            assert (third.metadata["prompt"], third.fork_reason) == ("encoded", "template")


async def test_an_end_of_turn_that_the_caller_puts_back_is_the_sampled_one() -> None:
    async with running("hello", tokens="token-in") as gateway:
        client = gateway.client("/t/t1")
        await client.completions.create(model="m", prompt="a", max_tokens=50)
        await client.completions.create(model="m", prompt="ahello<|im_end|>\nb", max_tokens=50)
        first, second = gateway.steps("t1")
        assert second.prompt_ids == [*(first.prompt_ids or []), *(first.response_ids or []), *b"\nb"]
        assert (second.metadata["prompt"], second.fork_reason) == ("bridged", None)


async def test_a_chat_is_not_continued_by_a_text_that_reads_like_it() -> None:
    async with running("there") as gateway:
        await gateway.say("hi", "/t/t1")
        await gateway.client("/t/t1").completions.create(model="m", prompt="hithere and", max_tokens=50)
        chat, completion = gateway.steps("t1")
        assert completion.parent_step_id is None
        assert len(completion.prompt_messages or []) == 1
        assert chat.dialect == "chat"


async def test_a_chat_does_not_go_on_in_the_trajectory_of_a_completion() -> None:
    async with running("there") as gateway:
        await gateway.client().completions.create(model="m", prompt="hi", max_tokens=50)
        messages: list[Any] = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "there"}]
        await gateway.client().chat.completions.create(model="m", messages=[*messages, messages[0]])
        completion, chat = gateway.steps()
        assert chat.trajectory_id != completion.trajectory_id


@pytest.mark.parametrize("tokens", MODES)
@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities(tokens: str, stream: bool) -> None:
    async with running("abc", tokens=tokens) as gateway:
        client = gateway.client("/t/t1")
        body: dict[str, Any] = {"model": "m", "prompt": "x", "max_tokens": 50, "logprobs": 2, "n": 2}
        found: list[list[float]] = [[], []]
        if stream:
            async for chunk in await client.completions.create(**body, stream=True):
                for choice in chunk.choices:
                    if choice.logprobs is not None:
                        found[choice.index].extend(choice.logprobs.token_logprobs or [])
        else:
            answer = await client.completions.create(**body)
            for choice in answer.choices:
                assert choice.logprobs is not None
                assert choice.logprobs.tokens is not None
                assert choice.logprobs.tokens[:3] == ["a", "b", "c"]
                assert choice.logprobs.top_logprobs is not None
                assert all(len(top) == 2 for top in choice.logprobs.top_logprobs)
                found[choice.index] = choice.logprobs.token_logprobs or []
        assert found == [step.response_logprobs for step in gateway.steps("t1")]


@pytest.mark.parametrize("tokens", MODES)
@pytest.mark.parametrize(
    "faults",
    [{"split": 1}, {"empty_choices": True}, {"keep_alive": True}, {"without_done": True}, {"nan_logprobs": True}],
    ids=str,
)
async def test_streams_of_engines_that_are_odd(tokens: str, faults: dict[str, Any]) -> None:
    async with running(ScriptedReply(text="für 数 🙂", faults=WireFaults(**faults)), tokens=tokens) as gateway:
        text = ""
        stream = await gateway.client("/t/t1").completions.create(
            model="m", prompt="x", max_tokens=50, logprobs=1, stream=True
        )
        async for chunk in stream:
            text += chunk.choices[0].text
        (step,) = gateway.steps("t1")
        assert text == step.response_message.text == "für 数 🙂"  # type: ignore[union-attr]
        assert step.excluded_reason is None


@pytest.mark.parametrize("tokens", MODES)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_that_breaks_is_an_error_on_record(tokens: str, stream: bool) -> None:
    reply = ScriptedReply(text="abcdef", faults=WireFaults(drop_after=3))
    async with running(reply, tokens=tokens) as gateway:
        with pytest.raises(openai.APIError) as caught:
            answer = await gateway.client("/t/t1").completions.create(model="m", prompt="x", stream=stream)
            async for _ in answer:  # type: ignore[union-attr]
                pass
        assert caught.value.code == "engine_error"
        assert gateway.steps("t1") == []
        assert [bool(exchange.error) for exchange in gateway.pool.list_exchanges("t1")] == [True]


async def test_sampling_reaches_the_engine() -> None:
    async with running() as gateway:
        await gateway.client().completions.create(
            model="m", prompt="x", temperature=0.5, seed=3, stop=["q"], extra_body={"top_k": 5, "min_p": 0.1}
        )
        body = gateway.engine.requests[0].body
        sent = {"temperature": 0.5, "seed": 3, "stop": ["q"], "top_k": 5, "min_p": 0.1, "max_tokens": 16, "top_p": 1.0}
        assert {name: body[name] for name in sent} == sent


async def test_an_engine_without_ids_takes_text_only() -> None:
    async with running("abc", tokens="none", driver="openai") as gateway:
        client = gateway.client("/t/t1")
        answer = await client.completions.create(model="m", prompt="x", max_tokens=50)
        assert answer.choices[0].text == "abc"
        (step,) = gateway.steps("t1")
        assert (step.token_source, step.prompt_ids) == ("none", None)
        with pytest.raises(openai.BadRequestError) as caught:
            await client.completions.create(model="m", prompt=[1, 2], max_tokens=50)
        assert caught.value.param == "prompt"
        assert len(gateway.engine.requests) == 1


@pytest.mark.parametrize(
    ("status", "prompt"), [(400, [1 << 20]), (400, []), (400, ["a", "b"]), (400, "")], ids=["unknown", "no", "two", "-"]
)
async def test_prompts_that_cannot_be_taken(status: int, prompt: Any) -> None:
    async with running() as gateway:
        with pytest.raises(openai.APIStatusError) as caught:
            await gateway.client().completions.create(model="m", prompt=prompt)
        assert (caught.value.status_code, bool(caught.value.message)) == (status, True)
