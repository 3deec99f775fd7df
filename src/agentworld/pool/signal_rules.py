"""What rewards, feedback and annotations must be, before a store sees them; the same in every store.

A signal names its target by id: a step, or else a trajectory. What is malformed is refused, and with it the whole call.
What names a target that is not there waits for it. A conflict that shows only when the target comes (the step is of
another trajectory, or its reply has another length) makes a dead letter of that one signal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from agentworld.errors import ConflictError, InvalidRequestError
from agentworld.pool import rules
from agentworld.pool.annotation_arrays import PackedArray, pack_values
from agentworld.pool.arguments import listed
from agentworld.pool.bounds import MAX_NAME, check_moment, check_seconds, is_finite, storable
from agentworld.pool.plain_values import as_number, plain_json
from agentworld.pool.results import SignalsResult
from agentworld.query.rules import TAG, WEIGHT
from agentworld.records import Annotation, Feedback, Message, Reward, check_id, exact_json, new_id

Target = Literal["step", "trajectory"]
SignalKind = Literal["reward", "feedback", "annotation"]
Signal = Reward | Feedback | Annotation
MAX_SIGNALS = 1000  # in one call, which is one transaction that others wait for
PART_BYTES = 2 * 1024 * 1024  # of arrays in one transaction
MAX_STEPS = 1000  # in one question
_SHA256 = re.compile(r"[0-9a-f]{64}")
# Where a list of each kind stands in messages.
PLACES: dict[type[Signal], str] = {Reward: "rewards", Feedback: "feedback", Annotation: "annotations"}


class CheckedSignal(msgspec.Struct, frozen=True):
    """A signal that may be stored. `path`: where it stood in the call; `array`: of an annotation, whose record then
    has no values.
    """

    kind: SignalKind
    target: Target
    target_id: str
    record: Signal
    path: str
    array: PackedArray | None = None


def check_signals(signals: Sequence[Signal]) -> list[CheckedSignal]:
    """Every signal checked; InvalidRequestError names the first that is malformed, and where."""
    signals = listed(signals, "Reward, Feedback or Annotation", "signals")
    if len(signals) > MAX_SIGNALS:
        raise InvalidRequestError(f"{len(signals)} signals in one call", hint=f"Send at most {MAX_SIGNALS} at once")
    checked = [
        check_signal(signal, f"{PLACES.get(type(signal), 'signals')}[{number}]")
        for number, signal in enumerate(signals)
    ]
    for one in checked:  # Not of what is restored, which stays as it was.
        check_moment(one.record.created_at, f"{one.path}.created_at")
    return checked


def check_signal(signal: Signal, path: str) -> CheckedSignal:
    """One signal checked; `path` is where it stood."""
    if type(signal) not in PLACES:
        raise InvalidRequestError(
            f"this must be a Reward, Feedback or Annotation, not {type(signal).__name__}", path=path
        )
    return _checked(_plain(signal), path)


def in_parts(signals: list[CheckedSignal]) -> list[list[CheckedSignal]]:
    """The signals in order, parted where arrays make one transaction too long for those who wait for it."""
    parts: list[list[CheckedSignal]] = [[]]
    room = PART_BYTES
    for signal in signals:
        size = len(signal.array.data) if signal.array is not None else 0
        if size > room and parts[-1]:
            parts.append([])
            room = PART_BYTES
        parts[-1].append(signal)
        room -= size
    return parts


def joined(results: Sequence[SignalsResult]) -> SignalsResult:
    """What became of all parts."""
    waiting = dict.fromkeys(target_id for result in results for target_id in result.waiting)
    return SignalsResult(sum(one.changed for one in results), sum(one.set for one in results), list(waiting))


def takes_back(said: Feedback) -> bool:
    """Whether a comparison says that neither of the two is preferred, which takes back what its source said before."""
    return said.kind == "comparison" and said.value is not None and said.value == 0


def standing_comparisons(feedback: Iterable[Feedback]) -> list[Feedback]:
    """The comparisons of feedback, which is in the order of its commits, that no later one of the same source on the
    same two takes back.
    """
    standing: dict[tuple[str | None, str | None, str | None, str], list[Feedback]] = {}
    for one in feedback:
        if one.kind != "comparison":
            continue
        # What is on a step may name the trajectory too, or not.
        on = (one.step_id, None if one.step_id is not None else one.trajectory_id, one.other_id, one.source)
        if takes_back(one):
            standing.pop(on, None)
        else:
            standing.setdefault(on, []).append(one)
    return [one for same in standing.values() for one in same]


def check_kind(kind: object) -> None:
    """InvalidRequestError where there is no such kind of feedback; None stands for all."""
    if kind not in (None, *_FAULTS):
        raise InvalidRequestError(f"no feedback is {kind!r}", path="kind", hint=f"Known: {', '.join(_FAULTS)}")


def check_name(value: object, path: str) -> None:
    """InvalidRequestError where a name is empty, longer than 256 characters, or holds what no key may hold."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or not value.isprintable():
        raise InvalidRequestError(f"{path} must be 1 to {MAX_NAME} printable characters", path=path)


def check_one_target(trajectory_id: str | None, step_id: str | None) -> tuple[str, str] | None:
    """The one target that a listing is about, or None for all; InvalidRequestError for two."""
    if trajectory_id is not None and step_id is not None:
        raise InvalidRequestError("trajectory_id and step_id do not go together", path="step_id")
    if step_id is not None:
        return "step", step_id
    return None if trajectory_id is None else ("trajectory", trajectory_id)


def check_step_ids(step_ids: Sequence[str] | None, trajectory_id: str | None) -> list[str] | None:
    """The steps whose annotations are wanted, None for those of a trajectory; InvalidRequestError otherwise."""
    if (step_ids is None) == (trajectory_id is None):
        raise InvalidRequestError("either step_ids or trajectory_id is needed", path="step_ids")
    if step_ids is not None and len(step_ids) > MAX_STEPS:
        raise InvalidRequestError(f"{len(step_ids)} step_ids are over {MAX_STEPS}", path="step_ids")
    return None if step_ids is None else list(step_ids)


def check_few(ids: Sequence[str], path: str) -> list[str]:
    """Up to 1,000 ids; InvalidRequestError otherwise."""
    found = list(listed(ids, "ids", path))
    if len(found) > MAX_STEPS:
        raise InvalidRequestError(f"{len(found)} {path} are over {MAX_STEPS}", path=path)
    for number, one in enumerate(found):
        check_id(one, f"{path}[{number}]")
    return found


def other_trajectory(target_id: str, trajectory_id: str | None, path: str) -> InvalidRequestError:
    """The error for a signal whose step is not of the trajectory that it names."""
    return InvalidRequestError(
        f"step {target_id!r} is not of trajectory {trajectory_id!r}", path=path, hint="Send the step alone"
    )


def length_fault(shape: Sequence[int], per_token: bool, response_length: int | None) -> str | None:
    """Why a per-token array does not fit a reply, or None."""
    if not per_token or not shape:
        return None
    if response_length is None:
        return "the step has no reply with tokens, so nothing can be annotated per token"
    if shape[0] != response_length:
        return f"{shape[0]} values for a reply of {response_length} tokens"
    return None


def same_feedback(known: Feedback, sent: Feedback) -> bool:
    """Whether both say the same; when is no part of it."""
    plain = {"created_at": 0.0, "trajectory_id": None} if sent.step_id is not None else {"created_at": 0.0}
    return msgspec.structs.replace(known, **plain) == msgspec.structs.replace(sent, **plain)


def other_feedback(feedback_id: str, path: str) -> ConflictError:
    """The error for feedback whose id stands for something else; `path`: of the feedback."""
    return ConflictError(
        f"feedback {feedback_id!r} is there with other content",
        path=f"{path}.feedback_id",
        hint="Use a new feedback_id",
    )


def _plain(signal: Signal) -> Signal:
    """The signal, of the caller's no more, with numbers of Python's own."""
    said: dict[str, Any] = {"created_at": as_number(signal.created_at)}
    if isinstance(signal, Reward):
        said["value"] = as_number(signal.value)
    return msgspec.structs.replace(signal, **said)


def _checked(signal: Signal, path: str) -> CheckedSignal:
    if signal.trajectory_id is None and signal.step_id is None:
        noun = {"rewards": "a reward", "annotations": "an annotation"}.get(PLACES[type(signal)], "feedback")
        raise InvalidRequestError(
            f"{noun} is on a trajectory or on a step", path=path, hint="Set trajectory_id or step_id"
        )
    for name in ("trajectory_id", "step_id"):
        if (value := getattr(signal, name)) is not None:
            check_id(value if isinstance(value, str) else "", f"{path}.{name}")
    target: Target = "step" if signal.step_id is not None else "trajectory"
    target_id = signal.step_id or signal.trajectory_id or ""
    check_name(signal.source, f"{path}.source")
    check_seconds(signal.created_at, f"{path}.created_at")
    if isinstance(signal, Reward):
        signal.details = plain_json(signal.details, f"{path}.details")
        rules.check_reward(signal, path)
        check_name(signal.name, f"{path}.name")
        return CheckedSignal("reward", target, target_id, signal, path)
    if isinstance(signal, Feedback):
        return CheckedSignal("feedback", target, target_id, _checked_feedback(signal, target_id, path), path)
    check_name(signal.name, f"{path}.name")
    array = pack_values(signal.values, signal.dtype, f"{path}.values")
    plain = msgspec.structs.replace(signal, values=None, dtype=array.dtype, shape=array.shape)
    with storable(f"{path}."):
        exact_json.decode(exact_json.encode(plain), Annotation)
    plain.per_token = signal.per_token and target == "step" and array.shape != ()
    return CheckedSignal("annotation", target, target_id, plain, path, array)


def _checked_feedback(sent: Feedback, target_id: str, path: str) -> Feedback:
    sent.value = plain_json(sent.value, f"{path}.value")
    with storable(f"{path}."):
        exact_json.decode(exact_json.encode(sent), Feedback)
    if sent.feedback_id is not None:
        check_id(sent.feedback_id, f"{path}.feedback_id")
    fault = _FAULTS[sent.kind](sent)
    if fault is None and sent.name is not None and sent.kind not in ("rating", "label"):
        fault = "name", "only ratings and labels have a name"
    if fault is None and sent.other_id is not None and sent.kind != "comparison":
        fault = "other_id", "only a comparison has other_id"
    if fault is None and sent.other_id == target_id:
        fault = "other_id", "a comparison is between two"
    if fault is not None:
        raise InvalidRequestError(f"{sent.kind}: {fault[1]}", path=f"{path}.{fault[0]}")
    if sent.name is not None:
        check_name(sent.name, f"{path}.name")
    if sent.other_id is not None:
        check_id(sent.other_id, f"{path}.other_id")
    if takes_back(sent):
        sent.value = 0  # One spelling, which stores ask for.
    if sent.content is not None and _SHA256.fullmatch(sent.content) is None:
        raise InvalidRequestError(
            "content must be 64 small hex digits",
            path=f"{path}.content",
            hint="It is the SHA-256 of the reply's text; leave it out where nobody knows it",
        )
    return msgspec.structs.replace(sent, feedback_id=sent.feedback_id or new_id("fbk"))


_Fault = tuple[str, str] | None


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and is_finite(value)


def _rating_fault(sent: Feedback) -> _Fault:
    return None if sent.value is None or _is_number(sent.value) else ("value", "value must be a finite number or null")


def _label_fault(sent: Feedback) -> _Fault:
    if sent.name is None:
        return "name", "a label has a name"
    if sent.name.startswith(TAG) or sent.name == WEIGHT:
        return "name", f"{sent.name} is what rules of curation set: use another name"
    return None


def _correction_fault(sent: Feedback) -> _Fault:
    if isinstance(sent.value, str):
        return None if sent.value.strip() else ("value", "the text of a correction is empty")
    try:
        said = msgspec.convert(msgspec.to_builtins(sent.value), Message)
    except msgspec.ValidationError as error:
        return "value", f"value must be a text or a message ({error})"
    if said.role != "assistant":
        return "value", f"a correction is what the assistant should have said, not a message of role {said.role}"
    if not (said.text.strip() or said.media or said.tool_calls):
        return "value", "the message of a correction says nothing and calls no tool"
    return None


def _comparison_fault(sent: Feedback) -> _Fault:
    if sent.other_id is None:
        return "other_id", "other_id names what the target is preferred to"
    if sent.value is not None and not _is_number(sent.value):
        return "value", "value must be a finite number or null"
    return None


def _comment_fault(sent: Feedback) -> _Fault:
    if not sent.comment:
        return "comment", "comment is empty"
    return ("value", "a comment has no value") if sent.value is not None else None


_FAULTS = {
    "rating": _rating_fault,
    "label": _label_fault,
    "correction": _correction_fault,
    "comparison": _comparison_fault,
    "comment": _comment_fault,
}
