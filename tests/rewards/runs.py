"""Trajectories for tests."""

from agentworld.records import BatchTrajectory, FunctionCall, Message, Step, ToolCall, Trajectory
from agentworld.rewards import RolloutGroup


def run_of(*replies, trajectory_id="t", question="What is it?", **trajectory):
    """A finished trajectory with these replies: texts, or messages."""
    steps = []
    for number, reply in enumerate(replies):
        message = reply if isinstance(reply, Message) else Message(role="assistant", content=reply)
        steps.append(
            Step(
                step_id=f"{trajectory_id}-s{number}",
                trajectory_id=trajectory_id,
                parent_step_id=f"{trajectory_id}-s{number - 1}" if number else None,
                prompt_messages=[Message(role="user", content=question)],
                response_message=message,
                response_ids=list(range(10 * (number + 1))),
            )
        )
    fields = {"status": "finished", "step_count": len(steps), **trajectory}
    return BatchTrajectory(trajectory=Trajectory(trajectory_id=trajectory_id, **fields), steps=steps)


def group_of(*runs):
    """A group of trajectories, or of replies that each make one."""
    members = [
        run if isinstance(run, BatchTrajectory) else run_of(run, trajectory_id=f"t{place}")
        for place, run in enumerate(runs)
    ]
    return RolloutGroup(group_id="g", members=tuple(members))


def calling(*calls):
    """A reply that makes these calls, (name, arguments as text)."""
    made = tuple(
        ToolCall(id=f"call_{place}", function=FunctionCall(name=name, arguments=arguments))
        for place, (name, arguments) in enumerate(calls)
    )
    return Message(role="assistant", content=None, tool_calls=made)
