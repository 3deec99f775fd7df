"""Functions of yours as evaluators of a configuration, by default in a process of their own."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, Literal

import msgspec

from agentworld.records import BatchTrajectory, digest
from agentworld.rewards.checked import checked
from agentworld.rewards.functions import Function, call_function, facts_of, load_function
from agentworld.rewards.isolation.children import children
from agentworld.rewards.protocol import EvaluationError, EvaluatorKind, Judgement, RolloutGroup, Scope, Subject, Verdict


class Plugin(EvaluatorKind, frozen=True, kw_only=True):
    """Calls the function at `function` ("module:name") with the subject and `parameters`.

    `isolation`: `process` is a process of its own, with your files and network, which is killed after `seconds`, has
    `memory_mb` MiB and may start no others; `none` is the process that runs the evaluators, for functions that are sure
    to end.
    """

    function: str
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
        """The settings, the version that the function's decorator says, and the function's own text."""
        function = load_function(self.function)
        facts = {"version": facts_of(function).version, "source": source_of(function)}
        return {"settings": super().configuration, "function": facts}

    def evaluate(self, subject: Subject) -> Judgement:
        """The function's word."""
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
    """A digest of the function's text, so that a changed one is another evaluator; None where there is no text."""
    try:
        return digest(inspect.getsource(function).encode("utf-8", "surrogatepass")).hex()
    except (OSError, TypeError):
        return None


def judge(payload: dict[str, Any]) -> dict[str, Any]:
    """The same in a child; what the function said is checked there, where it is still what it was."""
    plugin = msgspec.convert({**payload["settings"], "isolation": "none"}, Plugin)
    kind: Any = RolloutGroup if payload["group"] else BatchTrajectory
    verdicts = checked(plugin, msgspec.convert(payload["subject"], kind))
    result: dict[str, Any] = msgspec.to_builtins(verdicts)
    return result
