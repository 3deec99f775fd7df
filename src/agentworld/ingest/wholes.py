"""From a run to a trajectory that a pool takes: ids, names and numbers that it has, and where it is from."""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable
from typing import Any, cast

import msgspec

from agentworld.errors import InvalidRequestError
from agentworld.ingest import limits
from agentworld.ingest.examining import Facts, name_of, name_of_session
from agentworld.ingest.run import Run
from agentworld.pool.bounds import MAX_COUNT, MAX_NAME
from agentworld.records import (
    Feedback,
    FeedbackKind,
    Message,
    NewTrajectory,
    Reward,
    Step,
    Usage,
    WholeTrajectory,
    check_depth,
    check_id,
    exact_json,
)

_NAMES = ("agent", "model", "requested_model", "dialect", "vocabulary", "finish_reason")
_names = operator.attrgetter(*_NAMES)
_good_names: set[tuple[str | None, ...]] = set()  # of steps lately, which share them
SOURCE = "import"
PRIMARY = "reward"
PARENT = "parent_trajectory"
"""The key of a sub-agent's metadata that names the trajectory that it belongs to."""
EMPTY = "there is no reply of a model in it, so it is skipped"
_LATEST = 253402300800.0  # the year 10000

Say = Callable[[str, str, bool], None]
"""Called with the place in the run, what is said, and whether something is lost."""


class Placing(msgspec.Struct, kw_only=True, frozen=True):
    """Where imported trajectories go. `reward_name`: which of a run's rewards becomes the primary one; by default the
    one of that name, or the only one that is on the whole run.
    """

    channel: str = "train"
    group_id: str | None = None
    agent: str | None = None
    user: str | None = None
    reward_name: str | None = None


def make_whole(
    format: str, file: str, number: int, run: Run, facts: Facts, placing: Placing, say: Say, occurrence: int = 1
) -> WholeTrajectory:
    """The trajectory. The run is used up: its steps get their pool-wide ids. `number`: of the run in the file, from 0;
    `occurrence`: among the equal ones in it, from 1.
    """
    user = user_of(run, placing, say)
    if is_session(run):
        trajectory_id = name_of_session(format, run, user)
    else:
        trajectory_id = name_of(format, run.native_id, facts.digest, occurrence, user)
    created, completed = _time(run.created_at, "created_at", say), _time(run.completed_at, "completed_at", say)
    group_id = placing.group_id or (None if run.group_id is None else _id(run.group_id))
    keys = _step_keys(run, trajectory_id, say)
    for step in run.steps:
        _place_step(step, trajectory_id, group_id, placing.channel, created, say)
    origin = {"format": format, "file": file, "place": str(number), "digest": facts.digest}
    if run.native_id is not None:
        origin["native_id"] = run.native_id
    elif run.session is not None:
        origin["session"] = run.session
    if run.group_id is not None and group_id != run.group_id:
        origin["group"] = run.group_id
    new = NewTrajectory(
        trajectory_id=trajectory_id,
        group_id=group_id,
        rollout_index=_count(run.rollout_index, "rollout_index", say),
        task=_json(run.task, "task", say) if run.task else None,
        agent=placing.agent or _name(run.agent, "agent", say),
        channel=placing.channel,
        user=user,
        metadata=_metadata(format, run, user, say),
    )
    return WholeTrajectory(
        new=new,
        steps=run.steps,
        status=run.status,
        rewards=_rewards(run, trajectory_id, keys, completed, placing.reward_name, say),
        feedback=_feedback(run, trajectory_id, keys, completed, say),
        origin=origin,
        created_at=created,
        completed_at=completed,
    )


def is_empty(run: Run) -> bool:
    """Whether a run says nothing of a model: no reply, no reward or label, and no ending but that it is finished. Of an
    agent that failed before its first reply, that it failed is worth keeping.
    """
    if run.steps or run.rewards or run.feedback or run.status != "finished":
        return False
    return not any(message.role == "assistant" for message in run.trailing)


def is_session(run: Run) -> bool:
    """Whether a run is known by what it begins with, and by a session where it has one."""
    return run.native_id is None and bool(run.steps) and (run.session is not None or run.grows_as is not None)


def user_of(run: Run, placing: Placing, say: Say) -> str | None:
    """Whose the run is."""
    return placing.user or (_name(run.user, "user", say) or None)


def _step_keys(run: Run, trajectory_id: str, say: Say) -> dict[str, str]:
    """Pool-wide ids by the keys of the run, set on its steps and their parents."""
    keys: dict[str, str] = {}
    for index, step in enumerate(run.steps):
        key = step.step_id
        parent = step.parent_step_id
        if parent is not None and parent not in keys:
            say(f"step {key}", f"no step {parent} comes before it, which it should go on from", False)
            parent = None
        if key in keys:
            say(f"step {key}", "two steps have the same key", False)
            key = f"{key}~{index}"
        step.step_id = keys[key] = _step_id(trajectory_id, key)
        step.parent_step_id = keys[parent] if parent is not None else None
        if step.supersedes is not None:
            step.supersedes = keys.get(step.supersedes)
    return keys


def _step_id(trajectory_id: str, key: str) -> str:
    try:
        return check_id(f"{trajectory_id}.{key}", "step_id")
    except InvalidRequestError:
        return f"{trajectory_id}.x{_short(key)}"


def _id(text: str) -> str:
    """The text where it can be an id, otherwise one that is made of it."""
    try:
        return check_id(text, "id")
    except InvalidRequestError:
        return f"x{_short(text)}"


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()


def _place_step(step: Step, trajectory_id: str, group_id: str | None, channel: str, created: float, say: Say) -> None:
    step.trajectory_id, step.group_id, step.channel = trajectory_id, group_id, channel
    place = f"step {step.step_id}"
    names = _names(step)
    if names not in _good_names:
        for name, value in zip(_NAMES, names, strict=True):
            setattr(step, name, _name(value, f"{place} {name}", say))
        if len(_good_names) > 1000:
            _good_names.clear()
        if names == _names(step):
            _good_names.add(names)
    if step.exchange_id is not None:
        step.exchange_id = _id(f"{trajectory_id}.{step.exchange_id}")
    if step.usage is not None:
        step.usage = _usage(step.usage, place, say)
    step.created_at = _time(step.created_at, f"{place} created_at", say) or created
    if step.latency_ms is not None and not _is_finite(step.latency_ms):
        say(f"{place} latency_ms", "it is no finite number", True)
        step.latency_ms = None
    if step.metadata:
        step.metadata = _objects(step.metadata, f"{place} metadata", say)


def _usage(usage: Usage, place: str, say: Say) -> Usage | None:
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    if isinstance(prompt, int) and isinstance(completion, int) and 0 <= prompt <= MAX_COUNT >= completion >= 0:
        return usage
    say(f"{place} usage", "its counts are out of range", True)
    return None


def _name(value: str | None, place: str, say: Say) -> str | None:
    """A name that a pool takes."""
    if value is None:
        return None
    cleaned = "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in value)[:MAX_NAME]
    if cleaned != value:
        say(place, f"the name is changed: it has over {MAX_NAME} characters, or some that no name can hold", True)
    return cleaned


def _is_finite(value: object) -> bool:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:
        return False


def _time(value: float, place: str, say: Say) -> float:
    if value.__class__ is float and 0 <= value < _LATEST:
        return value
    if _is_finite(value) and 0 <= value < _LATEST:
        return float(value)
    say(place, "it is no time", True)
    return 0.0


def _count(value: int | None, place: str, say: Say) -> int | None:
    if value is None or (isinstance(value, int) and 0 <= value <= MAX_COUNT):
        return value
    say(place, "it is out of range", True)
    return None


def _json(value: Any, place: str, say: Say) -> Any:
    try:
        check_depth(value, place)
    except InvalidRequestError as error:
        say(place, error.message, True)
        return None
    return value


def _objects(values: dict[str, Any], place: str, say: Say) -> dict[str, Any]:
    """The values that a pool takes; each is left out alone. One level of depth is the object's own."""
    try:
        check_depth(values, place)
    except InvalidRequestError:
        kept = {}
        for name, value in values.items():
            try:
                check_depth([value], place)
            except InvalidRequestError as error:
                say(f"{place}.{name}", error.message, True)
            else:
                kept[name] = value
        return kept
    return values


def _metadata(format: str, run: Run, user: str | None, say: Say) -> dict[str, Any]:
    metadata = dict(_objects(run.metadata, "metadata", say))
    if SOURCE in metadata:  # the loader's own
        metadata["import_of_file"] = metadata.pop(SOURCE)
    if run.trailing:
        metadata["trailing"] = msgspec.to_builtins(_trailing(run, say))
    if run.parent_run is not None:
        metadata["parent_run"] = run.parent_run
        metadata[PARENT] = name_of(format, run.parent_run, "", 1, user)
    return metadata


def _trailing(run: Run, say: Say) -> list[Message]:
    """The messages that no step has, as far as they are not too large together."""
    replies = sum(message.role == "assistant" for message in run.trailing)
    shown = [len(step.prompt_messages or ()) for step in run.steps]
    # What formats count is about this, with the prompt of the first of these replies.
    if replies and sum(shown) + sum(shown[-1:]) + len(run.trailing) > limits.MAX_PROMPTS // 2:
        say("$", f"the prompts of the run grow too large together: {replies} replies are kept as messages alone", True)
    kept = size = 0
    for message in run.trailing:
        size += len(exact_json.encode(message))
        if size > limits.MAX_TRAILING:
            lost = len(run.trailing) - kept
            why = f"{lost} messages after the last step are not kept: they are larger than {limits.MAX_TRAILING} bytes"
            say("$", why, True)
            break
        kept += 1
    return run.trailing[:kept]


def _rewards(
    run: Run, trajectory_id: str, keys: dict[str, str], at: float, chosen: str | None, say: Say
) -> list[Reward]:
    rewards: list[Reward] = []
    whole: dict[str, Reward] = {}
    for reward in run.rewards:
        place = f"reward {reward.name}"
        if not _is_finite(reward.value):
            say(place, "its value is no finite number", True)
            continue
        step_id = _target(reward.step, keys, place, say)
        made = Reward(
            value=float(reward.value),
            trajectory_id=trajectory_id,
            step_id=step_id,
            name=_name(reward.name, place, say) or PRIMARY,
            source=SOURCE,
            details=_json(reward.details, f"{place} details", say) if reward.details else None,
            created_at=at,
        )
        rewards.append(made)
        if step_id is None:
            whole[made.name] = made
    primary = chosen or (next(iter(whole)) if len(whole) == 1 else PRIMARY)
    if primary != PRIMARY and primary in whole:
        if (other := whole.get(PRIMARY)) is not None:
            other.name = "reward_in_file"
        rewards.append(msgspec.structs.replace(whole[primary], name=PRIMARY, details={"name": primary}))
    return rewards


def _target(step: str | None, keys: dict[str, str], place: str, say: Say) -> str | None:
    if step is not None and step not in keys:
        say(place, f"there is no step {step}, so it is on the whole trajectory", False)
    return keys.get(step) if step is not None else None


def _feedback(run: Run, trajectory_id: str, keys: dict[str, str], at: float, say: Say) -> list[Feedback]:
    found: list[Feedback] = []
    for index, said in enumerate(run.feedback):
        place = f"feedback {index}"
        if said.kind == "comparison" and said.other not in keys:
            say(place, f"there is no step {said.other} to compare with", True)
            continue
        found.append(
            Feedback(
                kind=cast(FeedbackKind, said.kind),
                feedback_id=f"{trajectory_id}.f{index}",
                trajectory_id=trajectory_id,
                step_id=_target(said.step, keys, place, say),
                other_id=keys.get(said.other) if said.other is not None else None,
                name=_name(said.name, place, say),
                value=_json(said.value, f"{place} value", say),
                comment=said.comment,
                source=SOURCE,
                created_at=at,
            )
        )
    return found


def renamed(whole: WholeTrajectory, trajectory_id: str) -> WholeTrajectory:
    """The same under the id of one of its versions, as are its steps and what is said of them.

    Steps of the version `ID.2` begin with `ID~2.`: with `ID.2.` a step of the first may begin too, whose key has a dot.
    """
    old = whole.new.trajectory_id or ""
    among_steps = f"{old}~{trajectory_id.removeprefix(old).removeprefix('.')}"

    def moved(name: str | None) -> str | None:
        return None if name is None else among_steps + name.removeprefix(old)

    replace = msgspec.structs.replace
    return replace(
        whole,
        new=replace(whole.new, trajectory_id=trajectory_id),
        steps=[
            replace(
                step,
                trajectory_id=trajectory_id,
                step_id=moved(step.step_id),
                parent_step_id=moved(step.parent_step_id),
                supersedes=moved(step.supersedes),
                exchange_id=None if step.exchange_id is None else _id(f"{trajectory_id}.{step.exchange_id}"),
            )
            for step in whole.steps
        ],
        rewards=[replace(r, trajectory_id=trajectory_id, step_id=moved(r.step_id)) for r in whole.rewards],
        feedback=[
            replace(
                f,
                trajectory_id=trajectory_id,
                step_id=moved(f.step_id),
                other_id=moved(f.other_id),
                feedback_id=trajectory_id + (f.feedback_id or "").removeprefix(old),
            )
            for f in whole.feedback
        ],
    )
