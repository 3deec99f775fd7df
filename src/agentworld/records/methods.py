"""What training methods need of the data: one table, which leases, their check and the documentation go by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from agentworld.records.step import LogprobSpace

Unit = Literal["step", "trajectory", "group", "pair"]
# on_policy: the gradient is that of the policy that sampled, so what is older needs a correction that the method does
# not have. bounded: ratios of log-probabilities correct for some versions of lag. any: who sampled does not matter.
Freshness = Literal["on_policy", "bounded", "any"]

STEP_REWARD = "step_reward"
REFERENCE, TEACHER, VALUES = "reference_logprobs", "teacher_logprobs", "values"
"""Names of the annotations that methods know: one number a reply token each."""


class Method(NamedTuple):
    """What one method needs.

    `rollouts`: fewest of a group that give a signal; 1 where the unit is no group. `needs`: what every step of a unit
    must have, in the words of `BatchSpec.require`. `takes_text`: messages may stand in the place of ids. `rewarded`:
    only trajectories with a primary reward are taken. `uses`: annotations that it uses where they were required too.
    `spaces`: log-probability spaces in which the recorded numbers can be compared with a trainer's own; () where none
    are compared. `source`: where the method is from.
    """

    name: str
    unit: Unit
    needs: tuple[str, ...]
    rewarded: bool
    freshness: Freshness
    source: str
    rollouts: int = 1
    takes_text: bool = False
    uses: tuple[str, ...] = ()
    spaces: tuple[LogprobSpace, ...] = ()


_SPACES: tuple[LogprobSpace, ...] = ("raw", "temperature", "processed")
_TEXT, _IDS, _RATIO = ("tokens",), ("tokens",), ("tokens", "logprobs")


def _clipped(name: str, source: str, uses: tuple[str, ...] = (REFERENCE,)) -> Method:
    """A group-relative method whose loss is a ratio to the log-probabilities at sampling."""
    return Method(name, "group", _RATIO, True, "bounded", source, rollouts=2, uses=uses, spaces=_SPACES)


METHODS: dict[str, Method] = {
    each.name: each
    for each in (
        Method("sft", "trajectory", _TEXT, False, "any", "maximum likelihood", takes_text=True),
        Method("dpo", "pair", _TEXT, False, "any", "arXiv:2305.18290", takes_text=True, uses=(REFERENCE,)),
        Method("kto", "trajectory", _TEXT, True, "any", "arXiv:2402.01306", takes_text=True, uses=(REFERENCE,)),
        Method("prm", "trajectory", (*_TEXT, STEP_REWARD), False, "any", "arXiv:2305.20050", takes_text=True),
        Method("reinforce", "trajectory", _IDS, True, "on_policy", "doi:10.1007/BF00992696"),
        Method("rloo", "group", _IDS, True, "on_policy", "arXiv:2402.14740", rollouts=2, uses=(REFERENCE,)),
        Method("reinforce_pp", "trajectory", _RATIO, True, "bounded", "arXiv:2501.03262", uses=(REFERENCE,),
               spaces=_SPACES),
        Method("ppo", "trajectory", _RATIO, True, "bounded", "arXiv:1707.06347", uses=(VALUES, REFERENCE),
               spaces=_SPACES),
        _clipped("grpo", "arXiv:2402.03300"),
        _clipped("dr_grpo", "arXiv:2503.20783", uses=()),
        _clipped("dapo", "arXiv:2503.14476", uses=()),
        _clipped("gspo", "arXiv:2507.18071"),
        _clipped("gigpo", "arXiv:2505.10978"),
        Method("distill", "trajectory", (*_IDS, f"annotation.{TEACHER}"), False, "bounded", "arXiv:2306.13649"),
    )
}  # fmt: skip

METHOD_UNITS: dict[str, Unit] = {name: method.unit for name, method in METHODS.items()}
"""The unit that a method trains on, unless the spec names one."""


def required_by(method: str, named: Sequence[str]) -> tuple[str, ...]:
    """What every step must have: the method's needs, and what the spec names.

    Where a method takes texts and the spec names messages but no tokens, they stand in the place of ids. Of a method
    that is not in the table only what is named counts, or tokens where nothing is.
    """
    known = METHODS.get(method)
    if known is None:
        return tuple(dict.fromkeys(named)) or ("tokens",)
    needs = known.needs
    if known.takes_text and "messages" in named and "tokens" not in named:
        needs = tuple(need for need in needs if need != "tokens")
    return tuple(dict.fromkeys((*needs, *named)))
