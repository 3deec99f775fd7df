"""Match keys of conversations that are worked out when somebody asks for one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.capture.keys import LateKeys, message_keys
from agentworld.records import FunctionCall, Message, TextPart, ToolCall
from tests.examples import examples

_TEXT = st.text(max_size=5)
_CALLS = st.lists(st.builds(ToolCall, _TEXT, st.builds(FunctionCall, _TEXT, _TEXT)), max_size=2).map(tuple)
_PARTS = st.lists(st.builds(TextPart, _TEXT), max_size=2).map(tuple)
_MESSAGE = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=st.none() | _TEXT | _PARTS,
    reasoning=st.none() | _TEXT,
    tool_calls=_CALLS,
    tool_call_id=st.none() | _TEXT,
    name=st.none() | _TEXT,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(_MESSAGE, min_size=1, max_size=4), _MESSAGE, st.booleans(), st.integers(-5, 5))
def test_late_keys_are_those_of_the_messages(messages: list[Message], reply: Message, asked: bool, place: int) -> None:
    keys, known = LateKeys(messages), message_keys(messages)
    assert len(keys) == len(known)
    if asked:
        assert keys[-1] == known[-1]
    longer, whole = keys.then(reply), message_keys([*messages, reply])
    assert len(longer) == len(whole)
    assert (list(longer), longer[:place], longer[place:], longer[-2]) == (
        whole,
        whole[:place],
        whole[place:],
        whole[-2],
    )
    assert (list(keys), keys == known, longer == keys, len(keys)) == (known, True, False, len(known))
