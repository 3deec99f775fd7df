"""Replies that are written on from their beginning: one that was cut, and one that the caller began."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentworld.engines.tokenizer import byte_tokenizer
from agentworld.pool import open_store
from agentworld.testing import ScriptedReply

from .harness import Harness, running

TOKENIZER = byte_tokenizer()
OPENING = "<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n"
GO: dict[str, Any] = {"role": "user", "content": "go"}
ON = {"continue_final_message": True, "add_generation_prompt": False}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


def cut(text: str) -> ScriptedReply:
    return ScriptedReply(text=text, finish_reason="length")


async def write_on(gateway: Harness, messages: list[Any], path: str = "/t/t1", **more: Any) -> dict[str, Any]:
    status, body, _ = await gateway.chat({"messages": messages, **ON, **more}, path)
    assert status == 200, body
    message: dict[str, Any] = body["choices"][0]["message"]
    return message


async def test_a_cut_reply_is_written_on_from_its_ids() -> None:
    async with running([cut("one  tw"), "o three", "four"], tokens="token-in") as gateway:
        _, body, _ = await gateway.chat({"messages": [GO]}, "/t/t1")
        begun = body["choices"][0]["message"]
        rest = await write_on(gateway, [GO, begun])
        assert (begun["content"], rest["content"]) == ("one  tw", "o three")
        first, second = gateway.steps("t1")
        assert second.prompt_ids == first.prompt_ids + first.response_ids
        assert (second.fork_reason, second.parent_step_id) == (None, first.step_id)
        assert (second.metadata["prompt"], second.metadata["prefilled"]) == ("continued", len(first.response_ids))
        # What the caller puts together is known as one reply, and the next turn extends all of it.
        whole = {"role": "assistant", "content": "one  two three"}
        await gateway.chat({"messages": [GO, whole, {"role": "user", "content": "on"}]}, "/t/t1")
        third = gateway.steps("t1")[2]
        before = second.prompt_ids + second.response_ids
        assert third.prompt_ids[: len(before)] == before
        assert (third.fork_reason, third.parent_step_id) == (None, second.step_id)
        assert third.metadata["prompt"] == "bridged"


async def test_a_caller_may_keep_beginning_and_rest_apart() -> None:
    async with running([cut("one"), " two", "three"], tokens="token-in") as gateway:
        _, body, _ = await gateway.chat({"messages": [GO]}, "/t/t1")
        begun = body["choices"][0]["message"]
        rest = await write_on(gateway, [GO, begun])
        assert rest["content"] == " two"
        await gateway.chat({"messages": [GO, begun, rest, {"role": "user", "content": "on"}]}, "/t/t1")
        second, third = gateway.steps("t1")[1:]
        before = second.prompt_ids + second.response_ids
        assert third.prompt_ids[: len(before)] == before
        assert third.fork_reason is None


async def test_a_reply_may_be_cut_again_and_again() -> None:
    pieces = ["<think>hm", "m</think>a", ' <tool_call>\n{"name"', ': "look", "arguments": {}}\n</tool_call>']
    replies = [*map(cut, pieces[:-1]), ScriptedReply(text=pieces[-1])]
    async with running(replies, tokens="token-in") as gateway:
        _, body, _ = await gateway.chat({"messages": [GO], "tools": TOOLS}, "/t/t1")
        message = body["choices"][0]["message"]
        assert (message["reasoning"], message["content"]) == ("hm", "")
        for reasoning, content in (("m", "a"), (None, '\n<tool_call>\n{"name"')):
            rest = await write_on(gateway, [GO, message], tools=TOOLS)
            assert (rest.get("reasoning"), rest["content"]) == (reasoning, content)
            message = {
                "role": "assistant",
                "content": message["content"] + rest["content"],
                "reasoning": message["reasoning"] + (rest.get("reasoning") or ""),
            }
        rest = await write_on(gateway, [GO, message], tools=TOOLS)
        # The call was shown as text while it was cut; whole, it is a call.
        assert not rest["content"]
        assert rest["tool_calls"][0]["function"] == {"name": "look", "arguments": "{}"}
        steps = gateway.steps("t1")
        assert TOKENIZER.decode(steps[3].prompt_ids) == OPENING.replace(
            "<|im_start|>user", steps_head(steps[0])
        ) + "".join(pieces[:3])
        assert [step.fork_reason for step in steps] == [None] * 4
        # The message with the call, put together by its caller, goes on.
        message |= {"tool_calls": rest["tool_calls"]}
        call_id = rest["tool_calls"][0]["id"]
        gateway.engine.script = "fine"
        result = {"role": "tool", "tool_call_id": call_id, "content": "seen"}
        await gateway.chat({"messages": [GO, message, result], "tools": TOOLS}, "/t/t1")
        last = gateway.steps("t1")[4]
        before = steps[3].prompt_ids + steps[3].response_ids
        assert last.prompt_ids[: len(before)] == before
        assert last.fork_reason is None


def steps_head(first: Any) -> str:
    """What the prompt holds before its user message, and the opening of that."""
    text = TOKENIZER.decode(first.prompt_ids)
    return text[: text.index("<|im_start|>user") + len("<|im_start|>user")]


async def test_what_a_cut_call_showed_is_not_shown_twice() -> None:
    replies = [cut('a <tool_call>\n{"na'), cut('me": "lo')]
    async with running(replies, tokens="token-in") as gateway:
        _, body, _ = await gateway.chat({"messages": [GO], "tools": TOOLS}, "/t/t1")
        begun = body["choices"][0]["message"]
        assert begun["content"] == 'a\n<tool_call>\n{"na'
        rest = await write_on(gateway, [GO, begun], tools=TOOLS)
        assert rest["content"] == 'me": "lo'


async def test_a_stop_string_stays_in_the_ids_of_what_follows() -> None:
    async with running(["one END", "on", "two"], tokens="token-in") as gateway:
        _, body, _ = await gateway.chat({"messages": [GO], "stop": "END"}, "/t/t1")
        begun = body["choices"][0]["message"]
        assert begun["content"] == "one"
        await gateway.chat({"messages": [GO, begun, {"role": "user", "content": "next"}]}, "/t/t1")
        await write_on(gateway, [GO, begun])
        first, second, third = gateway.steps("t1")
        whole = first.prompt_ids + first.response_ids
        assert TOKENIZER.decode(first.response_ids) == "one END"
        assert second.prompt_ids[: len(whole)] == whole
        assert second.fork_reason is None
        assert TOKENIZER.decode(second.prompt_ids[len(whole) :]).startswith("<|im_end|>\n<|im_start|>user\nnext")
        assert third.prompt_ids == whole


async def test_a_reply_that_ended_is_opened_again_and_forks() -> None:
    async with running(["one", " two"], tokens="token-in") as gateway:
        _, body, _ = await gateway.chat({"messages": [GO]}, "/t/t1")
        rest = await write_on(gateway, [GO, body["choices"][0]["message"]])
        assert rest["content"] == " two"
        first, second = gateway.steps("t1")
        assert second.prompt_ids == first.prompt_ids + first.response_ids[:-1]
        assert (second.metadata["prompt"], second.fork_reason) == ("continued", "template")


@pytest.mark.parametrize(
    ("begun", "lead", "template"),
    [
        ({"content": "The answer"}, "<think>\n\n</think>\n\nThe answer", {}),
        ({"content": "The", "reasoning": "why"}, "<think>\nwhy\n</think>\n\nThe", {}),
        ({"content": "", "reasoning": "why.\n"}, "<think>\nwhy.", {}),
        ({"content": "{"}, "{", {"enable_thinking": False}),
        ({"content": "a<|im_end|>b"}, "<think>\n\n</think>\n\na<|im_end|>b", {}),
    ],
)
async def test_what_the_caller_began_is_prompt(begun: dict[str, Any], lead: str, template: dict[str, Any]) -> None:
    more = {"chat_template_kwargs": template} if template else {}
    async with running([" is 4", "fine"], tokens="token-in") as gateway:
        message = {"role": "assistant", **begun}
        rest = await write_on(gateway, [GO, message], **more)
        (step,) = gateway.steps("t1")
        opening = OPENING + ("<think>\n\n</think>\n\n" if template else "")
        assert TOKENIZER.decode(step.prompt_ids) == opening + lead
        assert TOKENIZER.decode(step.response_ids) == " is 4<|im_end|>"
        # One close, of the user's turn: what the caller writes closes nothing.
        assert step.prompt_ids.count(TOKENIZER.convert_tokens_to_ids("<|im_end|>")) == 1
        assert step.metadata["prompt"] == "rendered"
        said = "reasoning" if lead.endswith("why.") else "content"
        assert rest[said] == " is 4"
        whole = {**message, said: message[said].rstrip("\n") + rest[said]}
        await gateway.chat({"messages": [GO, whole, {"role": "user", "content": "on"}], **more}, "/t/t1")
        second = gateway.steps("t1")[-1]
        before = step.prompt_ids + step.response_ids
        if said == "content":
            assert second.prompt_ids[: len(before)] == before
            assert second.metadata["prompt"] == "bridged"


async def test_a_beginning_after_turns_of_ours_keeps_their_ids() -> None:
    async with running(["<think>odd </think>  one", " four"], tokens="token-in") as gateway:
        _, body, _ = await gateway.chat({"messages": [GO]}, "/t/t1")
        said = body["choices"][0]["message"]
        ask = {"role": "user", "content": "2 + 2"}
        await write_on(gateway, [GO, said, ask, {"role": "assistant", "content": "It is"}])
        first, second = gateway.steps("t1")
        whole = first.prompt_ids + first.response_ids
        assert second.prompt_ids[: len(whole)] == whole
        assert second.fork_reason is None
        assert second.metadata["prompt"] == "bridged"
        assert TOKENIZER.decode(second.prompt_ids).endswith("assistant\n<think>\n\n</think>\n\nIt is")


async def test_another_process_writes_on_too(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/pool.db"
    store = open_store(address)
    async with running([cut("one")], tokens="token-in", pool=store) as gateway:
        _, body, _ = await gateway.chat({"messages": [GO]}, "/t/t1")
    begun = body["choices"][0]["message"]
    other = open_store(address)
    async with running([cut(" two"), "three"], tokens="token-in", pool=other) as gateway:
        rest = await write_on(gateway, [GO, begun])
    begun = {"role": "assistant", "content": begun["content"] + rest["content"]}
    async with running([" three"], tokens="token-in", pool=store) as gateway:
        await write_on(gateway, [GO, begun])
        first, second, third = gateway.steps("t1")
        assert third.prompt_ids == first.prompt_ids + first.response_ids + second.response_ids
        assert third.metadata["prefilled"] == len(first.response_ids + second.response_ids)
        assert (third.parent_step_id, third.fork_reason) == (second.step_id, None)
    store.close()
    other.close()


async def test_an_anonymous_reply_stays_in_its_trajectory() -> None:
    async with running([cut("one"), " two", "three"], tokens="token-in") as gateway:
        _, body, _ = await gateway.chat({"messages": [GO]})
        await write_on(gateway, [GO, body["choices"][0]["message"]], path="")
        whole = {"role": "assistant", "content": "one two"}
        await gateway.chat({"messages": [GO, whole, {"role": "user", "content": "on"}]})
        assert len({step.trajectory_id for step in gateway.steps()}) == 1


async def test_anthropics_last_message_of_the_assistant() -> None:
    async with running([cut("one"), " two"], tokens="token-in") as gateway:

        async def send(messages: list[Any]) -> tuple[int, dict[str, Any]]:
            body = {"model": "m", "max_tokens": 8, "messages": messages}
            async with gateway.http.post(f"{gateway.url}/t/t1/v1/messages", json=body) as response:
                return response.status, await response.json()

        _, body = await send([GO])
        status, body = await send([GO, {"role": "assistant", "content": body["content"]}])
        assert (status, body["content"][0]["text"]) == (200, " two")
        first, second = gateway.steps("t1")
        assert second.prompt_ids == first.prompt_ids + first.response_ids
        use = {"type": "tool_use", "id": "x", "name": "f", "input": {}}
        status, body = await send([GO, {"role": "assistant", "content": [use]}])
        assert (status, body["type"]) == (400, "error")


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"continue_final_message": True}, "continue_final_message"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
        ({**ON, "messages": [GO]}, "messages[0]"),
    ],
)
async def test_what_makes_no_sense_is_refused(more: dict[str, Any], path: str) -> None:
    async with running("x", tokens="token-in") as gateway:
        body = {"messages": [GO, {"role": "assistant", "content": "a"}], **more}
        status, answer, _ = await gateway.chat(body)
        assert (status, answer["error"]["param"]) == (400, path)


async def test_engines_that_render_are_told_or_refuse() -> None:
    messages = [GO, {"role": "assistant", "content": "a"}]
    async with running("x") as gateway:
        status, body, _ = await gateway.chat({"messages": messages, **ON})
        assert (status, body["error"]["param"]) == (400, "messages")
        assert gateway.engine.requests == []
