"""What training methods need of the data, as the table has it that leases go by."""

from __future__ import annotations

import msgspec
from litestar import get

from agentworld.client.wire import API
from agentworld.pool.protocol import Page
from agentworld.records.methods import METHODS, Freshness, Unit


class MethodNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """One method. `needs`: what each step of a unit must have; `rollouts`: fewest of a group that give a signal;
    `rewarded`: only what has a primary reward; `freshness`: how old a sample may be; `uses`: annotations that it uses
    where they are there.
    """

    name: str
    unit: Unit
    needs: list[str]
    rewarded: bool
    freshness: Freshness
    rollouts: int
    takes_text: bool
    uses: list[str]


@get(f"{API}/methods", sync_to_thread=False)
def methods() -> Page[MethodNeeds]:
    """The methods that batches can be asked for by name."""
    return Page(
        [
            MethodNeeds(
                name=each.name,
                unit=each.unit,
                needs=list(each.needs),
                rewarded=each.rewarded,
                freshness=each.freshness,
                rollouts=each.rollouts,
                takes_text=each.takes_text,
                uses=list(each.uses),
            )
            for each in METHODS.values()
        ]
    )


ROUTES = [methods]
