"""Replies that begin in the prompt, and replies over Qwen3's real vocabulary, read under every split."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from agentworld.capture.call import Call
from agentworld.config import ModelSettings
from agentworld.dialects.exchange import Request
from agentworld.engines.tokenizer import byte_tokenizer
from agentworld.gateway.reply_parser import ReplyParser, open_parser
from agentworld.gateway.stream_parser import Piece
from agentworld.gateway.token_in import TokenIn
from agentworld.records import Policy, Sampling
from tests.examples import examples

from .long_talk import TOOLS, needs_qwen3, qwen3, sampled, words
from .test_stream_parser import parse, replies

TOKENIZER = byte_tokenizer()
MODEL = TokenIn(ModelSettings(name="m", upstream="http://x", tokenizer="byte"))
OPENING = TOKENIZER.encode("<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n")
CALL, CALL_END, THINK_END = TOKENIZER.convert_tokens_to_ids(["<tool_call>", "</tool_call>", "</think>"])
STOPS = tuple(MODEL.rendering({}).stop_ids)


def opened(lead: list[int], *, tools: bool = True, stop: tuple[str, ...] = ()) -> ReplyParser:
    """The parser of a reply that begins with `lead`, which stands in the prompt."""
    call = Call(
        trajectory_id="t",
        request=Request(dialect="chat", model="m", messages=()),
        model="m",
        policy=Policy(model="m"),
        sampling=Sampling(stop_token_ids=STOPS, stop=stop),
        keys=[],
        tools_key=b"",
        tools=TOOLS if tools else [],
        prompt_ids=[*OPENING, *lead],
        metadata={"prefilled": len(lead)} if lead else {},
    )
    return open_parser(MODEL.rendering({}), TOKENIZER, call)


def read(parser: ReplyParser, ids: list[int]) -> Piece:
    return parser.feed(ids) + parser.finish()


def _within_a_call(lead: list[int]) -> bool:
    """Whether the last call is not closed, or stands in a thought that may go on."""
    if CALL not in lead:
        return False
    begins = max(at for at, token in enumerate(lead) if token == CALL)
    return CALL_END not in lead[begins:] or THINK_END not in lead


@given(replies, st.data())
@settings(
    max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
def test_beginning_and_rest_say_what_the_whole_says(ids: list[int], data: st.DataObject) -> None:
    ids = [token for token in ids if token not in STOPS]
    at = data.draw(st.integers(0, len(ids)))
    lead, rest = ids[:at], ids[at:]
    before = parse(lead)
    # Within a call or a character, the beginning alone is shown as what it is so far.
    assume(not _within_a_call(lead) and not before.text.endswith("\ufffd") and not before.reasoning.endswith("\ufffd"))
    after, whole = read(opened(lead), rest), parse(ids)
    assert (before + after).calls == whole.calls
    assert before.text + after.text == whole.text
    assert (before.reasoning + after.reasoning).rstrip() == whole.reasoning


@given(replies, st.data())
@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_rest_is_the_same_under_every_split(ids: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(ids)))
    lead = [token for token in ids[:at] if token not in STOPS]
    rest = ids[at:]
    parser = opened(lead)
    piece = Piece()
    for token in rest:
        piece += parser.feed([token])
    assert piece + parser.finish() == read(opened(lead), rest)


@pytest.mark.parametrize(
    ("lead", "rest", "said"),
    [
        ("a", " b", Piece(" b")),
        ("<think>a", " b</think>c", Piece("c", " b")),
        ("<think>a</think>\n\n", "  b", Piece("b")),
        ("a END", " b", Piece(" b")),
        ("a EN", "D b", Piece("D b")),
        ('<tool_call>{"na', 'me": "look"}</tool_call>', Piece(calls=(("look", "{}"),))),
        ('<tool_call>{"na', "x", Piece("x")),
        # An end before the beginning closes nothing: the call goes on.
        ("</think></tool_call><tool_call>\n", '{"name": "look"}\n</tool_call>', Piece(calls=(("look", "{}"),))),
        ("</think></tool_call><tool_call>\n", "x</tool_call>", Piece("\nx</tool_call>")),
        ("a <think>", "b", Piece("b")),
    ],
)
def test_what_the_rest_says(lead: str, rest: str, said: Piece) -> None:
    # A stop string in the beginning, or across its end, ended nothing: the engine looks at what it samples.
    assert read(opened(TOKENIZER.encode(lead), stop=("END",)), TOKENIZER.encode(rest)) == said


@pytest.mark.parametrize("lead", ["", "<think>", "a <tool_call>"])
def test_what_the_beginning_showed_of_a_character_is_not_shown_again(lead: str) -> None:
    cut = [*TOKENIZER.encode(lead), 0xC3]
    assert read(opened(cut), []) == Piece()
    after = read(opened(cut), [0xA9])
    assert (after.text + after.reasoning).endswith("é")


def _real(dice: random.Random) -> list[int]:
    """A reply of words, control tokens and any tokens at all."""
    tokenizer = qwen3()
    marks = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>")
    ids: list[int] = []
    for _ in range(dice.randint(1, 9)):
        kind = dice.random()
        if kind < 0.35:
            ids.append(tokenizer.convert_tokens_to_ids(dice.choice(marks)))
        elif kind < 0.6:
            ids += sampled(dice, words(dice, 4))
        elif kind < 0.8:
            ids += sampled(dice, '{"name": "look", "arguments": {"at": "数"}}')
        else:
            ids += [dice.randrange(151_669) for _ in range(dice.randint(1, 3))]
    return ids


@needs_qwen3
def test_qwen3s_vocabulary_under_every_split() -> None:
    from renderers import Qwen3RendererConfig, create_renderer

    from agentworld.gateway.stream_parser import Qwen3Parser

    tokenizer = qwen3()
    renderer: Any = create_renderer(tokenizer, Qwen3RendererConfig())
    stops = renderer.get_stop_token_ids()
    for seed in range(150):
        dice = random.Random(seed)
        ids = _real(dice)
        whole = _pieces(Qwen3Parser(tokenizer, stop_ids=stops), [ids])
        for at in range(len(ids) + 1):
            assert _pieces(Qwen3Parser(tokenizer, stop_ids=stops), [ids[:at], ids[at:]]) == whole
        assert _pieces(Qwen3Parser(tokenizer, stop_ids=stops), [[token] for token in ids]) == whole
        theirs = renderer.parse_response(ids)
        assert whole.reasoning == (theirs.reasoning_content or "").strip()
        assert whole.text.startswith(theirs.content)


def _pieces(parser: Any, parts: list[list[int]]) -> Piece:
    piece = Piece()
    for part in parts:
        piece += parser.feed(part)
    return piece + parser.finish()
