"""The fields that `where` knows; this table is their documentation."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "number", "boolean", "time", "json", "presence"]
Subject = Literal["steps", "trajectories"]
_BOTH: tuple[Subject, ...] = ("steps", "trajectories")
_STEPS: tuple[Subject, ...] = ("steps",)
_TRAJECTORIES: tuple[Subject, ...] = ("trajectories",)
_NONE: tuple[Subject, ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """One field.

    kind: `json` is any JSON value, `time` seconds since the epoch, `presence` something that only `has` asks for.
    keys: what stands after the dot where the field is a map, `NAME` for one key, `PATH` for keys of nested objects.
    plain: it may stand without a key. indexed: the subjects for which conditions on it (without a key) use an index.
    alias_of: the field that this is another name of.
    """

    name: str
    kind: Kind
    subjects: tuple[Subject, ...]
    doc: str
    keys: Literal["NAME", "PATH"] | None = None
    plain: bool = True
    indexed: tuple[Subject, ...] = _NONE
    alias_of: str | None = None

    @property
    def nested(self) -> bool:
        """Whether the keys lead into nested objects."""
        return self.keys == "PATH"


FIELDS: tuple[Field, ...] = (
    Field("step_id", "text", _STEPS, "The step's id.", indexed=_STEPS),
    Field("exchange_id", "text", _STEPS, "The call that it came from."),
    Field("trajectory_id", "text", _BOTH, "The trajectory's id.", indexed=_BOTH),
    Field("group_id", "text", _BOTH, "The group's id.", indexed=_BOTH),
    Field(
        "channel",
        "text",
        _BOTH,
        "Partition of the pool: `train`, `val`, `expert`, ...",
        indexed=_BOTH,
    ),
    Field("agent", "text", _BOTH, "Name of the agent."),
    Field("user", "text", _BOTH, "Whom the trajectory belongs to.", indexed=_BOTH),
    Field("priority", "number", _BOTH, "Priority of the trajectory, higher first; 0 by default.", indexed=_BOTH),
    Field("model", "text", _STEPS, "The model that answered."),
    Field("requested_model", "text", _STEPS, "The model that the caller named."),
    Field(
        "policy.model",
        "text",
        _BOTH,
        "Model of the policy. A trajectory has the policy of its first step, or the oldest version of that run among "
        "its steps.",
        indexed=_TRAJECTORIES,
    ),
    Field("policy.run", "text", _BOTH, "Training run of the policy."),
    Field("policy.version", "number", _BOTH, "Version of the policy."),
    Field("version", "number", _BOTH, "Short for `policy.version`.", alias_of="policy.version"),
    Field(
        "staleness",
        "number",
        _BOTH,
        "Version that speaks now (0 until one is published) minus this one; absent where another run speaks now.",
    ),
    Field("dialect", "text", _STEPS, "API of the call: `chat` or `anthropic`."),
    Field("step_index", "number", _STEPS, "Position in the trajectory, from 0, in commit order."),
    Field("parent_step_id", "text", _STEPS, "The step that this one continues."),
    Field("fork_reason", "text", _STEPS, "Why it does not simply continue; absent where it does."),
    Field("token_source", "text", _STEPS, "`engine`, `token-in`, `submitted`, `derived` or `none`."),
    Field("finish_reason", "text", _STEPS, "`stop`, `length`, `tool_calls`, `abort`, ..."),
    Field("prompt_length", "number", _STEPS, "Tokens of the prompt."),
    Field("response_length", "number", _STEPS, "Tokens of the reply."),
    Field("tokens", "presence", _STEPS, "The ids of the reply."),
    Field("logprobs", "presence", _STEPS, "The log-probabilities of the reply."),
    Field("messages", "presence", _STEPS, "The messages of the prompt and of the reply."),
    Field("annotation", "presence", _BOTH, "An array of that name that was put on it.", keys="NAME", plain=False),
    Field(
        "reward",
        "number",
        _BOTH,
        "The primary reward; the reward of that name.",
        keys="NAME",
        indexed=_BOTH,
    ),
    Field("label", "json", _BOTH, "A label, submitted with the step or given later.", keys="NAME", plain=False),
    Field("readiness", "text", _BOTH, "`open`, `complete`, `ready` or `excluded`.", indexed=_TRAJECTORIES),
    Field("open", "boolean", _BOTH, "The trajectory has not ended.", indexed=_TRAJECTORIES),
    Field("complete", "boolean", _BOTH, "Ended and not excluded, with or without a reward.", indexed=_TRAJECTORIES),
    Field("ready", "boolean", _BOTH, "Complete and rewarded.", indexed=_TRAJECTORIES),
    Field("excluded", "boolean", _BOTH, "Not served.", indexed=_TRAJECTORIES),
    Field("masked", "boolean", _TRAJECTORIES, "Served for its group's statistics, not to be trained on."),
    Field(
        "excluded_reason",
        "text",
        _BOTH,
        "Why it is not served: of a trajectory also `failed` or `abandoned`; a step has the reasons of its own.",
    ),
    Field(
        "review",
        "text",
        _TRAJECTORIES,
        "What became of the review of the trajectory: `waiting`, `skipped` (it waits, and somebody passed it on), "
        "`accepted` or `rejected`; absent where nobody asked for one. Not in batches and rules.",
        indexed=_TRAJECTORIES,
    ),
    Field("late", "boolean", _STEPS, "Came after its trajectory had ended."),
    Field(
        "status",
        "text",
        _BOTH,
        "Of the trajectory: `open`, `finished`, `failed`, `truncated` or `abandoned`.",
        indexed=_BOTH,
    ),
    Field("task", "json", _BOTH, "A value of the trajectory's task.", keys="PATH", plain=False),
    Field("step_count", "number", _TRAJECTORIES, "Steps, excluded ones too."),
    Field("prompt_tokens", "number", _TRAJECTORIES, "Tokens of all prompts."),
    Field("response_tokens", "number", _TRAJECTORIES, "Tokens of all replies."),
    Field("group_size", "number", _TRAJECTORIES, "Rollouts planned for the group."),
    Field("rollout_index", "number", _TRAJECTORIES, "Position in the group."),
    Field(
        "sampled_tokens", "number", _TRAJECTORIES, "Tokens of replies that the policy sampled, without excluded steps."
    ),
    Field("attempt", "number", _TRAJECTORIES, "How often the rollout was started before."),
    Field("created_at", "time", _BOTH, "When it began.", indexed=_BOTH),
    Field("completed_at", "time", _TRAJECTORIES, "When it ended."),
    Field("latency_ms", "number", _STEPS, "Duration of the call."),
    Field("metadata", "json", _BOTH, "A value of the metadata.", keys="PATH", plain=False),
    Field("meta", "json", _BOTH, "Short for `metadata.PATH`.", keys="PATH", plain=False, alias_of="metadata"),
)


def fields_of(subject: Subject) -> list[Field]:
    """The fields that queries over `subject` know."""
    return [field for field in FIELDS if subject in field.subjects]


def find_field(pieces: tuple[str, ...], subject: Subject) -> tuple[Field, tuple[str, ...]] | None:
    """The field that a name means, which was cut at its dots, and the keys; None where there is none."""
    known = {field.name: field for field in fields_of(subject)}
    field = known.get(".".join(pieces))
    if field is not None and field.plain:
        return known[field.alias_of or field.name], ()
    field, keys = known.get(pieces[0]), pieces[1:]
    if field is None or field.keys is None or not keys:
        return None
    return known[field.alias_of or field.name], keys if field.nested else (".".join(keys),)


def nearest_field(pieces: tuple[str, ...], subject: Subject) -> str | None:
    """The field that was probably meant, as it is written, or None."""
    plain = {field.name for field in fields_of(subject) if field.plain}
    maps = {field.name: field.keys for field in fields_of(subject) if field.keys}
    head, *keys = pieces
    if head in maps:
        return f"{head}.{maps[head]}"
    if keys and (near := difflib.get_close_matches(head, maps, n=1, cutoff=0.7)):
        return ".".join([near[0], *keys])
    name, known = ".".join(pieces), plain | set(maps)
    short, longer = _abbreviated(name, known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
    far = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    found = next((each for each in (short, *close, longer, *far) if each is not None), None)
    return f"{found}.{maps[found]}" if found in maps and found not in plain else found


def _abbreviated(name: str, known: set[str]) -> tuple[str | None, str | None]:
    """The fields whose words a name abbreviates, `step_index` by `step_idx`: one of as many words, and one of more."""
    words = name.split("_")
    fits: dict[bool, list[str]] = {True: [], False: []}
    for field in known:
        own = field.split("_")
        if len(own) >= len(words) and all(_short(one, other) for one, other in zip(words, own, strict=False)):
            fits[len(own) == len(words)].append(field)
    same, more = (min(fits[each], key=lambda field: (len(field), field), default=None) for each in (True, False))
    return same, more


def _short(given: str, word: str) -> bool:
    """Whether the letters of `given`, a plural's s aside, stand in `word` in that order, from its first letter on."""
    letters = iter(word)
    singular = given.removesuffix("s") if not word.endswith("s") else given
    return len(singular) > 1 and singular[0] == word[0] and all(letter in letters for letter in singular)
