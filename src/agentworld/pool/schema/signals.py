"""Signals, groups, events, and what could not be stored."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, LargeBinary, Table, UniqueConstraint

from agentworld.pool.schema.base import Text, Whole, growing, in_order_of_pk, metadata, where_there

END_OF_TRAJECTORY_ID = "substr(trajectory_id, length(trajectory_id) - 3)"

# Signals name their target by its id, since they may come before it, and stay where it never comes.
rewards = Table(
    "rewards",
    metadata,
    Column("pk", Whole, primary_key=True, autoincrement=False),
    Column("target", Text, nullable=False),
    Column("target_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("value", Float, nullable=False),
    Column("details", Text),
    Column("of_trajectory", Text),  # the trajectory that the caller said the step is of
    Column("created_at", Float, nullable=False),
    UniqueConstraint("target", "target_id", "name", "source"),
)

feedback = growing(
    "feedback",
    Column("feedback_id", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),  # rating, label, correction, comparison or comment
    Column("target", Text, nullable=False),
    Column("target_id", Text, nullable=False),
    Column("other_id", Text),  # what the target is preferred to, of a comparison
    Column("name", Text),
    Column("value", Text),  # JSON
    Column("comment", Text),  # JSON
    Column("source", Text, nullable=False),
    Column("of_trajectory", Text),
    Column("created_at", Float, nullable=False),
    Column("content", Text),  # digest of the reply that was seen
    Index("feedback_by_target", "target", "target_id"),
)

annotation_arrays = Table(
    "annotations",
    metadata,
    Column("pk", Whole, primary_key=True, autoincrement=False),
    Column("target", Text, nullable=False),
    Column("target_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("dtype", Text, nullable=False),
    Column("shape", Text, nullable=False),  # JSON list
    Column("data", LargeBinary, nullable=False),  # little-endian, row by row
    Column("per_token", Whole, nullable=False),  # 1: its first dimension is the reply's length
    Column("of_trajectory", Text),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("target", "target_id", "name"),
)

# Targets that signals have named and that are not there yet; nearly always few.
awaited = Table(
    "awaited",
    metadata,
    Column("target", Text, primary_key=True),
    Column("target_id", Text, primary_key=True),
    Column("since", Float, nullable=False),
)

groups = growing(
    "groups",
    Column("group_id", Text, nullable=False, unique=True),
    Column("channel", Text, nullable=False),
    Column("size", Whole),  # closes once this many rollouts have ended
    Column("timeout_at", Float),  # closes then with what is there
    Column("failures", Text),  # zero, mask or drop; null where nobody has said, which is as drop
    Column("state", Text, nullable=False),  # open or closed
    Column("closed_by", Text),  # size or timeout
    Column("created_at", Float, nullable=False),
    Column("closed_at", Float),
    Column("members", Whole, nullable=False),
    Column("ended", Whole, nullable=False),
    Column("served", Whole, nullable=False),  # members that are fit to be served
    Column("ready_seq", Whole),
    Index("groups_by_timeout", "state", "timeout_at"),
    where_there("groups_by_ready_seq", "ready_seq"),
)

events = growing(
    "events",
    Column("kind", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("trajectory_id", Text),
    Column("step_id", Text),
    Column("data", Text),
    # Of the trajectory or group that it is about; `*` where everybody is told; null for those alone who see all.
    Column("channel", Text),
    # By the end of the id: a whole one in each entry would be a hundredth of a pool.
    *in_order_of_pk("events_by_trajectory", "trajectory_id", END_OF_TRAJECTORY_ID),
    *in_order_of_pk("events_by_channel", "channel", "channel"),
)

dead_letters = growing(
    "dead_letters",
    Column("step_id", Text, nullable=False),
    Column("trajectory_id", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("record", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("kind", Text, nullable=False, server_default="step"),  # or reward, feedback, annotation
)
