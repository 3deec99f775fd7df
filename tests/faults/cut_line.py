"""A line to a PostgreSQL server that breaks right after a COMMIT went through: the one answer that nobody gets."""

import contextlib
import socket
import threading

COMMIT = b"COMMIT\x00"  # At the end of a query, or within a pipeline of several messages.


class CutLine:
    """Listens on `port` and passes all on to the server at `target`.

    `cut_next_commit`: the next COMMIT goes through, and instead of its answer the client finds its connection closed.
    """

    def __init__(self, target):
        self._target = target
        self._armed = threading.Event()
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in list(self._open):
            _close(end)
        for thread in self._threads:
            thread.join(20)

    def cut_next_commit(self):
        self._armed.set()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._open |= {client, server}
            waits = threading.Event()  # Set once a COMMIT is on its way whose answer is not to come through.
            for pump in (self._to_server, self._to_client):
                thread = threading.Thread(target=pump, args=(client, server, waits), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _to_server(self, client, server, waits):
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if COMMIT in data and self._armed.is_set():
                    self._armed.clear()
                    waits.set()
                server.sendall(data)
        _close(client)
        _close(server)

    def _to_client(self, client, server, waits):
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if waits.is_set():
                    self.cuts += 1
                    break
                client.sendall(data)
        _close(client)
        _close(server)


def _close(end):
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
