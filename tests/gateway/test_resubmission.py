"""Replies in pieces, cut anywhere: what comes out is what one engine would have said that was never cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.capture import Collector
from agentworld.capture.call import Call
from agentworld.dialects.exchange import Choice, Delta, Request
from agentworld.engines.base import Engine, EngineAbortedError
from agentworld.engines.detokenize import StopStrings, TextStream
from agentworld.engines.tokenizer import byte_tokenizer
from agentworld.errors import EngineError
from agentworld.gateway.resubmit import BEYOND_STOP, Resubmission
from agentworld.gateway.stream_parser import Qwen3Parser
from agentworld.records import Policy, Sampling, Usage, VersionSpan
from tests.examples import examples

PROMPT = [1, 2, 3]
TOKENIZER = byte_tokenizer()
EOS = cast(int, TOKENIZER.eos_token_id)


class Piece(NamedTuple):
    """What one call of the engine samples: the ids of `text`, each by its version."""

    text: str
    versions: Sequence[int]
    chunk: int


class Pieces:
    """An engine that looks for stop strings in its own piece only, and cuts each piece but the last.

    `says`: how it tells its versions: with the `pieces`, at the `end`, or not at all (`silent`).
    """

    def __init__(self, pieces: Sequence[Piece], says: str) -> None:
        self.pieces, self.says = pieces, says
        self.sampled: list[int] = []
        self.versions: list[int] = []
        self.asked: list[list[int]] = []

    @asynccontextmanager
    async def generate(self, prompt: list[int], request: Request, sampling: Sampling) -> AsyncIterator[Any]:
        piece, last = self.pieces[len(self.asked)], len(self.asked) + 1 == len(self.pieces)
        self.asked.append(prompt)
        ids = [*TOKENIZER.encode(piece.text), *([EOS] if last else [])]
        text, stops = TextStream(TOKENIZER), StopStrings(sampling.stop, include=False)
        ended = next((at for at, token in enumerate(ids, 1) if stops.feed(text.feed([token]))), None)
        ids = ids[:ended]
        self.sampled += ids
        versions = [piece.versions[at % len(piece.versions)] for at in range(len(ids))]
        self.versions += versions
        yield self._deltas(ids, versions, piece, "abort" if ended is None and not last else "stop", len(prompt))

    async def _deltas(
        self, ids: list[int], versions: list[int], piece: Piece, finish: str, prompt: int
    ) -> AsyncIterator[Delta]:
        yield Delta(policy_version=piece.versions[0] if self.says == "pieces" else None)
        at = 0
        while at < len(ids):
            end = at + 1
            while end < min(at + piece.chunk, len(ids)) and versions[end] == versions[at]:
                end += 1
            part = ids[at:end]
            said = versions[at] if self.says == "pieces" else None
            yield Delta(ids=part, logprobs=[-token / 8 for token in part], policy_version=said)
            at = end
        spans = spans_of(versions) if self.says == "end" else None
        end_version = piece.versions[0] if self.says == "pieces" else None
        yield Delta(ids=[], logprobs=[], finish_reason=finish, version_spans=spans or None, policy_version=end_version)
        yield Delta(index=-1, usage=Usage(prompt, len(ids)), policy_version=end_version)


def spans_of(versions: Sequence[int]) -> tuple[VersionSpan, ...]:
    return tuple(
        VersionSpan(at, version) for at, version in enumerate(versions) if at == 0 or versions[at - 1] != version
    )


async def joined(engine: Pieces, stop: tuple[str, ...] = (), then: Pieces | None = None) -> tuple[Choice, Collector]:
    """The reply as it goes on record. `then`: the engine that is asked for what follows the first piece."""
    request = Request(dialect="chat", model="m", messages=())
    call = Call(
        trajectory_id="t",
        request=request,
        model="m",
        policy=Policy("m", "r", engine.pieces[0].versions[0]),
        sampling=Sampling(stop=stop),
        keys=[],
        tools_key=b"",
        prompt_ids=PROMPT,
    )

    async def wait(error: EngineError | None) -> tuple[Engine, Policy]:
        following = then or engine
        return cast(Engine, following), Policy("m", "r", following.pieces[len(following.asked)].versions[0])

    collector = Collector()
    async for delta in Resubmission(call, 16, TOKENIZER).deltas(cast(Engine, engine), wait):
        collector.feed(delta)
    (choice,) = collector.choices()
    return choice, collector


TEXT = st.text(alphabet="aST é", max_size=6)
PIECES = st.lists(
    st.builds(Piece, TEXT, st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(1, 8)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=examples(300), deadline=None)
@given(
    pieces=PIECES,
    says=st.sampled_from(["pieces", "end", "silent"]),
    stop=st.lists(st.text("ST", min_size=1), max_size=2),
)
def test_pieces_are_one_reply_whose_ids_text_and_versions_agree(
    pieces: list[Piece], says: str, stop: list[str]
) -> None:
    if says == "silent":  # What nobody says cannot change within a piece.
        pieces = [piece._replace(versions=piece.versions[:1]) for piece in pieces]
    # Versions go up from piece to piece, else they are of two runs.
    ascending = [[version + 3 * place for version in piece.versions] for place, piece in enumerate(pieces)]
    pieces = [piece._replace(versions=versions) for piece, versions in zip(pieces, ascending, strict=True)]
    engine = Pieces(pieces, says)
    choice, collector = asyncio.run(joined(engine, tuple(stop)))
    text, stops = TextStream(TOKENIZER), StopStrings(stop, include=False)
    kept = next(
        (at for at, token in enumerate(engine.sampled, 1) if stops.feed(text.feed([token]))), len(engine.sampled)
    )
    assert choice.ids == engine.sampled[:kept]
    assert choice.logprobs == [-token / 8 for token in engine.sampled[:kept]]
    assert choice.finish_reason == "stop"
    assert collector.faults == []
    assert collector.usage == Usage(len(PROMPT), kept)
    found = choice.version_spans or spans_of([pieces[0].versions[0]] * kept)
    versions = engine.versions[:kept]
    if says == "end" and kept < len(engine.sampled):  # The stream was left before it told any.
        begun, stamped = len(engine.asked[-1]) - len(PROMPT), pieces[len(engine.asked) - 1].versions[0]
        versions[begun:] = [stamped] * (kept - begun)
    assert found == spans_of(versions)
    # What is shown ends where the ids end, and what was sampled beyond is the beginning of what is on record of it.
    parser = Qwen3Parser(TOKENIZER, stop_ids=[EOS], stops=stop)
    shown = (parser.feed(choice.ids or []) + parser.finish()).text
    whole = (stops.text if stops.found is not None else text_of(choice.ids or [])).strip()
    assert shown == whole
    beyond = choice.metadata.get(BEYOND_STOP, [])
    assert engine.sampled[kept : kept + len(beyond)] == beyond
    for place, prompt in enumerate(engine.asked):
        assert prompt == [*PROMPT, *engine.sampled[: len(prompt) - len(PROMPT)]], place


@pytest.mark.parametrize(("says", "second"), [("pieces", 8), ("end", 7)])
def test_versions_are_those_that_were_told_when_a_stop_string_ended_the_reply(says: str, second: int) -> None:
    pieces = [Piece("T", [4], 1), Piece("SS", [7, 8], 1)]
    choice, _ = asyncio.run(joined(Pieces(pieces, says), ("TSS",)))
    assert choice.ids == TOKENIZER.encode("TSS")
    assert choice.version_spans == spans_of([4, 7, second])


def text_of(ids: list[int]) -> str:
    stream = TextStream(TOKENIZER)
    return stream.feed(ids) + stream.finish()


def test_an_engine_that_is_behind_may_go_on_and_one_whose_weights_went_back_may_not() -> None:
    newer, older = Piece("ab", [5], 8), Piece("cd", [4], 8)
    choice, _ = asyncio.run(joined(Pieces([newer, older], "pieces"), then=Pieces([older], "pieces")))
    assert choice.version_spans == (VersionSpan(0, 5), VersionSpan(2, 4))
    with pytest.raises(EngineAbortedError, match="another run"):
        asyncio.run(joined(Pieces([newer, older], "pieces")))
