"""JSON with lone surrogates and large numbers, beside msgspec, which refuses some of them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.records import Message, exact_json

text = st.text(st.characters(exclude_categories=()) | st.sampled_from(["\ud800", "\udfff", "\x00", "😀"]), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


@given(values)
def test_what_goes_out_comes_in(value):
    data = exact_json.encode(value)
    data.decode()
    back = exact_json.decode(data)
    # Two lone surrogates of a pair become its character, so texts are compared as JSON has them.
    assert exact_json.encode(back) == exact_json.encode(_joined(value))


def _joined(value):
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if isinstance(value, dict):
        return {_joined(key): _joined(inner) for key, inner in value.items()}
    return [_joined(inner) for inner in value] if isinstance(value, list) else value


@given(values.filter(lambda value: not _has_surrogate(value)))
def test_usual_values_are_as_msgspec_writes_them(value):
    assert exact_json.encode(value) == msgspec.json.encode(value)


def _has_surrogate(value):
    return any("\ud800" <= character <= "\udfff" for character in repr([value])) or "\\ud" in repr(value)


def test_unequal_texts_are_written_unequally():
    assert exact_json.encode("\ud83d\ude00") != exact_json.encode("😀")


@pytest.mark.parametrize("number", [10**30, -(10**30), 2**63, 2**64, 2**53 + 1, -0.0, 1e308])
def test_numbers_stay(number):
    assert repr(exact_json.decode(exact_json.encode({"a": number}))) == repr({"a": number})
    assert repr(exact_json.decode(b'{"s": "\\ud800", "a": %s}' % repr(number).encode())["a"]) == repr(number)


def test_types_are_checked_on_the_longer_way_too():
    assert exact_json.decode(b'{"role": "user", "content": "\\ud800"}', Message) == Message("user", "\ud800")
    with pytest.raises(msgspec.ValidationError, match=r"role"):
        exact_json.decode(b'{"role": "nobody", "content": "\\ud800"}', Message)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'"\\ud800',
        b'{"a": NaN, "b": "\\ud800"}',
        b'{"a": Infinity, "b": "\\ud800"}',
        b'"\xed\xa0\x80"',
        b"\xff",
    ],
)
def test_what_is_no_json_is_refused(data):
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        exact_json.decode(data, Any)


def test_numbers_that_json_has_not_are_not_written_on_the_longer_way():
    with pytest.raises(ValueError, match="JSON compliant"):
        exact_json.encode({"a": float("nan"), "b": "\ud800"})
