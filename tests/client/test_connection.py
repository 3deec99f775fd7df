"""Retries and connections, against a server that does as it is told."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agentworld.client import connection as connections
from agentworld.client.connection import Connection, ServerUnreachableError
from agentworld.errors import ConfigError
from tests.forked import forked

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
OK_AND_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"
NOTHING = b""


class Obeying:
    """Answers each request with the next of `answers`; NOTHING closes the connection instead."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with peer:
                peer.settimeout(10)
                while self._serve(peer):
                    pass

    def _serve(self, peer):
        data = b""
        while b"\r\n\r\n" not in data:
            piece = peer.recv(65536)
            if not piece:
                return False
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
        while len(body) < length:
            body += peer.recv(65536)
        self.requests.append((head.split(b"\r\n")[0], body))
        answer = self.answers.pop(0)
        peer.sendall(answer)
        return bool(answer) and b"Connection: close" not in answer

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        # A shutdown wakes the thread that accepts; a close alone does not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(timeout=100)
        assert not self._thread.is_alive()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(connections.time, "sleep", lambda seconds: None)


def test_one_connection_serves_several_requests():
    with Obeying(OK, OK, OK) as server:
        client = Connection(server.url)
        for _ in range(3):
            assert client.request("GET", "/x") == (200, b"ok")
        client.close()
        assert server.connections == 1


def test_a_connection_that_the_server_closed_between_requests_is_replaced():
    with Obeying(OK_AND_CLOSE, OK) as server:
        client = Connection(server.url)
        client.request("GET", "/x")
        assert client.request("POST", "/x", b"{}", retry=False) == (200, b"ok")
        client.close()
        assert server.connections == 2


def test_what_does_no_harm_is_tried_again():
    with Obeying(NOTHING, BUSY, OK) as server:
        client = Connection(server.url)
        assert client.request("POST", "/x", b'{"a":1}') == (200, b"ok")
        client.close()
        assert server.requests == [(b"POST /x HTTP/1.1", b'{"a":1}')] * 3


def test_what_would_do_harm_is_sent_once():
    with Obeying(NOTHING) as server:
        client = Connection(server.url)
        with pytest.raises(ServerUnreachableError):
            client.request("POST", "/x", b"{}", retry=False)
        client.close()
        assert len(server.requests) == 1
    with Obeying(BUSY) as server:
        client = Connection(server.url)
        assert client.request("POST", "/x", b"{}", retry=False) == (503, b"busy")
        client.close()


def test_a_server_that_stays_busy_is_told_as_it_is():
    with Obeying(*[BUSY] * 4) as server:
        client = Connection(server.url)
        assert client.request("GET", "/x") == (503, b"busy")
        client.close()
        assert len(server.requests) == 4


def test_nothing_there():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # Nobody listens there, and nobody else can.
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServerUnreachableError, match=f"Nothing answers at {url}"):
            Connection(url).request("GET", "/x")


@pytest.mark.parametrize("url", ["", "127.0.0.1:8400", "ftp://x", "http://", "http://x:notaport", "http://x:0"])
def test_an_address_that_is_none(url):
    with pytest.raises(ConfigError, match="not the address"):
        Connection(url)


@pytest.mark.parametrize("url", ["sqlite:///pool.db", "postgresql://ann:secret@h/d", "memory://"])
def test_the_address_of_a_pool_says_how_to_open_it(url):
    with pytest.raises(ConfigError, match="open_pool") as caught:
        Connection(url)
    assert "secret" not in str(caught.value)


def test_each_thread_has_its_connection():
    with Obeying(OK, OK) as server:
        client = Connection(server.url)
        client.request("GET", "/x")
        client.close()
        other = threading.Thread(target=client.request, args=("GET", "/y"))
        other.start()
        other.join(timeout=100)
        client.close()
        assert server.connections == 2


class TellsItsPeer(BaseHTTPRequestHandler):
    """Answers with the port that it is asked from."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = str(self.client_address[1]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_a_forked_process_asks_on_connections_of_its_own():
    server = ThreadingHTTPServer(("127.0.0.1", 0), TellsItsPeer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    connection = Connection(f"http://127.0.0.1:{server.server_address[1]}")

    def ask():
        return [connection.request("GET", "/").body.decode() for _ in range(2)]

    def work():
        said = ask()
        connection.close()
        return said

    try:
        own = ask()
        others = [forked(work) for _ in range(2)]
        assert own == ask()
        assert all(first == second for first, second in [own, *others])
        assert len({first for first, _ in [own, *others]}) == 3
    finally:
        connection.close()
        server.shutdown()
        thread.join()
        server.server_close()
