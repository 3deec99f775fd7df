"""Pools with trajectories for evaluators."""

import itertools

from agentworld.records import Message, NewTrajectory, Step
from agentworld.rewards.registry import evaluators_from
from agentworld.rewards.running import plan_of

_numbers = itertools.count()
MODULE = "tests.rewards.counting_evaluators"


def put(pool, trajectory_id, *replies, end="finished", **new):
    """A trajectory with these replies, each a step, ended unless `end` is None."""
    pool.create_trajectory(NewTrajectory(trajectory_id=trajectory_id, **new))
    for replied in replies:
        add_step(pool, trajectory_id, replied)
    if end is not None:
        pool.complete_trajectory(trajectory_id, end)


def add_step(pool, trajectory_id, replied, **fields):
    """One more step."""
    step = Step(
        step_id=f"{trajectory_id}-s{next(_numbers)}",
        trajectory_id=trajectory_id,
        prompt_messages=[Message(role="user", content="How many?")],
        response_message=Message(role="assistant", content=replied),
        response_ids=[1, 2, 3],
        **fields,
    )
    [result] = pool.append_steps([step])
    return result


def planned(*tables, only=()):
    return plan_of(evaluators_from(list(tables)), only)


def counting(function, log, **fields):
    """The table of a function of `counting_evaluators`, run in this process."""
    parameters = {"log": str(log), **fields.pop("parameters", {})}
    return {"kind": f"{MODULE}:{function}", "isolation": "none", "parameters": parameters, **fields}


def failures(pool, **chosen):
    """Failed evaluations: evaluator, target, error."""
    page = pool.list_evaluations(state="failed", limit=1000, **chosen)
    return {(one.evaluator, one.target, one.target_id): one.error for one in page.items}
