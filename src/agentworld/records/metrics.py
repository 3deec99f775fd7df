"""Numbers that a run says of itself: losses of a trainer, rewards of an evaluation."""

from __future__ import annotations

from typing import Literal

import msgspec

METRICS_CHANNEL = "metrics"


class Metrics(msgspec.Struct, kw_only=True):
    """Numbers by name at one step of a run, kept as an event.

    `step` counts what the run counts, such as versions of its policy. `values` are finite; null is one that was none.
    Said again, the latest counts. `channel`: of the event, by which these are found and not among those of data.
    """

    run: str
    step: int
    values: dict[str, float | None]
    kind: Literal["train", "evaluation"] = "train"
    channel: str = METRICS_CHANNEL
