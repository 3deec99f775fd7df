"""How hard tasks are for the policy: the share of rollouts that fail, and pass@k."""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.curation.checks.finding import Finding
from agentworld.curation.checks.groups import correctness
from agentworld.curation.checks.reading import Run
from agentworld.curation.checks.registry import check
from agentworld.curation.checks.saved import pack, unpack
from agentworld.curation.checks.settings import CheckSettings
from agentworld.records import BatchTrajectory, digest

_NAME = "difficulty"
_VERSION = "1"
_LAYOUT = f"{_NAME}@1"
_KS = (1, 2, 4, 8, 16, 32, 64)


def pass_at_k(rollouts: int, correct: int, k: int) -> float:
    """The unbiased estimate of the probability that one of `k` rollouts is correct, from `correct` of `rollouts`.

    1 - C(n - c, k) / C(n, k), as a product that does not overflow (Chen et al. 2021, arXiv 2107.03374, section 2.1).
    """
    if not 0 <= correct <= rollouts or not 1 <= k <= rollouts:
        raise ValueError(f"{correct} of {rollouts} correct, pass@{k}: 0 <= correct <= rollouts and 1 <= k <= rollouts")
    if rollouts - correct < k:
        return 1.0
    missed = 1.0
    for number in range(rollouts - correct + 1, rollouts + 1):
        missed *= 1.0 - k / number
    return 1.0 - missed


def task_key(task: dict[str, Any] | None) -> str | None:
    """What names a task: its set and id, else a digest of all of it; None without a task."""
    if not task:
        return None
    name = task.get("task_id")
    if isinstance(name, str | int):
        key = f"{task.get('task_set') or ''}/{name}"[:256]
        # A lone surrogate cannot be kept: the digest stands for it.
        return key if key.isascii() or key.isprintable() else digest(key.encode("utf-8", "surrogatepass")).hex()
    try:
        return digest(msgspec.json.encode(task, order="sorted")).hex()
    except (UnicodeError, RecursionError, msgspec.EncodeError):
        return digest(repr(task).encode("utf-8", "surrogatepass")).hex()


class _State(msgspec.Struct):
    """`tasks`: channel and task -> trajectory -> whether it was correct."""

    tasks: dict[str, dict[str, bool]] = {}


@check(
    _NAME,
    scope="pool",
    version=_VERSION,
    values="share of the task's judged rollouts that are not correct, from 0 to 1",
    says="How hard the task is, over all its judged rollouts in the channel; pass@k is in the evidence. Correct is a "
    "reward `correct` (else the primary one) of `correct_from` or more.",
    fails="Rollouts of all policies count together, old ones too. With few rollouts it is a rough guess: 2 of 4 says "
    "little. Rollouts without a reward do not count, so runs that crashed make a task look easier.",
)
class Difficulty:
    """Keeps for each rollout whether it was correct."""

    def __init__(self, settings: CheckSettings | None = None) -> None:
        self._settings = settings or CheckSettings()
        self._state = _State()
        self._task_of: dict[str, str] = {}
        self._changed: dict[str, str] = {}

    @classmethod
    def load(cls, state: bytes, settings: CheckSettings | None = None) -> Difficulty:
        """Go on from a saved state."""
        loaded = cls(settings)
        loaded._state = unpack(_LAYOUT, state, _State)
        loaded._task_of = {name: key for key, members in loaded._state.tasks.items() for name in members}
        return loaded

    def add(self, run: BatchTrajectory | Run) -> None:
        """Take in one trajectory; again under its id replaces it."""
        record = run.trajectory
        name, task = record.trajectory_id, task_key(record.task)
        value = correctness(record, self._settings.correct)
        key = None if task is None or value is None else f"{record.channel} {task}"
        before = self._task_of.get(name)
        if before is not None and before != key:
            self._drop(name, before)
            self._changed[before] = task or ""
        if key is None or task is None or value is None:
            return
        correct = value >= self._settings.correct_from
        members = self._state.tasks.setdefault(key, {})
        if members.get(name) != correct:
            members[name] = correct
            self._task_of[name] = key
            self._changed[key] = task
            if len(self._task_of) > self._settings.remembered:
                oldest = next(iter(self._state.tasks))
                self._drop(next(iter(self._state.tasks[oldest])), oldest)

    def _drop(self, name: str, key: str) -> None:
        members = self._state.tasks[key]
        del members[name], self._task_of[name]
        if not members:
            del self._state.tasks[key]

    def result(self) -> list[Finding]:
        """For every judged rollout of the tasks that changed since the last call."""
        changed, self._changed = self._changed, {}
        found = []
        for key, task in changed.items():
            members = self._state.tasks.get(key)
            if not members:
                continue
            rollouts, correct = len(members), sum(members.values())
            passes = {f"pass@{k}": round(pass_at_k(rollouts, correct, k), 6) for k in _KS if k <= rollouts}
            evidence = {"task": task, "rollouts": rollouts, "correct": correct, **passes}
            value = round(1 - correct / rollouts, 6)
            found += [
                Finding(check=_NAME, version=_VERSION, trajectory_id=name, value=value, evidence=evidence)
                for name in members
            ]
        return found

    def save(self) -> bytes:
        """The state, about 50 bytes for each rollout."""
        return pack(_LAYOUT, self._state)
