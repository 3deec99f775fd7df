"""Where a row comes from: back over its trajectory and steps to the calls of the agent, and what let it in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from agentworld.curation.datasets.provenance import exported_provenance
from agentworld.curation.datasets.reading import Deleted, rows_of, steps_of, whole_trajectory
from agentworld.curation.datasets.results import RewardNote, RowOrigin, StepOrigin
from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.pool.protocol import Pool
from agentworld.records import DatasetRow, DatasetVersion, Exchange, Step

_TARGETS = 1_000
_CALLS = 1_000


def trace_row(
    pool: Pool,
    version: str | None = None,
    *,
    trajectory_id: str | None = None,
    step_id: str | None = None,
    exported: Mapping[str, Any] | None = None,
) -> RowOrigin:
    """Where the row of a trajectory, of a step, or of an export comes from: of exactly one of these.

    `version` may be left out for rows of exports, which name it. NotFoundError where the version has no such row.
    """
    if sum(one is not None for one in (trajectory_id, step_id, exported)) != 1:
        raise InvalidRequestError("exactly one of trajectory_id, step_id and an exported row is needed", path="row")
    only: list[str] | None = None
    if exported is not None:
        said = exported_provenance(exported)
        version, trajectory_id, only = version or said.version, said.trajectory_id, said.step_ids or None
    if version is None:
        raise InvalidRequestError("the version is missing", path="version")
    manifest = pool.get_dataset(version)
    if step_id is not None:
        only = [step_id]
        trajectory_id = _trajectory_of(pool, manifest, step_id)
    row = _find(pool, manifest, trajectory_id)
    if row is None or (only and not set(only) & {step.step_id for step in row.steps}):
        what = f"step {step_id!r}" if step_id is not None else f"trajectory {trajectory_id!r}"
        raise NotFoundError(f"{manifest.version} has no {what}", path="row")
    return _origin(pool, manifest, row, only)


def _trajectory_of(pool: Pool, manifest: DatasetVersion, step_id: str) -> str | None:
    try:
        return pool.get_step(step_id, include=()).trajectory_id
    except NotFoundError:
        # Its trajectory may have been deleted; the row is there still.
        found = (row for row in rows_of(pool, manifest.version) if step_id in (step.step_id for step in row.steps))
        return next((row.trajectory_id for row in found), None)


def _find(pool: Pool, manifest: DatasetVersion, trajectory_id: str | None) -> DatasetRow | None:
    """The row of a trajectory: rows are in the order of these ids, so it is searched for by halves."""
    if trajectory_id is None:
        return None
    low, high = 0, manifest.rows
    while low < high:
        middle = (low + high) // 2
        found = pool.dataset_rows(manifest.version, after=middle - 1, limit=1)
        if not found:
            high = middle
        elif found[0].trajectory_id == trajectory_id:
            return found[0]
        elif found[0].trajectory_id < trajectory_id:
            low = middle + 1
        else:
            high = middle
    return None


def _origin(pool: Pool, manifest: DatasetVersion, row: DatasetRow, only: list[str] | None) -> RowOrigin:
    origin = RowOrigin(
        version=manifest.version,
        position=row.position,
        split=row.split,
        digest=row.digest,
        trajectory_id=row.trajectory_id,
        task_key=row.task_key,
        cluster=row.cluster,
        policies=manifest.policies,
    )
    named = [step for step in row.steps if only is None or step.step_id in only]
    record = whole_trajectory(pool, row.trajectory_id)
    if record is None:
        tomb = Deleted(pool).find(row.trajectory_id)
        return msgspec.structs.replace(
            origin,
            state="deleted" if tomb is not None else "missing",
            reason=tomb.reason if tomb is not None else None,
            deleted_at=tomb.at if tomb is not None else None,
            steps=[StepOrigin(step_id=step.step_id, digest=step.digest) for step in named],
        )
    digests = {step.step_id: step.digest for step in named}
    calls = {call.exchange_id: call for call in pool.list_exchanges(row.trajectory_id, limit=_CALLS)}
    steps = [
        _step(step, digests[step.step_id], calls.get(step.exchange_id or ""))
        for step in steps_of(pool, row.trajectory_id, include=())
        if step.step_id in digests
    ]
    imported = record.metadata.get("import")
    return msgspec.structs.replace(
        origin,
        task=record.task,
        group_id=record.group_id,
        agent=record.agent,
        channel=record.channel,
        status=record.status,
        created_at=record.created_at,
        completed_at=record.completed_at,
        imported=imported if isinstance(imported, dict) else None,
        steps=steps,
        rewards=list(_rewards(pool, row.trajectory_id, list(digests))),
        decisions=[
            one
            for one in pool.decisions(trajectory_id=row.trajectory_id)
            if one.step_id is None or one.step_id in digests
        ],
        evaluations=pool.list_evaluations(target="trajectory", target_id=row.trajectory_id).items,
    )


def _step(step: Step, digest: str, call: Exchange | None) -> StepOrigin:
    return StepOrigin(
        step_id=step.step_id,
        digest=digest,
        exchange_id=step.exchange_id,
        dialect=step.dialect if call is None else call.dialect,
        model=step.model if call is None else call.model,
        requested_model=step.requested_model if call is None else call.requested_model,
        policy=step.policy,
        sampling=step.sampling,
        token_source=step.token_source,
        created_at=step.created_at if call is None else call.created_at,
        latency_ms=step.latency_ms if call is None or call.latency_ms is None else call.latency_ms,
        retry_count=0 if call is None else call.retry_count,
    )


def _rewards(pool: Pool, trajectory_id: str, step_ids: list[str]) -> Iterator[RewardNote]:
    said = pool.rewards_on(trajectory_ids=[trajectory_id])
    for begin in range(0, len(step_ids), _TARGETS):
        said += pool.rewards_on(step_ids=step_ids[begin : begin + _TARGETS])
    for one in said:
        yield RewardNote(name=one.name, value=one.value, source=one.source, at=one.created_at, step_id=one.step_id)
