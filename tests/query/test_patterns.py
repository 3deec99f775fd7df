import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.query.patterns import glob, matches, prefix
from tests.examples import examples


@pytest.mark.parametrize(
    ("pattern", "fits", "fails"),
    [
        ("", [""], ["a"]),
        ("%", ["", "a", "a\nb"], []),
        ("_", ["a", "é", "🙂", "\n"], ["", "ab"]),
        ("a%", ["a", "ab", "a%"], ["A", "ba", ""]),
        ("%a", ["a", "ba", "aa"], ["ab", ""]),
        ("%ab%b", ["abb", "xabab", "abxb"], ["ab", "ba"]),
        ("a_c%", ["abc", "a.c!"], ["ac", "abd"]),
        ("%__%", ["ab", "abc"], ["a", ""]),
        (r"100\%", ["100%"], ["100", "1000"]),
        (r"a\_b", ["a_b"], ["axb"]),
        (r"a\\%", ["a\\", "a\\b"], ["a%"]),
        ("a.*[b]?", ["a.*[b]?"], ["a.*b", "axxb"]),
        ("%%", ["", "x"], []),
        ("%a%a%", ["aa", "xaxax"], ["a"]),
        ("_%_", ["ab", "axb"], ["a"]),
    ],
)
def test_what_fits_a_pattern(pattern, fits, fails):
    assert [text for text in fits + fails if matches(pattern, text)] == fits


def test_no_pattern_takes_long():
    # A backtracking matcher would not come back from this.
    assert not matches("%a" * 20 + "b", "a" * 20_000)


texts = st.text("ab%_\\.*[\n", max_size=6)
patterns = st.lists(st.sampled_from(["a", "b", "%", "_", r"\%", r"\_", "\\\\", ".", "*", "[", "\n"]), max_size=6)


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(patterns.map("".join), texts)
def test_patterns_are_regular_expressions_written_otherwise(pattern, text):
    expression = "".join(
        {"%": ".*", "_": "."}.get(piece, re.escape(piece[-1])) for piece in re.findall(r"\\.|[^\\]", pattern, re.DOTALL)
    )
    assert matches(pattern, text) is (re.fullmatch(expression, text, re.DOTALL) is not None)


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(patterns.map("".join), texts)
def test_what_fits_begins_with_the_prefix(pattern, text):
    if matches(pattern, text):
        assert text.startswith(prefix(pattern))


def test_glob_takes_its_own_wildcards_as_they_are():
    assert glob(r"a%_\%*?[]\\") == "a*?%[*][?][[]]\\"
