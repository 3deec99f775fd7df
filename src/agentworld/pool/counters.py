"""The counters that writes keep, so that an overview scans nothing.

A transaction changes one with `txn.count(name, change)`, in the transaction of the rows that it counts. A name is a
constant below, or a prefix below and a value. `recount` of a store says what each must be from the rows themselves;
`agentworld pool check` compares the two.

| counter | counts | changed by |
|---|---|---|
| `trajectories.STATUS` | trajectories by status | creating, completing, deleting |
| `readiness.READINESS` | trajectories by readiness | whatever changes it |
| `channels.trajectories.NAME` | trajectories of a channel | creating, declaring with another channel, deleting |
| `channels.steps.NAME` | steps of a channel | appending, deleting |
| `steps`, `steps.excluded` | all steps; those with an excluded_reason | appending, superseding, deleting |
| `exchanges`, `exchanges.error` | all calls; those with an error | appending, deleting |
| `tokens_flat` | ids of all steps, prompt and reply | appending, deleting |
| `tokens_in_tails` | of these, those that no full block holds | appending, deleting |
| `tokens_sampled` | sum of `sampled` over all steps | appending, deleting |
| `blocks`, `message_nodes`, `tool_sets` | rows of the forests | appending, collecting garbage |
| `media`, `media_bytes` | blobs and their bytes | storing media, collecting garbage |
| `rewards` | rows of rewards, of every source | rewarding, deleting |
| `feedback.KIND` | feedback by kind | feedback, deleting |
| `annotations` | rows of annotations | annotating, deleting |
| `awaited` | targets that signals wait for | signals, appending, deleting |
| `groups.open`, `groups.closed` | groups by state | creating, closing, deleting |
| `dead_letters` | what could not be stored | rejecting, deleting |
| `tombstones` | what was deleted on request | deleting |
| `batches.STATE` | batches by state | leases |
| `backlog.CONSUMER` | rows of a consumer's backlog | leases, deleting |
| `deliveries.STATE.CONSUMER` | leased, acknowledged, dropped and poisoned units | leases, deleting |
"""

from __future__ import annotations

# Each followed by a value.
TRAJECTORIES = "trajectories."
READINESS = "readiness."
CHANNEL_TRAJECTORIES = "channels.trajectories."
CHANNEL_STEPS = "channels.steps."
FEEDBACK = "feedback."
GROUPS = "groups."
BATCHES = "batches."
BACKLOG = "backlog."

STEPS = "steps"
STEPS_EXCLUDED = "steps.excluded"
EXCHANGES = "exchanges"
EXCHANGES_FAILED = "exchanges.error"
TOKENS_FLAT = "tokens_flat"
TOKENS_IN_TAILS = "tokens_in_tails"
TOKENS_SAMPLED = "tokens_sampled"
BLOCKS = "blocks"
MESSAGE_NODES = "message_nodes"
TOOL_SETS = "tool_sets"
MEDIA = "media"
MEDIA_BYTES = "media_bytes"
REWARDS = "rewards"
ANNOTATIONS = "annotations"
AWAITED = "awaited"
DEAD_LETTERS = "dead_letters"
TOMBSTONES = "tombstones"

# Counters that count no rows: whether and how often there was a pause, primary keys handed out, collections of garbage,
# policies of curation.
UNCOUNTED = ("gateway.", "pk.", "gc.", "curation.")

DELIVERY_STATES = ("leased", "acknowledged", "dropped", "poisoned")


def delivery(state: str, consumer: str) -> str:
    """The counter of a consumer's deliveries in a state; `available` ones are counted by `backlog.CONSUMER`."""
    return f"deliveries.{state}.{consumer}"
