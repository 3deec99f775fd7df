"""What a credit method would give to each step of a trajectory, among its group as that is now."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get
from litestar.datastructures import State
from litestar.params import FromQuery, QueryParameter

from agentworld.api.access import reach
from agentworld.client.wire import API
from agentworld.credit.batches import apply_credit
from agentworld.credit.reading import CreditSpec
from agentworld.credit.registry import credit_names
from agentworld.errors import InvalidRequestError
from agentworld.pool import group_rules
from agentworld.pool.protocol import Pool
from agentworld.records import Batch, BatchItem, BatchTrajectory, Step, Trajectory

MOST_MEMBERS = 64
MOST_STEPS = 4_000
MOST_IDS = 4_000_000
_PAGE = 200

Method = Annotated[str, QueryParameter(description="A credit method by name")]
StepReward = Annotated[str | None, QueryParameter(description="Name of a reward on steps; a step without it counts 0")]


class StepCredit(msgspec.Struct, frozen=True):
    """`credit`: the step's advantage; where a method tells tokens apart, their mean. `tokens`: that it would train."""

    step_id: str
    credit: float
    tokens: int


class TrajectoryCredit(msgspec.Struct, frozen=True, kw_only=True):
    """`members`: trajectories that were compared. `methods`: the names that are known here."""

    trajectory_id: str
    method: str
    members: int
    steps: list[StepCredit]
    methods: list[str]


@get(f"{API}/credit", sync_to_thread=True)
def credit(
    state: State, trajectory_id: FromQuery[str], method: Method = "group_relative", step_reward: StepReward = None
) -> TrajectoryCredit:
    """The credit of each step that may be served, by a method among the trajectory's group as it stands now. A batch
    that is leased later can have other members. Groups of more than 64 trajectories or 4,000 steps are refused.
    """
    return trajectory_credit(
        reach(state), trajectory_id, CreditSpec(method=method, step_reward=step_reward, missing="zero")
    )


def trajectory_credit(pool: Pool, trajectory_id: str, spec: CreditSpec) -> TrajectoryCredit:
    """NotFoundError without the trajectory; InvalidRequestError where an input of the method is missing."""
    spec.rule()  # So that an unknown method is told before anything is read.
    own = pool.get_trajectory(trajectory_id)
    members = [own] if own.group_id is None else _members(pool, own)
    counted = sum(member.step_count for member in members)
    ids = sum(member.prompt_tokens + member.response_tokens for member in members)
    if counted > MOST_STEPS or ids > MOST_IDS:
        raise InvalidRequestError(
            f"its group has {counted} steps with {ids} tokens, at most {MOST_STEPS} and {MOST_IDS} are credited here",
            path="?trajectory_id",
            hint="Credit a batch in Python: agentworld.credit.apply_credit",
        )
    rows = [BatchTrajectory(trajectory=member, steps=_steps(pool, member)) for member in members]
    item = BatchItem(key=own.group_id or trajectory_id, trajectories=[row for row in rows if row.steps])
    batch = Batch(batch_id="", consumer="", epoch=0, deadline=0.0, unit="group", method=spec.method, items=[item])
    found = apply_credit(batch, spec)
    mine = {step.step_id for row in rows if row.trajectory.trajectory_id == trajectory_id for step in row.steps}
    steps = [
        StepCredit(name, float(found.credits[index]), int(found.mask[found.tokens_of(index)].sum()))
        for index, name in enumerate(found.step_ids)
        if name in mine
    ]
    return TrajectoryCredit(
        trajectory_id=trajectory_id,
        method=spec.method,
        members=len(item.trajectories),
        steps=steps,
        methods=credit_names(),
    )


def _members(pool: Pool, own: Trajectory) -> list[Trajectory]:
    """The trajectory, and those of its group that consumers may get."""
    page = pool.list_trajectories(group_id=own.group_id, limit=MOST_MEMBERS + 1)
    if len(page.items) > MOST_MEMBERS:
        raise InvalidRequestError(f"its group has more than {MOST_MEMBERS} trajectories", path="?trajectory_id")
    return [one for one in page.items if one.trajectory_id == own.trajectory_id or group_rules.serves(one.readiness)]


def _steps(pool: Pool, member: Trajectory) -> list[Step]:
    """Its steps that may be served, with their ids."""
    found: list[Step] = []
    cursor = None
    while True:
        page = pool.list_steps(
            trajectory_id=member.trajectory_id, include=("tokens", "messages"), cursor=cursor, limit=_PAGE
        )
        found += [step for step in page.items if step.excluded_reason is None]
        if (cursor := page.next_cursor) is None:
            return found


ROUTES = [credit]
