"""One call between its admission and its commit: who asked what of whom, and what the prompt was."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from agentworld.dialects.exchange import Request
from agentworld.forest import Match, TokenArray
from agentworld.records import LogprobSpace, Policy, Sampling, TokenSource, Tool, new_id


class Call(msgspec.Struct, kw_only=True):
    """Fixed at admission, apart from what the engine reports.

    `tools`: those that the model saw. `keys`: match keys of the messages; `tools_key`: digest of the tools; `match`:
    the step that is continued. `prompt_ids` only in token-in. `sampling`: what the engine was told. `space`: the space
    of its log-probabilities unless it names another. `demand_ids`: a reply without ids is quarantined, not text-only.
    `renderer`: digest of the renderer of `prompt_ids`. `after_failure`: set where the call is the retry of one that
    failed or was left, and so repeats no other: the steps that were left half done, by choice. `anonymous`: digest of
    the API key of a call that names no trajectory. `created_at`: seconds since the epoch; `started`: on the monotonic
    clock. `only_group`, `only_channel`: see Exchange. `size`: about how many bytes the request is. `sequences`: step id
    -> prompt and reply in one array, once they are planned.
    """

    trajectory_id: str
    request: Request
    model: str
    policy: Policy
    sampling: Sampling
    keys: Sequence[bytes]
    tools_key: bytes
    group_id: str | None = None
    only_group: str | None = None
    only_channel: str | None = None
    channel: str = "train"
    agent: str | None = None
    tools: list[Tool] = []
    match: Match | None = None
    source: TokenSource = "engine"
    demand_ids: bool = False
    prompt_ids: list[int] | None = None
    vocabulary: str | None = None
    space: LogprobSpace = "raw"
    renderer: str | None = None
    metadata: dict[str, Any] = {}
    body_digest: str = ""
    size: int = 0
    retry_count: int = 0
    after_failure: dict[int, str] | None = None
    anonymous: bytes | None = None
    exchange_id: str = msgspec.field(default_factory=lambda: new_id("exc"))
    created_at: float = msgspec.field(default_factory=time.time)
    started: float = msgspec.field(default_factory=time.monotonic)
    step_ids: list[str] = []
    sequences: dict[str, TokenArray] = {}

    def step_id(self, index: int) -> str:
        """The id of the step that choice `index` becomes. The first has the exchange's own, so that who knows the reply
        by its exchange finds the step by its key.
        """
        if not self.step_ids:
            self.step_ids.append(first_step_id(self.exchange_id))
        while len(self.step_ids) <= index:
            self.step_ids.append(new_id("stp"))
        return self.step_ids[index]


def first_step_id(exchange_id: str) -> str:
    """The id of an exchange's first step."""
    return f"stp_{exchange_id.removeprefix('exc_')}"
