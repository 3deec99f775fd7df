"""Tool calls, compared with the calls that are expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from agentworld.records import BatchTrajectory, ToolCall
from agentworld.rewards.protocol import EvaluationError, EvaluatorKind, Verdict
from agentworld.rewards.rules.answer import shown

Agrees = Callable[[int, int], bool]


class ExpectedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call: the tool's name and its arguments, or none where they do not matter."""

    name: str
    arguments: dict[str, Any] | None = None


class ToolCalls(EvaluatorKind, frozen=True, kw_only=True):
    """Whether the agent made the expected calls, over all of its replies.

    `expected`: the calls; left out, the task's field `reference_field`, a list of the same. `match`: `sequence` these
    calls in this order and no others; `any_order` these and no others; `subsequence` in this order with others between;
    `subset` these among others. `arguments`: `exact`; `subset` names and values that are expected, and perhaps more;
    `ignore`. `partial`: the share of expected calls that were made, in place of all or nothing.
    """

    expected: tuple[ExpectedCall, ...] | None = None
    reference_field: str = "reference"
    match: Literal["sequence", "any_order", "subsequence", "subset"] = "sequence"
    arguments: Literal["exact", "subset", "ignore"] = "exact"
    partial: bool = False

    def evaluate(self, subject: BatchTrajectory) -> Verdict:
        """From 0 to 1, with what was made and how many agree."""
        wanted = self.expected if self.expected is not None else self._of_task(subject)
        made = [call for step in subject.steps if step.response_message for call in step.response_message.tool_calls]
        found = [(call.function.name, _decoded(call)) for call in made]

        def agrees(want: int, have: int) -> bool:
            return self._agrees(wanted[want], *found[have])

        ordered = self.match in ("sequence", "subsequence")
        met = (_longest_common if ordered else _largest_matching)(len(wanted), len(found), agrees)
        complete = met == len(wanted) and (self.match in ("subsequence", "subset") or len(found) == len(wanted))
        # Calls that are too many count against the share where none but the expected ones are allowed.
        whole = max(len(wanted), len(found) if self.match in ("sequence", "any_order") else 0)
        value = float(complete) if not self.partial else met / whole if whole else 1.0
        names = [name for name, _ in found[:50]]
        return Verdict({self.reward: value}, {"made": names, "expected": len(wanted), "met": met})

    def _of_task(self, run: BatchTrajectory) -> tuple[ExpectedCall, ...]:
        found = (run.trajectory.task or {}).get(self.reference_field)
        try:
            return msgspec.convert(found, tuple[ExpectedCall, ...])
        except msgspec.ValidationError as error:
            raise EvaluationError(
                f"{self.name}: {shown(str(found))} are no expected calls: {error}",
                path=f"task.{self.reference_field}",
                hint='Give a list of {"name": ..., "arguments": {...}}',
            ) from None

    def _agrees(self, want: ExpectedCall, name: str, arguments: Any) -> bool:
        if want.name != name:
            return False
        if self.arguments == "ignore" or want.arguments is None:
            return True
        if not isinstance(arguments, dict):
            return False
        if self.arguments == "exact" and arguments.keys() != want.arguments.keys():
            return False
        return all(key in arguments and _same(arguments[key], value) for key, value in want.arguments.items())


def _decoded(call: ToolCall) -> Any:
    """The arguments as JSON, where empty text is an empty object; None where they are none."""
    try:
        return msgspec.json.decode(call.function.arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return None


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1, and 1.0 is 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other)


def _longest_common(wanted: int, found: int, agrees: Agrees) -> int:
    """Length of the longest common subsequence."""
    before = [0] * (found + 1)
    for want in range(wanted):
        now = [0]
        for have in range(found):
            now.append(before[have] + 1 if agrees(want, have) else max(before[have + 1], now[have]))
        before = now
    return before[found]


def _largest_matching(wanted: int, found: int, agrees: Agrees) -> int:
    """How many expected calls can have a made call each of their own (augmenting paths)."""
    taken: dict[int, int] = {}

    def place(want: int, tried: set[int]) -> bool:
        for have in range(found):
            if have in tried or not agrees(want, have):
                continue
            tried.add(have)
            if have not in taken or place(taken[have], tried):
                taken[have] = want
                return True
        return False

    return sum(place(want, set()) for want in range(wanted))
