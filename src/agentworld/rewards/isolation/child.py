"""The process in which evaluators run that may hang, crash or eat memory: it calls functions that it is told to.

Started by `children`, as `python -m agentworld.rewards.isolation.child REQUESTS RESPONSES`: two pipes with frames of
four bytes of length and JSON. It ends when the requests' pipe does, whatever a function is doing then.
"""

from __future__ import annotations

import importlib
import os
import queue
import signal
import struct
import sys
import threading
from typing import Any

from agentworld.errors import AgentWorldError
from agentworld.records import exact_json

LENGTH = struct.Struct(">I")


def main(requests: int, responses: int) -> None:
    """Answer until nobody asks any more."""
    asked: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests, asked), daemon=True).start()
    _send(responses, {"ready": True})
    folder = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))
    while True:
        answer = _answer(asked.get())
        _forget(folder)
        _send(responses, answer)


def _forget(folder: int) -> None:
    """Undo what would change or end the next call: the folder where this one stands, and its alarms."""
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 0)
    os.fchdir(folder)


def _listen(requests: int, asked: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Requests in the order in which they come; the end of the pipe is the end of this process."""
    while head := _read(requests, LENGTH.size):
        asked.put(exact_json.decode(_read(requests, LENGTH.unpack(head)[0])))
    os._exit(0)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        name, _, function = request["function"].partition(":")
        module = importlib.import_module(name)
        if request.get("prepare"):
            getattr(module, "prepare", _nothing)()
            return {"result": None}
        return {"result": getattr(module, function)(request["payload"])}
    except AgentWorldError as error:
        return {"error": {"message": error.message, "path": error.path, "hint": error.hint}}
    except MemoryError:
        return {"error": {"message": "it needs more memory than it may have"}}
    except BaseException as error:
        # Nobody interrupts this process. What a plug-in raises is for the one who asked.
        return {"error": {"message": f"{type(error).__name__}: {str(error)[:500]}"}}


def _nothing() -> None:
    """What a module does that has nothing to prepare."""


def _read(number: int, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = os.read(number, count - len(data))
        if not piece:
            return b""
        data += piece
    return bytes(data)


def _send(number: int, what: dict[str, Any]) -> None:
    body = exact_json.encode(what)
    data = memoryview(LENGTH.pack(len(body)) + body)
    while data:
        data = data[os.write(number, data) :]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
