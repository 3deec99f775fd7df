"""The cells: one base, and others that differ from it in one thing."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from agentworld.errors import ConfigError

Runtime = Literal["loop", "openai", "langgraph"]
Tokens = Literal["sampled", "retokenised"]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What one cell does. `axis`: what it varies. `lesson`: of task_sets.LESSONS. `method`: of the trainer.

    `lag`: versions that the weights which sample are behind those that are trained. `corrected`: whether ratios are to
    the log-probabilities at sampling, or, as if nothing lagged, to those of the weights that are trained.
    `corrupted`: share of the training rewards that are turned round. `curated`: whether a policy of curation keeps back
    rollouts whose reward is at odds with what they did. `tokens`: whether what is trained on are the ids that were
    sampled, or those that the texts come to. `settings`: of the trainer, over the base's.
    """

    name: str
    axis: str
    what: str
    lesson: str = "sums"
    method: str = "grpo"
    runtime: Runtime = "loop"
    merging: Literal["auto", "on", "off"] = "auto"
    lag: int = 0
    corrected: bool = True
    corrupted: float = 0.0
    curated: bool = False
    tokens: Tokens = "sampled"
    settings: dict[str, Any] = {}


BASE = Cell(name="base", axis="base", what="GRPO on sums, white-box loop, everything as it comes")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much of each. `teacher_tasks`, `epochs`: what the start is fine-tuned on. `evaluation_tasks`: held out.

    `iterations`: batches that are sampled and trained on, each of `groups` tasks x `rollouts`.
    """

    iterations: int
    teacher_tasks: int = 800
    epochs: int = 6
    evaluation_tasks: int = 200
    groups: int = 16
    rollouts: int = 8


ITERATIONS_A_MINUTE = 8
"""Of rollouts and training on two idle cores, less what starting and evaluating take."""


def plan_for(minutes: float) -> Plan:
    """The plan whose run takes about `minutes` on two idle cores. It goes by a count, so that load changes nothing."""
    if not 0 < minutes <= 24 * 60:
        raise ConfigError(f"minutes must be over 0 and at most 1440, not {minutes}", path="--minutes")
    return Plan(iterations=max(1, round(ITERATIONS_A_MINUTE * minutes)))


def _method(name: str, what: str, **settings: Any) -> Cell:
    return Cell(name=name.replace("_", "-"), axis="method", what=what, method=name, settings=settings)


_METHODS = (
    _method("dr_grpo", "advantages without the division, sums divided by a constant"),
    _method("rloo", "leave-one-out baseline, no ratio, one update a batch", rows_per_update=1024),
    _method("reinforce_pp", "advantages normalised over the batch, clipped ratio"),
    _method("gspo", "one ratio for a whole rollout"),
    _method("dapo", "every token counts alike, clip higher, groups of equal reward skipped"),
    _method(
        "ppo",
        "values of a head on the model, GAE by token, the last turn as an end",
        critic="head",
        credit={"method": "gae", "parameters": {"per": "token"}, "truncated": "terminal"},
    ),
    _method("sft", "rejection sampling: imitation of the rollouts that were rewarded"),
    _method("dpo", "best and worst of each group as a pair"),
    _method("distill", "reverse KL to a teacher on the student's own tokens, no rewards"),
)
_STALENESS = tuple(
    Cell(
        name=f"lag-{lag}{'' if corrected else '-uncorrected'}",
        axis="staleness",
        what=f"sampled by weights {lag} version{'s' if lag > 1 else ''} back, "
        f"{'ratios to these' if corrected else 'as if there were no lag'}",
        lag=lag,
        corrected=corrected,
    )
    for lag in (1, 4, 16)
    for corrected in (True, False)
)
CELLS: dict[str, Cell] = {
    cell.name: cell
    for cell in (
        BASE,
        *_METHODS,
        Cell(name="corrupted", axis="curation", what="30% of the training rewards turned round", corrupted=0.3),
        Cell(
            name="corrupted-curated",
            axis="curation",
            what="the same, and a policy keeps back rollouts whose reward is at odds with what they did",
            corrupted=0.3,
            curated=True,
        ),
        Cell(name="curated", axis="curation", what="the policy alone, on right rewards", curated=True),
        *_STALENESS,
        Cell(name="openai", axis="runtime", what="the `openai` script as a command", runtime="openai"),
        Cell(name="langgraph", axis="runtime", what="a LangGraph agent as a command", runtime="langgraph"),
        Cell(name="long-sums", axis="task set", what="sums of six numbers: six turns", lesson="long-sums"),
        Cell(name="conversion", axis="task set", what="numbers in another base, another tool", lesson="conversion"),
        Cell(name="text-game", axis="task set", what="text games of textworld", lesson="text-game"),
        Cell(
            name="merging-off", axis="merging", what="each row computed by itself, none as token trees", merging="off"
        ),
        Cell(name="retokenised", axis="tokens", what="the ids that the texts come to", tokens="retokenised"),
    )
}


def chosen(names: list[str] | tuple[str, ...]) -> list[Cell]:
    """The cells of these names or axes, all without any; ConfigError names what there is."""
    found: list[Cell] = []
    for name in names:
        cells = [cell for cell in CELLS.values() if name in (cell.name, cell.axis)]
        if not cells:
            raise ConfigError(f"there is no cell {name!r}", path="CELL", hint=f"There are: {', '.join(CELLS)}")
        found.extend(cell for cell in cells if cell not in found)
    return found or list(CELLS.values())
