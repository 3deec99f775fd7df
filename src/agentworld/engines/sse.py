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
        self._begun: list[bytes] = []
        """The pieces of a line whose end has not come."""
        self._data: list[bytes] = []
        self._size = 0
        """Bytes of both."""
        self._begins = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that this chunk completes."""
        events: list[bytes] = []
        first, *lines = chunk.split(b"\n")
        self._begun.append(first)
        self._size += len(first)
        if lines:
            first = b"".join(self._begun)
            self._begun = [last := lines.pop()]
            for line in (first, *lines):
                self._line(line.removesuffix(b"\r"), events)
            # A byte for each line end, as lines may be empty.
            self._size = len(last) + sum(map(len, self._data)) + len(self._data)
        if self._size > MAX_EVENT_BYTES:
            raise EngineError(f"the engine sent an event of over {MAX_EVENT_BYTES} bytes")
        return events

    def finish(self) -> list[bytes]:
        """What is left when the stream ends without a last line end."""
        events: list[bytes] = []
        line = b"".join(self._begun)
        self._begun = []
        if line:
            self._line(line.removesuffix(b"\r"), events)
        self._line(b"", events)
        return events

    def _line(self, line: bytes, events: list[bytes]) -> None:
        if self._begins:
            self._begins = False
            line = line.removeprefix(b"\xef\xbb\xbf")  # A mark of the encoding, with which a stream may begin.
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif not line and self._data:
            events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
            self._data.clear()


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """The data of events, those that come together in one list; ends with the stream, `[DONE]` or not."""
    reader = EventReader()
    async for chunk in chunks:
        if events := reader.feed(chunk):
            yield events
    if events := reader.finish():
        yield events
