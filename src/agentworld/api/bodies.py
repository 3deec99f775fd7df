"""Request bodies: decoded into records with the JSON path of what is wrong."""

from __future__ import annotations

import json
import math
import re
import secrets
from typing import Any, TypeVar

import msgspec

from agentworld.api.values import check_values
from agentworld.client.wire import SubmittedStep, finish_step, nearest_field
from agentworld.errors import InvalidRequestError
from agentworld.pool.protocol import Rejected
from agentworld.pool.rejections import kept_text
from agentworld.pool.rules import printable
from agentworld.records import (
    MAX_DEPTH,
    Annotation,
    Decision,
    Feedback,
    NewReview,
    Reward,
    Step,
    exact_json,
    hint_of_values,
)

T = TypeVar("T")

_TOO_DEEP = "This is nested too deeply"
# Strings and brackets. A string that never ends goes to the end of the text, so that each byte is looked at once.
_NESTING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


_BROKEN = b"\xff"
_CUT_OUT = b'"..."'  # what stands in a dead letter for what was nested too deeply
_ESCAPED_BYTE = re.compile(rb"\\udc[89a-f]")


class RewardRequest(Reward, kw_only=True, forbid_unknown_fields=True):
    """A reward on a trajectory or on one of its steps."""


class FeedbackRequest(Feedback, kw_only=True, forbid_unknown_fields=True):
    """Feedback on a trajectory or on one of its steps; `feedback_id` is made where none is sent."""


class AnnotationRequest(Annotation, kw_only=True, forbid_unknown_fields=True):
    """An annotation on a trajectory or on one of its steps; `values` nests lists, null for what is not finite."""


class DecisionRequest(Decision, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a person decides of a trajectory or of one of its steps; null takes it back."""


class ReviewRequest(NewReview, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A trajectory or one of its steps that somebody should look at."""


class _StepRecords(msgspec.Struct, forbid_unknown_fields=True):
    steps: list[msgspec.Raw]


class _RewardRecords(msgspec.Struct, forbid_unknown_fields=True):
    rewards: list[RewardRequest]


class _FeedbackRecords(msgspec.Struct, forbid_unknown_fields=True):
    feedback: list[FeedbackRequest]


class _AnnotationRecords(msgspec.Struct, forbid_unknown_fields=True):
    annotations: list[AnnotationRequest]


class _DecisionRecords(msgspec.Struct, forbid_unknown_fields=True):
    decisions: list[DecisionRequest]


class _ReviewRecords(msgspec.Struct, forbid_unknown_fields=True):
    reviews: list[ReviewRequest]


def decode(body: bytes, kind: type[T], prefix: str = "$") -> T:
    """`body` as a record; InvalidRequestError with the path, which begins with `prefix` instead of `$`."""
    try:
        record = exact_json.decode(body or b"{}", kind)
    except msgspec.ValidationError as error:
        message, path = _split(error, prefix)
        hint = nearest_field(message, kind) or hint_of_values(message, path)
        raise InvalidRequestError(message, path=path, hint=hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"This is not JSON: {error}", path=prefix) from None
    except RecursionError:
        raise InvalidRequestError(_TOO_DEEP, path=prefix) from None
    except ValueError as error:  # A number of more digits than Python takes.
        raise InvalidRequestError(f"This cannot be read: {error}", path=prefix) from None
    if isinstance(record, msgspec.Struct):
        check_values(record, prefix)
    return record


def decode_steps(body: bytes) -> list[Step | Rejected]:
    """Each record sent as a step, or as one that cannot be read."""
    records, cut = _split_records(body)
    steps: list[Step | Rejected] = []
    for index, record in enumerate(records):
        path = f"$.steps[{index}]"
        try:
            if cut is not None and cut in bytes(record):
                raise InvalidRequestError(_TOO_DEEP, path=path)
            steps.append(finish_step(decode(bytes(record), SubmittedStep, path), path))
        except InvalidRequestError as error:
            # One bad record does not fail its batch.
            steps.append(_rejected(bytes(record), cut, error.one_line()))
    return steps


def _rejected(record: bytes, cut: bytes | None, reason: str) -> Rejected:
    record = record.removeprefix(_BROKEN)
    if cut is not None:
        record = record.replace(cut, _CUT_OUT)
    step_id, trajectory_id = _sent_ids(record)
    return Rejected(reason, kept_text(record), step_id, trajectory_id)


# By the name of the list: the record of one, of several, and what they become.
_SIGNALS: dict[str, tuple[type[Any], type[Any], type[Any]]] = {
    "rewards": (RewardRequest, _RewardRecords, Reward),
    "feedback": (FeedbackRequest, _FeedbackRecords, Feedback),
    "annotations": (AnnotationRequest, _AnnotationRecords, Annotation),
    "decisions": (DecisionRequest, _DecisionRecords, Decision),
    "reviews": (ReviewRequest, _ReviewRecords, NewReview),
}


def decode_signals(body: bytes, name: str) -> list[Any]:
    """One record, a list of them, or `{NAME: [...]}`; `name` is one of _SIGNALS."""
    one, several, kind = _SIGNALS[name]
    sent: list[Any]
    if body.lstrip()[:1] == b"[":
        sent, where = decode(body, list[one]), "$[{}]"  # type: ignore[valid-type]  # A type of the table.
    elif name in _keys(body):
        sent, where = getattr(decode(body, several), name), f"$.{name}[{{}}]"
    else:
        sent, where = [decode(body, one)], "$"
    for index, signal in enumerate(sent):
        check_values(signal, where.format(index))
        if signal.trajectory_id is None and signal.step_id is None:
            raise InvalidRequestError(
                "This needs trajectory_id or step_id",
                path=where.format(index),
                hint="Name the step, or the trajectory where it is about the whole run",
            )
    return [kind(**{field: getattr(signal, field) for field in kind.__struct_fields__}) for signal in sent]


def _split_records(body: bytes) -> tuple[list[msgspec.Raw], bytes | None]:
    """The records, and what stands in them for values that nest too deeply (None where none does)."""
    try:
        return _split_strictly(body), None
    except RecursionError:
        # The parser cannot pass over a deep value, so it is taken out: it fails its own record only.
        cut = b'"%s"' % secrets.token_hex(16).encode()
        return _split_strictly(_cut_deep(body, cut)), cut


def _split_strictly(body: bytes) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(body or b"{}", type=_StepRecords).steps
    except msgspec.ValidationError as error:
        message, path = _split(error, "$")
        raise InvalidRequestError(message, path=path, hint=nearest_field(message, _StepRecords)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        refusal = InvalidRequestError(f"This is not JSON: {error}", path="$")
        # A lone surrogate or a broken byte in one record: the lenient parser finds the records.
        try:
            lenient = json.loads(body.decode("utf-8", "surrogateescape"), parse_int=_whole_number)
        except ValueError:
            raise refusal from None
        broken = not _is_utf8(body)
        if not isinstance(lenient, dict) or set(lenient) != {"steps"} or not isinstance(lenient["steps"], list):
            raise refusal from None
        dumped = [json.dumps(record).encode() for record in lenient["steps"]]
        # What a broken byte became must not be taken for a surrogate that was sent, so such a record is broken again.
        return [msgspec.Raw(_BROKEN + text if broken and _ESCAPED_BYTE.search(text) else text) for text in dumped]


def _whole_number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return math.inf  # Too long for Python; no JSON has it, so it fails its own record.


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _cut_deep(body: bytes, cut: bytes) -> bytes:
    """`body` with `cut` in place of every value that nests deeper than any record may."""
    kept: list[bytes] = []
    depth = start = 0
    for found in _NESTING.finditer(body):
        mark = found.group()
        if mark in b"[{":
            depth += 1
            if depth == 2 * MAX_DEPTH:
                kept += (body[start : found.start()], cut)
        elif mark in b"]}":
            if depth == 2 * MAX_DEPTH:
                start = found.end()
            depth -= 1
    # What never ends stays cut off; the parser says so.
    return b"".join(kept) if depth >= 2 * MAX_DEPTH else b"".join((*kept, body[start:]))


def _keys(body: bytes) -> set[str]:
    try:
        return set(msgspec.json.decode(body, type=dict[str, msgspec.Raw]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return set()  # decoding it as a reward says what is wrong


def _sent_ids(record: bytes) -> tuple[str, str]:
    """The ids that a record names, as far as it can be read."""
    try:
        # Python refuses to read very long numbers as such.
        sent = json.loads(record.decode("utf-8", "replace"), parse_int=str)
    except (ValueError, RecursionError):
        return "", ""
    if not isinstance(sent, dict):
        return "", ""
    step_id, trajectory_id = (printable(sent.get(name) or "") for name in ("step_id", "trajectory_id"))
    return step_id, trajectory_id


def _split(error: msgspec.ValidationError, prefix: str) -> tuple[str, str]:
    message, _, path = str(error).partition(" - at ")
    return message, prefix + (path.strip("`") or "$").removeprefix("$")
