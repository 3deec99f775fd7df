"""The control API as data: each call with its path, body and reply type. The two clients only send them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from agentworld.client import wire
from agentworld.client.wire import API
from agentworld.pool.protocol import DeadLetter, GatewayState, Page, PoolStats
from agentworld.records import (
    Batch,
    BatchSpec,
    Event,
    Exchange,
    Message,
    NewTrajectory,
    Policy,
    Reward,
    Step,
    TerminalStatus,
    Trajectory,
    new_id,
)

T = TypeVar("T")
Order = Literal["oldest", "newest"]


class Call(msgspec.Struct, Generic[T], frozen=True):
    """One request and the type of its reply. `idempotent`: sending it again does no harm, so it is retried."""

    method: str
    path: str
    reply: type[T]
    body: bytes | None = None
    idempotent: bool = True

    def read(self, body: bytes, origin: str) -> T:
        """The reply's record; ConfigError where the body is none, so that the server at `origin` is not ours."""
        try:
            return msgspec.json.decode(body, type=self.reply)
        except msgspec.MsgspecError as error:
            place = self.path.partition("?")[0]
            raise wire.not_agentworld(origin, f"its answer to {place} cannot be read ({error})") from None


def _id(value: str) -> str:
    return quote(value, safe="")


def _query(path: str, **parameters: Any) -> str:
    given = {name: value for name, value in parameters.items() if value is not None and value != ""}
    return f"{path}?{urlencode(given)}" if given else path


def _post(path: str, body: Any, reply: type[T], *, idempotent: bool = True) -> Call[T]:
    return Call("POST", f"{API}{path}", reply, msgspec.json.encode(body), idempotent)


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
    return _post("/steps", {"steps": list(steps)}, wire.StepsReply)


def get_step(step_id: str, include: Sequence[str]) -> Call[Step]:
    """One step."""
    return Call("GET", _query(f"{API}/steps/{_id(step_id)}", include=",".join(include)), Step)


def list_steps(*, include: Sequence[str] = (), **parameters: Any) -> Call[Page[Step]]:
    """One page of steps."""
    return Call("GET", _query(f"{API}/steps", include=",".join(include), **parameters), Page[Step])


def add_rewards(rewards: Sequence[Reward]) -> Call[wire.RewardsReply]:
    """Set rewards."""
    return _post("/rewards", wire.RewardsRequest(list(rewards)), wire.RewardsReply)


def events(after: int, limit: int) -> Call[Page[Event]]:
    """Events after a sequence number."""
    return Call("GET", _query(f"{API}/events", after=after, limit=limit), Page[Event])


def set_policy(policy: Policy) -> Call[Policy]:
    """Publish a policy."""
    return _post("/policy", policy, Policy)


def set_paused(paused: bool) -> Call[GatewayState]:
    """Pause or resume the gateways."""
    return _post(f"/gateway/{'pause' if paused else 'resume'}", {}, GatewayState)


def gateway_state() -> Call[GatewayState]:
    """Policies, and whether the gateways are paused."""
    return Call("GET", f"{API}/policy", GatewayState)


def stats() -> Call[PoolStats]:
    """Counters."""
    return Call("GET", f"{API}/stats", PoolStats)


def lease(spec: BatchSpec, consumer: str) -> Call[Batch]:
    """Lease a batch. Not retried: a lost reply would leave a second batch leased until its time runs out."""
    return _post("/batches/lease", {**msgspec.to_builtins(spec), "consumer": consumer}, Batch, idempotent=False)


def end_lease(action: Literal["ack", "release"], batch_id: str, epoch: int) -> Call[None]:
    """Acknowledge or release."""
    return _post(f"/batches/{_id(batch_id)}/{action}", wire.LeaseAction(epoch), type(None))


def extend(batch_id: str, epoch: int, seconds: float) -> Call[wire.Deadline]:
    """Move a deadline."""
    return _post(f"/batches/{_id(batch_id)}/extend", wire.LeaseExtension(epoch, seconds), wire.Deadline)


def resume(consumer: str, applied: Sequence[str]) -> Call[wire.ResumeReply]:
    """Settle a consumer's leases after its restart."""
    return _post(f"/consumers/{_id(consumer)}/resume", wire.ResumeRequest(list(applied)), wire.ResumeReply)


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
    return msgspec.json.encode(body)
