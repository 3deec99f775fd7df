"""Sequences of a pool that are merged: of a group, a batch, a dataset version, a trajectory, or whatever matches.

A sequence is a step's prompt and reply. They are read as arrays whose shared beginnings are views of one another, a
page at a time and within a budget: reading stops before it is exceeded, and says at what. Steps that curation excluded
are left out, but for those of a frozen version, which is read as it was frozen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agentworld.curation.datasets.reading import rows_of
from agentworld.errors import InvalidRequestError, NotFoundError
from agentworld.merge.results import MOST_TOKENS, MergeSource, Stopped
from agentworld.merge.tree import TokenTree, build_tree
from agentworld.pool.arrays import StepArrays
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.protocol import Pool
from agentworld.pool.results import Page
from agentworld.records import BatchRecord, Step

STEPS_AT_ONCE = 500
LATEST_BATCHES = 1000
MOST_STEPS = 200_000
MOST_ROWS = 2_000_000


class Budget(NamedTuple):
    """Where reading stops: flat `tokens`, `steps` with ids, and `rows` of the pool that are looked at."""

    tokens: int = MOST_TOKENS
    steps: int = MOST_STEPS
    rows: int = MOST_ROWS


class MergeSequence(NamedTuple):
    """One step's sequence. `unit`: the unit of a batch, the group, or the trajectory of one that is in none, that it is
    of. `step`: without ids and messages; `arrays`: with ids, mask and log-probabilities.
    """

    unit: str
    step: Step
    arrays: StepArrays


class TokenAttributes(NamedTuple):
    """Of each flat token, in the order of a tree's `index`, [N]. `trained`: bool, whether the policy sampled it.
    `logprobs`: float32, NaN where none is on record. `versions`: int64, of the policy that sampled it, -1 where none is
    known or none did.
    """

    trained: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]
    versions: npt.NDArray[np.int64]


@dataclass
class Sequences:
    """What was read. `excluded`: steps left out because curation excluded them; `without_ids`: because they have none;
    `missing`: steps or trajectories that are not there any more. `stopped`: what of the budget was used up, or None
    where all was read.
    """

    source: str
    items: list[MergeSequence] = field(default_factory=list)
    tokens: int = 0
    rows: int = 0
    excluded: int = 0
    without_ids: int = 0
    missing: int = 0
    stopped: Stopped | None = None

    def units(self) -> dict[str, list[int]]:
        """The sequences of each unit, in the order in which units came."""
        found: dict[str, list[int]] = {}
        for place, each in enumerate(self.items):
            found.setdefault(each.unit, []).append(place)
        return found

    def vocabularies(self) -> list[str | None]:
        """Digests of the vocabularies that the ids are of; None for steps that say none."""
        return list(dict.fromkeys(each.step.vocabulary for each in self.items))

    def tree(self, places: Sequence[int] | None = None) -> TokenTree:
        """The token tree of all sequences, or of those at `places`. Ids of two vocabularies share nothing."""
        chosen = self.items if places is None else [self.items[place] for place in places]
        ids = [each.arrays.ids for each in chosen]
        known = {name: number for number, name in enumerate(dict.fromkeys(each.step.vocabulary for each in chosen))}
        if len(known) < 2:
            return build_tree(ids)
        of_token = [known[each.step.vocabulary] for each in chosen]
        return build_tree(ids, distinct=np.repeat(np.array(of_token), [len(each) for each in ids]))

    def attributes(self, places: Sequence[int] | None = None) -> TokenAttributes:
        """What is known of each flat token, in the order of `tree(places).index`."""
        chosen = self.items if places is None else [self.items[place] for place in places]
        total = sum(len(each.arrays.ids) for each in chosen)
        trained = np.zeros(total, dtype=bool)
        logprobs = np.full(total, np.nan, dtype=np.float32)
        versions = np.full(total, -1, dtype=np.int64)
        at = 0
        for each in chosen:
            begin, end = at + each.arrays.prompt_length, at + len(each.arrays.ids)
            trained[begin:end] = True if each.arrays.mask is None else each.arrays.mask > 0
            if each.arrays.logprobs is not None:
                logprobs[begin:end] = each.arrays.logprobs
            if each.step.policy is not None:
                versions[begin:end] = each.step.policy.version
            for span in each.step.version_spans:
                versions[begin + span.start : end] = span.version
            versions[begin:end][~trained[begin:end]] = -1
            at = end
        return TokenAttributes(trained, logprobs, versions)


def read_sequences(
    pool: Pool,
    source: MergeSource,
    *,
    budget: Budget | None = None,
    ids_of: Pool | None = None,
    progress: Progress = no_progress,
) -> Sequences:
    """Read what `source` names, within the budget. NotFoundError where it is not there.

    `ids_of`: where ids are read from, by the ids of steps that `pool` gave, for a `pool` that shows a part of it only.
    """
    source.check()
    budget = budget or Budget()
    if budget.tokens < 1:
        raise InvalidRequestError(f"at least 1 token is read, not {budget.tokens}", path="max_tokens")
    found = Sequences(source.name())
    arrays_of = ids_of or pool
    for unit, steps in _pages(pool, source, found):
        wanted = [step for step in steps if _is_wanted(step, source, found)]
        sizes = {step.step_id: _size(step) for step in wanted}
        # Chosen by their lengths, so that nothing is read that is over the budget.
        chosen: list[Step] = []
        reserved = found.tokens
        for step in wanted:
            if reserved + sizes[step.step_id] > budget.tokens:
                found.stopped = "tokens"
            elif len(found.items) + len(chosen) >= budget.steps:
                found.stopped = "steps"
            if found.stopped is not None:
                break
            reserved += sizes[step.step_id]
            chosen.append(step)
        _read(arrays_of, unit, chosen, found)
        progress("read", found.tokens, None)
        if found.stopped is None and found.rows >= budget.rows:
            found.stopped = "rows"
        if found.stopped is not None:
            break
    return found


def _size(step: Step) -> int:
    """Tokens to come. Steps that say that they have no ids have lengths by usage: what they do hold is counted then."""
    return 0 if step.token_source == "none" else (step.prompt_length or 0) + (step.response_length or 0)


def _is_wanted(step: Step, source: MergeSource, found: Sequences) -> bool:
    found.rows += 1
    if step.excluded_reason is not None and source.dataset is None:
        found.excluded += 1
        return False
    return True


def _read(pool: Pool, unit: str | None, steps: Sequence[Step], found: Sequences) -> None:
    if not steps:
        return
    arrays = {each.step_id: each for each in pool.sequences(step_ids=[step.step_id for step in steps])}
    for step in steps:
        own = arrays.get(step.step_id)
        if own is None:
            found.without_ids += 1
            continue
        found.tokens += len(own.ids)
        found.items.append(MergeSequence(unit or step.group_id or step.trajectory_id, step, own))


_Pages = Iterator[tuple[str | None, list[Step]]]


def _pages(pool: Pool, source: MergeSource, found: Sequences) -> _Pages:
    """Steps without ids, up to a page at once, with the unit that they are of where it is none of their own."""
    if source.batch is not None or source.consumer is not None:
        yield from _of_batch(pool, _batch(pool, source), found)
    elif source.dataset is not None:
        yield from _of_version(pool, source.dataset, source.split, found)
    else:
        if source.group is not None:
            pool.get_group(source.group)
        if source.trajectory is not None:
            pool.get_trajectory(source.trajectory)
        yield from (
            (None, steps)
            for steps in _listed(
                pool,
                found,
                group_id=source.group,
                trajectory_id=source.trajectory,
                where=source.where,
                channel=source.channel,
            )
        )


def _listed(pool: Pool, found: Sequences, **filters: str | None) -> Iterator[list[Step]]:
    cursor: str | None = None
    while True:
        page: Page[Step] = pool.list_steps(
            trajectory_id=filters.get("trajectory_id"),
            group_id=filters.get("group_id"),
            where=filters.get("where"),
            channel=filters.get("channel"),
            cursor=cursor,
            limit=STEPS_AT_ONCE,
        )
        found.rows += max(0, (page.scanned or 0) - len(page.items))
        yield page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _batch(pool: Pool, source: MergeSource) -> BatchRecord:
    batch_id = source.batch
    if batch_id is None:
        page = pool.list_batches(consumer=source.consumer, limit=1)
        newest = page.items
        if not newest and page.next_cursor is not None:
            # Who may see some of its batches alone sees them among its last.
            newest = pool.list_batches(consumer=source.consumer, cursor=page.next_cursor, limit=LATEST_BATCHES).items
        if not newest:
            raise NotFoundError(
                f"consumer {source.consumer!r} has leased no batch",
                path="consumer",
                hint="Name another; `agentworld pool stats` shows which there are",
            )
        batch_id = newest[0].batch_id
    return pool.get_batch(batch_id)


def _of_batch(pool: Pool, batch: BatchRecord, found: Sequences) -> _Pages:
    """The steps that are served of each unit now: what was excluded since the lease is counted, and left out."""
    for unit in batch.units:
        trajectories: Iterable[str] = unit.trajectories
        group = unit.key.removeprefix("group:")
        if not unit.trajectories and not unit.steps and batch.unit in ("group", "pair"):
            if batch.unit == "pair":
                found.missing += 1
                continue
            trajectories = _members(pool, group)
        for steps in _named_steps(pool, unit.steps, found):
            yield unit.key, steps
        for trajectory_id in trajectories:
            try:
                pool.get_trajectory(trajectory_id)
            except NotFoundError:
                found.missing += 1
                continue
            for steps in _listed(pool, found, trajectory_id=trajectory_id, channel=batch.channel):
                yield unit.key, steps


def _members(pool: Pool, group_id: str) -> Iterator[str]:
    cursor: str | None = None
    while True:
        page = pool.list_trajectories(group_id=group_id, cursor=cursor, limit=STEPS_AT_ONCE)
        yield from (each.trajectory_id for each in page.items)
        cursor = page.next_cursor
        if cursor is None:
            return


def _named_steps(pool: Pool, step_ids: Sequence[str], found: Sequences) -> Iterator[list[Step]]:
    for step_id in step_ids:
        try:
            yield [pool.get_step(step_id, include=())]
        except NotFoundError:
            found.missing += 1


def _of_version(pool: Pool, version: str, split: str | None, found: Sequences) -> _Pages:
    manifest = pool.get_dataset(version)
    if split is not None and split not in manifest.splits:
        raise NotFoundError(
            f"{manifest.version} has no split {split!r}", path="split", hint=f"It has: {', '.join(manifest.splits)}"
        )
    for row in rows_of(pool, manifest.version, split=split):
        wanted: Mapping[str, object] = {frozen.step_id: frozen for frozen in row.steps}
        there = 0
        for steps in _listed(pool, found, trajectory_id=row.trajectory_id):
            own = [step for step in steps if step.step_id in wanted]
            there += len(own)
            yield None, own
        found.missing += len(wanted) - there
