"""One measured value, beside what it is compared with."""

from __future__ import annotations

from typing import Literal

import msgspec

Better = Literal["more", "less"]


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One measured value, and what it is compared with: a flat table, an engine alone, the same without checks.

    `required`: what `value` must reach, at least where `better` is "more", at most where it is "less".
    """

    name: str
    value: float
    unit: str
    beside: float | None = None
    required: float | None = None
    better: Better = "more"

    @property
    def met(self) -> bool | None:
        """Whether the requirement is met; None without one."""
        if self.required is None:
            return None
        return self.value >= self.required if self.better == "more" else self.value <= self.required
