"""What an evaluator is: something that looks at a trajectory or a group and says named values.

Left out on purpose: where evaluators come from (`registry`), and who runs them over a pool.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec

from agentworld.errors import AgentWorldError
from agentworld.records import BatchTrajectory, Message, Step

Scope = Literal["trajectory", "group", "step"]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}$")]
"""Of an evaluator, or of a value."""

FAILED_LABEL = "evaluation."
"""With the evaluator's name behind it, the label of what it failed on; its value is `failed`."""


class EvaluationError(AgentWorldError):
    """An evaluator could not judge, or what it said cannot be taken. It is a failed evaluation, never a zero.

    `transient`: the same may go well a moment later, as where a server did not answer.
    """

    code = "evaluation_failed"
    status = 422

    def __init__(
        self, message: str, *, path: str | None = None, hint: str | None = None, transient: bool = False
    ) -> None:
        super().__init__(message, path=path, hint=hint)
        self.transient = transient


class Verdict(msgspec.Struct, frozen=True):
    """Named finite values, and JSON that says why. A name that is absent is not judged, which is not 0."""

    values: dict[str, float]
    details: dict[str, Any] = {}


class RolloutGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The rollouts of one task, as an evaluator of scope `group` sees them."""

    group_id: str
    members: tuple[BatchTrajectory, ...]


Subject = BatchTrajectory | RolloutGroup
Judgement = Verdict | Mapping[str, Verdict]


class Evaluator(Protocol):
    """Judges subjects of one scope.

    trajectory: `evaluate(BatchTrajectory) -> Verdict`. group: `evaluate(RolloutGroup) -> {trajectory_id: Verdict}` with
    one for every member. step: `evaluate(BatchTrajectory) -> {step_id: Verdict}` for the steps that it judges.
    """

    @property
    def name(self) -> str:
        """The source that its rewards carry."""
        ...

    @property
    def version(self) -> str:
        """Changes where the same subject may be judged otherwise."""
        ...

    @property
    def scope(self) -> Scope:
        """What it judges."""
        ...

    @property
    def gives(self) -> tuple[str, ...]:
        """Names of the values that it may give; empty where they are not known beforehand."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of rewards that it reads on its subject, so that it is run after the evaluators that give them."""
        ...

    @property
    def configuration(self) -> Any:
        """What else decides on its verdicts, as JSON and without secrets."""
        ...

    def evaluate(self, subject: Any) -> Judgement:
        """Judge; any exception is a failed evaluation."""
        ...


class _KindMeta(msgspec.StructMeta, ABCMeta):
    """Of structs that may have abstract methods."""


class EvaluatorKind(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True, metaclass=_KindMeta
):
    """An evaluator that is its own settings, so that a table of a configuration file becomes one.

    `name`: the source of its rewards. `reward`: the name of its value, where `reward` is the primary one. `version`:
    yours, to be changed where what the settings name (a model, a program) changes. `where`: which trajectories a run
    has it judge (see `running.admission`); who calls it judges with it whatever he likes.
    """

    name: Name
    reward: Name = "reward"
    version: str = "1"
    where: str | None = None

    revision: ClassVar[int] = 1
    """Of this kind's code: counts up where the same settings come to judge otherwise."""

    added: ClassVar[Mapping[str, Any]] = {}
    """Settings that came after others, with what they usually are: so set they are no part of the configuration, and
    what was judged before they came stays known.
    """

    reads_records: ClassVar[bool] = False
    """Whether it may read more of a record than its content, as code of yours may (see `fingerprint`)."""

    @property
    def scope(self) -> Scope:
        """What it judges."""
        return "trajectory"

    @property
    def gives(self) -> tuple[str, ...]:
        """The one value."""
        return (self.reward,)

    @property
    def needs(self) -> tuple[str, ...]:
        """No rewards."""
        return ()

    @property
    def configuration(self) -> Any:
        """The settings themselves, but for `where`, which changes nothing in what is said of one trajectory."""
        settings = msgspec.to_builtins(self)
        del settings["where"]
        for name, usual in self.added.items():
            if settings.get(name) == usual:
                del settings[name]
        return {"kind": type(self).__name__, "revision": self.revision, "settings": settings}

    @abstractmethod
    def evaluate(self, subject: Any) -> Judgement:
        """Judge; each kind says how."""


def last_step(run: BatchTrajectory) -> Step | None:
    """The last step that holds its reply's message."""
    return next((step for step in reversed(run.steps) if step.response_message is not None), None)


def last_answer(run: BatchTrajectory) -> str | None:
    """The text of the trajectory's last reply, None where no step holds its message."""
    step = last_step(run)
    return step.response_message.text if step is not None and step.response_message is not None else None


def conversation(run: BatchTrajectory) -> list[Message]:
    """Prompt and reply of the trajectory's last step that has a message; EvaluationError where none has."""
    step = last_step(run)
    if step is None or step.response_message is None:
        raise EvaluationError(
            f"trajectory {run.trajectory.trajectory_id} holds no reply's message",
            hint="It was submitted as ids alone, or no call of it has ended",
        )
    return [*(step.prompt_messages or ()), step.response_message]


def with_values(run: BatchTrajectory, values: Mapping[str, float]) -> BatchTrajectory:
    """A copy of `run` on which these rewards are set, for the evaluators that need them."""
    rewards = {**run.trajectory.rewards, **values}
    record = msgspec.structs.replace(run.trajectory, rewards=rewards, reward=rewards.get("reward"))
    return msgspec.structs.replace(run, trajectory=record)
