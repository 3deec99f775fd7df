"""Clients that ask numbered questions of a gateway and note which replies they saw the end of."""

import http.client
import json
import threading
from urllib.parse import urlsplit


class Load:
    """`threads` clients, each asking one question after the other until `stop`; half of them stream.

    `seen`: the numbers whose reply came with its finish reason. A question is sent once, whatever becomes of it.
    """

    def __init__(self, url, first, threads=8):
        address = urlsplit(url)
        self._host, self._port = address.hostname, address.port
        self._next, self._lock = first, threading.Lock()
        self._stopping = threading.Event()
        self.seen = set()
        self._threads = [threading.Thread(target=self._run, args=(number % 2 == 0,)) for number in range(threads)]

    def start(self):
        for thread in self._threads:
            thread.start()
        return self

    def stop(self):
        self._stopping.set()
        for thread in self._threads:
            thread.join(timeout=60)
            assert not thread.is_alive()
        return self._next

    def _take(self):
        with self._lock:
            self._next += 1
            return self._next - 1

    def _run(self, streams):
        while not self._stopping.is_set():
            number = self._take()
            try:
                finished = self._ask(number, streams)
            except (OSError, http.client.HTTPException, ValueError):
                # The server was killed under us; a new one may come up.
                self._stopping.wait(0.02)
                continue
            if finished:
                with self._lock:
                    self.seen.add(number)

    def _ask(self, number, streams):
        connection = http.client.HTTPConnection(self._host, self._port, timeout=30)
        try:
            body = {"model": "m", "messages": [{"role": "user", "content": f"question {number} "}], "stream": streams}
            path = f"/t/trj-{number % 5}-{number // 200}/v1/chat/completions"
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                response.read()
                return False
            if not streams:
                return json.loads(response.read())["choices"][0]["finish_reason"] == "stop"
            finished = False
            for line in response:
                if line.startswith(b"data: {"):
                    choices = json.loads(line[6:])["choices"]
                    # Seen once the line is there, whether or not the stream goes on to its proper end.
                    finished = finished or any(choice["finish_reason"] for choice in choices)
                    if finished:
                        with self._lock:
                            self.seen.add(number)
            return finished
        finally:
            connection.close()
