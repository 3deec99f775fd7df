"""Texts that were encoded lately are not encoded again, and what is kept of them is bounded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from agentworld.engines.tokenizer import load_tokenizer
from agentworld.gateway.encodings import LONGEST_SHARE, SHORTEST, Encodings
from agentworld.gateway.escape import Escaper, EscapingTokenizer

from .harness import running


class Counted:
    """One id a character. `texts`: those that were encoded, in order."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> list[int]:
        self.texts.append(text)
        return list(map(ord, text))


def text(letter: str, length: int = 1_000) -> str:
    return letter * length


def test_a_text_is_encoded_once() -> None:
    counted = Counted()
    encodings = Encodings(counted)
    first = encodings(text("a"))
    first.append(7)  # A list of its own for each caller.
    assert encodings(text("a")) == [ord("a")] * 1_000
    assert counted.texts == [text("a")]
    for _ in range(2):
        encodings("b" * (SHORTEST - 1))
    assert len(counted.texts) == 3


def test_the_least_recently_used_go_first() -> None:
    counted = Counted()
    encodings = Encodings(counted, max_bytes=60_000)
    for letter in "abcdefghij":
        encodings(text(letter))
    assert encodings.bytes <= 60_000
    counted.texts.clear()
    encodings(text("a"))
    encodings(text("k"))
    encodings(text("l"))
    encodings(text("a"))
    assert counted.texts == [text("k"), text("l")]
    for letter in "mnopqrstuvw":
        encodings(text(letter))
    assert encodings.bytes <= 60_000
    counted.texts.clear()
    encodings(text("w"))
    encodings(text("k"))
    assert counted.texts == [text("k")]


def test_a_text_that_would_drive_out_the_others_is_not_kept() -> None:
    counted = Counted()
    encodings = Encodings(counted, max_bytes=LONGEST_SHARE * 4_000)
    encodings(text("a", 500))
    before = encodings.bytes
    for _ in range(2):
        encodings(text("b", 5_000))
    assert counted.texts == [text("a", 500), text("b", 5_000), text("b", 5_000)]
    assert encodings.bytes == before


def test_threads_share_what_is_kept() -> None:
    counted = Counted()
    encodings = Encodings(counted, max_bytes=50_000)
    wanted = [text(chr(97 + number % 12)) for number in range(600)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(encodings, wanted))
    assert found == [list(map(ord, each)) for each in wanted]
    kept = [each for each in set(wanted) if each in encodings._kept]
    assert encodings.bytes <= 50_000
    assert kept


def test_pieces_between_cuts_are_kept_apart() -> None:
    tokenizer = load_tokenizer("byte")
    escaping = EscapingTokenizer(tokenizer)
    said = Escaper(["<|im_end|>"]).text("x" * 100 + "<|im_end|>" + "y" * 100)
    first = escaping.encode(said)
    assert escaping.encode(said) == first
    assert tokenizer.decode(first) == "x" * 100 + "<|im_end|>" + "y" * 100


async def test_rollouts_of_a_task_render_its_question_once() -> None:
    question = "Count the letters of this sentence, and say how many there are. " * 5
    async with running("ok", tokens="token-in") as gateway:
        token_in = next(iter(gateway.gateway.models.by_name.values())).token_in
        assert token_in is not None
        for number in range(3):
            assert (await gateway.say(question, f"/t/t{number}"))[0] == 200
        kept = [each for each in token_in._escaping._encode._kept if question in each]
        assert len(kept) == 1
        prompts = [gateway.steps(f"t{number}")[0].prompt_ids for number in range(3)]
    assert prompts[0] == prompts[1] == prompts[2]
