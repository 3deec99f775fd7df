"""What an evaluator said, checked before anyone relies on it."""

from __future__ import annotations

import math
import numbers
import re
import sysconfig
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from agentworld.errors import AgentWorldError
from agentworld.records import BatchTrajectory, Reward
from agentworld.records.depth import check_depth
from agentworld.rewards.protocol import EvaluationError, Evaluator, RolloutGroup, Subject, Verdict

MAX_VALUES = 64
MAX_DETAILS_BYTES = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}")
_MESSAGE = 500
_PACKAGE = str(Path(__file__).parent.parent)
# Of Python and of what is installed: what is raised there was called by somebody.
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")} | {"<frozen"})


def checked(evaluator: Evaluator, subject: Subject) -> dict[str, Verdict]:
    """The verdicts by the id of what is judged: a trajectory's, of a group every member's, or a step's.

    EvaluationError with the reason where the evaluator fails, or says anything but finite numbers under good names for
    things that it was asked about. What it leaves out is not judged.
    """
    _check_subject(evaluator, subject)
    try:
        said = evaluator.evaluate(subject)
    except EvaluationError:
        raise
    except AgentWorldError as error:
        raise EvaluationError(f"{evaluator.name}: {_short(error.message)}", path=error.path, hint=error.hint) from error
    except BaseException as error:
        # A plug-in may raise anything, and may call exit(): that ends its evaluation and nothing else. An interrupt
        # in the thread where signals arrive is taken for one of whoever sits there.
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        why = f": {_short(str(error))}" if str(error) else ""
        raise EvaluationError(f"{evaluator.name} raised {type(error).__name__}{why}{_raised_at(error)}") from error
    if isinstance(subject, RolloutGroup):
        return _of_group(evaluator, subject, said)
    if evaluator.scope == "step":
        return _of_steps(evaluator, subject, said)
    return {subject.trajectory.trajectory_id: _verdict(evaluator, said, subject.trajectory.trajectory_id)}


def reward_records(evaluator: Evaluator, subject: Subject, verdicts: Mapping[str, Verdict]) -> list[Reward]:
    """Checked verdicts as records for the pool; said again, they replace the earlier ones."""
    records = []
    for target, verdict in verdicts.items():
        for name, value in verdict.values.items():
            reward = Reward(value=value, name=name, source=evaluator.name, details=verdict.details or None)
            if evaluator.scope == "step" and isinstance(subject, BatchTrajectory):
                reward.step_id, reward.trajectory_id = target, subject.trajectory.trajectory_id
            else:
                reward.trajectory_id = target
            records.append(reward)
    return records


def rewards_of(evaluator: Evaluator, subject: Subject) -> list[Reward]:
    """What the evaluator says of `subject`, checked, as records for the pool."""
    return reward_records(evaluator, subject, checked(evaluator, subject))


def _check_subject(evaluator: Evaluator, subject: Subject) -> None:
    group = isinstance(subject, RolloutGroup)
    if group != (evaluator.scope == "group"):
        raise EvaluationError(f"{evaluator.name} judges a {evaluator.scope}, and was given a {type(subject).__name__}")


def _of_group(evaluator: Evaluator, group: RolloutGroup, said: Any) -> dict[str, Verdict]:
    verdicts = _mapping(evaluator, said, "trajectory")
    members = [member.trajectory.trajectory_id for member in group.members]
    missing = [member for member in members if member not in verdicts]
    if missing:
        raise EvaluationError(
            f"{evaluator.name} judged {len(members) - len(missing)} of {len(members)} members; {_ids(missing)} missing",
            hint="Give every member a verdict; one without values says that it is not judged",
        )
    _check_targets(evaluator, verdicts, set(members))
    return {member: _verdict(evaluator, verdicts[member], member) for member in members}


def _of_steps(evaluator: Evaluator, run: BatchTrajectory, said: Any) -> dict[str, Verdict]:
    verdicts = _mapping(evaluator, said, "step")
    _check_targets(evaluator, verdicts, {step.step_id for step in run.steps})
    return {target: _verdict(evaluator, verdict, target) for target, verdict in verdicts.items()}


def _mapping(evaluator: Evaluator, said: Any, what: str) -> Mapping[Any, Any]:
    if not isinstance(said, Mapping):
        raise EvaluationError(
            f"{evaluator.name} returned a {type(said).__name__}, not verdicts by {what} id",
            hint=f"An evaluator of scope {evaluator.scope} returns {{{what}_id: Verdict}}",
        )
    return said


def _check_targets(evaluator: Evaluator, verdicts: Mapping[Any, Any], known: set[str]) -> None:
    strange = [str(target) for target in verdicts if target not in known]
    if strange:
        raise EvaluationError(f"{evaluator.name} judged {_ids(strange)}, which it was not given")


def _verdict(evaluator: Evaluator, said: Any, target: str) -> Verdict:
    if not isinstance(said, Verdict):
        raise EvaluationError(f"{evaluator.name} returned a {type(said).__name__} for {target}, not a Verdict")
    if not isinstance(said.values, Mapping):
        raise EvaluationError(f"{evaluator.name}: the values for {target} are a {type(said.values).__name__}")
    if len(said.values) > MAX_VALUES:
        raise EvaluationError(f"{evaluator.name} gave {len(said.values)} values for {target}; at most {MAX_VALUES}")
    values = {_name(evaluator, name): _number(evaluator, name, value) for name, value in said.values.items()}
    return Verdict(values, _details(evaluator, said.details))


def _name(evaluator: Evaluator, name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise EvaluationError(
            f"{evaluator.name}: {_short(repr(name), 60)} is no name of a value",
            hint="Use 1 to 128 letters, digits and _ . : -",
        )
    if evaluator.gives and name not in evaluator.gives:
        raise EvaluationError(f"{evaluator.name} gave {name!r}, and says that it gives {', '.join(evaluator.gives)}")
    return name


def _number(evaluator: Evaluator, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise EvaluationError(f"{evaluator.name}: {name} is a {type(value).__name__}, not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise EvaluationError(f"{evaluator.name}: {name} is {number}, no finite number")
    return number


def _details(evaluator: Evaluator, details: Any) -> dict[str, Any]:
    if not isinstance(details, dict):
        raise EvaluationError(f"{evaluator.name}: the details are a {type(details).__name__}, not a JSON object")
    try:
        check_depth(details, "details")
        size = len(msgspec.json.encode(details))
    except (AgentWorldError, TypeError, ValueError) as error:
        raise EvaluationError(f"{evaluator.name}: the details are no JSON: {_short(str(error))}") from None
    if size > MAX_DETAILS_BYTES:
        raise EvaluationError(
            f"{evaluator.name}: the details have {size} bytes", hint=f"Keep them under {MAX_DETAILS_BYTES}"
        )
    return details


def _ids(ids: list[str]) -> str:
    shown = ", ".join(_short(each, 60) for each in ids[:3])
    return shown if len(ids) <= 3 else f"{shown} and {len(ids) - 3} more"


def _short(text: str, length: int = _MESSAGE) -> str:
    return text if len(text) <= length else f"{text[:length]}..."


def _raised_at(error: BaseException) -> str:
    """The line of the user's own code that raised it, or that called what did."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((_PACKAGE, *_LIBRARIES))]
    return f" (at {Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
