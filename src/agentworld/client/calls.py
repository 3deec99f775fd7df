"""The control API as data: each call with its path, body and reply type. The two clients only send them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from agentworld.client import wire
from agentworld.client.wire import API
from agentworld.errors import InvalidRequestError
from agentworld.pool.annotation_arrays import pack_values, plain_values, unpack_values
from agentworld.pool.arguments import listed
from agentworld.pool.bounds import wrong_type
from agentworld.pool.keys import ApiKey, IssuedKey, NewKey
from agentworld.pool.lease_rules import check_names
from agentworld.pool.metric_rules import check_metrics
from agentworld.pool.protocol import (
    Awaited,
    DeadLetter,
    Drain,
    GatewayState,
    GatewayWorker,
    Page,
    PoolStats,
    SignalsResult,
    SpecReport,
    UnitExplanation,
)
from agentworld.pool.signal_rules import PLACES, check_few
from agentworld.pool.step_arrays import with_lists
from agentworld.query import Explanation, Subject
from agentworld.records import (
    Annotation,
    Batch,
    BatchRecord,
    BatchSpec,
    Event,
    Exchange,
    Feedback,
    Group,
    Message,
    Metrics,
    NewTrajectory,
    Policy,
    Reward,
    Step,
    TerminalStatus,
    Trajectory,
    exact_json,
    new_id,
)

T = TypeVar("T")
Order = Literal["oldest", "newest"]
Signal = Reward | Feedback | Annotation
STEPS_AT_ONCE = 50  # named in one address


class Call(msgspec.Struct, Generic[T], frozen=True):
    """One request and the type of its reply. `idempotent`: sending it again does no harm, so it is retried.
    `timeout`: seconds that its reply may take, where that is longer than others may.
    """

    method: str
    path: str
    reply: type[T]
    body: bytes | None = None
    idempotent: bool = True
    timeout: float | None = None

    def read(self, body: bytes, origin: str) -> T:
        """The reply's record; ConfigError where the body is none, so that the server at `origin` is not ours."""
        try:
            return exact_json.decode(body, self.reply)
        except msgspec.MsgspecError as error:
            place = self.path.partition("?")[0]
            raise wire.not_agentworld(origin, f"its answer to {place} cannot be read ({error})") from None


def _id(value: str) -> str:
    return quote(value, safe="")


def _each(sent: Iterable[object], kind: type[T], path: str) -> list[T]:
    """What is sent as a list of one kind of record; InvalidRequestError where it is something else."""
    found: list[T] = []
    for number, one in enumerate(listed(sent, kind.__name__, path)):
        if not isinstance(one, kind):
            raise wrong_type(one, f"a {kind.__name__}", f"{path}[{number}]")
        found.append(one)
    return found


def _plain_annotation(one: Annotation, number: int) -> Annotation:
    packed = pack_values(one.values, one.dtype, f"annotations[{number}].values")
    values = plain_values(unpack_values(packed.dtype, packed.shape, packed.data))
    return msgspec.structs.replace(one, values=values, dtype=packed.dtype, shape=packed.shape)


def _query(path: str, **parameters: Any) -> str:
    given = {name: value for name, value in parameters.items() if value is not None and value != ""}
    return f"{path}?{urlencode(given)}" if given else path


def _post(path: str, body: Any, reply: type[T], *, idempotent: bool = True) -> Call[T]:
    return Call("POST", f"{API}{path}", reply, exact_json.encode(body), idempotent)


def start_trajectory(new: NewTrajectory) -> Call[wire.StartedTrajectory]:
    """Create; the id is chosen here, so that a retry creates nothing twice."""
    if new.trajectory_id is None:
        new = msgspec.structs.replace(new, trajectory_id=new_id("trj"))
    return _post("/trajectories", new, wire.StartedTrajectory)


def complete_trajectory(trajectory_id: str, status: TerminalStatus, reward: float | None) -> Call[Trajectory]:
    """End a trajectory."""
    return _post(f"/trajectories/{_id(trajectory_id)}/complete", wire.Completion(status, reward), Trajectory)


def get_trajectory(trajectory_id: str) -> Call[Trajectory]:
    """One trajectory."""
    return Call("GET", f"{API}/trajectories/{_id(trajectory_id)}", Trajectory)


def list_trajectories(**parameters: Any) -> Call[Page[Trajectory]]:
    """One page of trajectories."""
    return Call("GET", _query(f"{API}/trajectories", **parameters), Page[Trajectory])


def list_exchanges(trajectory_id: str, limit: int) -> Call[Page[Exchange]]:
    """The calls of a trajectory."""
    return Call("GET", _query(f"{API}/trajectories/{_id(trajectory_id)}/exchanges", limit=limit), Page[Exchange])


def dead_letters(after: int, limit: int) -> Call[Page[DeadLetter]]:
    """Steps that could not be stored."""
    return Call("GET", _query(f"{API}/dead-letters", after=after, limit=limit), Page[DeadLetter])


def append_steps(steps: Sequence[Step]) -> Call[wire.StepsReply]:
    """Submit steps."""
    sent = _each(steps, Step, "steps")
    return _post("/steps", {"steps": [with_lists(step) for step in sent]}, wire.StepsReply)


def get_step(step_id: str, include: Sequence[str]) -> Call[Step]:
    """One step."""
    return Call("GET", _query(f"{API}/steps/{_id(step_id)}", include=",".join(include)), Step)


def list_steps(*, include: Sequence[str] = (), **parameters: Any) -> Call[Page[Step]]:
    """One page of steps."""
    return Call("GET", _query(f"{API}/steps", include=",".join(include), **parameters), Page[Step])


def add_signals(kind: str, sent: Sequence[Signal]) -> Call[SignalsResult]:
    """Rewards, feedback or annotations; ids of feedback are made here, so that a retry adds nothing twice."""
    if kind == "rewards":
        return _post("/rewards", {"rewards": _each(sent, Reward, kind)}, SignalsResult)
    if kind == "feedback":
        named = [
            msgspec.structs.replace(one, feedback_id=one.feedback_id or new_id("fbk"))
            for one in _each(sent, Feedback, kind)
        ]
        return _post("/feedback", {"feedback": named}, SignalsResult)
    plain = [_plain_annotation(one, number) for number, one in enumerate(_each(sent, Annotation, kind))]
    return _post("/annotations", {"annotations": plain}, SignalsResult)


def add_mixed(sent: Sequence[Signal]) -> Call[SignalsResult]:
    """Signals of one kind; InvalidRequestError where they are of several, which cannot be all or none over HTTP."""
    sent = listed(sent, "Reward, Feedback or Annotation", "signals")
    for number, one in enumerate(sent):
        if type(one) not in PLACES:
            raise wrong_type(one, "a Reward, Feedback or Annotation", f"signals[{number}]")
    kinds = {type(one): PLACES[type(one)] for one in sent}
    if len(kinds) > 1:
        raise InvalidRequestError("signals of one call are of one kind over HTTP", hint="Send each kind by itself")
    return add_signals(next(iter(kinds.values()), "rewards"), sent)


def few_at_once(step_ids: Sequence[str] | None) -> list[Sequence[str] | None]:
    """Step ids in lists that fit into an address; one question where none are named."""
    if step_ids is None:
        return [None]
    starts = range(0, len(step_ids), STEPS_AT_ONCE)
    return [step_ids[start : start + STEPS_AT_ONCE] for start in starts]


def list_feedback(**parameters: Any) -> Call[Page[Feedback]]:
    """One page of feedback."""
    return Call("GET", _query(f"{API}/feedback", **parameters), Page[Feedback])


def rewards_on(trajectory_ids: Sequence[str], step_ids: Sequence[str]) -> list[Call[Page[Reward]]]:
    """Who gave which reward to trajectories, then to steps: as many questions as addresses take."""
    found = []
    for name, ids in (("trajectory_ids", trajectory_ids), ("step_ids", step_ids)):
        named = check_few(ids, name)
        for start in range(0, len(named), STEPS_AT_ONCE):
            some = ",".join(named[start : start + STEPS_AT_ONCE])
            found.append(Call("GET", _query(f"{API}/rewards", **{name: some}), Page[Reward]))
    return found


def get_annotations(
    step_ids: Sequence[str] | None, trajectory_id: str | None, names: Sequence[str] | None
) -> Call[Page[Annotation]]:
    """Annotations of steps or of a trajectory."""
    parameters = {
        "step_ids": None if step_ids is None else ",".join(step_ids),
        "trajectory_id": trajectory_id,
        "names": None if names is None else json_names(names),
    }
    return Call("GET", _query(f"{API}/annotations", **parameters), Page[Annotation])


def json_names(names: Sequence[str]) -> str:
    """Names of annotations as a parameter; they may hold commas, so they are a JSON list."""
    return msgspec.json.encode(list(names)).decode()


def with_arrays(found: Sequence[Annotation]) -> list[Annotation]:
    """Annotations as they came, their values as arrays."""
    for one in found:
        # A single number that is not finite is null too.
        packed = pack_values(math.nan if one.values is None else one.values, one.dtype, "values")
        one.values = unpack_values(packed.dtype, one.shape, packed.data)
    return list(found)


def get_group(group_id: str) -> Call[Group]:
    """One group."""
    return Call("GET", f"{API}/groups/{_id(group_id)}", Group)


def list_groups(*, state: Literal["open", "closed"] | None = None, **parameters: Any) -> Call[Page[Group]]:
    """One page of groups."""
    closed = None if state is None else "true" if state == "closed" else "false"
    return Call("GET", _query(f"{API}/groups", closed=closed, **parameters), Page[Group])


def awaited(cursor: str | None, limit: int) -> Call[Page[Awaited]]:
    """What signals wait for."""
    return Call("GET", _query(f"{API}/awaited", cursor=cursor, limit=limit), Page[Awaited])


def events(after: int, limit: int, trajectory_id: str | None, channel: str | None) -> Call[Page[Event]]:
    """Events after a sequence number."""
    asked = _query(f"{API}/events", after=after, limit=limit, trajectory_id=trajectory_id, channel=channel)
    return Call("GET", asked, Page[Event])


def explain(where: str, subject: Subject) -> Call[Explanation]:
    """How a query is answered."""
    return Call("GET", f"{API}/explain?{urlencode({'where': where, 'subject': subject})}", Explanation)


def set_policy(policy: Policy) -> Call[Policy]:
    """Publish a policy."""
    if not isinstance(policy, Policy):
        raise wrong_type(policy, "a Policy", "policy")
    return _post("/policy", policy, Policy)


def add_metrics(metrics: Sequence[Metrics]) -> Call[wire.MetricsResult]:
    """Tell numbers of runs."""
    return _post("/metrics", wire.MetricsRequest(check_metrics(metrics)), wire.MetricsResult)


def set_paused(paused: bool) -> Call[GatewayState]:
    """Pause or resume the gateways."""
    return _post(f"/gateway/{'pause' if paused else 'resume'}", {}, GatewayState)


def gateway_state() -> Call[GatewayState]:
    """Policies, and whether the gateways are paused."""
    return Call("GET", f"{API}/policy", GatewayState)


class Workers(msgspec.Struct):
    """What is read of the state of the gateways."""

    drain: Drain
    workers: list[GatewayWorker]


def gateway_workers() -> Call[Workers]:
    """What each live worker of a gateway has in flight, and what that comes to."""
    return Call("GET", f"{API}/gateway", Workers)


def stats() -> Call[PoolStats]:
    """Counters."""
    return Call("GET", f"{API}/stats", PoolStats)


def create_key(new: NewKey) -> Call[IssuedKey]:
    """Make a key. Not retried: a lost reply would leave a key whose secret nobody has."""
    return _post("/keys", new, IssuedKey, idempotent=False)


def list_keys() -> Call[Page[ApiKey]]:
    """All keys, without their secrets."""
    return Call("GET", f"{API}/keys", Page[ApiKey])


def revoke_key(key_id: str) -> Call[ApiKey]:
    """End a key."""
    return _post(f"/keys/{_id(key_id)}/revoke", {}, ApiKey)


def lease(spec: BatchSpec, consumer: str, wait_seconds: float = 0.0) -> Call[Batch]:
    """Lease a batch. Not retried: a lost reply would leave a second batch leased until its time runs out."""
    body = {**msgspec.to_builtins(spec), "consumer": consumer}
    if wait_seconds > 0:
        body["wait_seconds"] = wait_seconds
    return _post("/batches/lease", body, Batch, idempotent=False)


def get_batch(batch_id: str) -> Call[BatchRecord]:
    """What is kept of a batch."""
    return Call("GET", f"{API}/batches/{_id(batch_id)}", BatchRecord)


def list_batches(**parameters: Any) -> Call[Page[BatchRecord]]:
    """One page of batches."""
    return Call("GET", _query(f"{API}/batches", **parameters), Page[BatchRecord])


def poisoned(consumer: str) -> Call[wire.PoisonedReply]:
    """Units that were set aside."""
    return Call("GET", f"{API}/consumers/{_id(consumer)}/poisoned", wire.PoisonedReply)


def explain_unit(consumer: str, target_id: str, spec: BatchSpec | None) -> Call[UnitExplanation]:
    """Why a unit is, or is not, handed out."""
    said = None if spec is None else msgspec.json.encode(spec).decode()
    return Call("GET", _query(f"{API}/consumers/{_id(consumer)}/explain", target=target_id, spec=said), UnitExplanation)


def check_spec(consumer: str, spec: BatchSpec | None) -> Call[SpecReport]:
    """Whether the pool can give what is asked for."""
    said = None if spec is None else msgspec.json.encode(spec).decode()
    return Call("GET", _query(f"{API}/consumers/{_id(consumer)}/check", spec=said), SpecReport)


def requeue(consumer: str, keys: Sequence[str]) -> Call[wire.RequeueReply]:
    """Hand poisoned units out again. Not retried: a second answer would say that there were none."""
    body = wire.RequeueRequest(check_names(keys, "keys"))
    return _post(f"/consumers/{_id(consumer)}/requeue", body, wire.RequeueReply, idempotent=False)


def end_lease(action: Literal["ack", "release"], batch_id: str, epoch: int) -> Call[None]:
    """Acknowledge or release."""
    return _post(f"/batches/{_id(batch_id)}/{action}", wire.LeaseAction(epoch), type(None))


def extend(batch_id: str, epoch: int, seconds: float) -> Call[wire.Deadline]:
    """Move a deadline."""
    return _post(f"/batches/{_id(batch_id)}/extend", wire.LeaseExtension(epoch, seconds), wire.Deadline)


def resume(consumer: str, applied: Sequence[str]) -> Call[wire.ResumeReply]:
    """Settle a consumer's leases after its restart."""
    return _post(
        f"/consumers/{_id(consumer)}/resume", wire.ResumeRequest(check_names(applied, "applied")), wire.ResumeReply
    )


def chat_body(
    model: str,
    messages: Sequence[Message | Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    sampling: Mapping[str, Any],
) -> bytes:
    """The body of a chat completion; fields of `sampling` are sent as they are."""
    body: dict[str, Any] = {"model": model, "messages": list(messages), **sampling}
    if tools:
        body["tools"] = list(tools)
    return exact_json.encode(body)
