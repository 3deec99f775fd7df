"""A proxy that lets nothing through and remembers who asked: programs that honour proxies are seen by it."""

from __future__ import annotations

import socketserver
import threading


class RecordingProxy:
    """An HTTP proxy on `url`; `asked` holds the first line of each request."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(socketserver.StreamRequestHandler):
            timeout = 5

            def handle(self) -> None:
                asked.append(self.rfile.readline(4096).decode("latin-1").strip())
                self.wfile.write(b"HTTP/1.1 502 Beyond loopback\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> RecordingProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(timeout=10)
        self._server.server_close()
