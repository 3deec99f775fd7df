"""What the rows of dataset versions in memory hold of trajectories, and what becomes of them."""

from __future__ import annotations

from agentworld.pool.dataset_rules import (
    KEPT_BUILDING,
    OWNER_KIND,
    building_owner,
    scrubbed_row,
    without_compared,
)
from agentworld.pool.keeping.records import Pin, Problem
from agentworld.pool.memory.state import State


def pins(state: State) -> list[Pin]:
    """The pins that rows are, of trajectories that are there."""
    return [
        Pin(OWNER_KIND, built.version.version if built.version else building_owner(built.name, number), row_id, at)
        for number, built in state.datasets.items()
        for row_id, at in zip((row.trajectory_id for row in built.rows), built.put_at, strict=True)
        if row_id in state.trajectories
    ]


def drop_broken_off(state: State, *, dry_run: bool) -> int:
    """Drop what began a day ago and was not frozen; returns how many versions that are."""
    before = state.clock() - KEPT_BUILDING
    gone = [number for number, built in state.datasets.items() if not built.version and built.began_at <= before]
    if not dry_run:
        for number in gone:
            del state.datasets[number]
    return len(gone)


def scrub(state: State, trajectory_ids: set[str], step_ids: set[str]) -> None:
    """Leave of the rows of deleted trajectories what says nothing of what they held; what is not frozen loses them."""
    gone = trajectory_ids | step_ids
    for number, built in list(state.datasets.items()):
        if built.version is None:
            if any(row.trajectory_id in trajectory_ids for row in built.rows):
                del state.datasets[number]
            continue
        built.rows = [
            scrubbed_row(row) if row.trajectory_id in trajectory_ids else without_compared(row, gone)
            for row in built.rows
        ]


def problems(state: State) -> list[Problem]:
    """Rows that name what is neither there nor deleted on request, and versions with other rows than they count."""
    hint = "This is a fault of the store: report it"
    found = []
    for built in state.datasets.values():
        if built.version is not None and built.version.rows != len(built.rows):
            message = f"the manifest counts {built.version.rows} rows, {len(built.rows)} are there"
            found.append(Problem("count", "datasets", built.version.version, message, hint))
        for row in built.rows:
            if row.trajectory_id in state.trajectories or ("trajectory", row.trajectory_id) in state.tombstones:
                continue
            message = f"trajectory {row.trajectory_id} is neither there nor deleted on request"
            found.append(Problem("reference", "dataset_rows", f"{built.name} row {row.position}", message, hint))
    return found
