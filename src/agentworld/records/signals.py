"""Signals on steps and trajectories: rewards, human feedback, annotations. They may come before their target."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

FeedbackKind = Literal["rating", "label", "correction", "comparison", "comment"]


class Reward(msgspec.Struct, kw_only=True):
    """A named, sourced value on a trajectory or on one of its steps; the name `reward` is the primary one.

    Setting the same name from the same source again replaces the value. Absent is not zero. A reward on a step may name
    its trajectory too, which is then compared.
    """

    value: float
    trajectory_id: str | None = None
    step_id: str | None = None
    name: str = "reward"
    source: str = "api"
    details: dict[str, Any] | None = None
    created_at: float = 0.0


class Feedback(msgspec.Struct, kw_only=True):
    """A human signal on a trajectory or on one of its steps; sent again under its id it is the same one.

    rating: `value` is a number; null takes back what the same source said under the name. label: `name` and `value`
    (any JSON; null takes the label away) are set on the target's labels. correction: `value` is what should have been
    said, a message or a text. comparison: the target is preferred to `other_id`, which is of the target's kind; `value`
    may say by how much, and 0 takes back what the same source said of the two. comment: `comment` alone; every other
    kind may have one too. `source`: who or what said it. What is on a step may name the trajectory too. `content`:
    digest of the reply that was seen, 64 hex digits, as `agentworld.feedback.content.reply_digest` makes it.
    """

    kind: FeedbackKind
    feedback_id: str | None = None
    trajectory_id: str | None = None
    step_id: str | None = None
    other_id: str | None = None
    name: str | None = None
    value: Any = None
    comment: str | None = None
    source: str = "api"
    content: str | None = None
    created_at: float = 0.0


class Annotation(msgspec.Struct, kw_only=True):
    """A named array on a step or a trajectory, such as reference or teacher log-probabilities, values, advantages.

    `values`: nested lists or a numpy array (read back in this process, a numpy array). `dtype`: a numpy name such as
    float32 or int32; left out, an array's own, and float32 for lists. `shape` is read from the values. On a step, the
    first dimension is the reply's length, unless `per_token` is false or the value is a single number. In JSON a value
    that is not finite is null. Setting the same name again replaces the array.
    """

    name: str
    values: Any
    trajectory_id: str | None = None
    step_id: str | None = None
    dtype: str | None = None
    shape: tuple[int, ...] = ()
    per_token: bool = True
    source: str = "api"
    created_at: float = 0.0
