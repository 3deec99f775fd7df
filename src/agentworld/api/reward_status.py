"""How the process that runs this server's evaluators is doing, as it has saved it in the pool."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from agentworld.errors import AgentWorldError
from agentworld.pool.protocol import Pool
from agentworld.rewards.running.following import read_saved

STATES = ("evaluated", "cached", "failed", "skipped")


class RewardStatus:
    """Reads what the follower `name` has saved. Every worker of the server tells the same."""

    def __init__(self, pool: Pool, name: str) -> None:
        self._pool = pool
        self._name = name

    def look(self) -> dict[str, Any]:
        """For /readyz. `behind`: events that it is not done with; `resting`: evaluators that rest, each with why."""
        try:
            found = self._pool.load_follower(self._name)
            last = self._pool.stats().last_event
        except AgentWorldError as error:
            return {"begun": False, "error": error.one_line()}
        if found is None:
            return {"begun": False}
        saved = read_saved(found.state)
        return {
            "begun": True,
            "stage": saved.place.stage,
            "behind": max(0, last - found.position),
            "saved_seconds_ago": round(max(0.0, time.time() - found.at), 1),
            "evaluations": {
                name: {state: getattr(tally, state) for state in STATES} for name, tally in saved.tallies.items()
            },
            "resting": saved.resting,
        }

    def line(self) -> str:
        """The same in a few words that name nothing."""
        seen = self.look()
        if not seen["begun"]:
            return "not begun"
        return f"{seen['stage']}, {seen['behind']} events behind, {len(seen['resting'])} evaluators rest"

    def collect(self) -> Iterator[Any]:
        """For Prometheus: evaluations by evaluator and state, how many events it is behind, and who rests."""
        seen = self.look()
        if not seen["begun"]:
            return
        evaluations = CounterMetricFamily(
            "agentworld_evaluations", "Evaluations by evaluator and state", labels=["evaluator", "state"]
        )
        resting = GaugeMetricFamily(
            "agentworld_evaluator_resting", "1 where the evaluator rests after many failures", labels=["evaluator"]
        )
        for name, states in seen["evaluations"].items():
            for state, count in states.items():
                evaluations.add_metric([name, state], count)
            resting.add_metric([name], float(name in seen["resting"]))
        yield evaluations
        yield resting
        yield GaugeMetricFamily(
            "agentworld_rewards_events_behind", "Events that evaluators are not done with", value=seen["behind"]
        )
