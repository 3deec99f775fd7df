"""What the application is given: the same however a request is cut, and nothing of what is no request."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.http_server import connection
from tests.examples import examples
from tests.http_server.serving import Recorder, answers, chunked, get, post, serving, until

CLOSE = b"Connection: close"
TOKENS = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789-_", min_size=1, max_size=8).map(str.encode)
VALUES = st.text('abc ,;="/\u00e9', max_size=12).map(lambda text: text.strip().encode("latin-1"))
PATHS = st.text("ab/%é~.", max_size=8)


@st.composite
def targets(draw):
    from urllib.parse import quote

    path = "/" + quote(draw(PATHS), safe="/")
    query = draw(st.sampled_from(["", "?", "?a=b&c=%20", "?x=/?"]))
    origin = draw(st.sampled_from(["", "", "http://host:80"]))
    return (origin + path + query).encode()


@st.composite
def requests(draw):
    """One request as bytes, and the body that it means."""
    method = draw(st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"HEAD"]))
    given = draw(st.lists(st.tuples(TOKENS.map(lambda name: b"x-" + name), VALUES), max_size=4))
    headers = [b"Host: x", *(name + b": " + value for name, value in given)]
    head = b"%b %b HTTP/1.1" % (method, draw(targets()))
    pieces = draw(st.lists(st.binary(min_size=1, max_size=20), max_size=4))
    body = b"".join(pieces)
    kind = draw(st.sampled_from(["none", "length", "chunked"])) if method != b"HEAD" else "none"
    if kind == "none":
        return b"\r\n".join([head, *headers, b"", b""]), b""
    if kind == "length":
        return b"\r\n".join([head, *headers, b"Content-Length: %d" % len(body), b"", body]), body
    extension = draw(st.sampled_from([b"", b";a=b", b';a="b c"', b";x"]))
    trailers = draw(st.sampled_from([b"", b"Trailer: x\r\n", b"A: b\r\nC: d\r\n"]))
    framed = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
    lines = [head, *headers, b"Transfer-Encoding: chunked", b"", framed]
    return b"\r\n".join(lines) + b"0\r\n" + trailers + b"\r\n", body


def cut(data, places):
    ends = [*sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False) if end > begin]


class Loose:
    """A transport that keeps what is written, so that pieces come as they were cut."""

    def __init__(self):
        self.written, self.closed, self.pauses, self.resumes = b"", False, 0, 0

    def get_extra_info(self, name):
        return ("127.0.0.1", 1)

    def is_closing(self):
        return self.closed

    def write(self, data):
        self.written += data

    def get_write_buffer_size(self):
        return 0

    def pause_reading(self):
        self.pauses += 1

    def resume_reading(self):
        self.resumes += 1

    def can_write_eof(self):
        return True

    def write_eof(self):
        pass

    def close(self):
        self.closed = True

    abort = close


async def given_by(pieces):
    """What an application is given of these pieces, each of which comes alone, and what it answers."""
    app = Recorder()
    async with serving(app) as server:
        transport = Loose()
        each = connection.Connection(server.listener)
        each.connection_made(transport)
        for piece in pieces:
            each.received(memoryview(piece))
        await until(lambda: each._current is None)
        each.connection_lost(None)
        return app.scopes, app.bodies, app.broken, transport.written


def without_dates(data):
    return b"\r\n".join(line for line in data.split(b"\r\n") if not line.startswith(b"date: "))


@settings(max_examples=examples(40))
@given(st.lists(requests(), min_size=1, max_size=4), st.lists(st.integers(0, 2000), max_size=8))
async def test_cuts_change_nothing(sent, places):
    data = b"".join(request for request, _ in sent)
    scopes, bodies, broken, written = await given_by([data])
    assert bodies == [body for _, body in sent]
    assert not any(broken)
    for pieces in (cut(data, places), [data[at : at + 1] for at in range(len(data))]):
        got = await given_by(pieces)
        assert got[:3] == (scopes, bodies, broken)
        assert without_dates(got[3]) == without_dates(written)


async def test_a_scope_says_what_was_sent():
    app = Recorder()
    async with serving(app) as server:
        await server.ask(get(b"http://h/%C3%A9%2F?q=%20#part", b"X-Kind:  a b ", CLOSE))
    (scope,) = app.scopes
    assert (scope["type"], scope["method"], scope["http_version"]) == ("http", "GET", "1.1")
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/é/", b"/%C3%A9%2F", b"q=%20")
    assert scope["headers"] == [(b"host", b"x"), (b"x-kind", b"a b"), (b"connection", b"close")]
    assert scope["server"][0] == "127.0.0.1"


async def test_a_fragment_is_no_part_of_the_path():
    app = Recorder()
    async with serving(app) as server:
        await server.ask(get(b"/a?b#c", CLOSE))
    assert (app.scopes[0]["path"], app.scopes[0]["query_string"]) == ("/a", b"b")


async def test_framing_that_comes_apart_from_a_large_piece_is_taken():
    app = Recorder()
    piece = bytes(200_000)
    async with serving(app) as server:
        each = connection.Connection(server.listener)
        transport = Loose()
        each.connection_made(transport)
        each.received(memoryview(chunked()))
        each.received(memoryview(b"%x\r\n" % len(piece) + piece))
        await until(lambda: not each._filling.held)  # The application has taken it.
        each.received(memoryview(b"\r"))
        each.received(memoryview(b"\n0\r\n\r\n"))
        await until(lambda: each._current is None)
        each.connection_lost(None)
    assert app.bodies == [piece]
    assert app.broken == [False]


async def test_a_head_behind_a_large_body_is_taken():
    pieces = post(bytes(200_000)) + post(b"ab", CLOSE)[:-2], b"ab"
    _, bodies, broken, _ = await given_by(pieces)
    assert bodies == [bytes(200_000), b"ab"]
    assert broken == [False, False]


async def test_a_head_behind_large_heads_is_taken():
    large = get(b"/", b"X: " + b"a" * 40_000)
    _, bodies, broken, _ = await given_by([large + large + post(b"ab")[:-2], b"ab"])
    assert bodies == [b"", b"", b"ab"]
    assert not any(broken)


async def test_headers_after_a_body_are_dropped():
    app = Recorder()
    async with serving(app) as server:
        client = await server.client(chunked(b"ab") + b"0\r\nX-Late: 1\r\n\r\n")
        await client.answer()
    assert [name for name, _ in app.scopes[0]["headers"]] == [b"host", b"transfer-encoding"]


NO_REQUESTS = {
    "garbage": b"\x00\x01\x02 nothing\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 100,
    "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    "HTTP/0.9": get(version=b"0.9"),
    "HTTP/2.0": get(version=b"2.0"),
    "folded": get(b"/", b"X: a\r\n b"),
    "space before colon": get(b"/", b"X : a"),
    "bare LF": get().replace(b"\r\n", b"\n"),
    "NUL": get(b"/", b"X: a\0b"),
    "length and chunked": post(b"hello", b"Transfer-Encoding: chunked"),
    "chunked and length": chunked(headers=[b"Content-Length: 5"]) + b"0\r\n\r\n",
    "two lengths": post(b"hello", b"Content-Length: 6"),
    "xchunked": get(b"/", b"Transfer-Encoding: xchunked") + b"0\r\n\r\n",
    "chunked, identity": get(b"/", b"Transfer-Encoding: chunked, identity") + b"0\r\n\r\n",
    "chunked and identity": chunked(headers=[b"Transfer-Encoding: identity"]) + b"0\r\n\r\n",
    "vertical tab": get(b"/", b"Transfer-Encoding: \x0bchunked") + b"0\r\n\r\n",
    "chunked in 1.0": get(b"/", b"Transfer-Encoding: chunked", version=b"1.0") + b"0\r\n\r\n",
    **{
        f"length {length!r}": get(b"/", b"Content-Length: " + length) + b"hellohello"
        for length in (b"-5", b"+5", b"1_0", b"0x5", b"5, 5", b"", b"9" * 25)
    },
    **{
        f"chunk of {size!r}": chunked() + size + b"\r\n{}\r\n0\r\n\r\n"
        for size in (b"-2", b"+2", b"0x2", b"f" * 19, b"2_", b"2 ")
    },
}


@pytest.mark.parametrize("sent", NO_REQUESTS.values(), ids=NO_REQUESTS)
async def test_what_is_no_request_is_answered_so_and_ends_the_connection(sent):
    app = Recorder()
    async with serving(app) as server:
        client = await server.client(sent + get(b"/smuggled"))
        (status, headers, body), *more = answers(await client.rest())
    assert (status, headers[b"connection"], more) == (400, b"close", [])
    assert b'"code":"invalid_request"' in body
    assert app.calls == 0


@pytest.mark.parametrize(
    ("bad", "refused"),
    [(b"\0garbage", 400), (get(version=b"2.0"), 400), (get(b"/", b"X: " + b"a" * connection.MAX_HEAD), 431)],
    ids=["garbage", "version", "size"],
)
async def test_what_was_asked_before_a_bad_request_is_answered_first(bad, refused):
    app = Recorder()
    async with serving(app) as server:
        got = answers(await server.ask(get(b"/first") + get(b"/second") + bad + get(b"/never")))
    assert [status for status, _, _ in got] == [200, 200, refused]
    assert [headers.get(b"connection") for _, headers, _ in got] == [None, None, b"close"]
    assert app.paths == ["/first", "/second"]


async def test_a_bad_request_behind_dropped_ones_is_dropped_too():
    app = Recorder()
    number = connection.WAITING + 1
    async with serving(app) as server:
        got = answers(await server.ask(get() * (number + 1) + b"\0garbage"))
    assert [status for status, _, _ in got] == [200] * number
    assert got[-1][1][b"connection"] == b"close"


async def test_a_bad_request_behind_one_that_ends_the_connection_is_not_answered():
    async with serving(Recorder()) as server:
        ((status, headers, _),) = answers(await server.ask(get(b"/", CLOSE) + b"\0garbage"))
    assert (status, headers[b"connection"]) == (200, b"close")


async def test_a_body_that_breaks_off_is_told_and_the_answer_comes():
    app = Recorder()
    async with serving(app) as server:
        client = await server.client(chunked(b"abc"))
        await until(lambda: any(each._current for each in server.listener.connections))
        client.send(b"no size\r\n")
        ((status, headers, body),) = answers(await client.rest())
    assert (status, headers[b"connection"], body) == (400, b"close", b"abc")
    assert app.broken == [True]


async def test_a_body_that_breaks_off_at_once_is_told_too():
    app = Recorder()
    async with serving(app) as server:
        ((status, headers, body),) = answers(await server.ask(chunked(b"abc") + b"no size\r\n"))
    assert (status, headers[b"connection"], body) == (400, b"close", b"abc")
    assert app.broken == [True]


async def test_a_body_that_breaks_off_leaves_the_request_before_it():
    app = Recorder()
    async with serving(app) as server:
        got = answers(await server.ask(get(b"/first") + chunked() + b"no size\r\n"))
    assert [status for status, _, _ in got] == [200, 400]
    assert app.broken == [False, True]


HEAD = connection.MAX_HEAD
TOO_LARGE = {
    "a header": [get(b"/", b"X: " + b"a" * HEAD)],
    "a target": [get(b"/" + b"a" * HEAD)],
    "many headers": [get(b"/", *[b"x: y"] * 128)],
    "two pieces": [b"GET / HTTP/1.1\r\nX: " + b"a" * (HEAD - 1000), b"a" * 2000 + b"\r\n\r\n"],
    "without an end": [b"GET / HTTP/1.1\r\n", *[b"X: " + b"a" * 10_000 + b"\r\n"] * 8],
}


@pytest.mark.parametrize("pieces", TOO_LARGE.values(), ids=TOO_LARGE)
async def test_a_head_over_the_limit_is_refused(pieces):
    scopes, _, _, written = await given_by(pieces)
    ((status, headers, body),) = answers(written)
    assert (status, headers[b"connection"], scopes) == (431, b"close", [])
    assert b"head_too_large" in body


@pytest.mark.parametrize("sent", [get(b"/", *[b"x: y"] * 127), get(b"/" + b"a" * (HEAD - 100))], ids=["many", "long"])
async def test_a_head_at_the_limit_is_taken(sent):
    for pieces in ([sent], [sent[:20], sent[20:]]):
        assert len((await given_by(pieces))[0]) == 1


@pytest.mark.parametrize(
    "endless", [b"0\r\n" + b"x: y\r\n" * 2000, b"1;" + b"a" * 10_000], ids=["trailers", "extension"]
)
async def test_what_surrounds_a_body_is_bounded(endless):
    app = Recorder()
    async with serving(app) as server:
        client = await server.client(chunked(b"abc"))
        await until(lambda: any(each._current and not each._current.held for each in server.listener.connections))
        client.send(endless, *[endless[3:] if endless[:1] == b"0" else b"a" * 10_000] * 10)
        ((status, headers, _),) = answers(await client.rest())
    assert (status, headers[b"connection"], app.broken) == (400, b"close", [True])
