"""Calls of a model with the prompts that they were shown -> steps that know which one they go on from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agentworld.ingest.formats import values as limits
from agentworld.ingest.formats.noted import Values
from agentworld.records import Message, Step
from agentworld.records.step import ForkReason


class Budget:
    """How many messages the prompts of one run may hold together: a reply that would be shown more than are left is no
    step, which is said once.
    """

    def __init__(self, values: Values, place: str) -> None:
        self._values = values
        self._place = place
        self._shown = 0
        self._said = False

    def allows(self, count: int) -> bool:
        """Whether a prompt of so many messages may be; then they are counted."""
        if self._shown + count <= limits.MAX_PROMPTS:
            self._shown += count
            return True
        if not self._said:
            self._said = True
            why = f"prompts hold more than {limits.MAX_PROMPTS} messages together; replies after that are no steps"
            self._values.lost(self._place, why)
        return False


def untold(steps: list[Step], messages: list[Message]) -> list[Message]:
    """What of a conversation comes after its last step."""
    last = len(steps[-1].prompt_messages or ()) if steps else -1
    return messages[last + 1 :]


class Lineage:
    """The steps of one run while they are found. Messages that are equal are the same object afterwards.

    A step goes on from the deepest earlier reply that its prompt holds with all that stood before it.
    """

    def __init__(self, budget: Budget) -> None:
        self.steps: list[Step] = []
        self._budget = budget
        self._same: dict[int, tuple[Message, int]] = {}  # by identity, which costs no look at what it says
        self._messages: dict[Message, int] = {}
        self._known: list[Message] = []
        self._nodes: dict[tuple[int, int], int] = {}
        self._said: dict[int, int] = {}  # the step whose reply ends at a node
        self._asked: dict[int, int] = {}  # the last step that was shown what ends at a node
        self._gone_on: set[int] = set()
        self._last: dict[str | None, int] = {}  # the last step of each agent

    def add(
        self, prompt: Sequence[Message], reply: Message, *, otherwise: ForkReason = "history_rewritten", **fields: Any
    ) -> Step | None:
        """Add a call; None where there is no room for it. `otherwise`: why it does not go on from the step before it,
        where nothing tells.
        """
        if not self._budget.allows(len(prompt)):
            return None
        numbers = [self._number(message) for message in prompt]
        node, parent = 0, None
        for number in numbers:
            node = self._next(node, number)
            if node in self._said:
                parent = self._said[node]
        again = self._asked.get(node)
        reason: ForkReason | None = None
        if again is not None:
            reason = "parallel" if self._is_choice(again, fields) else "retry"
            above = self.steps[again].parent_step_id
            parent = None if above is None else int(above)
        elif parent is not None:
            reason = otherwise if parent in self._gone_on else None
            self._gone_on.add(parent)
        elif self.steps:
            reason = otherwise
            parent = len(self.steps) - 1
            if otherwise != "subagent":
                parent = self._last.get(fields.get("agent"), parent)
        key = len(self.steps)
        step = Step(
            step_id=str(key),
            trajectory_id="",
            parent_step_id=None if parent is None else str(parent),
            fork_reason=reason,
            prompt_messages=[self._known[number] for number in numbers],
            response_message=reply,
            **fields,
        )
        self.steps.append(step)
        self._last[step.agent] = key
        self._asked[node] = key
        self._said[self._next(node, self._number(reply))] = key
        return step

    def shown(self, messages: Iterable[Message]) -> int:
        """How many of the messages, from the first on, stand together in the prompt or reply of some step."""
        node = count = 0
        for message in messages:
            number = self._messages.get(message)
            found = None if number is None else self._nodes.get((node, number))
            if found is None:
                break
            node, count = found, count + 1
        return count

    def holds(self, message: Message) -> bool:
        """Whether some step has this message."""
        return message in self._messages

    def _is_choice(self, other: int, fields: dict[str, Any]) -> bool:
        exchange = fields.get("exchange_id")
        return exchange is not None and self.steps[other].exchange_id == exchange

    def _number(self, message: Message) -> int:
        same = self._same.get(id(message))
        if same is not None and same[0] is message:
            return same[1]
        number = self._messages.get(message)
        if number is None:
            number = self._messages[message] = len(self._known)
            self._known.append(message)
        self._same[id(message)] = (message, number)
        return number

    def _next(self, node: int, number: int) -> int:
        return self._nodes.setdefault((node, number), len(self._nodes) + 1)


def goes_on(before: Step, step: Step) -> bool:
    """Whether a step's prompt begins with the ids before it; so it is where one of them has none."""
    if before.prompt_ids is None or before.response_ids is None or step.prompt_ids is None:
        return True
    known = [*before.prompt_ids, *before.response_ids]
    return step.prompt_ids[: len(known)] == known
