"""Trajectories in a pool for runs of checks."""

from agentworld.curation.running import CurateSettings, plan_of, run_curation
from agentworld.records import Message, NewTrajectory, Policy, Step


def put(pool, name, *replies, reward=None, status="finished", step=None, **new):
    """A trajectory with these replies, each a step after the one before, ended unless `status` is None."""
    pool.create_trajectory(NewTrajectory(trajectory_id=name, **new))
    said = [Message(role="user", content="What is it?")]
    steps = []
    for number, replied in enumerate(replies or (f"It is {name}.",)):
        answer = Message(role="assistant", content=replied)
        fields = {
            "step_id": f"{name}-{number}",
            "trajectory_id": name,
            "prompt_messages": list(said),
            "response_message": answer,
            "parent_step_id": steps[-1].step_id if steps else None,
            "policy": Policy("m", "r", 0),
            **(step or {}),
        }
        steps.append(Step(**fields))
        said += [answer, Message(role="user", content="And then?")]
    assert [one.outcome for one in pool.append_steps(steps)] == ["stored"] * len(steps)
    if status is not None:
        pool.complete_trajectory(name, status, reward)
    return [one.step_id for one in steps]


def planned(*names, channel=None, reviews=None, **thresholds):
    """The plan of these checks, of all where none is named."""
    settings = {"run": names or ("all",), "channel": channel, "checks": thresholds, "reviews": reviews or {}}
    return plan_of(_convert(settings))


def _convert(settings):
    from agentworld.config import convert

    return convert(settings, CurateSettings, "test")


def check(pool, *names, **settings):
    """A pass of these checks."""
    return run_curation(pool, planned(*names, **settings))


def found(pool, name):
    """The labels of checks on a trajectory, by check."""
    labels = pool.get_trajectory(name).labels
    return {key.removeprefix("check."): value for key, value in labels.items() if key.startswith("check.")}


def found_on_steps(pool, name):
    """The labels of checks on the steps of a trajectory."""
    steps = pool.list_steps(trajectory_id=name, limit=1000).items
    return {one.step_id: {key: value for key, value in one.labels.items() if key != "checked"} for one in steps}


def everything(pool):
    """All labels of all trajectories and steps."""
    names = [one.trajectory_id for one in pool.list_trajectories(limit=1000).items]
    return {name: (pool.get_trajectory(name).labels, found_on_steps(pool, name)) for name in names}
