"""What a run of checks has done."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

Progress = Callable[[str, int, int | None], None]


def no_progress(stage: str, done: int, total: int | None) -> None:
    """Tells nobody."""


class RunReport(msgspec.Struct, kw_only=True):
    """`labels`: by check, labels that were set or changed; `removed`: those that no longer held and were taken away.

    `trajectories`, `steps`, `groups`: what was checked, again where it changed. `reviews`: what people are asked to
    look at because judges are unsure. `errors`: the latest error by check.
    """

    trajectories: int = 0
    steps: int = 0
    groups: int = 0
    reviews: int = 0
    labels: dict[str, int] = {}
    removed: dict[str, int] = {}
    errors: dict[str, str] = {}

    @property
    def changes(self) -> int:
        """How many labels were set, changed or taken away."""
        return sum(self.labels.values()) + sum(self.removed.values())
