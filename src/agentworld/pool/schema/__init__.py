"""The tables, in SQLAlchemy Core. Storage rows map explicitly from records: an API rename is no migration.

Times are seconds since the epoch, JSON is text, digests are 16 bytes. `pk` numbers grow in commit order, are allotted
by the one writer of the moment from the counters `pk.TABLE`, and are never used twice. `target` is `step` or
`trajectory`.
"""

from agentworld.pool.schema.access import keys
from agentworld.pool.schema.base import BLOCK_BITS, Text, Whole, metadata
from agentworld.pool.schema.consuming import (
    backlog,
    batch_units,
    batches,
    call_marks,
    consumers,
    counters,
    deliveries,
    gateway_workers,
    pins,
    policies,
    positions,
    tombstones,
)
from agentworld.pool.schema.content import (
    exchanges,
    media,
    media_uses,
    message_nodes,
    steps,
    token_blocks,
    tool_sets,
    trajectories,
)
from agentworld.pool.schema.curation import curation_policies, decisions, evaluations, followers, reviews
from agentworld.pool.schema.datasets import dataset_rows, datasets
from agentworld.pool.schema.signals import (
    annotation_arrays,
    awaited,
    dead_letters,
    events,
    feedback,
    groups,
    rewards,
)

SCHEMA_VERSION = "0007"

__all__ = [
    "BLOCK_BITS",
    "SCHEMA_VERSION",
    "Text",
    "Whole",
    "annotation_arrays",
    "awaited",
    "backlog",
    "batch_units",
    "batches",
    "call_marks",
    "consumers",
    "counters",
    "curation_policies",
    "dataset_rows",
    "datasets",
    "dead_letters",
    "decisions",
    "deliveries",
    "evaluations",
    "events",
    "exchanges",
    "feedback",
    "followers",
    "gateway_workers",
    "groups",
    "keys",
    "media",
    "media_uses",
    "message_nodes",
    "metadata",
    "pins",
    "policies",
    "positions",
    "reviews",
    "rewards",
    "steps",
    "token_blocks",
    "tombstones",
    "tool_sets",
    "trajectories",
]
