"""Heads of answers, and how the ends of their bodies are told."""

import pytest

from agentworld.http_server.heads import _date, framed_head

NEW = {"method": "GET", "http_version": "1.1"}
OLD = {"method": "GET", "http_version": "1.0"}


def lines_of(*headers, status=200, request=NEW, lasts=True):
    """The lines after the first, and the framing."""
    head, framing = framed_head({"status": status, "headers": list(headers)}, request, lasts)
    first, *lines = head.decode().removesuffix("\r\n\r\n").split("\r\n")
    assert first.startswith(f"HTTP/1.1 {status} ")
    return [line for line in lines if not line.startswith("date: ")], framing


@pytest.mark.parametrize("value", [b"1_0", b"-1", b"+1", b"", b" 1", b"1, 1"])
def test_lengths_that_are_none(value):
    with pytest.raises(ValueError, match="content-length"):
        lines_of((b"Content-Length", value))


def test_there_is_one_length():
    with pytest.raises(ValueError, match="content-length"):
        lines_of((b"content-length", b"1"), (b"Content-Length", b"1"))


@pytest.mark.parametrize("status", [100, 101, 199, 1000])
def test_statuses_that_are_no_answers(status):
    with pytest.raises(ValueError, match="not the status of an answer"):
        lines_of(status=status)


def test_a_status_without_a_name():
    assert lines_of(status=599)[0] == ["transfer-encoding: chunked"]


def test_the_application_may_end_the_connection():
    lines, framing = lines_of((b"Connection", b"Close"), (b"content-length", b"0"))
    assert lines == ["content-length: 0", "connection: close"]
    assert framing.closes
    lines, framing = lines_of((b"Connection", b"keep-alive"), (b"content-length", b"0"))
    assert lines == ["content-length: 0"]
    assert not framing.closes


def test_the_framing_is_the_servers_to_say():
    assert lines_of((b"Transfer-Encoding", b"gzip"), (b"content-length", b"0"))[0] == ["content-length: 0"]


def test_a_body_without_a_length_ends_with_the_connection_for_http_1_0():
    lines, framing = lines_of(request=OLD)
    assert lines == ["connection: close"]
    assert framing.closes
    assert framing.piece(b"ab", last=True) == b"ab"


@pytest.mark.parametrize(("request_", "status"), [({**NEW, "method": "HEAD"}, 200), (NEW, 204), (NEW, 304)])
def test_an_answer_without_a_body_says_no_framing(request_, status):
    lines, framing = lines_of(status=status, request=request_)
    assert lines == []
    assert not framing.closes
    assert framing.piece(b"ab", last=True) == b""


def test_there_is_one_date():
    head, _ = framed_head({"status": 200, "headers": [(b"Date", b"some day")]}, NEW, True)
    assert head.lower().count(b"date: ") == 1
    assert b"Date: some day\r\n" in head
    assert framed_head({"status": 200, "headers": []}, NEW, True)[0].count(b"\r\ndate: ") == 1
    assert _date(0) == b"date: Thu, 01 Jan 1970 00:00:00 GMT"
    assert _date(86_400) == b"date: Fri, 02 Jan 1970 00:00:00 GMT"


def test_pieces_are_counted():
    framing = lines_of((b"content-length", b"5"))[1]
    assert framing.piece(b"abc", last=False) == b"abc"
    with pytest.raises(RuntimeError, match="declared length"):
        framing.piece(b"def", last=False)
    framing = lines_of((b"content-length", b"5"))[1]
    with pytest.raises(RuntimeError, match="declared length"):
        framing.piece(b"abc", last=True)
