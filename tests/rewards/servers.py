"""A small HTTP server for tests: what it answers is a function of what it is asked."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answered:
    """What was asked: paths, bodies and headers, in order."""

    def __init__(self):
        self.asked = []
        self.url = ""


@contextmanager
def answering(answer):
    """`answer(path, body, headers)` is a JSON value, or (status, text or bytes, headers)."""
    seen = Answered()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.asked.append((self.path, body, dict(self.headers)))
            said = answer(self.path, body, self.headers)
            status, data, headers = said if isinstance(said, tuple) else (200, json.dumps(said), {})
            data = data.encode() if isinstance(data, str) else data
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            try:
                self.wfile.write(data)
            except OSError:
                pass  # the other side has had enough

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    seen.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
