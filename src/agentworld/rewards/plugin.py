"""Functions of yours as evaluators of a configuration, by default in a process of their own."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from agentworld.records import BatchTrajectory, digest
from agentworld.rewards.checked import checked
from agentworld.rewards.functions import Function, call_function, facts_of, load_function
from agentworld.rewards.isolation.children import children
from agentworld.rewards.protocol import (
    FAILED_LABEL,
    EvaluationError,
    EvaluatorKind,
    Judgement,
    RolloutGroup,
    Scope,
    Subject,
    Verdict,
)


class Plugin(EvaluatorKind, frozen=True, kw_only=True):
    """Calls the function at `function` ("module:name") with the subject and `parameters`.

    `isolation`: `process` is a process of its own, with your files and network, which is killed after `seconds`, has
    `memory_mb` MiB and may start no others; `none` is the process that runs the evaluators, for functions that are sure
    to end. `needs`: the rewards that it reads; it sees those and no others, nor any of steps.
    """

    reads_records: ClassVar[bool] = True

    function: str
    needs: tuple[str, ...] = ()
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    isolation: Literal["process", "none"] = "process"
    seconds: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    memory_mb: Annotated[int, msgspec.Meta(ge=128)] = 4096

    def __post_init__(self) -> None:
        load_function(self.function)

    @property
    def scope(self) -> Scope:
        """What the function's decorator says."""
        return facts_of(load_function(self.function)).scope

    @property
    def gives(self) -> tuple[str, ...]:
        """What the decorator says, else nothing that is known."""
        return facts_of(load_function(self.function)).values or ()

    @property
    def configuration(self) -> Any:
        """The settings, the version that the function's decorator says, and the text of the function's file."""
        function = load_function(self.function)
        facts = {"version": facts_of(function).version, "source": source_of(function)}
        return {"settings": super().configuration, "function": facts}

    def evaluate(self, subject: Subject) -> Judgement:
        """The function's word."""
        subject = _shown(subject, self.needs)
        if self.isolation == "none":
            return call_function(load_function(self.function), self.scope, self.reward, subject, self.parameters)
        payload = {
            "settings": msgspec.to_builtins(self),
            "group": isinstance(subject, RolloutGroup),
            "subject": subject,
        }
        try:
            said = children(self.memory_mb).call(f"{__name__}:judge", payload, seconds=self.seconds, key=self.function)
        except EvaluationError as error:
            message = error.message if error.message.startswith(self.name) else f"{self.name}: {error.message}"
            raise EvaluationError(message, path=error.path, hint=error.hint) from None
        verdicts = msgspec.convert(said, dict[str, Verdict])
        if self.scope == "trajectory" and isinstance(subject, BatchTrajectory):
            return verdicts[subject.trajectory.trajectory_id]
        return verdicts


def source_of(function: Function) -> str | None:
    """A digest of the file that holds the function, so that a changed one is another evaluator; None where none does.

    What it calls in other files is not in it: `version` is for that.
    """
    try:
        path = inspect.getsourcefile(inspect.unwrap(function))
        return digest(Path(path).read_bytes()).hex() if path else None
    except (OSError, TypeError, ValueError):
        return None


def _shown(subject: Subject, needs: tuple[str, ...]) -> Subject:
    """Without the rewards and labels that evaluations leave, as what is said must not hang on the order in which they
    run; with those rewards that are needed.
    """
    if isinstance(subject, RolloutGroup):
        return msgspec.structs.replace(
            subject, members=tuple(_without_signals(each, needs) for each in subject.members)
        )
    return _without_signals(subject, needs)


def _without_signals(run: BatchTrajectory, needs: tuple[str, ...]) -> BatchTrajectory:
    record = run.trajectory
    rewards = {name: value for name, value in record.rewards.items() if name in needs}
    labels = {name: value for name, value in record.labels.items() if not name.startswith(FAILED_LABEL)}
    shown = msgspec.structs.replace(record, rewards=rewards, reward=rewards.get("reward"), labels=labels)
    steps = [msgspec.structs.replace(step, rewards={}, reward=None) for step in run.steps]
    return msgspec.structs.replace(run, trajectory=shown, steps=steps)


def judge(payload: dict[str, Any]) -> dict[str, Any]:
    """The same in a child; what the function said is checked there, where it is still what it was."""
    plugin = msgspec.convert({**payload["settings"], "isolation": "none"}, Plugin)
    kind: Any = RolloutGroup if payload["group"] else BatchTrajectory
    verdicts = checked(plugin, msgspec.convert(payload["subject"], kind))
    result: dict[str, Any] = msgspec.to_builtins(verdicts)
    return result
