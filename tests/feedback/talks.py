"""Conversations to give feedback on."""

from agentworld.records import FunctionCall, Message, NewTrajectory, Step, ToolCall


def said(text, *calls):
    tools = tuple(ToolCall(id=f"c{n}", function=FunctionCall(*call)) for n, call in enumerate(calls))
    return Message(role="assistant", content=text, tool_calls=tools)


def asked(text):
    return Message(role="user", content=text)


class Talk:
    """Steps of one trajectory, put into a pool as they are sampled."""

    def __init__(self, pool, trajectory_id="t", **settings):
        self.pool, self.trajectory_id, self._count = pool, trajectory_id, 0
        pool.create_trajectory(NewTrajectory(trajectory_id=trajectory_id, **settings))

    def sample(self, prompt, reply, **changes):
        """One step; returns its id."""
        reply = said(reply) if isinstance(reply, str) else reply
        step = Step(
            step_id=f"{self.trajectory_id}-{self._count}",
            trajectory_id=self.trajectory_id,
            prompt_messages=list(prompt),
            response_message=reply,
            **changes,
        )
        self._count += 1
        assert self.pool.append_steps([step])[0].outcome in ("stored", "late")
        return step.step_id

    def end(self, status="finished"):
        self.pool.complete_trajectory(self.trajectory_id, status)
