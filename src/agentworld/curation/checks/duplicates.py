"""Trajectories that say exactly the same as an earlier one of their channel."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import numpy as np

from agentworld.curation.checks.finding import Finding
from agentworld.curation.checks.reading import Run
from agentworld.curation.checks.registry import check
from agentworld.curation.checks.saved import pack, unpack
from agentworld.curation.checks.settings import CheckSettings
from agentworld.records import BatchTrajectory, Message

_NAME = "exact_duplicate"
_VERSION = "1"
_LAYOUT = f"{_NAME}@1"
_SIZE = 16


def content_digest(trajectory: BatchTrajectory | Run) -> bytes | None:
    """16 bytes that say what was prompted and replied, step by step; ids of calls do not count. None without steps.

    Messages where there are any, else ids; retried, aborted and quarantined steps are left out.
    """
    run = Run.of(trajectory)
    hashed = hashlib.blake2b(digest_size=_SIZE)
    any_content = False
    for turn in run.kept:
        step = turn.step
        if turn.reply is not None:
            parts = [*(_plain(message) for _, message in turn.new), _plain(turn.reply)]
            data = repr(parts).encode("utf-8", "surrogatepass")
        elif step.response_ids is not None:
            parent = turn.parent.step if turn.parent is not None else None
            known = len(parent.prompt_ids or ()) + len(parent.response_ids or ()) if parent is not None else 0
            prompt = np.asarray((step.prompt_ids or [])[known:], np.int64)
            data = b"ids" + prompt.tobytes() + b"|" + np.asarray(step.response_ids, np.int64).tobytes()
        else:
            continue
        any_content = True
        hashed.update(len(data).to_bytes(8, "big"))
        hashed.update(data)
    return hashed.digest() if any_content else None


def _plain(message: Message) -> tuple[Any, ...]:
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls]
    media = [part.digest for part in message.media]
    return message.role, message.text, message.reasoning, calls, media, message.name


class _State(msgspec.Struct):
    """`firsts`: trajectory -> its channel and digest, of those that had it first, the oldest first."""

    firsts: dict[str, tuple[str, bytes]] = {}


@check(
    _NAME,
    scope="pool",
    gates=True,
    version=_VERSION,
    values="id of the earlier trajectory",
    says="All prompts and replies are the same as those of an earlier trajectory of the channel. Ids of calls do not "
    "count; trajectories that failed or were abandoned do not count as earlier ones.",
    fails="Takes rollouts that deterministic sampling made equal for copies, which they are; rewards are not compared. "
    "Overlooks those that differ in a space. Remembers the last `remembered` different ones.",
)
class ExactDuplicates:
    """Remembers 16 bytes and an id for each different trajectory."""

    def __init__(self, settings: CheckSettings | None = None) -> None:
        self._most = (settings or CheckSettings()).remembered
        self._state = _State()
        self._names: dict[tuple[str, bytes], str] = {}
        self._found: dict[str, Finding] = {}

    @classmethod
    def load(cls, state: bytes, settings: CheckSettings | None = None) -> ExactDuplicates:
        """Go on from a saved state."""
        loaded = cls(settings)
        loaded._state = unpack(_LAYOUT, state, _State)
        loaded._names = {key: name for name, key in loaded._state.firsts.items()}
        return loaded

    def add(self, run: BatchTrajectory | Run) -> None:
        """Take in one trajectory; again under its id replaces it."""
        record, firsts = run.trajectory, self._state.firsts
        name, content = record.trajectory_id, content_digest(run)
        key = None if content is None else (record.channel, content)
        self._found.pop(name, None)
        before = firsts.get(name)
        if before is not None and before != key:
            del firsts[name], self._names[before]
        if key is None:
            return
        of = self._names.get(key)
        if of is not None and of != name:
            evidence = {"of": of, "steps": len(Run.of(run).turns)}
            self._found[name] = Finding(check=_NAME, version=_VERSION, trajectory_id=name, value=of, evidence=evidence)
        elif of is None and record.status not in ("failed", "abandoned"):
            firsts[name], self._names[key] = key, name
            if len(firsts) > self._most:
                oldest = next(iter(firsts))
                del self._names[firsts.pop(oldest)]

    def result(self) -> list[Finding]:
        """The copies among those added since the last call."""
        found, self._found = list(self._found.values()), {}
        return found

    def save(self) -> bytes:
        """The state, about 50 bytes for each different trajectory."""
        return pack(_LAYOUT, self._state)
