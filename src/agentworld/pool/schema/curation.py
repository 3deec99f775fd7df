"""What curation decides, what it asks people, what evaluators said, and how far those who follow the pool have come."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, LargeBinary, Table, UniqueConstraint

from agentworld.pool.schema.base import Text, Whole, growing, metadata, where_there

# Policies that were ever in force, the latest of a channel last; at most one of a channel is active.
curation_policies = growing(
    "curation_policies",
    Column("channel", Text, nullable=False),
    Column("version", Text, nullable=False),  # digest of what it says
    Column("policy", Text, nullable=False),  # JSON
    Column("source", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("ended_at", Float),  # null: it is active, or its end is being swept
    # Trajectories up to this key are decided by it; null once all are. Where it has ended: are free of it.
    Column("swept", Whole),
    where_there("curation_policies_sweeping", "swept"),
    Index("curation_policies_by_channel", "channel", "pk"),
)

# By `manual` (people, imports) and `policy`; what is not decided has no row. A manual verdict stands over a policy's.
decisions = growing(
    "decisions",
    Column("subject", Text, nullable=False),  # step or trajectory
    Column("row_pk", Whole, nullable=False),  # its pk
    Column("by", Text, nullable=False),
    Column("trajectory", Whole, nullable=False),  # pk of its trajectory, or its own
    Column("verdict", Text),  # ready, exclude or review; null where it only has tags or a weight
    Column("reason", Text),
    Column("rule", Whole),  # number of the policy's rule, from 1; null: its default, or a manual one
    Column("policy", Text),  # its version
    Column("labels", Text),  # JSON: the tags and the weight that it set on its target
    # What it added to its target's `excluded_reason`, and takes away again.
    Column("said", Text),
    Column("source", Text, nullable=False),
    Column("at", Float, nullable=False),
    UniqueConstraint("subject", "row_pk", "by"),
    Index("decisions_by_trajectory", "trajectory"),
)

# What people are asked to look at; one row a target.
reviews = growing(
    "reviews",
    Column("target", Text, nullable=False),
    Column("target_id", Text, nullable=False),
    Column("channel", Text, nullable=False),
    Column("origin", Text, nullable=False),  # rule, disagreement, uncertainty or manual
    Column("reason", Text, nullable=False),
    Column("worth", Float, nullable=False),  # higher is asked first
    Column("state", Text, nullable=False),  # open, done, or withdrawn where nothing asks for it any more
    Column("claimed_by", Text),
    Column("claimed_until", Float),
    Column("skipped_by", Text),  # JSON list
    Column("verdict", Text),  # accept or reject
    Column("resolved_by", Text),
    Column("comment", Text),
    Column("created_at", Float, nullable=False),
    Column("resolved_at", Float),
    UniqueConstraint("target", "target_id"),
    Index("reviews_by_worth", "state", "worth", "pk"),
    Index("reviews_by_channel", "channel", "state", "worth", "pk"),
)

# The latest that each evaluator said of a target, and what it failed of.
evaluations = growing(
    "evaluations",
    Column("evaluator", Text, nullable=False),
    Column("target", Text, nullable=False),  # step, trajectory or group
    Column("target_id", Text, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),  # of the evaluator: its version and configuration
    Column("content", LargeBinary, nullable=False),  # digest of what it read
    Column("state", Text, nullable=False),  # ok or failed
    Column("scores", Text),  # JSON
    Column("details", Text),  # JSON
    Column("error", Text),
    Column("attempts", Whole, nullable=False),
    Column("seconds", Float),
    Column("at", Float, nullable=False),
    UniqueConstraint("evaluator", "target", "target_id"),
    Index("evaluations_by_content", "content", "fingerprint"),
    Index("evaluations_by_target", "target", "target_id"),
    Index("evaluations_by_state", "evaluator", "state", "pk"),
)

# Those who follow the pool's events and go on where they were: evaluators, checks.
followers = Table(
    "followers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("position", Whole, nullable=False),  # sequence of the last event that it is done with
    Column("state", LargeBinary),
    Column("revision", Whole, nullable=False),  # grows with each save: a second one of the same name is refused
    Column("at", Float, nullable=False),
)
