"""Freezing a selection: what is selected is divided, read step by step, digested, and put into the pool as a version.

Two passes: the first sees which trajectories there are and what belongs together, the second reads them in the order of
their ids. What the first finds stands in a temporary file, so that memory holds some 100 bytes of each trajectory. What
changes in between is as the second finds it; what is no longer selected then is left out.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from agentworld.curation.datasets.building import Builder
from agentworld.curation.datasets.chosen import LONGEST_WHERE, Chosen
from agentworld.curation.datasets.digests import manifest_digest
from agentworld.curation.datasets.dividing import Divided, divide_selection
from agentworld.curation.datasets.results import fractions_missed
from agentworld.curation.datasets.scratch import Scratch
from agentworld.curation.datasets.splits import check_splits
from agentworld.errors import AgentWorldError, ConflictError, InvalidRequestError, NotFoundError, QueryError
from agentworld.pool.dataset_rules import check_dataset_name
from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.protocol import Page, Pool
from agentworld.query import parse
from agentworld.records import DatasetVersion, PolicyNote, Selection, Step, Trajectory, check_id

MOST_NOTE = 10_000
MOST_PARENTS = 32
MOST_BY = 200
_TRIES = 3  # where something is deleted on request meanwhile


def create_dataset(
    pool: Pool,
    name: str,
    selection: Selection | None = None,
    *,
    parents: Sequence[str] = (),
    note: str | None = None,
    created_by: str | None = None,
    progress: Progress = no_progress,
    say: Callable[[str], None] = lambda line: None,
) -> DatasetVersion:
    """Freeze what `selection` selects now as a version of the dataset `name`; where the same version is there already,
    that one comes back.

    `parents`: versions that this one goes on from, by any of their names; what they have divided stays in its split.
    `say` gets lines for people: how far the fractions were missed, and what was left out. InvalidRequestError where
    nothing is selected, with what there is instead, and where a parent has rows in a split that this one has not.
    Broken off, nothing stays.
    """
    selection = check_selection(Selection() if selection is None else selection)
    check_dataset_name(name)
    if note is not None and (not isinstance(note, str) or len(note) > MOST_NOTE):
        raise InvalidRequestError(f"a note is a text of up to {MOST_NOTE:,} characters", path="note")
    if isinstance(parents, str) or len(parents) > MOST_PARENTS:
        raise InvalidRequestError(f"parents is a list of up to {MOST_PARENTS} versions", path="parents")
    if created_by is not None and (not isinstance(created_by, str) or len(created_by) > MOST_BY):
        raise InvalidRequestError(f"created_by is a name of up to {MOST_BY} characters", path="created_by")
    manifests = [pool.get_dataset(parent) for parent in parents]
    _check_parents(manifests, selection)
    for left in reversed(range(_TRIES)):
        lines: list[str] = []
        try:
            made = _create(pool, name, selection, manifests, note, created_by, progress, lines.append)
        except (ConflictError, InvalidRequestError, NotFoundError) as error:
            if not left or not _is_of_deletion(error):
                raise
            say("something was deleted on request while this was read, so it was begun again")
            continue
        break
    for line in lines:
        say(line)
    return made


def _create(
    pool: Pool,
    name: str,
    selection: Selection,
    manifests: Sequence[DatasetVersion],
    note: str | None,
    created_by: str | None,
    progress: Progress,
    say: Callable[[str], None],
) -> DatasetVersion:
    with Scratch() as scratch:
        divided = divide_selection(pool, selection, manifests, scratch, progress)
        if not divided.count:
            raise _empty(pool, selection)
        return _build(
            pool, name, selection, divided, [one.version for one in manifests], note, created_by, progress, say
        )


def _build(
    pool: Pool,
    name: str,
    selection: Selection,
    divided: Divided,
    parents: list[str],
    note: str | None,
    created_by: str | None,
    progress: Progress,
    say: Callable[[str], None],
) -> DatasetVersion:
    building = pool.begin_dataset(name)
    try:
        builder = Builder(pool, selection, building, divided, progress)
        builder.build()
        if not builder.rows:
            raise InvalidRequestError(
                f"none of the {divided.count:,} trajectories that were selected has a step that could be "
                "taken: all of them are excluded, or were changed meanwhile",
                path="selection",
                hint="`agentworld curate explain ID` says of a step why it is excluded",
            )
        version = _manifest(pool, name, selection, builder, parents, note, created_by)
        for line in (*_about(divided, builder), *fractions_missed(version)):
            say(line)
        return pool.freeze_dataset(building, version)
    except BaseException:
        with contextlib.suppress(AgentWorldError):  # Then a collection takes it, a day later.
            pool.drop_building(building)
        raise


def _check_parents(parents: Sequence[DatasetVersion], selection: Selection) -> None:
    """What a parent held out under another name would be trained on without a word."""
    for parent in parents:
        lost = [name for name, one in parent.splits.items() if one.rows and name not in selection.splits.fractions]
        if lost:
            raise InvalidRequestError(
                f"{parent.version} has rows in {', '.join(lost)}, which this version has not "
                f"({', '.join(selection.splits.fractions)}), so that they would go anywhere",
                path="parents",
                hint="Name the parent's splits in the fractions; their rows go there whatever the share is",
            )


def _is_of_deletion(error: AgentWorldError) -> bool:
    """Whether what was being built went with a trajectory of it, or rows of it did, so that others are counted."""
    path = error.path or ""
    return path in ("building", "version.rows") or (path.startswith("rows[") and path.endswith(".position"))


def check_selection(selection: Selection) -> Selection:
    """The same, where it can be meant; QueryError names the position of what cannot be read."""
    if not isinstance(selection, Selection):
        raise InvalidRequestError(f"this must be a Selection, not {type(selection).__name__}", path="selection")
    try:
        msgspec.convert(msgspec.to_builtins(selection), Selection)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        raise InvalidRequestError(message, path=f"selection{where.rstrip('`')}") from None
    if selection.channel is not None:
        check_id(selection.channel, "channel")
    if selection.where is not None:
        parse(selection.where, "steps" if selection.unit == "step" else "trajectories")
        if len(selection.where) > LONGEST_WHERE:
            raise QueryError(
                f"the expression has {len(selection.where)} characters, at most {LONGEST_WHERE} are taken", path="where"
            )
    check_splits(selection.splits)
    return selection


def _about(divided: Divided, builder: Builder) -> Iterator[str]:
    largest, rows = divided.division.largest, divided.count
    if len(divided.splits.fractions) > 1 and largest > max(1, rows // 4):
        hint = ""
        if divided.splits.near_duplicates is not None:
            hint = f" (texts that are alike to {divided.splits.near_duplicates:g} or more are kept together)"
        yield f"{largest:,} of {rows:,} trajectories are in one cluster, which cannot be divided{hint}"
    if divided.division.torn:
        yield (
            f"{divided.division.torn:,} rows of parents change their split, as they are kept together with rows that "
            "a parent has in another one: all go into the one of these with the least share"
        )
    if builder.gone:
        yield f"{builder.gone:,} trajectories were changed while this was read, and are no longer selected"
    if builder.without_steps:
        yield f"{builder.without_steps:,} trajectories were left out, as none of their steps can be taken"


def _manifest(
    pool: Pool,
    name: str,
    selection: Selection,
    builder: Builder,
    parents: list[str],
    note: str | None,
    created_by: str | None,
) -> DatasetVersion:
    from agentworld import __version__ as code_version

    digest = builder.digest.hexdigest()
    version = DatasetVersion(
        version=f"{name}@{digest}",
        name=name,
        digest=digest,
        selection=selection,
        rows=builder.rows,
        steps=sum(one.steps for one in builder.splits.values()),
        splits=builder.splits,
        policies=[
            PolicyNote(channel=one.policy.channel, name=one.policy.name, digest=one.version)
            for one in pool.curation(selection.channel)
        ],
        parents=parents,
        code_version=code_version,
        created_at=round(time.time(), 3),
        created_by=created_by,
        note=note,
    )
    return msgspec.structs.replace(version, manifest_digest=manifest_digest(version))


def _empty(pool: Pool, selection: Selection) -> InvalidRequestError:
    """Why nothing was selected."""
    chosen = Chosen(selection)
    stats = pool.stats()
    within = "" if selection.channel is None else f" in the channel {selection.channel!r}"
    if selection.channel is None:
        count = sum(stats.trajectories.values())
    else:
        count = stats.channels[selection.channel].trajectories if selection.channel in stats.channels else 0
    if not count:
        there = ", ".join(sorted(stats.channels)) or "none"
        return InvalidRequestError(
            f"there are no trajectories{within}", path="channel", hint=f"Channels that have some: {there}"
        )
    found = _readiness(pool, selection, chosen)
    unit = "steps" if selection.unit == "step" else "trajectories"
    if not found:
        return InvalidRequestError(
            f"none of the {count:,} trajectories{within} is selected: `where` holds for no {unit}",
            path="where",
            hint="`agentworld trajectories list --where` shows what a query finds",
        )
    states = ", ".join(f"{number:,} {state}" for state, number in sorted(found.items()))
    hint = "`agentworld curate explain ID` says what keeps one back"
    if found.get("complete") and not selection.unrewarded:
        hint = "Give rewards, or take those without a reward too (--unrewarded)"
    return InvalidRequestError(
        f"nothing can be taken of {count:,} trajectories{within}; of the {unit} that `where` holds for: {states}",
        path="selection",
        hint=hint,
    )


def _readiness(pool: Pool, selection: Selection, chosen: Chosen) -> dict[str, int]:
    """How many of what `where` holds for are open, complete, excluded, ...; of the first thousands."""
    found: dict[str, int] = {}
    cursor: str | None = None
    for _ in range(20):
        page: Page[Step] | Page[Trajectory]
        if selection.unit == "step":
            page = pool.list_steps(where=selection.where, channel=selection.channel, cursor=cursor, limit=500)
        else:
            page = pool.list_trajectories(where=selection.where, channel=selection.channel, cursor=cursor, limit=500)
        for one in page.items:
            state: str = one.readiness
            if isinstance(one, Trajectory) and state in chosen.taken and not one.step_count:
                state = "without steps"
            found[state] = found.get(state, 0) + 1
        cursor = page.next_cursor
        if cursor is None:
            break
    return found
