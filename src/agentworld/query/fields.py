"""The fields that `where` knows; this table is their documentation."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "number", "boolean", "json"]
Subject = Literal["steps", "trajectories"]
_BOTH: tuple[Subject, ...] = ("steps", "trajectories")
_STEPS: tuple[Subject, ...] = ("steps",)
_TRAJECTORIES: tuple[Subject, ...] = ("trajectories",)


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `keyed`: a map, written `name.KEY`; `plain`: may also stand without a key. json: any JSON value."""

    name: str
    kind: Kind
    subjects: tuple[Subject, ...]
    doc: str
    keyed: bool = False
    plain: bool = True


FIELDS: tuple[Field, ...] = (
    Field("step_id", "text", _STEPS, "the step's id"),
    Field("exchange_id", "text", _STEPS, "the call that it came from"),
    Field("trajectory_id", "text", _BOTH, "the trajectory's id"),
    Field("group_id", "text", _BOTH, "the group's id"),
    Field("channel", "text", _BOTH, "partition of the pool: train, val, judge, ..."),
    Field("agent", "text", _BOTH, "name of the agent"),
    Field("model", "text", _STEPS, "the model that answered"),
    Field("requested_model", "text", _STEPS, "the model that the caller named"),
    Field("policy.model", "text", _BOTH, "model of the policy (of a trajectory: of its first step)"),
    Field("policy.run", "text", _BOTH, "training run of the policy"),
    Field("policy.version", "number", _BOTH, "version of the policy"),
    Field("version", "number", _BOTH, "short for policy.version"),
    Field(
        "staleness",
        "number",
        _BOTH,
        "current version (0 until one is published) minus this one; absent where another run speaks now",
    ),
    Field("dialect", "text", _STEPS, "API of the call: chat, completions, responses, anthropic"),
    Field("step_index", "number", _STEPS, "position in the trajectory, from 0, in commit order"),
    Field("parent_step_id", "text", _STEPS, "the step that this one continues"),
    Field("fork_reason", "text", _STEPS, "why it does not simply continue; absent where it does"),
    Field("token_source", "text", _STEPS, "engine, token-in, submitted, derived or none"),
    Field("finish_reason", "text", _STEPS, "stop, length, tool_calls, abort, ..."),
    Field("prompt_length", "number", _STEPS, "tokens of the prompt"),
    Field("response_length", "number", _STEPS, "tokens of the reply"),
    Field("reward", "number", _BOTH, "the primary reward; reward.NAME: the reward of that name", keyed=True),
    Field("label", "json", _STEPS, "label.NAME: a label", keyed=True, plain=False),
    Field("readiness", "text", _BOTH, "open, complete, ready or excluded"),
    Field("open", "boolean", _BOTH, "the trajectory has not ended"),
    Field("complete", "boolean", _BOTH, "ended and not excluded, with or without a reward"),
    Field("ready", "boolean", _BOTH, "complete and rewarded"),
    Field("excluded", "boolean", _BOTH, "not served"),
    Field("excluded_reason", "text", _BOTH, "why it is not served"),
    Field("late", "boolean", _STEPS, "came after its trajectory had ended"),
    Field("status", "text", _BOTH, "of the trajectory: open, finished, failed, truncated or abandoned"),
    Field("task", "json", _BOTH, "task.KEY: a value of the trajectory's task", keyed=True, plain=False),
    Field("step_count", "number", _TRAJECTORIES, "steps, excluded ones too"),
    Field("prompt_tokens", "number", _TRAJECTORIES, "tokens of all prompts"),
    Field("response_tokens", "number", _TRAJECTORIES, "tokens of all replies"),
    Field("group_size", "number", _TRAJECTORIES, "rollouts planned for the group"),
    Field("rollout_index", "number", _TRAJECTORIES, "position in the group"),
    Field("attempt", "number", _TRAJECTORIES, "how often the rollout was started before"),
    Field("created_at", "number", _BOTH, "seconds since the epoch"),
    Field("completed_at", "number", _TRAJECTORIES, "seconds since the epoch"),
    Field("latency_ms", "number", _STEPS, "duration of the call"),
    Field("metadata", "json", _BOTH, "metadata.KEY: a value of the metadata", keyed=True, plain=False),
)


def fields_of(subject: Subject) -> list[Field]:
    """The fields that queries over `subject` know."""
    return [field for field in FIELDS if subject in field.subjects]


def find_field(name: str, subject: Subject) -> tuple[Field, str | None] | None:
    """The field that `name` means and its key, or None."""
    known = {field.name: field for field in fields_of(subject)}
    field = known.get(name)
    if field is not None and field.plain:
        return field, None
    head, dot, key = name.partition(".")
    field = known.get(head)
    if dot and key and field is not None and field.keyed:
        return field, key
    return None


def nearest_field(name: str, subject: Subject) -> str | None:
    """The field that was probably meant, as it is written, or None."""
    names = {field.name for field in fields_of(subject) if field.plain}
    maps = {field.name for field in fields_of(subject) if field.keyed}
    head, dot, key = name.partition(".")
    if head in maps:
        return f"{head}.KEY"
    if dot and (near := difflib.get_close_matches(head, maps, n=1, cutoff=0.7)):
        return f"{near[0]}.{key}"
    found = difflib.get_close_matches(name, names | maps, n=1, cutoff=0.5)
    if not found:
        return None
    return f"{found[0]}.KEY" if found[0] in maps - names else found[0]
