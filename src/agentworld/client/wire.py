"""Bodies of the control API that are not records, and how its errors become exceptions again.

The server builds its OpenAPI document from the same structs, so client and server cannot drift apart.
"""

from __future__ import annotations

import difflib
import os
import re
from typing import Any

import msgspec

from agentworld.errors import (
    AgentWorldError,
    ConfigError,
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    TooLargeError,
    UnauthorizedError,
)
from agentworld.pool.protocol import AppendResult
from agentworld.records import (
    Annotation,
    BatchSpec,
    Feedback,
    Message,
    Metrics,
    PoisonedUnit,
    Policy,
    Reward,
    Step,
    TerminalStatus,
    Trajectory,
    Usage,
    hint_of_values,
    new_id,
)

API = "/api/v1"
KEY_VARIABLE = "AGENTWORLD_API_KEY"
DEFAULT_CONSUMER = "default"
_UNKNOWN = re.compile(r"unknown field `(.*?)`")
LONGEST_WAIT = 30.0  # seconds that the server holds a request for a batch


def key_headers(api_key: str | None) -> dict[str, str]:
    """The headers that show a server the key, by default that of AGENTWORLD_API_KEY; ConfigError where it is none."""
    key = os.environ.get(KEY_VARIABLE) if api_key is None else api_key
    if not key:
        return {}
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(
            "the API key has characters that no key has", path="api_key", hint=f"Check {KEY_VARIABLE} or the option"
        )
    return {"Authorization": f"Bearer {key}"}


class StartedTrajectory(msgspec.Struct, frozen=True):
    """A trajectory and how its agent reaches the gateway: `base_url` ends in /v1, as OpenAI clients take it.

    Where no gateway is known (a pool in this process, a server without models) `base_url` is null. `page_key` may give
    feedback on this trajectory and nothing else, so a browser may have it; null where keys are not required.
    """

    trajectory_id: str
    trajectory: Trajectory
    base_url: str | None = None
    api_key: str | None = None
    page_key: str | None = None


class Completion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a trajectory ended, with its primary reward where it is known already."""

    status: TerminalStatus
    reward: float | None = None


class SubmittedStep(Step, kw_only=True, forbid_unknown_fields=True):
    """A step as white-box agents send it: the fields of a step, ids optional, `policy_version` as a shorthand.

    `policy_version` n is `policy: {model, version: n}` with the step's model.
    """

    step_id: str = ""
    policy_version: int | None = None


def step_from(fields: dict[str, Any]) -> Step:
    """A step from loose fields, messages as dicts included; InvalidRequestError names the field that is wrong."""
    plain = msgspec.to_builtins(fields, enc_hook=_array_to_list)
    try:
        return finish_step(msgspec.convert(plain, SubmittedStep), "$")
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        place = path.strip("`") or "$"
        hint = nearest_field(message, Step) or hint_of_values(message, place)
        raise InvalidRequestError(message, path=place, hint=hint) from None


def nearest_field(message: str, kind: type[object]) -> str | None:
    """What to do about an unknown field of a struct, where msgspec's `message` names one."""
    found = _UNKNOWN.search(message)
    fields = getattr(kind, "__struct_fields__", ())
    if not found or not fields:
        return None
    near = difflib.get_close_matches(found.group(1), fields, n=1)
    if near:
        return f"Did you mean {near[0]}?"
    return f"Known fields: {', '.join(fields)}" if len(fields) <= 12 else "See /api/docs for the fields"


def _array_to_list(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy arrays and torch tensors of ids or log-probabilities
        return value.tolist()
    raise InvalidRequestError(f"A step cannot hold a {type(value).__name__}")


def check_stored(result: AppendResult) -> AppendResult:
    """The result, or InvalidRequestError where the step was not stored."""
    if result.outcome in ("rejected", "conflict"):
        raise InvalidRequestError(f"step {result.step_id}: {result.outcome}", hint=result.reason)
    return result


def finish_step(sent: SubmittedStep, path: str) -> Step:
    """The step that was meant: its id made where it has none, `policy_version` and the source of its ids filled in."""
    fields = {name: getattr(sent, name) for name in Step.__struct_fields__}
    if sent.policy_version is not None:
        if sent.policy is not None and sent.policy.version != sent.policy_version:
            raise InvalidRequestError("policy and policy_version differ", path=f"{path}.policy_version")
        fields["policy"] = sent.policy or Policy(model=sent.model or "default", version=sent.policy_version)
    if sent.token_source == "none" and sent.response_ids is not None:
        fields["token_source"] = "submitted"
    fields["step_id"] = sent.step_id or new_id("stp")
    return Step(**fields)


class StepsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """White-box submission; sending a step again under its id stores nothing new."""

    steps: list[SubmittedStep]


class StepsReply(msgspec.Struct, frozen=True):
    """What became of each step, in the order sent."""

    results: list[AppendResult]


class RewardsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Several rewards, set all or none."""

    rewards: list[Reward]


class MetricsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers of runs, told all or none."""

    metrics: list[Metrics]


class MetricsResult(msgspec.Struct, frozen=True):
    """How many were told."""

    added: int


class FeedbackRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Several pieces of feedback, stored all or none."""

    feedback: list[Feedback]


class AnnotationsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Several annotations, stored all or none; values as nested lists, null for what is not finite."""

    annotations: list[Annotation]


class LeaseRequest(BatchSpec, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A batch spec and the consumer that asks. `wait_seconds`: up to 30 in which the reply waits for enough units."""

    consumer: str = DEFAULT_CONSUMER
    wait_seconds: float = 0.0


class LeaseAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which lease of the batch is meant; a stale epoch is refused."""

    epoch: int


class LeaseExtension(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Move the deadline of a lease to `seconds` from now."""

    epoch: int
    seconds: float


class Deadline(msgspec.Struct, frozen=True):
    """When the lease ends, in seconds since the epoch."""

    deadline: float


class ResumeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ids of the batches whose training is in the consumer's checkpoint."""

    applied: list[str] = []


class ResumeReply(msgspec.Struct, frozen=True):
    """What was acknowledged, what was given back, and which applied ids this pool does not know."""

    acknowledged: list[str]
    released: list[str]
    unknown: list[str] = []


class PoisonedReply(msgspec.Struct, frozen=True):
    """Units that were handed out too often without being acknowledged."""

    items: list[PoisonedUnit]


class RequeueRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keys of poisoned units that are to be handed out again."""

    keys: list[str]


class RequeueReply(msgspec.Struct, frozen=True):
    """How many of the keys were poisoned."""

    requeued: int


class ChatReply(msgspec.Struct, frozen=True):
    """One reply of the model: its message, why it ended, its token counts, and the whole body as it came."""

    message: Message
    finish_reason: str | None
    usage: Usage | None
    body: dict[str, Any]


def _by_code(base: type[AgentWorldError]) -> dict[str, type[AgentWorldError]]:
    found = {base.code: base}
    for narrower in base.__subclasses__():
        # A subclass without a code of its own is one that no server raises.
        found.update({code: kind for code, kind in _by_code(narrower).items() if code not in found})
    return found


# What a server that is not ours says to a route of ours.
_NO_SUCH_ROUTE = frozenset({404, 405, 501})
_BY_STATUS: dict[int, type[AgentWorldError]] = {
    400: InvalidRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    413: TooLargeError,
}


def error_from(status: int, body: bytes, url: str) -> AgentWorldError:
    """The exception that the server raised, by its code; by the HTTP status where the code is not one of ours."""
    try:
        fields = msgspec.json.decode(body)["error"]
        message, code = str(fields["message"]), fields.get("code")
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        text = body[:200].decode("utf-8", "replace").strip()
        fields, code = {}, None
        message = f"{url} answered {status}" + (f": {text}" if text else "")
    kind = _by_code(AgentWorldError).get(code) if isinstance(code, str) else None
    if kind is None:
        kind = _BY_STATUS.get(status, AgentWorldError)
    path = fields.get("path") or fields.get("param")
    hint = fields.get("hint")
    return kind(message, path=path if isinstance(path, str) else None, hint=hint if isinstance(hint, str) else None)


def control_error(status: int, body: bytes, origin: str, path: str) -> AgentWorldError:
    """As `error_from` for a call of the control API at `origin`; says so where no server of ours answers there."""
    if status in _NO_SUCH_ROUTE or status < 400:
        try:
            ours = {"code", "message", "path", "hint"} <= msgspec.json.decode(body)["error"].keys()
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
            ours = False
        if not ours:
            return not_agentworld(origin, f"it answered {status} to {path.partition('?')[0]}")
    return error_from(status, body, f"{origin}{path}")


def not_agentworld(origin: str, reason: str) -> ConfigError:
    """The error for an address where something else answers, such as an engine."""
    return ConfigError(
        f"{origin} is no AgentWorld server: {reason}",
        hint="Give the address that `agentworld serve` prints; an engine is named to it, with --upstream",
    )


def no_gateway() -> InvalidRequestError:
    """The error of a call of a model where nothing serves one."""
    return InvalidRequestError(
        "no gateway serves models to this trajectory",
        path="chat",
        hint="Start `agentworld serve` with --upstream and --model, and connect to it with agentworld.connect(URL)",
    )


def chat_reply(body: bytes) -> ChatReply:
    """A chat completion as OpenAI sends it; EngineError-like faults are AgentWorldError with what is missing."""
    try:
        parsed = msgspec.json.decode(body)
        choice = parsed["choices"][0]
        sent = choice["message"]
        fields = {
            name: value for name, value in sent.items() if value is not None and name in Message.__struct_fields__
        }
        if fields.get("reasoning") is None and sent.get("reasoning_content"):
            fields["reasoning"] = sent["reasoning_content"]
        message = msgspec.convert(fields, Message)
        usage = msgspec.convert(parsed["usage"], Usage) if parsed.get("usage") else None
    except (msgspec.MsgspecError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise AgentWorldError(f"The reply is not a chat completion: {error}") from error
    return ChatReply(message, choice.get("finish_reason"), usage, parsed)
