"""Text as stores hold it: nothing that an engine cannot hold, and exactly what was said when it is read."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentworld.pool.exact_text import (
    original,
    original_value,
    read_json,
    spoken_json,
    storable,
    storable_value,
    stored_json,
    stored_spoken,
)
from agentworld.records import Message, exact_json

odd = st.sampled_from(
    ["\x00", "\ud800", "\ud83d", "\ude00", "\udfff", "\U00100000", "\U00100800", "\U00100801", "\\u0000"]
)
text = st.lists(st.characters(exclude_categories=()) | odd, max_size=8).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


@given(text)
def test_any_text_is_held_and_comes_back(said):
    held = storable(said)
    assert "\x00" not in held
    held.encode()  # No surrogate is left.
    assert original(held) == said


@given(text, text)
def test_unequal_texts_stay_unequal(one, other):
    assert (storable(one) == storable(other)) == (one == other)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00", max_codepoint=0xFFFFF)))
def test_usual_text_is_held_as_it_is(said):
    assert storable(said) == original(said) == said


def test_what_stands_for_what():
    assert storable("a\x00\ud800\udfff") == "a\U00100800\U00100000\U001007ff"
    assert storable("\U00100801\U00100800\U00100802") == "\U00100801\U00100801\U00100801\U00100800\U00100802"


@given(values)
def test_json_comes_back_with_the_order_of_its_keys(value):
    data = stored_json(value)
    data.decode()
    assert b"\\u0000" not in data.replace(b"\\\\", b"")
    assert exact_json.encode(read_json(data, Any)) == exact_json.encode(value)
    assert spoken_json(data) == exact_json.encode(value)
    assert stored_spoken(value, exact_json.encode(value)) == data
    assert exact_json.encode(original_value(storable_value(value))) == exact_json.encode(value)


@given(text, text)
def test_records_come_back(content, name):
    message = Message(role="tool", content=content, tool_call_id=name)
    assert read_json(stored_json(message), Message) == message
