"""The pool as a key sees it that is bound to one channel or one trajectory.

It has those methods alone that such a key may use; what is about the whole pool is refused by name. What a bound key
may not see is, for it, not there; what it may not write is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NoReturn

import msgspec

from agentworld.api.bound_curation import place, whole
from agentworld.api.bound_datasets import BoundDatasets
from agentworld.errors import ForbiddenError, NotFoundError
from agentworld.gateway.access import Grant
from agentworld.pool.keys import KeyMethods
from agentworld.pool.media import Medium
from agentworld.pool.protocol import AppendResult, GatewayState, Page, Pool, Rejected, SignalsResult
from agentworld.pool.signal_rules import check_few
from agentworld.query import Explanation, Subject
from agentworld.records import (
    Annotation,
    Batch,
    BatchRecord,
    BatchSpec,
    BatchState,
    Event,
    Exchange,
    Feedback,
    FeedbackKind,
    Group,
    NewTrajectory,
    Reward,
    Step,
    TerminalStatus,
    Trajectory,
)

DEFAULT_CHANNEL = "train"
"""What a record says that says nothing of its channel; where a bound key writes, its own stands in its place."""


class BoundPool(BoundDatasets):
    """See Pool."""

    def __init__(self, pool: Pool, grant: Grant) -> None:
        self._pool = pool
        self._grant = grant
        self.poll_seconds = pool.poll_seconds

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or not (hasattr(Pool, name) or hasattr(KeyMethods, name)):
            raise AttributeError(name)
        raise whole(self._grant, "the whole pool")

    # --- trajectories -----------------------------------------------------------------------------------------
    def create_trajectory(self, new: NewTrajectory, *, own_channel: str | None = None) -> Trajectory:
        """See Pool."""
        channel = self._channel(new.channel)
        self._grant.check_trajectory(new.trajectory_id)
        sent = msgspec.structs.replace(new, channel=channel)
        return self._pool.create_trajectory(sent, own_channel=self._own(own_channel))

    def complete_trajectory(
        self,
        trajectory_id: str,
        status: TerminalStatus,
        reward: float | None = None,
        *,
        own_channel: str | None = None,
    ) -> Trajectory:
        """See Pool."""
        self._grant.check_trajectory(trajectory_id)
        own = self._own(own_channel)
        return self._pool.complete_trajectory(trajectory_id, status, reward, own_channel=own)

    def get_trajectory(self, trajectory_id: str) -> Trajectory:
        """See Pool."""
        found = self._pool.get_trajectory(trajectory_id)
        if not self._grant.covers(found):
            raise NotFoundError(f"no trajectory {trajectory_id!r}", path="trajectory_id")
        return found

    def list_trajectories(
        self, *, trajectory_id: str | None = None, channel: str | None = None, **filters: Any
    ) -> Page[Trajectory]:
        """See Pool."""
        trajectory_id, channel = self._within(trajectory_id, channel)
        return self._pool.list_trajectories(trajectory_id=trajectory_id, channel=channel, **filters)

    def list_exchanges(
        self, trajectory_id: str, *, order: Literal["oldest", "newest"] = "oldest", limit: int = 1000
    ) -> list[Exchange]:
        """See Pool."""
        self.get_trajectory(trajectory_id)
        return [
            each
            for each in self._pool.list_exchanges(trajectory_id, order=order, limit=limit)
            if self._grant.channel in (None, each.channel)
        ]

    # --- steps ------------------------------------------------------------------------------------------------
    def append_steps(self, steps: Sequence[Step | Rejected], *, own_channel: str | None = None) -> list[AppendResult]:
        """See Pool."""
        sent: list[Step | Rejected] = []
        for step in steps:
            if isinstance(step, Step):
                self._grant.check_trajectory(step.trajectory_id)
                step = msgspec.structs.replace(step, channel=self._channel(step.channel))
            sent.append(step)
        return self._pool.append_steps(sent, own_channel=self._own(own_channel))

    def get_step(self, step_id: str, *, include: Sequence[str] = ("tokens", "messages", "logprobs")) -> Step:
        """See Pool."""
        found = self._pool.get_step(step_id, include=include)
        if not self._grant.covers(found):
            raise NotFoundError(f"no step {step_id!r}", path="step_id")
        return found

    def list_steps(self, *, trajectory_id: str | None = None, channel: str | None = None, **filters: Any) -> Page[Step]:
        """See Pool."""
        trajectory_id, channel = self._within(trajectory_id, channel)
        return self._pool.list_steps(trajectory_id=trajectory_id, channel=channel, **filters)

    def explain(self, where: str, subject: Subject = "trajectories") -> Explanation:
        """See Pool."""
        return self._pool.explain(where, subject)

    # --- signals ----------------------------------------------------------------------------------------------
    def add_signals(
        self, sent: Sequence[Reward | Feedback | Annotation], *, own_channel: str | None = None
    ) -> SignalsResult:
        """See Pool. A signal for a step, or in another's channel, that is not there yet is refused: nobody can say
        whose it will be.
        """
        for signal in sent:
            other = signal.other_id if isinstance(signal, Feedback) else None
            if signal.step_id is not None:
                self._check_step(signal.step_id)
            elif other is not None:
                self._grant.check_trajectory(other)
            if signal.trajectory_id is not None:
                self._grant.check_trajectory(signal.trajectory_id)
            if signal.step_id is not None and other is not None:
                self._check_step(other)
        return self._pool.add_signals(sent, own_channel=self._own(own_channel))

    def list_feedback(
        self,
        *,
        trajectory_id: str | None = None,
        step_id: str | None = None,
        kind: FeedbackKind | None = None,
        source: str | None = None,
        name: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Feedback]:
        """See Pool. Of a trajectory or a step only."""
        if trajectory_id is None and step_id is None:
            trajectory_id = self._grant.trajectory_id
        self._check_read(trajectory_id, (step_id,) if step_id is not None else ())
        return self._pool.list_feedback(
            trajectory_id=trajectory_id,
            step_id=step_id,
            kind=kind,
            source=source,
            name=name,
            cursor=cursor,
            limit=limit,
        )

    def rewards_on(self, *, trajectory_ids: Sequence[str] = (), step_ids: Sequence[str] = ()) -> list[Reward]:
        """See Pool."""
        for trajectory_id in check_few(trajectory_ids, "trajectory_ids"):
            self._check_read(trajectory_id, ())
        if named := check_few(step_ids, "step_ids"):
            self._check_read(None, named)
        return self._pool.rewards_on(trajectory_ids=trajectory_ids, step_ids=step_ids)

    def get_annotations(
        self,
        *,
        step_ids: Sequence[str] | None = None,
        trajectory_id: str | None = None,
        names: Sequence[str] | None = None,
    ) -> list[Annotation]:
        """See Pool."""
        self._check_read(trajectory_id, step_ids or ())
        return self._pool.get_annotations(step_ids=step_ids, trajectory_id=trajectory_id, names=names)

    # --- groups, events, state --------------------------------------------------------------------------------
    def get_group(self, group_id: str) -> Group:
        """See Pool."""
        found = self._pool.get_group(group_id)
        if self._grant.trajectory_id is not None or found.channel != self._grant.channel:
            raise NotFoundError(f"no group {group_id!r}", path="group_id")
        return found

    def list_groups(
        self,
        *,
        state: Literal["open", "closed"] | None = None,
        channel: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Group]:
        """See Pool."""
        if self._grant.trajectory_id is not None:
            return Page([])
        _, channel = self._within(None, channel)
        return self._pool.list_groups(state=state, channel=channel, cursor=cursor, limit=limit)

    def events(
        self, after: int = 0, limit: int = 1000, *, trajectory_id: str | None = None, channel: str | None = None
    ) -> list[Event]:
        """See Pool."""
        trajectory_id, channel = self._within(trajectory_id, channel)
        return self._pool.events(after, limit, trajectory_id=trajectory_id, channel=channel)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See Pool."""
        return self._pool.watch(wake)

    def gateway_state(self) -> GatewayState:
        """See Pool."""
        return self._pool.gateway_state()

    # --- media ------------------------------------------------------------------------------------------------
    def put_media(self, data: bytes, media_type: str) -> str:
        """See Pool."""
        return self._pool.put_media(data, media_type)

    def get_media(self, digest: str) -> Medium:
        """See Pool. Who knows a digest has the blob, or has read a message that shows it."""
        return self._pool.get_media(digest)

    # --- consuming --------------------------------------------------------------------------------------------
    def lease(self, spec: BatchSpec, consumer: str) -> Batch | None:
        """See Pool."""
        self._grant.check_channel(spec.channel, "the batch")
        return self._pool.lease(spec, consumer)

    def ack(self, batch_id: str, epoch: int) -> None:
        """See Pool."""
        self.get_batch(batch_id)
        self._pool.ack(batch_id, epoch)

    def release(self, batch_id: str, epoch: int) -> None:
        """See Pool."""
        self.get_batch(batch_id)
        self._pool.release(batch_id, epoch)

    def extend(self, batch_id: str, epoch: int, seconds: float) -> float:
        """See Pool."""
        self.get_batch(batch_id)
        return self._pool.extend(batch_id, epoch, seconds)

    def resume(self, consumer: str, applied: Sequence[str]) -> dict[str, list[str]]:
        """See Pool. Of a consumer whose batches are all of this channel."""
        cursor = None
        while True:
            page = self._pool.list_batches(consumer=consumer, state="leased", cursor=cursor, limit=1000)
            for batch in page.items:
                self._grant.check_channel(batch.channel, f"a batch of {consumer}")
            if (cursor := page.next_cursor) is None:
                break
        for batch_id in applied:
            try:
                self._grant.check_channel(self._pool.get_batch(batch_id).channel, f"the batch {batch_id}")
            except NotFoundError:
                continue  # The pool says that it is unknown.
        return self._pool.resume(consumer, applied)

    def get_batch(self, batch_id: str) -> BatchRecord:
        """See Pool."""
        found = self._pool.get_batch(batch_id)
        if self._grant.trajectory_id is not None or found.channel != self._grant.channel:
            raise NotFoundError(f"no batch {batch_id!r}", path="batch_id")
        return found

    def list_batches(
        self,
        *,
        consumer: str | None = None,
        state: BatchState | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[BatchRecord]:
        """See Pool. A page can be short, and still have a next_cursor to go on."""
        page = self._pool.list_batches(consumer=consumer, state=state, cursor=cursor, limit=limit)
        bound = self._grant.trajectory_id is not None
        kept = [batch for batch in page.items if batch.channel == self._grant.channel and not bound]
        return msgspec.structs.replace(page, items=kept)

    # --- what is the caller's ---------------------------------------------------------------------------------
    def _channel(self, said: str) -> str:
        """The channel that a record goes to."""
        bound = self._grant.channel
        if bound is None or said == DEFAULT_CHANNEL:
            return bound or said
        self._grant.check_channel(said, "what was sent")
        return said

    def _within(self, trajectory_id: str | None, channel: str | None) -> tuple[str | None, str | None]:
        """The trajectory and the channel that a listing is of."""
        if channel is not None:
            self._grant.check_channel(channel, "what is asked for")
        if trajectory_id is not None:
            self._grant.check_trajectory(trajectory_id)
        return trajectory_id or self._grant.trajectory_id, channel or self._grant.channel

    def _own(self, channel: str | None) -> str | None:
        """The only channel that may be written to; the pool looks at it in the transaction that writes."""
        if channel is not None:
            self._grant.check_channel(channel, "what is written")
        return self._grant.channel or channel

    def _check_step(self, step_id: str) -> None:
        # A step stays what it is, so this holds until the signal is written.
        try:
            step = self._pool.get_step(step_id, include=())
        except NotFoundError:
            raise _unknown(f"the step {step_id[:128]!r}") from None
        self._grant.check_trajectory(step.trajectory_id)
        self._grant.check_channel(step.channel, f"the step {step_id!r}")

    def _check_read(self, trajectory_id: str | None, step_ids: Iterable[str]) -> None:
        """NotFoundError where one of what is asked for is not the caller's."""
        asked = False
        if trajectory_id is not None:
            asked = bool(self.get_trajectory(trajectory_id))
        for step_id in step_ids:
            asked = bool(self.get_step(step_id, include=()))
        if not asked:
            raise ForbiddenError(
                f"this key is for {place(self._grant)} alone", path="trajectory_id", hint="Name a trajectory or a step"
            )


def _unknown(what: str) -> ForbiddenError:
    return ForbiddenError(
        f"{what} is not there yet, so that nobody can say whose it will be",
        hint="Send this after it, or with a key that is bound to no channel and no trajectory",
    )
