"""The life of one worker: its application starts, serves, and ends at a signal."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable

from agentworld.http_server.lifespan import Lifespan
from agentworld.http_server.listener import ASGI, BACKLOG, Listener

ENDING = (signal.SIGTERM, signal.SIGINT)


def bound(host: str, port: int) -> socket.socket:
    """A socket on that address. Workers share it: the kernel gives each connection to one of those that listen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio has what it accepts send at once. Else pieces of a stream, and answers
    # to requests sent ahead, wait until the client has said that it has those before, which it may put off for 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind((host, port))
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return listening


async def run(
    app: ASGI, host: str, port: int, *, stall_seconds: float = 60.0, ending: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGTERM or SIGINT; what is under way then is answered first. `ending`: called once, at the signal.
    What the application's startup raised, if it fails.
    """
    lifespan = Lifespan(app)
    await lifespan.startup()
    stop = asyncio.Event()
    for number in ENDING:  # Before, they end the process at once: nobody has been answered.
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    listener = Listener(app, stall_seconds)
    await listener.begin(bound(host, port))
    await stop.wait()
    ending()
    await listener.end()
    await lifespan.shutdown()
