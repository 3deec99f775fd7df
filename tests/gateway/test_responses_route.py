"""The Responses route end to end, with the official client: what agents see and what is on record."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from agentworld.errors import NotFoundError
from agentworld.gateway.routes import find_route
from agentworld.pool import open_store
from agentworld.records import Message
from agentworld.testing import ScriptedReply
from agentworld.testing.wire_faults import WireFaults

from .harness import Harness, running, until

MODES = ["engine", "token-in"]
LOOK: Any = {"type": "function", "name": "look", "parameters": {"type": "object"}}
PATCH: Any = {"type": "custom", "name": "apply_patch", "description": "Edits files"}
CALLS = (
    '<think>\nhm\n</think>\n\nI look.\n<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>\n'
    '<tool_call>\n{"name": "apply_patch", "arguments": {"input": "*** Begin"}}\n</tool_call>'
)


async def asked(gateway: Harness, stream: bool, path: str = "/t/t1", **body: Any) -> Any:
    """The response, from a plain reply or from the end of a stream."""
    client = gateway.client(path)
    if not stream:
        return await client.responses.create(model="m", **body)
    last: Any = None
    async for event in await client.responses.create(model="m", stream=True, **body):
        last = event
    return last.response


@pytest.mark.parametrize("tokens", MODES)
async def test_plain_and_streamed_replies_say_the_same(tokens: str) -> None:
    async with running("<think>\nhm\n</think>\n\nfür 数 you", tokens=tokens) as gateway:
        plain, streamed = [await asked(gateway, stream, input="hello") for stream in (False, True)]
        assert plain.output_text == streamed.output_text == "für 数 you"
        assert (
            [item.type for item in plain.output] == [item.type for item in streamed.output] == ["reasoning", "message"]
        )
        assert plain.output[0].content[0].text == streamed.output[0].content[0].text == "hm"
        assert plain.usage == streamed.usage
        assert plain.usage.total_tokens > 0
        assert plain.status == streamed.status == "completed"
        first, second = gateway.steps()
        assert first.response_message == second.response_message
        assert [f"resp_{step.exchange_id}" for step in (first, second)] == [plain.id, streamed.id]
        assert first.dialect == "responses"


@pytest.mark.parametrize("tokens", MODES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("chained", [False, True])
async def test_a_conversation_with_tools_is_one_branch(tokens: str, stream: bool, chained: bool) -> None:
    """Items sent back, or `previous_response_id`: either way each turn continues the last."""
    async with running([CALLS, CALLS, "done"], tokens=tokens) as gateway:
        items: list[Any] = [{"role": "user", "content": "go"}]
        more: dict[str, Any] = {}
        for turn in range(3):
            response = await asked(gateway, stream, input=items, tools=[LOOK, PATCH], instructions="Be brief.", **more)
            back = [item.model_dump(exclude_none=True) for item in response.output]
            results = [
                {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": f"seen {turn}"}
                for item in back
                if "call_id" in item
            ]
            if chained:
                items, more = results, {"previous_response_id": response.id}
            else:
                items = [*items, *back, *results]
        assert response.output_text == "done"
        steps = gateway.steps("t1")
        assert [len(step.prompt_messages or []) for step in steps] == [2, 5, 8]
        assert [step.parent_step_id for step in steps] == [None, steps[0].step_id, steps[1].step_id]
        if tokens == "token-in":
            assert [step.fork_reason for step in steps] == [None] * 3
            for before, after in itertools.pairwise(steps):
                sequence = [*(before.prompt_ids or []), *(before.response_ids or [])]
                assert (after.prompt_ids or [])[: len(sequence)] == sequence
        calls = steps[0].response_message.tool_calls  # type: ignore[union-attr]
        assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
            ("look", {"a": 1}),
            ("apply_patch", {"input": "*** Begin"}),
        ]
        assert steps[1].prompt_messages[2] == steps[0].response_message  # type: ignore[index]


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_of_each_kind(stream: bool) -> None:
    async with running(CALLS) as gateway:
        response = await asked(gateway, stream, input="go", tools=[LOOK, PATCH])
        _, text, call, custom = response.output
        assert text.content[0].text == "I look."
        assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "look", {"a": 1})
        assert (custom.type, custom.name, custom.input) == ("custom_tool_call", "apply_patch", "*** Begin")
        assert len({item.id for item in response.output}) == 4


async def test_events_come_in_order_and_are_numbered() -> None:
    async with running(CALLS) as gateway:
        stream = await gateway.client().responses.create(model="m", input="go", tools=[LOOK], stream=True)
        events = [event async for event in stream]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        kinds = [event.type.removeprefix("response.") for event in events]
        assert kinds[:2] == ["created", "in_progress"]
        assert kinds[-1] == "completed"
        for item in ("reasoning_text", "output_text", "function_call_arguments"):
            assert kinds.index(f"{item}.delta") < kinds.index(f"{item}.done")
        assert kinds.index("function_call_arguments.delta") > kinds.index("output_text.done")


@pytest.mark.parametrize("tokens", MODES)
async def test_the_clients_own_folding_of_the_events_works(tokens: str) -> None:
    async with running('<think>\nhm\n</think>\n\n{"at": 3}', tokens=tokens) as gateway:
        client = gateway.client("/t/t1")
        async with client.responses.stream(model="m", input="go") as events:
            text = "".join([event.delta async for event in events if event.type == "response.output_text.delta"])
            assert (await events.get_final_response()).output_text == text == '{"at": 3}'


async def test_a_conversation_goes_on_after_a_restart_and_in_its_trajectory(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    async with running("one", pool=url) as gateway:
        first = await gateway.client().responses.create(model="m", input="hi", instructions="Be brief.")
        (step,) = gateway.steps()
    async with running("two", pool=url) as gateway:
        client = gateway.client()
        second = await client.responses.create(model="m", input="more", previous_response_id=first.id)
        assert second.previous_response_id == first.id
        trajectory = step.trajectory_id
        assert [each.trajectory_id for each in gateway.steps()] == [trajectory] * 2
        assert gateway.steps()[1].prompt_messages == [
            Message(role="user", content="hi"),
            Message(role="assistant", content="one"),
            Message(role="user", content="more"),
        ]
        gateway.pool.complete_trajectory(trajectory, "finished")
        await client.responses.create(model="m", input="late", previous_response_id=second.id)
        last = gateway.steps()[-1]
        assert last.trajectory_id != trajectory
        assert len(last.prompt_messages or []) == 5


async def test_references_are_looked_up() -> None:
    async with running("<think>\nhm\n</think>\n\none") as gateway:
        client = gateway.client("/t/t1")
        first = await client.responses.create(model="m", input="hi")
        items: list[Any] = [{"role": "user", "content": "hi"}]
        items += [{"type": "item_reference", "id": item.id} for item in first.output]
        await client.responses.create(model="m", input=[*items, {"role": "user", "content": "more"}])
        before, after = gateway.steps("t1")
        assert after.parent_step_id == before.step_id
        assert after.prompt_messages[1] == before.response_message  # type: ignore[index]


async def test_what_is_not_there_is_told() -> None:
    async with running() as gateway:
        client = gateway.client()
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(model="m", input="x", previous_response_id=f"resp_exc_{'0' * 26}")
        assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(f"resp_exc_{'0' * 26}")
        assert gateway.engine.requests == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_can_be_read_again(stream: bool) -> None:
    async with running(CALLS) as gateway:
        given = {"input": "go", "instructions": "Be brief.", "tools": [LOOK, PATCH], "metadata": {"a": "b"}}
        response = await asked(gateway, stream, **given, temperature=0.5, max_output_tokens=200)
        again = await gateway.client("/t/t1").responses.retrieve(response.id)
        for name in ("id", "output", "status", "usage", "instructions", "metadata", "temperature", "max_output_tokens"):
            assert getattr(again, name) == getattr(response, name), name
        assert [tool.type for tool in again.tools] == ["function", "custom"]
        with pytest.raises(openai.NotFoundError):
            await gateway.client("/t/other").responses.retrieve(response.id)
        chat = await gateway.client("/t/t1").chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}]
        )
        with pytest.raises(openai.NotFoundError):
            await gateway.client().responses.retrieve(chat.id.replace("chatcmpl-", "resp_"))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_that_was_cut_is_incomplete(stream: bool) -> None:
    async with running("a long reply") as gateway:
        response = await asked(gateway, stream, input="go", max_output_tokens=3)
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert response.output[0].status == "incomplete"
        assert gateway.steps("t1")[0].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tokens", MODES)
async def test_log_probabilities_come_where_they_are_asked_for(stream: bool, tokens: str) -> None:
    async with running("abc", tokens=tokens) as gateway:
        response = await asked(gateway, stream, input="go", include=["message.output_text.logprobs"], top_logprobs=2)
        (step,) = gateway.steps("t1")
        entries = response.output[0].content[0].logprobs
        assert [entry.logprob for entry in entries] == step.response_logprobs
        assert all(len(entry.top_logprobs) == 2 for entry in entries)
        assert "".join(entry.token for entry in entries).startswith("abc")


async def test_sampling_reaches_the_engine_and_the_record() -> None:
    async with running() as gateway:
        await gateway.client("/t/t1").responses.create(
            model="m",
            input="go",
            temperature=0.5,
            top_p=0.9,
            max_output_tokens=40,
            tools=[LOOK],
            tool_choice="auto",
            parallel_tool_calls=False,
            extra_body={"top_k": 5, "seed": 3, "stop": ["x"]},
        )
        body = gateway.engine.requests[0].body
        sent = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 40, "top_k": 5, "seed": 3, "stop": ["x"]}
        assert {name: body[name] for name in sent} == sent
        assert (body["tool_choice"], body["parallel_tool_calls"]) == ("auto", False)
        sampling = gateway.steps("t1")[0].sampling
        assert sampling is not None
        assert (sampling.temperature, sampling.top_k, sampling.max_tokens) == (0.5, 5, 40)


async def test_a_stream_that_fails_is_a_failed_response_and_on_record() -> None:
    reply = ScriptedReply(text="abcdef", faults=WireFaults(drop_after=3))
    async with running(reply) as gateway:
        stream = await gateway.client("/t/t1").responses.create(model="m", input="go", stream=True)
        events = [event async for event in stream]
        assert events[-1].type == "response.failed"
        assert events[-1].response.error.code == "engine_error"
        assert gateway.steps("t1") == []
        (exchange,) = gateway.pool.list_exchanges("t1")
        assert exchange.error is not None


SPOILED = [
    {"split": 1},
    {"split": 7},
    {"empty_choices": True},
    {"keep_alive": True},
    {"without_done": True},
    {"without_usage": True},
    {"nan_logprobs": True},
]


@pytest.mark.parametrize("tokens", MODES)
@pytest.mark.parametrize("faults", SPOILED, ids=str)
async def test_streams_of_engines_that_are_odd(tokens: str, faults: dict[str, Any]) -> None:
    """Cut at every byte, with empty chunks, comments or without an end: the stream ends properly and is on record."""
    text = "<think>\nhm für\n</think>\n\nI 数 🙂."
    async with running(ScriptedReply(text=text, faults=WireFaults(**faults)), tokens=tokens) as gateway:
        given = {"input": "go", "include": ["message.output_text.logprobs"]}
        response = await asked(gateway, True, **given)
        assert (response.status, response.output_text, response.output[0].content[0].text) == (
            *("completed", "I 数 🙂."),
            "hm für",
        )
        (step,) = gateway.steps("t1")
        assert (step.response_message.text, step.excluded_reason) == ("I 数 🙂.", None)  # type: ignore[union-attr]
        assert (response.usage is None) == ("without_usage" in faults)


async def test_a_client_that_leaves_is_on_record_as_aborted() -> None:
    async with running(ScriptedReply(text="x" * 50, token_delay=0.05)) as gateway:
        stream = await gateway.client("/t/t1").responses.create(model="m", input="go", stream=True)
        async for event in stream:
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        await until(lambda: bool(gateway.steps("t1")))
        (step,) = gateway.steps("t1")
        assert (step.finish_reason, step.excluded_reason) == ("abort", "aborted")
        assert not gateway.engine.requests[0].finished
        with pytest.raises(openai.BadRequestError):
            await gateway.client().responses.create(
                model="m", input="x", previous_response_id=f"resp_{step.exchange_id}"
            )


async def test_input_tokens_are_counted_where_prompts_are_rendered_here() -> None:
    async with running("ok", tokens="token-in") as gateway:
        client = gateway.client("/t/t1")
        counted = await client.responses.input_tokens.count(model="m", input="hello")
        response = await client.responses.create(model="m", input="hello")
        assert response.usage is not None
        assert counted.input_tokens == response.usage.input_tokens


async def test_a_pool_that_cannot_be_read_is_an_error_of_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("memory://")
    async with running(pool=store) as gateway:
        first = await gateway.client().responses.create(model="m", input="hi")

        def broken(*_: Any, **__: Any) -> Any:
            raise RuntimeError("secret detail")

        monkeypatch.setattr(store, "get_step", broken)
        with pytest.raises(openai.InternalServerError) as caught:
            await gateway.client().responses.create(model="m", input="more", previous_response_id=first.id)
        assert caught.value.code == "internal_error"
        assert "secret" not in str(caught.value)
    store.close()


def test_a_response_has_a_path_of_its_own() -> None:
    route = find_route("GET", f"/t/t1/v1/responses/resp_exc_{'0' * 26}")
    assert (route.name, route.trajectory, route.item) == ("/v1/responses/{id}", "t1", f"resp_exc_{'0' * 26}")
    for path in ("/v1/responses/other", "/v1/responses/resp_1/cancel", f"/v1/responses/resp_{'x' * 200}"):
        with pytest.raises(NotFoundError):
            find_route("GET", path)
