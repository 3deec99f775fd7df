from hypothesis import given
from hypothesis import strategies as st

from agentworld.forest import canonical_arguments, chain, exact_key, match_key, tools_digest
from agentworld.forest.messages import _said, _sorted
from agentworld.records import FunctionCall, Message, TextPart, ToolCall, digest
from tests.records.strategies import conversations

ROOT = b"r" * 16


def call(arguments, call_id="call_0"):
    return Message("assistant", None, tool_calls=(ToolCall(call_id, FunctionCall("f", arguments)),))


@given(conversations, st.integers(0, 6))
def test_a_chain_does_not_depend_on_how_it_was_cut(conversation, cut):
    for key in (exact_key, match_key):
        whole = chain(ROOT, conversation, key)
        assert chain(ROOT, conversation, key, whole[:cut]) == whole


@given(conversations, conversations)
def test_exact_keys_are_equal_only_for_equal_conversations(first, second):
    assert (chain(ROOT, first, exact_key)[-1] == chain(ROOT, second, exact_key)[-1]) == (first == second)


@given(conversations)
def test_prefixes_share_their_keys(conversation):
    longer = [*conversation, Message("user", "more")]
    assert chain(ROOT, longer, match_key)[:-1] == chain(ROOT, conversation, match_key)


@given(conversations)
def test_keys_and_roots_are_plain_digests(conversation):
    parent = ROOT
    for message in conversation:
        calls = [(one.id, one.function.name, canonical_arguments(one.function.arguments)) for one in message.tool_calls]
        said = (message.role, _said(message), calls, message.tool_call_id, message.name)
        wanted = digest(b"match", parent, _sorted(said))
        assert match_key(parent, message) == wanted
        parent = wanted
    assert tools_digest(None) == tools_digest([]) == digest(b"tools", _sorted([]))


def test_match_keys_look_past_what_clients_change():
    assert match_key(ROOT, Message("user", "a")) == match_key(ROOT, Message("user", (TextPart("a"),)))
    assert match_key(ROOT, call('{"a": 1, "b": 2}')) == match_key(ROOT, call('{"b":2,"a":1}'))
    empty_beside_call = Message("assistant", "", tool_calls=call("{}").tool_calls)
    assert match_key(ROOT, empty_beside_call) == match_key(ROOT, call("{}"))
    assert match_key(ROOT, Message("assistant", "a", reasoning="r")) == match_key(ROOT, Message("assistant", "a"))


def test_match_keys_keep_apart_what_differs():
    different = [
        Message("user", "a"),
        Message("user", ""),
        Message("user"),
        Message("user", "a", name="n"),
        Message("system", "a"),
        call("{}"),
        call("{"),
        call("{}", "call_1"),
        call("[]"),
        Message("tool", "a", tool_call_id="call_0"),
    ]
    assert len({match_key(ROOT, message) for message in different}) == len(different)


def test_arguments_that_are_no_json_stay_as_they_are():
    assert canonical_arguments("mkdir -p test/{test1,test2") == "mkdir -p test/{test1,test2"
    assert canonical_arguments('{"b": 1.50, "a": null}') == '{"a":null,"b":1.5}'


def test_tools_ignore_the_order_of_keys_only():
    first = {"type": "function", "function": {"name": "f", "parameters": {}}}
    second = {"function": {"parameters": {}, "name": "f"}, "type": "function"}
    other = {"type": "function", "function": {"name": "g", "parameters": {}}}
    assert tools_digest([first]) == tools_digest([second])
    assert tools_digest([first, other]) != tools_digest([other, first])
    assert tools_digest(None) == tools_digest([])
