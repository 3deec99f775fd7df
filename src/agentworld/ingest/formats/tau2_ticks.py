"""Spoken runs of tau2-bench as turns: in each tick both may speak a piece and call tools.

A turn is an utterance, and stands where it was begun. Pieces that name no utterance go on with the speaker's latest
turn where no tick is between them, or nobody has said anything since. Calls end a turn, as their results follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentworld.ingest.formats.noted import Values, kind_of

_SPEAKERS = {"assistant": "agent", "user": "user"}


class _Spoken:
    """The latest turn of one speaker. `utterances`: of its last piece. `tick`: of that piece. `ended`: by calls."""

    def __init__(self, turn: dict[str, Any]) -> None:
        self.turn = turn
        self.utterances: set[str] = set()
        self.tick = -1
        self.ended = False


def turns_of(ticks: list[Any], values: Values, place: str) -> list[dict[str, Any]]:
    """The turns in the shape of the records of written runs."""
    turns: list[dict[str, Any]] = []
    latest: dict[str, _Spoken] = {}
    for number, tick in enumerate(ticks):
        where = f"{place}[{number}]"
        if not isinstance(tick, dict):
            values.lost(where, f"a tick must be an object, not {kind_of(tick)}")
            continue
        for role, name in _SPEAKERS.items():
            chunk = values.object(tick, f"{name}_chunk", where) or {}
            calls = values.items(tick, f"{name}_tool_calls", where) or []
            said = values.text(chunk, "content", f"{where}.{name}_chunk")
            if said or calls:
                spoken = _speaker(turns, latest, role, number, chunk, tick)
                _say(spoken, said or "", chunk, number)
                if calls:
                    spoken.turn["tool_calls"] = calls
                    spoken.ended = True
            turns += [
                {"requestor": role, **result} if isinstance(result, dict) else result
                for result in values.items(tick, f"{name}_tool_results", where) or ()
            ]
    return turns


def _speaker(
    turns: list[dict[str, Any]],
    latest: dict[str, _Spoken],
    role: str,
    number: int,
    chunk: Mapping[str, Any],
    tick: Mapping[str, Any],
) -> _Spoken:
    """The turn that a piece belongs to, begun where it belongs to none."""
    spoken = latest.get(role)
    if spoken is not None and not spoken.ended:
        named = _utterances(chunk)
        if named and spoken.utterances:
            goes_on = not named.isdisjoint(spoken.utterances)
        else:
            goes_on = spoken.tick == number - 1 or turns[-1] is spoken.turn
        if goes_on:
            return spoken
    turn = {"role": role, "content": None, "timestamp": chunk.get("timestamp") or tick.get("timestamp")}
    turns.append(turn)
    latest[role] = spoken = _Spoken(turn)
    return spoken


def _say(spoken: _Spoken, said: str, chunk: Mapping[str, Any], number: int) -> None:
    if said:
        spoken.turn["content"] = f"{spoken.turn['content'] or ''}{said}"
        spoken.utterances, spoken.tick = _utterances(chunk), number


def _utterances(chunk: Mapping[str, Any]) -> set[str]:
    given = chunk.get("utterance_ids")
    return {each for each in given if isinstance(each, str)} if isinstance(given, list) else set()
