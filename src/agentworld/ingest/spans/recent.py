"""What a server knows of the trajectories that it wrote to last, so that it need not read them anew for each span. It
is used only where the pool holds as many steps as it knew of: another server may have written since.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import msgspec

from agentworld.ingest.spans.lineage import Lineage
from agentworld.records import Message, Step

TRAJECTORIES = 64
MAX_CHARACTERS = 4 * 1024 * 1024
"""A trajectory that shows more is read anew each time."""


class Known(msgspec.Struct, kw_only=True):
    """The latest steps of a trajectory, in order. `whole`: whether these are all; `count`: of all in the pool."""

    steps: list[Step] = []
    lineage: Lineage
    whole: bool = True
    count: int = 0
    shared: dict[Message, Message] = {}
    size: int = 0

    def share(self, messages: list[Message]) -> list[Message]:
        """The messages, each that is known as the one that is known."""
        found = []
        for message in messages:
            known = self.shared.setdefault(message, message)
            if known is message:
                self.size += len(message.text) + 200
            found.append(known)
        return found


class Recent:
    """Of the trajectories that were written to last what is known. From any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, trajectory_id: str, count: int) -> Known | None:
        """What is known of a trajectory of so many steps, for one thread alone until it is put back."""
        with self._lock:
            known = self._known.pop(trajectory_id, None)
        return known if known is not None and known.count == count else None

    def put(self, trajectory_id: str, known: Known) -> None:
        """What is known now."""
        if known.size > MAX_CHARACTERS:
            return
        with self._lock:
            self._known[trajectory_id] = known
            while len(self._known) > TRAJECTORIES:
                self._known.popitem(last=False)
