"""What a server counts, for Prometheus. Where PROMETHEUS_MULTIPROC_DIR is set before the first import of the library,
the workers of one server count together, each in files of its own in that folder; see agentworld.api.metrics.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable

from prometheus_client import Counter, Gauge, Histogram

from agentworld.capture.call import Call
from agentworld.forest import common_prefix, token_array
from agentworld.gateway.tallies import TalliedRegistry, Tallies
from agentworld.gateway.upstreams import EngineFigures
from agentworld.records import Step, Usage

TALLIES = Tallies()
REGISTRY = TalliedRegistry(TALLIES)
REQUESTS = Counter(
    "agentworld_requests", "Requests by surface (llm, control), route, method and status; 0: left without a reply",
    ["surface", "route", "method", "status"], registry=REGISTRY,
)  # fmt: skip
SECONDS = Histogram(
    "agentworld_request_seconds", "Seconds from a request to the end of its reply", ["surface"], registry=REGISTRY,
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
)  # fmt: skip
IN_FLIGHT = Gauge(
    "agentworld_requests_in_flight", "Requests that are not answered yet", ["surface"], registry=REGISTRY,
    multiprocess_mode="livesum",
)  # fmt: skip
KEY_FAILURES = Counter(
    "agentworld_key_failures", "Requests that a key was missing for, or whose key did not hold, by reason", ["reason"],
    registry=REGISTRY,
)  # fmt: skip
TOKENS = Counter(
    "agentworld_tokens", "Tokens of answered calls by model and kind (prompt, sampled)", ["model", "kind"],
    registry=REGISTRY,
)  # fmt: skip
ADDED = Histogram(
    "agentworld_added_seconds", "Seconds that answered calls spent in the gateway, not waiting for an engine",
    registry=REGISTRY, buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)  # fmt: skip
CALL_FAILURES = Counter(
    "agentworld_call_failures", "Calls of models that failed, by error code", ["code"], registry=REGISTRY
)
CALL_ABORTS = Counter(
    "agentworld_call_aborts",
    "Calls of models that ended without a whole reply and without a fault, by code: client_closed_request (also where "
    "the server ended), engine_aborted (the weights changed)",
    ["code"], registry=REGISTRY,
)  # fmt: skip
BACKGROUND_FAILURES = Counter(
    "agentworld_background_failures", "Failures of what goes on beside the calls, by task", ["task"], registry=REGISTRY
)
CAPTURE_FAILURES = Counter(
    "agentworld_capture_failures", "Replies, failures and aborted replies that the pool did not take, by error code",
    ["code"], registry=REGISTRY,
)  # fmt: skip
QUARANTINED = Counter(
    "agentworld_quarantined_steps", "Steps that the gateway did not trust token for token, by model", ["model"],
    registry=REGISTRY,
)  # fmt: skip
FORKS = Counter("agentworld_forks", "Steps that do not plainly go on, by reason", ["reason"], registry=REGISTRY)
CONTINUED = Counter(
    "agentworld_continued_turns",
    "Turns in token-in mode that go on from a step, by whether they extend its ids bit for bit",
    ["model", "extended"], registry=REGISTRY,
)  # fmt: skip
ENGINE = Counter(
    "agentworld_engine_events",
    "By model, engine and kind: calls, failures, aborted, retries, failovers, refused (queue), resubmitted",
    ["model", "engine", "kind"], registry=REGISTRY,
)  # fmt: skip
ENGINE_STATE = Gauge(
    "agentworld_engine_state", "By model, engine and kind: in_flight, waiting (queue depth)",
    ["model", "engine", "kind"], registry=REGISTRY, multiprocess_mode="livesum",
)  # fmt: skip
ENGINE_DOWN = Gauge(
    "agentworld_engine_unhealthy_workers", "How many workers hold an engine for unwell", ["model", "engine"],
    registry=REGISTRY, multiprocess_mode="livesum",
)  # fmt: skip
EVENTS = ("calls", "failures", "aborted", "retries", "failovers", "refused", "resubmitted")
STATES = ("in_flight", "waiting")
SYNC_SECONDS = 1.0
# The library looks a counter up by its labels anew each time, under a lock. Models are those of the settings.
_tokens = functools.cache(TOKENS.labels)
_NO_FAULTS = ("client_closed_request", "engine_aborted")


def unanswered(code: str) -> None:
    """Count a call that got no whole reply."""
    (CALL_ABORTS if code in _NO_FAULTS else CALL_FAILURES).labels(code).inc()


def answered(call: Call, steps: Iterable[Step], usage: Usage | None) -> None:
    """Count a call whose reply is durable."""
    prompt = sampled = 0
    for step in steps:
        if step.response_ids is not None and step.prompt_ids is not None:
            sampled += len(step.response_ids)
            prompt = len(step.prompt_ids) or prompt
        if step.fork_reason is not None:
            FORKS.labels(step.fork_reason).inc()
        if (step.excluded_reason or "").startswith("quarantined"):
            QUARANTINED.labels(call.model).inc()
        if step.choice_index == 0 and step.token_source == "token-in" and call.match is not None:
            CONTINUED.labels(call.model, "true" if _extends(call, step) else "false").inc()
    if usage is not None:
        prompt, sampled = usage.prompt_tokens, usage.completion_tokens
    TALLIES.count(_tokens(call.model, "prompt"), prompt)
    TALLIES.count(_tokens(call.model, "sampled"), sampled)


def _extends(call: Call, step: Step) -> bool:
    """Whether the prompt begins with all ids of the step that it goes on from."""
    if call.metadata.get("prompt") == "bridged":
        return True  # That is what a bridge is.
    before = call.match.tip.ids if call.match is not None else None
    if before is None or step.prompt_ids is None:
        return False
    return common_prefix(before, token_array(step.prompt_ids)) == len(before)


class Stopwatch:
    """Sums up the time that a request waits for others: its client's body, a place at an engine, the reply's pieces."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._waited = 0.0
        self._since: float | None = None

    def wait(self) -> None:
        """From now on others are waited for."""
        if self._since is None:
            self._since = time.perf_counter()

    def work(self) -> None:
        """From now on the gateway works."""
        if self._since is not None:
            self._waited += time.perf_counter() - self._since
            self._since = None

    @property
    def added(self) -> float:
        """Seconds so far in which nobody was waited for."""
        self.work()
        return max(time.perf_counter() - self._begun - self._waited, 0.0)


class EngineMetrics:
    """Copies the counters of this worker's engines to those of all workers, every second."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str, str], int] = {}

    def sync(self, figures: Iterable[EngineFigures]) -> None:
        """Count what came since the last time."""
        for each in figures:
            for kind in EVENTS:
                key, now = (each.model, each.engine, kind), getattr(each, kind)
                ENGINE.labels(*key).inc(now - self._told.get(key, 0))
                self._told[key] = now
            for kind in STATES:
                ENGINE_STATE.labels(each.model, each.engine, kind).set(getattr(each, kind))
            ENGINE_DOWN.labels(each.model, each.engine).set(not each.healthy)
