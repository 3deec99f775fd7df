"""From rewards to advantages for steps and tokens; pure numpy, formulas with their sources."""

from agentworld.credit.advantages import equal_groups, group_relative
from agentworld.credit.steps import StepCredit, spread, to_tokens

__all__ = ["StepCredit", "equal_groups", "group_relative", "spread", "to_tokens"]
