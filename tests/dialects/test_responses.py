"""The Responses dialect: what is taken, what is refused and where, and what items stand for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.dialects.exchange import Request
from agentworld.dialects.responses import HARMLESS, MAX_REFERENCES, Past, PreviousResponseNotFoundError, parse, wanted
from agentworld.dialects.responses_items import exchange_of, item_id, seal, unseal
from agentworld.dialects.responses_output import output_items
from agentworld.errors import InvalidRequestError
from agentworld.records import FunctionCall, Message, TextPart, ToolCall
from tests.examples import examples

HELLO = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files"}
ONE, TWO = f"exc_{'1' * 26}", f"exc_{'2' * 26}"


def read(*items: dict[str, Any], **fields: Any) -> Request:
    return parse({"input": list(items) or [HELLO], **fields})


def refused(**body: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        parse({"input": "hello", **body})
    return caught.value


def call(call_id: str, arguments: str = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": arguments, **more}


def output(call_id: str, text: Any = "seen") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **more}


def thought(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}], **more}


def test_a_text_is_one_user_message_behind_the_instructions() -> None:
    request = parse({"input": "hello", "instructions": "be kind", "model": "m"})
    assert request.messages == (Message(role="system", content="be kind"), Message(role="user", content="hello"))
    assert (request.model, request.notes["responses"]["instructions"]) == ("m", 1)
    assert parse({"input": "hello", "instructions": ""}).messages == request.messages[1:]


def test_items_of_one_reply_are_one_message() -> None:
    request = read(HELLO, thought("hm"), said("I look."), call("c1"), call("c2"), output("c1"), output("c2"), HELLO)
    reply = request.messages[1]
    assert (reply.role, reply.reasoning, reply.content) == ("assistant", "hm", "I look.")
    assert [item.id for item in reply.tool_calls] == ["c1", "c2"]
    assert [message.role for message in request.messages] == ["user", "assistant", "tool", "tool", "user"]


def test_a_new_reply_begins_behind_outputs() -> None:
    request = read(HELLO, call("c1"), output("c1"), call("c2"), output("c2"), said("done"))
    assert [message.role for message in request.messages] == [
        *("user", "assistant", "tool", "assistant", "tool", "assistant")
    ]


def test_ids_of_ours_tell_replies_apart() -> None:
    apart = read(said("a", id=item_id("msg", ONE, 0)), said("b", id=item_id("msg", TWO, 0)), HELLO)
    assert [message.content for message in apart.messages] == ["a", "b", "hello"]
    together = read(said("a", id=item_id("msg", ONE, 0)), said("b", id=item_id("msg", ONE, 2)), HELLO)
    assert [message.content for message in together.messages] == ["ab", "hello"]


def test_calls_of_one_reply_belong_together_though_each_output_follows_its_call() -> None:
    request = read(
        HELLO,
        call("c1", id=item_id("fc", ONE, 0)),
        output("c1", "first"),
        call("c2", id=item_id("fc", ONE, 1)),
        output("c2", "second"),
    )
    assert [message.role for message in request.messages] == ["user", "assistant", "tool", "tool"]
    assert [item.id for item in request.messages[1].tool_calls] == ["c1", "c2"]
    assert [message.content for message in request.messages[2:]] == ["first", "second"]


def test_outputs_are_in_the_order_of_their_calls() -> None:
    request = read(HELLO, call("c1"), call("c2"), output("c2", "second"), output("c1", "first"))
    assert [message.content for message in request.messages[2:]] == ["first", "second"]


def test_call_ids_of_any_length_that_come_back_every_turn() -> None:
    long = "call_" + "x" * 500
    request = read(HELLO, call(long), output(long, "1"), call(long), output(long, "2"))
    assert [message.tool_call_id for message in request.messages] == [None, None, long, None, long]


@pytest.mark.parametrize("arguments", ["[]", "123", "null", "", "mkdir -p test/{test1,test2", '{"a": "\\u0000'])
def test_arguments_stay_as_they_are(arguments: str) -> None:
    assert read(HELLO, call("c", arguments)).messages[1].tool_calls[0].function.arguments == arguments


@pytest.mark.parametrize(
    ("item", "reasoning"),
    [
        (thought("hm"), "hm"),
        (thought("hm", encrypted_content=seal("other")), "hm"),
        ({"type": "reasoning", "summary": [], "encrypted_content": seal("sealed")}, "sealed"),
        ({"type": "reasoning", "summary": [], "content": None, "encrypted_content": "gAAAA"}, None),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}]}, "short"),
        ({"type": "reasoning", "summary": []}, None),
    ],
)
def test_reasoning_is_read_from_where_it_is(item: dict[str, Any], reasoning: str | None) -> None:
    assert read(HELLO, item, said("x"), HELLO).messages[1].reasoning == reasoning


@given(st.text())
def test_sealed_reasoning_opens_to_itself(text: str) -> None:
    assert unseal(seal(text)) == text


@pytest.mark.parametrize("sealed", ["", "agentworld:*", "agentworld:gA==", "other"])
def test_what_another_sealed_stays_closed(sealed: str) -> None:
    assert unseal(sealed) is None


def test_a_reply_that_only_thought_has_an_empty_text() -> None:
    assert read(HELLO, thought("hm"), HELLO).messages[1] == Message(role="assistant", content="", reasoning="hm")


def test_an_empty_text_is_not_null() -> None:
    assert read(HELLO, said("", id="m"), HELLO).messages[1].content == ""
    assert read(HELLO, call("c"), output("c")).messages[1].content is None


def test_text_parts_and_outputs_with_parts() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    request = read({"role": "user", "content": parts}, call("c"), output("c", parts[:1]), output("d", []))
    assert request.messages[0].content == (TextPart(text="a"), TextPart(text="b"))
    assert [message.content for message in request.messages[2:]] == ["a", ""]


@pytest.mark.parametrize(
    ("item", "path"),
    [
        ({"type": "web_search_call", "id": "w"}, "input[0].type"),
        ({"role": "robot", "content": "x"}, "input[0].role"),
        (
            {"role": "user", "content": [{"type": "input_image", "image_url": "http://x"}]},
            "input[0].content[0].image_url",
        ),
        ({"role": "user", "content": 3}, "input[0].content"),
        ({"role": "user", "content": "x", "weight": 3}, "input[0].weight"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[0].call_id"),
        ({"type": "function_call_output", "call_id": "c"}, "input[0].output"),
        ({"type": "item_reference", "id": "msg_1"}, "input[0].id"),
        ("x", "input[0]"),
    ],
)
def test_items_that_cannot_be_carried_are_refused_by_place(item: Any, path: str) -> None:
    assert refused(input=[item]).path == path


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"truncation": "auto"}, "truncation"),
        ({"n": 2}, "n"),
        ({"include": ["thoughts"]}, "include[0]"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"reasoning": {"effort": "some"}}, "reasoning.effort"),
        ({"reasoning": {"context": "current_turn"}}, "reasoning.context"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"verbosity": "loud"}}, "text.verbosity"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": 3}, "input"),
        ({"unheard_of": 1}, "unheard_of"),
        ({"stream_options": {"x": 1}}, "stream_options.x"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools[0].type"),
        ({"tools": [{**TOOL, "defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tools": [{**TOOL, "parameters": "x"}]}, "tools[0].parameters"),
        ({"tools": [{**PATCH, "format": {"type": "regex"}}]}, "tools[0].format.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": "some"}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tools"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"previous_response_id": 3}, "previous_response_id"),
    ],
)
def test_what_would_change_the_reply_is_refused_by_place(fields: dict[str, Any], path: str) -> None:
    error = refused(**fields)
    assert error.path == path
    assert error.message


def test_a_refused_tool_says_what_to_do() -> None:
    assert 'web_search = "disabled"' in (refused(tools=[{"type": "web_search"}]).hint or "")


def test_what_changes_nothing_is_taken() -> None:
    request = parse({"input": "hello", **dict.fromkeys(HARMLESS, "x"), "store": False, "truncation": "disabled"})
    assert request.messages == (Message(role="user", content="hello"),)
    assert request.echo["store"] is False


def test_sampling_reaches_the_engine() -> None:
    fields = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "seed": 3, "stop": ["x"]}
    more = {"presence_penalty": 1, "frequency_penalty": -1, "logit_bias": {"5": 1}, "min_tokens": 2}
    sampling = parse({"input": "a", "max_output_tokens": 9, "tools": [TOOL], **fields, **more}).sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p, sampling.seed) == (
        0.5,
        0.9,
        7,
        0.1,
        3,
    )
    assert (sampling.stop, sampling.max_tokens, sampling.min_tokens) == (("x",), 9, 2)
    assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.logit_bias) == (1, -1, {"5": 1})


@pytest.mark.parametrize("name", ["max_output_tokens", "max_completion_tokens", "max_tokens"])
def test_every_spelling_of_the_limit(name: str) -> None:
    assert parse({"input": "a", name: 5}).sampling.max_tokens == 5


def test_effort_and_verbosity_reach_the_template() -> None:
    assert parse({"input": "a", "reasoning": {"effort": "low", "summary": "auto"}}).template == {
        "reasoning_effort": "low"
    }
    assert parse({"input": "a", "reasoning": {"effort": "none"}}).template == {"enable_thinking": False}
    assert parse({"input": "a", "text": {"verbosity": "low"}}).template == {"verbosity": "low"}
    assert parse({"input": "a", "text": {"verbosity": "medium"}, "reasoning": {"summary": "auto"}}).template == {}


def test_formats() -> None:
    shape = {"type": "json_schema", "name": "answer", "schema": {"type": "object"}, "strict": True}
    assert parse({"input": "a", "text": {"format": shape}}).sampling.response_format == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
    }
    assert parse({"input": "a", "text": {"format": {"type": "json_object"}}}).sampling.response_format == {
        "type": "json_object"
    }
    assert parse({"input": "a", "text": {"format": {"type": "text"}}}).sampling.response_format is None


def test_log_probabilities_are_asked_for_by_include_or_number() -> None:
    assert parse({"input": "a", "include": ["message.output_text.logprobs"]}).logprobs
    request = parse({"input": "a", "top_logprobs": 3})
    assert (request.logprobs, request.top_logprobs) == (True, 3)
    assert not parse({"input": "a", "include": ["reasoning.encrypted_content"]}).logprobs


def test_tools_become_functions() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: WORD"}
    space = {"type": "namespace", "name": "crm", "description": "Customers", "tools": [{**TOOL, "description": "Find"}]}
    request = parse(
        {
            "input": "a",
            "tools": [{**TOOL, "strict": True, "description": "Looks"}, {**PATCH, "format": grammar}, space],
            "tool_choice": {"type": "custom", "name": "apply_patch"},
            "parallel_tool_calls": False,
        }
    )
    plain, custom, spaced = (tool["function"] for tool in request.tools)
    assert plain == {"name": "look", "description": "Looks", "parameters": {"type": "object"}, "strict": True}
    assert custom["description"] == "Edits files\n\nThe input must follow this lark grammar:\nstart: WORD"
    assert custom["parameters"]["required"] == ["input"]
    assert (spaced["name"], spaced["description"]) == ("crm__look", "Customers\nFind")
    assert request.sampling.tool_choice == {"type": "function", "function": {"name": "apply_patch"}}
    assert request.sampling.parallel_tool_calls is False
    assert request.notes["responses"]["named"] == {
        "apply_patch": ["custom", "", "apply_patch"],
        "crm__look": ["function", "crm", "look"],
    }


def test_tools_among_the_items_are_tools() -> None:
    request = read({"type": "additional_tools", "role": "developer", "tools": [PATCH]}, HELLO, tools=[TOOL])
    assert [tool["function"]["name"] for tool in request.tools] == ["look", "apply_patch"]
    assert refused(input=[{"type": "additional_tools", "tools": [{"type": "x"}]}, HELLO]).path == (
        "input[0].tools[0].type"
    )


def test_two_tools_of_one_name_are_refused() -> None:
    space = {"type": "namespace", "name": "a", "description": "", "tools": [TOOL]}
    assert refused(tools=[space, {**TOOL, "name": "a__look"}]).path == "tools"


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_an_empty_list_of_tools_is_dropped(choice: str | None) -> None:
    request = read(tools=[], tool_choice=choice)
    assert (request.tools, request.sampling.tool_choice) == ((), None)


ARGUMENTS = ['{"input": "*** Begin"}', '{"input": "a', "text", '{"input": 3}', '{"other": "a"}', "[]", ""]


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_calls_of_custom_tools_come_back_as_they_were_sampled(arguments: str) -> None:
    named = {"apply_patch": ["custom", "", "apply_patch"]}
    reply = Message(role="assistant", tool_calls=(ToolCall("c", FunctionCall("apply_patch", arguments)),))
    items = output_items(reply, ONE, named, sealed=False)
    assert [item["type"] for item in items] == ["custom_tool_call"]
    result = {"type": "custom_tool_call_output", "call_id": "c", "output": "done"}
    back = read(HELLO, *items, result).messages
    assert back[1] == reply
    assert back[2] == Message(role="tool", content="done", tool_call_id="c")


def test_calls_into_a_namespace_come_back() -> None:
    reply = Message(role="assistant", tool_calls=(ToolCall("c", FunctionCall("crm__look", "{}")),))
    items = output_items(reply, ONE, {"crm__look": ["function", "crm", "look"]}, sealed=False)
    assert (items[0]["name"], items[0]["namespace"]) == ("look", "crm")
    assert read(HELLO, *items, output("c")).messages[1] == reply


TEXTS = st.text(max_size=20)
REPLIES = st.builds(
    lambda content, reasoning, calls: Message(
        role="assistant",
        content=None if calls and not content else content,
        reasoning=reasoning or None,
        tool_calls=tuple(ToolCall(f"c{at}", FunctionCall(name, text)) for at, (name, text) in enumerate(calls)),
    ),
    TEXTS,
    TEXTS,
    st.lists(st.tuples(st.sampled_from(["look", "apply_patch", "crm__look"]), TEXTS), max_size=3),
)


@given(REPLIES, st.booleans(), st.booleans(), st.booleans())
def test_a_reply_that_comes_back_is_the_reply(reply: Message, sealed: bool, summarized: bool, keep_text: bool) -> None:
    """Also from clients that keep of the reasoning only what is sealed, as Codex does."""
    named = {"apply_patch": ["custom", "", "apply_patch"], "crm__look": ["function", "crm", "look"]}
    items = json.loads(json.dumps(output_items(reply, ONE, named, sealed=sealed, summarized=summarized)))
    for item in items:
        if item["type"] == "reasoning" and sealed and not keep_text:
            item["content"], item["summary"] = None, []
    assert read(HELLO, *items, HELLO).messages[1] == reply


def past(**more: Any) -> Past:
    prompt = (Message(role="system", content="old"), Message(role="user", content="hi"))
    reply = Message(role="assistant", content="there", reasoning="hm")
    return Past(**{"exchange_id": ONE, "messages": prompt, "reply": reply, "instructions": 1, **more})


def test_a_call_goes_on_from_a_stored_reply_without_its_instructions() -> None:
    body = {"previous_response_id": f"resp_{ONE}", "instructions": "new", "input": "more"}
    assert wanted(body) == [ONE]
    request = parse(body, {ONE: past()})
    assert [(message.role, message.content) for message in request.messages] == [
        ("system", "new"),
        ("user", "hi"),
        ("assistant", "there"),
        ("user", "more"),
    ]
    assert request.echo["previous_response_id"] == f"resp_{ONE}"
    assert parse({**body, "input": None}, {ONE: past()}).messages[-1].role == "assistant"


def test_a_reply_that_is_not_there_is_an_error_of_its_own() -> None:
    with pytest.raises(PreviousResponseNotFoundError) as caught:
        parse({"previous_response_id": f"resp_{ONE}", "input": "more"})
    assert (caught.value.code, caught.value.status) == ("previous_response_not_found", 400)


def test_references_stand_for_their_items() -> None:
    body = {
        "input": [
            {"role": "user", "content": "hi"},
            {"type": "item_reference", "id": item_id("rs", ONE, 0)},
            {"type": "item_reference", "id": item_id("msg", ONE, 1)},
            HELLO,
        ]
    }
    assert wanted(body) == [ONE]
    assert parse(body, {ONE: past()}).messages[1] == past().reply
    body["input"][2]["id"] = item_id("msg", ONE, 7)
    with pytest.raises(InvalidRequestError) as caught:
        parse(body, {ONE: past()})
    assert caught.value.path == "input[2].id"


def test_what_is_looked_up_is_bounded() -> None:
    items = [{"type": "item_reference", "id": item_id("msg", f"exc_{at:026}", 0)} for at in range(MAX_REFERENCES + 1)]
    assert len(wanted({"input": items[:-1]})) == MAX_REFERENCES
    with pytest.raises(InvalidRequestError):
        wanted({"input": items})


@pytest.mark.parametrize("value", ["msg_67cc_0", "msg_exc_1_0", "", f"msg_{ONE}", f"MSG_{ONE}_0", None, 3])
def test_ids_of_others_name_no_exchange(value: Any) -> None:
    assert exchange_of(value) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "user", "message", "auto", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "text", "id", "tools", "name"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
NAMES = ["input", "tools", "tool_choice", "text", "reasoning", "include", "metadata", "previous_response_id", "stop"]


@settings(max_examples=examples(200))
@given(st.dictionaries(st.sampled_from([*NAMES, "instructions", "stream", "n", "truncation"]), JSON, max_size=4))
def test_whatever_comes_is_read_or_refused(body: dict[str, Any]) -> None:
    for read_it in (wanted, parse):
        try:
            read_it(body)
        except InvalidRequestError as error:
            assert error.message  # noqa: PT017 - any refusal is right, a crash is not
