"""The event reader: the same events however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentworld.engines import sse
from agentworld.engines.sse import EventReader, read_events
from agentworld.errors import EngineError

STREAM = (
    b': ping\n\ndata: {"a": "f\xc3\xbcr \xe6\x95\xb0"}\n\nevent: x\nid: 3\ndata: one\ndata: two\n\n: ping\n'
    b"data:tight\r\n\r\n\n\ndata: [DONE]\n\n"
)
EVENTS = ['{"a": "für 数"}'.encode(), b"one\ntwo", b"tight", b"[DONE]"]


def read(pieces: list[bytes]) -> list[bytes]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)] + reader.finish()


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_cut_gives_the_same_events(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert read([STREAM[begin:end] for begin, end in pairwise(edges)]) == EVENTS


def test_byte_by_byte() -> None:
    assert read([bytes([byte]) for byte in STREAM]) == EVENTS


def test_a_mark_of_the_encoding_at_the_beginning_hides_no_event() -> None:
    stream = b"\xef\xbb\xbfdata: one\n\ndata: \xef\xbb\xbftwo\n\n"
    assert read([stream]) == read([bytes([byte]) for byte in stream]) == [b"one", b"\xef\xbb\xbftwo"]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_last_event_without_its_end(end: bytes) -> None:
    assert read([b"data: x" + end]) == [b"x"]


def test_an_event_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    with pytest.raises(EngineError):
        EventReader().feed(b"data: " + b"x" * 200)
    with pytest.raises(EngineError):
        EventReader().feed(b"data:\n" * 200)


async def test_events_that_come_together_are_told_together():
    async def chunks():
        for chunk in (b"data: a\n\ndata: b\n", b"\n: ping\n\n", b"data: c\n\n", b"data: d"):
            yield chunk

    assert [events async for events in read_events(chunks())] == [[b"a"], [b"b"], [b"c"], [b"d"]]
