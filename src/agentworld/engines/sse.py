"""Server-sent events as engines really send them, from chunks that are cut anywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agentworld.errors import EngineError

MAX_EVENT_BYTES = 64 * 1024 * 1024


class EventReader:
    """Cuts bytes into the data of events. Comments and other fields are dropped; a last event may lack its end.

    Works on bytes, so that a character or a line that two chunks share stays whole.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that this chunk completes."""
        self._buffer += chunk
        events: list[bytes] = []
        while True:
            end = self._buffer.find(b"\n", self._scanned)
            if end < 0:
                self._scanned = len(self._buffer)
                break
            line = bytes(self._buffer[:end]).removesuffix(b"\r")
            del self._buffer[: end + 1]
            self._scanned = 0
            self._line(line, events)
        if len(self._buffer) + self._size > MAX_EVENT_BYTES:
            raise EngineError(f"the engine sent an event of over {MAX_EVENT_BYTES} bytes")
        return events

    def finish(self) -> list[bytes]:
        """What is left when the stream ends without a last line end."""
        events: list[bytes] = []
        if self._buffer:
            self._line(bytes(self._buffer).removesuffix(b"\r"), events)
            self._buffer.clear()
        self._line(b"", events)
        return events

    def _line(self, line: bytes, events: list[bytes]) -> None:
        if line.startswith(b"data:"):
            data = line[5:].removeprefix(b" ")
            self._data.append(data)
            self._size += len(data)
        elif not line and self._data:
            events.append(b"\n".join(self._data))
            self._data.clear()
            self._size = 0


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of each event; ends with the stream, whether or not it says `[DONE]`."""
    reader = EventReader()
    async for chunk in chunks:
        for event in reader.feed(chunk):
            yield event
    for event in reader.finish():
        yield event
