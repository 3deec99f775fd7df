"""The incremental parser: the same under every split, and equal to the renderers' parser of whole replies."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from renderers import Qwen3RendererConfig, create_renderer

from agentworld.engines.tokenizer import byte_tokenizer
from agentworld.gateway.stream_parser import Piece, Qwen3Parser, read_call
from tests.examples import examples

TOKENIZER = byte_tokenizer()
RENDERER = create_renderer(TOKENIZER, Qwen3RendererConfig())
STOP_IDS = RENDERER.get_stop_token_ids()
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'

FRAGMENTS = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "<|im_end|>"),
    *(
        " ",
        "\n",
        "a",
        "word",
        "é",
        "数",
        "\u3000",
        CALL,
        '{"name": "g", "arguments": {"b": [2]}}',
        '{"name": "',
        "{",
        "[]",
    ),
)
pieces = st.one_of(
    st.sampled_from(FRAGMENTS).map(TOKENIZER.encode),
    st.sampled_from([0xC3, 0xE6, 0x95, 0xFF, 0x80, 0x0A]).map(lambda byte: [byte]),
)
replies = st.lists(pieces, max_size=14).map(lambda parts: [token for part in parts for token in part])


def parse(ids: list[int], cuts: list[int] | None = None, **options: object) -> Piece:
    parser = Qwen3Parser(TOKENIZER, stop_ids=STOP_IDS, **options)  # type: ignore[arg-type]
    whole = Piece()
    edges = [0, *sorted(cuts or []), len(ids)]
    for begin, end in pairwise(edges):
        whole += parser.feed(ids[begin:end])
    return whole + parser.finish()


@given(replies, st.data(), st.lists(st.sampled_from(["a", "\n\n", "word", "数 ", "ab"]), max_size=2), st.booleans())
@settings(max_examples=examples(400), deadline=None)
def test_every_split_gives_the_same(ids: list[int], data: st.DataObject, stops: list[str], tools: bool) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=6))
    whole = parse(ids, stops=stops, tools=tools)
    assert parse(ids, cuts, stops=stops, tools=tools) == whole
    assert parse(ids, list(range(len(ids))), stops=stops, tools=tools) == whole


@given(replies)
@settings(max_examples=examples(600), deadline=None)
def test_equals_the_renderer_on_whole_replies(ids: list[int]) -> None:
    ours = parse(ids)
    theirs = RENDERER.parse_response(ids)
    ok = [call for call in theirs.tool_calls if str(call.status) == "ok" and isinstance(call.name, str)]
    assert ours.reasoning == (theirs.reasoning_content or "").strip()
    if len(ok) == len(theirs.tool_calls):
        assert ours.text == theirs.content
        assert len(ours.calls) == len(ok)
    else:
        # What the renderer calls malformed stays readable here, after the same content.
        assert ours.text.startswith(theirs.content)
    if not any("\ufffd" in call.raw for call in theirs.tool_calls):
        names = [call.name for call in ok]
        assert [name for name, _ in ours.calls if name in names][: len(names)] == names


@pytest.mark.parametrize(
    ("reply", "text", "reasoning", "calls"),
    [
        ("plain", "plain", "", []),
        ("<think>\nwhy\n</think>\n\nbecause<|im_end|>ignored", "because", "why", []),
        ("<think></think>x", "x", "", []),
        ("<think>cut in thought", "", "cut in thought", []),
        ("a </think> b", "a </think> b", "", []),
        ("x <think> is content here", "x <think> is content here", "", []),
        ("say\n" + CALL, "say", "", [("f", '{"a": 1}')]),
        (CALL + "\n" + CALL + "trailing", "", "", [("f", '{"a": 1}')] * 2),
        # Think, answer with a call drafted inside the thought: not a call.
        (f"<think>draft {CALL}</think>done", "done", f"draft {CALL}", []),
        # Never closed, so the call itself ended the thinking.
        (f"<think>go {CALL}", "", "go", [("f", '{"a": 1}')]),
        ('<tool_call>\n{"name": "f", "argu', '<tool_call>\n{"name": "f", "argu', "", []),
        ('x<tool_call>\n{"nope": 1}\n</tool_call>', 'x\n<tool_call>\n{"nope": 1}\n</tool_call>', "", []),
        (
            '<tool_call>{"name": "sh", "arguments": {"c": "mkdir -p test/{test1,test2}</tool_call>',
            "",
            "",
            [("sh", '{"c": "mkdir -p test/{test1,test2')],
        ),
    ],
)
def test_what_replies_mean(reply: str, text: str, reasoning: str, calls: list[tuple[str, str]]) -> None:
    assert parse(TOKENIZER.encode(reply)) == Piece(text, reasoning, tuple(calls))


def test_without_tools_markup_is_content() -> None:
    assert parse(TOKENIZER.encode(CALL), tools=False).text == CALL


def test_only_the_first_call_where_calls_may_not_be_parallel() -> None:
    assert len(parse(TOKENIZER.encode(CALL + CALL), parallel=False).calls) == 1


def test_a_stop_string_is_cut_out_and_ends_the_reply() -> None:
    assert parse(TOKENIZER.encode("one END two"), stops=["END"]).text == "one"
    assert parse(TOKENIZER.encode("<think>hm END x</think>y"), stops=["END"]) == Piece(reasoning="hm")
    # The beginning of a stop string that never completes is text.
    assert parse(TOKENIZER.encode("one EN"), stops=["END"]).text == "one EN"


def test_a_prompt_that_ends_in_thinking_goes_on_thinking() -> None:
    assert parse(TOKENIZER.encode("so</think>x"), opened=True) == Piece("x", "so")


def test_text_goes_out_at_once() -> None:
    parser = Qwen3Parser(TOKENIZER, stop_ids=STOP_IDS)
    assert [parser.feed([token]).text for token in TOKENIZER.encode("a b")] == ["a", "", " b"]


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ('{"name": "f", "arguments": {"x": "é"}}', ("f", '{"x": "é"}')),
        ('{"name": "f", "arguments": "raw"}', ("f", "raw")),
        ('{"name": "f", "arguments": [1]}', ("f", "[1]")),
        ('{"name": "f", "arguments": null}', ("f", "null")),
        ('{"name": "f"}', ("f", "{}")),
        ('{"name": "f", "arguments": {"x": 1}', ("f", '{"x": 1}')),
        ('{"name": "f", "arguments": {"x": }}', ("f", '{"x": }')),
        ('{"name": 5}', None),
        ("[]", None),
        ("", None),
        ("[" * 100_000, None),
    ],
)
def test_calls_that_are_odd(body: str, call: tuple[str, str] | None) -> None:
    assert read_call(body) == call
