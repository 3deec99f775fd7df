"""Which weights speak, as the pool hears of it. verl tells its version, the number of the step after which the weights
were synchronised, with each reply; the first one with new weights publishes them, before its step is stored.
"""

from __future__ import annotations

from typing import Protocol

from agentworld.errors import ConflictError
from agentworld.pool.protocol import GatewayState
from agentworld.records import Policy

MARK = "~"


class PolicyBoard(Protocol):
    """The part of a pool that this needs."""

    def gateway_state(self) -> GatewayState:
        """See Pool.gateway_state."""

    def set_policy(self, policy: Policy) -> Policy:
        """See Pool.set_policy."""


def run_that_speaks(board: PolicyBoard, model: str, run: str) -> str:
    """The name under which versions count now: `run`, or what `go_on` made of it after a restart."""
    current = board.gateway_state().policies.get(model)
    return current.run if current is not None and current.run.partition(MARK)[0] == run else run


def go_on(board: PolicyBoard, model: str, run: str, step: int) -> Policy:
    """Publish the weights that training goes on from. Where newer ones have spoken, whose steps the checkpoint does not
    contain, versions begin to count again under another name (`run~1`), as the same numbers come to mean others.
    """
    current = board.gateway_state().policies.get(model)
    name = run_that_speaks(board, model, run)
    if current is not None and current.run == name and current.version > step:
        name = f"{run}{MARK}{int(name.partition(MARK)[2] or 0) + 1}"
    return board.set_policy(Policy(model, name, step))


def publish(board: PolicyBoard, policy: Policy) -> None:
    """Tell the pool of weights that have spoken; that others were quicker is no error."""
    current = board.gateway_state().policies.get(policy.model)
    if current is not None and current.run == policy.run and current.version >= policy.version:
        return
    try:
        board.set_policy(policy)
    except ConflictError:
        return  # Another process has told of newer ones meanwhile.
